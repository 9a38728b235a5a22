//! Repository URLs without credentials (SPEC-21).

/// The URL without user information, also where it does not parse as one; without `://` it is no
/// URL that could be fetched and becomes empty.
#[must_use]
pub fn clean_repo_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return String::new();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The project's path, from a clean URL: for responses that lack it.
pub(crate) fn project_path(url: &str) -> String {
    let path = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    let path = path.map_or("", |(_, path)| path);
    path.strip_suffix(".git")
        .unwrap_or(path)
        .trim_matches('/')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC-21
    #[test]
    fn a_repository_url_loses_its_credentials() {
        let rows = [
            (
                "https://gitlab-ci-token:testTokenHere1234@gitlab.example.com/test/test-project.git",
                "https://gitlab.example.com/test/test-project.git",
            ),
            (
                "https://gitlab.example.com/a/b.git",
                "https://gitlab.example.com/a/b.git",
            ),
            ("https://u:p@ss@host:8080/a@b", "https://host:8080/a@b"),
            ("https://u:p%zz@host", "https://host"),
            ("git@host:a/b.git", ""),
            ("", ""),
        ];
        for (url, clean) in rows {
            assert_eq!(clean_repo_url(url), clean, "{url}");
        }
        assert_eq!(
            project_path("https://gitlab.example.com/test/web.git"),
            "test/web"
        );
    }
}
