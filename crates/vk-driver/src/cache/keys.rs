//! Which keys a restore tries.

use vk_hub_proto::job::{Sanitized, sanitize};

/// What a restore tries, in order, and what is to be said before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidates {
    pub(crate) keys: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// The variable's key came to nothing.
    pub(crate) skipped_empty: bool,
}

/// The cache's own key, its fallback keys, then `CACHE_FALLBACK_KEY` (CACHE-18). The first ones are
/// as GitLab sent them after expansion (CACHE-22); the variable's is made fit here, and may not name
/// what a protected ref saved.
pub(crate) fn candidates(key: &str, fallbacks: &[String], variable: Option<&str>) -> Candidates {
    let own = std::iter::once(key).chain(fallbacks.iter().map(String::as_str));
    let mut found = Candidates {
        keys: own
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect(),
        ..Candidates::default()
    };
    let Some(raw) = variable.filter(|raw| !raw.is_empty()) else {
        return found;
    };
    let fit = match sanitize(raw) {
        Sanitized::Same => raw.to_owned(),
        Sanitized::Changed(fit) => {
            let line = format!("cache key {raw:?} sanitized to {fit:?}");
            found.warnings.push(line);
            fit
        }
        Sanitized::Nothing => {
            let line = format!("cache key {raw:?} could not be sanitized");
            found.warnings.push(line);
            found.skipped_empty = true;
            return found;
        }
    };
    if fit.trim_end_matches(['.', ' ']).ends_with("-protected") {
        let line = format!("CACHE_FALLBACK_KEY {raw:?} not allowed to end in \"-protected\"");
        found.warnings.push(line);
    } else {
        found.keys.push(fit);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variable: &str) -> (Vec<String>, Vec<String>) {
        let found = candidates("key", &["second".to_owned()], Some(variable));
        (found.keys, found.warnings)
    }

    /// CACHE-18
    #[test]
    fn the_key_then_its_fallbacks_then_the_variable_are_tried() {
        let (keys, warnings) = of("third");
        assert_eq!(keys, ["key", "second", "third"]);
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(candidates("key", &[], None).keys, ["key"]);
        assert_eq!(candidates("key", &[String::new()], Some("")).keys, ["key"]);
    }

    /// CACHE-18
    #[test]
    fn the_variable_never_leads_to_a_protected_cache() {
        for raw in [
            "main-protected",
            "main-protected.",
            "main-protected. .",
            "x/main-protected/",
        ] {
            let (keys, warnings) = of(raw);
            assert_eq!(keys, ["key", "second"], "{raw}");
            let refused = warnings.last().unwrap();
            assert!(
                refused.ends_with("not allowed to end in \"-protected\""),
                "{refused}"
            );
        }
        assert_eq!(of("main-non_protected").0.len(), 3);
    }

    #[test]
    fn the_variable_is_made_fit_and_what_was_done_is_said() {
        let (keys, warnings) = of("hello.%2e..there  ");
        assert_eq!(keys[2], "hello....there");
        assert_eq!(
            warnings,
            ["cache key \"hello.%2e..there  \" sanitized to \"hello....there\""]
        );
        let found = candidates("key", &[], Some(".."));
        assert_eq!(found.keys, ["key"]);
        assert_eq!(found.warnings, ["cache key \"..\" could not be sanitized"]);
        assert!(found.skipped_empty);
    }

    /// CACHE-18: gitlab-runner's own rows.
    #[test]
    fn what_gitlab_runner_makes_of_a_variable_is_made_of_it_here() {
        let long = "0_project/foo/../dependencies-a1b2-non_protected";
        for (variable, third) in [
            ("test-fallback-cache-key", Some("test-fallback-cache-key")),
            (r"looks\like\a\win\path", Some("looks/like/a/win/path")),
            ("foo/bar/baz", Some("foo/bar/baz")),
            (".", None),
            ("..", None),
            (" /  ", None),
            (long, Some("0_project/dependencies-a1b2-non_protected")),
        ] {
            let (keys, warnings) = of(variable);
            assert_eq!(keys.get(2).map(String::as_str), third, "{variable}");
            assert_eq!(warnings.is_empty(), third == Some(variable), "{variable}");
        }
        let doubled =
            r#"cache key "looks\\like\\a\\win\\path" sanitized to "looks/like/a/win/path""#;
        assert_eq!(of(r"looks\like\a\win\path").1, [doubled]);
    }

    /// CACHE-22
    #[test]
    fn keys_of_the_job_are_tried_as_they_were_sent() {
        let sent = "deps-1-non_protected";
        assert_eq!(candidates(sent, &[], None).keys, [sent]);
        let protected = "deps-1-protected".to_owned();
        assert_eq!(
            candidates(sent, std::slice::from_ref(&protected), None).keys[1],
            protected
        );
    }
}
