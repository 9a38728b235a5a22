//! Paths as text: clean, relative, split before the first character that is not itself.

/// Whether a pattern has a character that stands for others.
pub(crate) fn has_meta(pattern: &[u8]) -> bool {
    first_meta(pattern).is_some()
}

fn first_meta(pattern: &[u8]) -> Option<usize> {
    let mut escaped = false;
    pattern.iter().position(|byte| {
        if std::mem::take(&mut escaped) {
            return false;
        }
        escaped = *byte == b'\\';
        matches!(byte, b'*' | b'?' | b'[' | b'{')
    })
}

/// A pattern's directory without meta characters, unescaped, and what follows it.
pub(crate) fn split_pattern(pattern: &[u8]) -> (Vec<u8>, &[u8]) {
    let before = first_meta(pattern).unwrap_or(pattern.len());
    let slash = pattern.iter().take(before).rposition(|b| *b == b'/');
    match slash {
        None => (b".".to_vec(), pattern),
        Some(0) => (b"/".to_vec(), pattern.get(1..).unwrap_or_default()),
        Some(at) => {
            let (base, rest) = pattern.split_at_checked(at).unwrap_or((pattern, b""));
            (unescaped(base), rest.get(1..).unwrap_or_default())
        }
    }
}

/// Text with its escapes taken away.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let keep = |byte: &&u8| {
        escaped = !escaped && **byte == b'\\';
        !escaped
    };
    text.iter().filter(keep).copied().collect()
}

/// The segments of a pattern between slashes; a slash in a class or escaped divides as well, as no
/// name holds one.
pub(super) fn segments(pattern: &[u8]) -> impl Iterator<Item = &[u8]> {
    pattern
        .split(|b| *b == b'/')
        .filter(|segment| !segment.is_empty() && *segment != b".")
}

/// `path`, taken from the directory `from` where it is not absolute, as a path below `from` without
/// `.` and `..`: empty for `from` itself, `None` for what is outside. By text alone, as the job's
/// author sees it.
pub(crate) fn relative(from: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let from = clean(from);
    let whole = if path.first() == Some(&b'/') {
        clean(path)
    } else {
        clean_onto(&from, path)
    };
    let below = whole.strip_prefix(from.as_slice())?;
    Some(below.join(&b'/'))
}

fn clean(path: &[u8]) -> Vec<&[u8]> {
    clean_onto(&[], path)
}

/// The segments of `base` and then `path`, `..` taking the one before away.
fn clean_onto<'a>(base: &[&'a [u8]], path: &'a [u8]) -> Vec<&'a [u8]> {
    let mut names = base.to_vec();
    for name in segments(path) {
        if name == b".." {
            names.pop();
        } else {
            names.push(name);
        }
    }
    names
}
