//! The job's token on its way to git: a file that only git's helper reads (SPEC-22).

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vk_hub_proto::Secret;
use vk_vm::confine::Place;

use super::host::GitError;

/// A token for one server, gone with this value. It stands in no argument, no environment, no URL
/// and no configuration: those name the file, which lies in a directory of its owner alone.
#[derive(Debug)]
pub(crate) struct Credential {
    dir: PathBuf,
    origin: String,
    way: Way,
}

/// What git is told and shown on the way to a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    pub(super) settings: Vec<(String, String)>,
    pub(super) places: Vec<Place>,
}

impl Credential {
    /// Writes the token into the new directory `dir`, for the server of `url` and no other.
    /// `ca` is what that server's certificate is checked by, instead of the host's.
    pub(crate) fn new(
        dir: PathBuf,
        url: &str,
        token: &Secret,
        ca: Option<&Path>,
    ) -> Result<Credential, GitError> {
        let origin = origin(url).ok_or_else(|| GitError::Spec {
            what: "repository URL",
            value: url.to_owned(),
        })?;
        if token.expose().contains(['\n', '\r', '\0']) {
            let what = "job token";
            return Err(GitError::Spec {
                what,
                value: "(hidden)".to_owned(),
            });
        }
        let file = dir.join("credential");
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(GitError::file("make", &dir))?;
        let credential = Credential {
            way: Way {
                settings: settings(&origin, &file, ca),
                places: [Some(dir.as_path()), ca]
                    .into_iter()
                    .flatten()
                    .map(Place::read)
                    .collect(),
            },
            origin,
            dir,
        };
        let mut options = OpenOptions::new();
        let opened = options.create_new(true).write(true).mode(0o600).open(&file);
        let written = opened.and_then(|mut opened| {
            opened.write_all(b"username=gitlab-ci-token\npassword=")?;
            opened.write_all(token.expose().as_bytes())?;
            opened.write_all(b"\n")
        });
        written.map_err(GitError::file("write", &file))?;
        Ok(credential)
    }

    /// What git is told on the way to its server.
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// Its server: scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether a URL is one of its server's.
    pub(super) fn is_for(&self, url: &str) -> bool {
        origin(url).is_some_and(|origin| origin == self.origin)
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, "a job's credential file is left in {}", self.dir.display());
        }
    }
}

fn settings(origin: &str, file: &Path, ca: Option<&Path>) -> Vec<(String, String)> {
    let quoted = file.to_string_lossy().replace('\'', "'\\''");
    let helper = format!("!f() {{ test \"$1\" != get || cat '{quoted}'; }}; f");
    let mut settings = vec![
        // No helper before ours.
        ("credential.helper".to_owned(), String::new()),
        (format!("credential.{origin}.helper"), helper),
        ("http.followRedirects".to_owned(), "initial".to_owned()),
    ];
    if let Some(ca) = ca {
        let name = format!("http.{origin}/.sslCAInfo");
        settings.push((name, ca.display().to_string()));
    }
    settings
}

/// Scheme, host and port of an HTTP URL that holds no credentials, each in one spelling.
pub(super) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.strip_suffix(own_port).unwrap_or(host);
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    let fine = !host.is_empty() && !host.starts_with('-') && host.chars().all(plain);
    fine.then(|| format!("{scheme}://{}", host.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_credentials_or_another_protocol_is_refused() {
        assert_eq!(origin("https://h:1/p.git").as_deref(), Some("https://h:1"));
        assert_eq!(origin("https://H:443/"), origin("https://h"));
        assert_ne!(origin("http://h:443/"), origin("https://h"));
        assert_eq!(origin("http://[::1]:80").as_deref(), Some("http://[::1]"));
        for bad in [
            "",
            "ssh://h/p",
            "file:///p",
            "https://u:p@h/p",
            "https://",
            "ext::sh",
            "https://-oProxyCommand=id/p",
        ] {
            assert_eq!(origin(bad), None, "{bad}");
        }
    }

    /// SPEC-22
    #[test]
    fn the_token_stands_in_a_file_of_its_owner_alone_and_goes_with_its_use() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("c");
        let token = Secret::from("tok-en");
        let credential = Credential::new(private.clone(), "https://h/p.git", &token, None).unwrap();
        for (_, value) in &credential.way().settings {
            assert!(!value.contains("tok-en"));
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&private), mode(&private.join("credential"))),
            (0o700, 0o600)
        );
        drop(credential);
        assert!(!private.exists());
    }
}
