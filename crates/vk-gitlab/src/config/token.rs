//! Whether a text can be a runner's token, and what else of GitLab's it is.

/// The longest text taken for a token: GitLab's have less than a hundred characters.
pub(super) const LONGEST: usize = 512;

/// GitLab's tokens that are no runner's, by prefix, and what they are.
const OTHERS: [(&str, &str); 17] = [
    ("glpat-", "a personal, project or group access token"),
    ("glptt-", "a pipeline trigger token"),
    ("GR1348941", "a registration token"),
    ("glcbt-", "a job's token"),
    ("gldt-", "a deploy token"),
    ("gloas-", "an application's secret"),
    ("glsoat-", "a service account's token"),
    ("glft-", "a feed token"),
    ("glimt-", "an incoming mail token"),
    ("glagent-", "a token of the agent for Kubernetes"),
    ("glffct-", "a feature flags client token"),
    ("glwt-", "a workspace token"),
    ("_gitlab_session=", "a session cookie"),
    ("ghp_", "a token of GitHub's"),
    ("github_pat_", "a token of GitHub's"),
    ("glrt-", "a runner's token"),
    ("glrtr-", "a runner's token"),
];

/// Where to get the right one.
const REMEDY: &str = "write a runner's token there, glrt-…: GitLab shows it once when a runner is \
                      created, and when its token is reset";

/// What GitLab calls a token that begins so; none where its beginning says nothing.
pub(super) fn kind(text: &str) -> Option<&'static str> {
    let other = OTHERS.iter().find(|(prefix, _)| text.starts_with(prefix));
    other.map(|(_, kind)| *kind)
}

/// What is wrong with a text as a runner's token, without a character of it (CFG-14, CRED-01).
///
/// # Errors
/// It cannot be one.
pub(super) fn check(text: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {REMEDY}"));
    if text.is_empty() {
        return wrong("the token is empty");
    }
    if text.len() > LONGEST {
        return wrong(&format!("the token is longer than {LONGEST} characters"));
    }
    if text.starts_with('\u{feff}') {
        return wrong("a byte order mark stands before the token");
    }
    if text.contains(['\n', '\r']) {
        return wrong("the token has more than one line");
    }
    if text.starts_with(['"', '\'', '`']) {
        return wrong("the token stands in quotes");
    }
    let bad = text.chars().position(|one| !one.is_ascii_graphic());
    if let Some(at) = bad {
        let one = text.chars().nth(at).unwrap_or_default();
        let what = match one {
            ' ' | '\t' => "a blank",
            one if one.is_control() => "a control character",
            one if one.is_whitespace() => "a blank",
            _ => "a letter outside ASCII",
        };
        return wrong(&format!("{what} is the token's character {}", at + 1));
    }
    match kind(text) {
        Some("a runner's token") if text.ends_with("rt-") || text.ends_with("rtr-") => {
            wrong("the token is cut off behind its prefix")
        }
        Some("a runner's token") | None => Ok(()),
        Some(kind) => wrong(&format!("this is {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-14
    #[test]
    fn what_a_runner_may_go_by_is_taken() {
        let long = "x".repeat(LONGEST);
        for good in [
            "glrt-t1_abcdefghijkl",
            "glrt-abcdefghijkl",
            "glrt-dDoxCnU6MQpwOjMKdToxCw.01.120abcdef",
            "glrtr-abcdefghijkl",
            "t1_abcdefghijkl",
            "AbCdEfGhIjKlMnOpQrSt",
            "acme-rt-abcdefghijkl",
            &long,
        ] {
            check(good).unwrap();
        }
    }
}
