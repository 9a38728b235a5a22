//! Where a submodule's repository is, and whether this node goes there.

use crate::git::credential::origin;

/// SSH URLs of the job's own server, and the HTTP URL that stands for them
/// (`GIT_SUBMODULE_FORCE_HTTPS`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewrites {
    prefixes: Vec<String>,
    base: String,
}

impl Rewrites {
    /// Those of a server by its SSH host and port, as GitLab's variables have them, to its URL.
    pub(crate) fn of_server(host: &str, port: &str, base: &str) -> Rewrites {
        let base = base.trim_end_matches('/').to_owned();
        let prefixes = match (host, port) {
            ("", _) => Vec::new(),
            (host, "" | "22") => vec![
                format!("git@{host}:"),
                format!("ssh://git@{host}/"),
                format!("ssh://git@{host}:22/"),
            ],
            (host, port) => vec![format!("ssh://git@{host}:{port}/")],
        };
        Rewrites { prefixes, base }
    }

    fn apply(&self, url: &str) -> Option<String> {
        let rest = self.prefixes.iter().find_map(|one| url.strip_prefix(one))?;
        Some(format!("{}/{}", self.base, rest.trim_start_matches('/')))
    }
}

/// The URL of a submodule, by its superproject's where it is relative.
///
/// # Errors
/// Why this node does not go there, in words for the job's owner.
pub(super) fn resolve(parent: &str, url: &str, rewrites: &Rewrites) -> Result<String, String> {
    let whole = if url.starts_with("./") || url.starts_with("../") {
        relative(parent, url)
            .ok_or_else(|| format!("its url {url:?} leads out of the server of {parent:?}"))?
    } else {
        rewrites.apply(url).unwrap_or_else(|| url.to_owned())
    };
    let odd = |c: char| c.is_control() || c == ' ';
    let is_ssh = whole.starts_with("ssh://") || (!whole.contains("://") && whole.contains('@'));
    match origin(&whole) {
        Some(_) if whole.len() <= 4096 && !whole.contains(odd) => Ok(whole),
        _ if is_ssh => Err(format!(
            "its url {url:?} is one of SSH, and this node fetches by HTTP alone: \
             GIT_SUBMODULE_FORCE_HTTPS: \"true\" rewrites those of the job's own GitLab; a relative \
             url does, too"
        )),
        _ => Err(format!(
            "its url {url:?} is none of HTTP without a user's name and password"
        )),
    }
}

/// As git resolves it; none where it would leave the server.
fn relative(parent: &str, url: &str) -> Option<String> {
    let host = origin(parent)?;
    // In the parent's own spelling, port and all.
    let scheme = parent.find("://")? + 3;
    let path_at = parent
        .get(scheme..)?
        .find('/')
        .map_or(parent.len(), |at| scheme + at);
    debug_assert!(!host.is_empty());
    let (server, path) = parent.split_at(path_at);
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut rest = url;
    loop {
        if let Some(after) = rest.strip_prefix("../") {
            parts.pop()?;
            rest = after;
        } else if let Some(after) = rest.strip_prefix("./") {
            rest = after;
        } else {
            break;
        }
    }
    let rest = rest.trim_matches('/');
    if rest.is_empty() || rest.split('/').any(|part| part == "..") {
        return None;
    }
    parts.push(rest);
    Some(format!("{server}/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_urls_are_of_the_superprojects_server() {
        let parent = "https://gitlab.example.com:8443/g/sub/p.git";
        for (url, expected) in [
            (
                "../lib.git",
                "https://gitlab.example.com:8443/g/sub/lib.git",
            ),
            (
                "../../other/lib",
                "https://gitlab.example.com:8443/g/other/lib",
            ),
            (
                "./lib.git",
                "https://gitlab.example.com:8443/g/sub/p.git/lib.git",
            ),
            (
                "../../../lib.git",
                "https://gitlab.example.com:8443/lib.git",
            ),
        ] {
            let resolved = resolve(parent, url, &Rewrites::default());
            assert_eq!(resolved.as_deref(), Ok(expected), "{url}");
        }
        for bad in [
            "../../../../lib.git",
            "../../../../../evil.example.com/x",
            "../",
            "../x/../y",
        ] {
            let refused = resolve(parent, bad, &Rewrites::default());
            assert!(refused.is_err(), "{bad}: {refused:?}");
        }
    }

    #[test]
    fn what_git_would_run_or_read_on_the_host_is_no_url() {
        for bad in [
            "ext::sh -c id",
            "file:///etc",
            "/srv/git/p.git",
            "p.git",
            "-u./payload",
            "--upload-pack=id",
            "git://h/p.git",
            "ssh://-oProxyCommand=id/p",
            "https://-oProxyCommand=id/p",
            "https://user:pass@h/p.git",
            "fd::17",
            "https://h/a\nb",
            "http::https://h/p",
            "",
        ] {
            assert!(
                resolve("https://h/p.git", bad, &Rewrites::default()).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn ssh_urls_of_the_own_server_alone_are_rewritten() {
        let base = "https://gitlab.example.com/";
        let plain = Rewrites::of_server("gitlab.example.com", "22", base);
        for (url, expected) in [
            (
                "git@gitlab.example.com:g/lib.git",
                Some("https://gitlab.example.com/g/lib.git"),
            ),
            (
                "ssh://git@gitlab.example.com/g/lib.git",
                Some("https://gitlab.example.com/g/lib.git"),
            ),
            ("git@gitlab.example.com.evil.org:g/lib.git", None),
            ("ssh://git@gitlab.example.com.evil.org/g/lib.git", None),
            ("git@github.example.com:g/lib.git", None),
        ] {
            let resolved = resolve("https://h/p.git", url, &plain);
            assert_eq!(resolved.as_deref().ok(), expected, "{url}");
        }
        let ported = Rewrites::of_server("gitlab.example.com", "2222", base);
        let url = "ssh://git@gitlab.example.com:2222/g/lib.git";
        let resolved = resolve("https://h/p.git", url, &ported);
        assert_eq!(
            resolved.as_deref(),
            Ok("https://gitlab.example.com/g/lib.git")
        );
        let refused = resolve("https://h/p.git", "git@h:x", &Rewrites::default()).unwrap_err();
        assert!(refused.contains("GIT_SUBMODULE_FORCE_HTTPS"), "{refused}");
    }
}
