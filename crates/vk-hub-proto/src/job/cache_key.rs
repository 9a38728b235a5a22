//! Cache keys made fit to be paths (SPEC-03, PORT-34; behaviour of gitlab-runner's cachekey): the
//! daemon does it to a job's own keys, the node to the one that it reads from a variable.

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sanitized {
    /// It is fit as it is.
    Same,
    /// It was changed.
    Changed(String),
    /// Nothing of it is left.
    Nothing,
}

/// Makes a key fit: percent-encoded slashes and dots and backslashes count as what they stand for,
/// the path is cleaned inside a root of its own, and white space at the end of segments that would
/// be last goes. An empty key stays empty.
#[must_use]
pub fn sanitize(key: &str) -> Sanitized {
    if key.is_empty() {
        return Sanitized::Same;
    }
    let mut segments = Vec::new();
    let decoded = decode(key);
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    while let Some(last) = segments.pop() {
        match last.trim_end() {
            "" | "." => {}
            // White space had hidden what it is.
            ".." => {
                segments.pop();
            }
            trimmed => {
                segments.push(trimmed);
                break;
            }
        }
    }
    if segments.is_empty() {
        return Sanitized::Nothing;
    }
    let clean = segments.join("/");
    if clean == key {
        Sanitized::Same
    } else {
        Sanitized::Changed(clean)
    }
}

/// One pass from the left: what it makes is not decoded again.
fn decode(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(c) = rest.chars().next() {
        let code = rest.get(..3).unwrap_or_default();
        let (made, used) = match code {
            "%2f" | "%2F" => ('/', 3),
            "%2e" | "%2E" => ('.', 3),
            _ if c == '\\' => ('/', 1),
            _ => (c, c.len_utf8()),
        };
        out.push(made);
        rest = rest.get(used..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests;
