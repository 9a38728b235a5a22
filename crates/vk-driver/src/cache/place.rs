//! Where a job's caches are kept: repository, tags, and by whose right.

use std::time::Instant;

use vk_hub_proto::job::CiJob;
use vk_oci::{Digest, Reference, ReferenceError};

use crate::context::Caches;

/// Where, for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The registry's host and port, and the repository.
    pub(crate) name: String,
    /// By the job's token, in a repository that names the protection.
    pub(crate) of_job: bool,
    /// Whether the job's ref is protected.
    pub(crate) protected: bool,
}

/// Why a job has no caches here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Skip {
    #[error("this node keeps no caches; its owner names a registry for them as [registry] repo")]
    NoRegistry,
    #[error("this node's settings of its registry cannot be used: {0}")]
    Unusable(String),
    /// CACHE-12, and a server whose name makes none.
    #[error("{name:?} is no repository's name: {what}")]
    BadName { name: String, what: &'static str },
    /// CACHE-13
    #[error("the job's registry token has expired")]
    Expired,
    /// CACHE-15
    #[error(
        "this node keeps caches only with a job's own registry token, and the job came without one \
         for a cache repository"
    )]
    NoToken,
}

impl Place {
    /// Decides by the node's settings and what came with the job's start.
    pub(crate) fn of(caches: &Caches, job: &CiJob, now: Instant) -> Result<Place, Skip> {
        let Some(repo) = caches.repo.as_deref() else {
            return Err(Skip::NoRegistry);
        };
        if let Some(why) = &caches.unusable {
            return Err(Skip::Unusable(why.clone()));
        }
        let repo = repo.trim_end_matches('/');
        let granted = caches.granted.as_ref();
        let granted = granted.and_then(|grant| Some((grant, grant.repository.as_deref()?)));
        let (name, of_job) = match granted {
            // Beside the node's own prefix, not below it (CACHE-10).
            Some((grant, repository)) => {
                let host = repo.split('/').next().unwrap_or_default();
                let name = format!("{host}/{repository}");
                check(&name)?;
                if grant.expires_at <= now {
                    return Err(Skip::Expired);
                }
                (name, true)
            }
            None if caches.job_token_only => return Err(Skip::NoToken),
            None => {
                let own = job.project_repository();
                (format!("{repo}/ci-cache/{own}"), false)
            }
        };
        check(&name)?;
        Ok(Place {
            name,
            of_job,
            protected: job.is_protected(),
        })
    }

    /// Where the cache of a key is. The key is taken as it was sent (CACHE-22).
    pub(crate) fn at(&self, key: &str) -> Result<Reference, ReferenceError> {
        format!("{}:{}", self.name, self.tag(key)).parse()
    }

    /// CACHE-04, CACHE-11, CACHE-16
    fn tag(&self, key: &str) -> String {
        let protection = match self.protected {
            true => "protected",
            false => "unprotected",
        };
        match self.of_job {
            true => Digest::of(key.as_bytes()).hex(),
            false => Digest::of(format!("{key}\n{protection}").as_bytes()).hex(),
        }
    }
}

/// A name that a registry takes: it reads back as itself.
fn check(name: &str) -> Result<(), Skip> {
    let bad = |what| Skip::BadName {
        name: name.chars().take(300).collect(),
        what,
    };
    let reference = format!("{name}:x").parse::<Reference>();
    let reference = reference.map_err(|error| bad(error.what))?;
    match reference.name().eq_ignore_ascii_case(name) {
        true => Ok(()),
        false => Err(bad("it begins with no registry's host or host:port")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::context::CacheGrant;
    use crate::testing::job;

    fn caches() -> Caches {
        Caches {
            repo: Some("registry.example.com:5000/vk/".to_owned()),
            ..Caches::default()
        }
    }

    fn granted(repository: Option<&str>, left: Duration) -> Caches {
        let grant = CacheGrant {
            username: "job".to_owned(),
            token: vk_oci::Password::new("token".to_owned()),
            expires_at: Instant::now() + left,
            repository: repository.map(str::to_owned),
        };
        Caches {
            granted: Some(grant),
            ..caches()
        }
    }

    fn of(caches: &Caches) -> Result<Place, Skip> {
        Place::of(caches, &job(), Instant::now())
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// CACHE-01, CACHE-03, CACHE-16
    #[test]
    fn the_repository_is_the_projects_below_the_nodes_own() {
        for (url, repository) in [
            (
                "https://gitlab.example.com",
                "ci-cache/gitlab.example.com/3",
            ),
            (
                "https://GitLab.Example.com/",
                "ci-cache/gitlab.example.com/3",
            ),
            (
                "https://gitlab.example.com:443",
                "ci-cache/gitlab.example.com/3",
            ),
            (
                "http://gitlab.example.com:8080",
                "ci-cache/gitlab.example.com-8080/3",
            ),
            (
                "https://example.com/Git/Lab/",
                "ci-cache/example.com/git/lab/3",
            ),
            ("http://[fd00::1]:8080", "ci-cache/fd00--1-8080/3"),
            ("http://[::1]", "ci-cache/1/3"),
        ] {
            let mut job = job();
            job.server_url = url.to_owned();
            let place = Place::of(&caches(), &job, Instant::now()).unwrap();
            let name = format!("registry.example.com:5000/vk/{repository}");
            assert_eq!((place.name, place.of_job), (name, false), "{url}");
        }
    }

    /// CACHE-04, CACHE-05, CACHE-16, CACHE-22
    #[test]
    fn a_tag_is_the_hash_of_the_key_as_sent_and_the_protection() {
        let place = of(&caches()).unwrap();
        let protected = Place {
            protected: true,
            ..place.clone()
        };
        // printf 'deps-1-non_protected\nunprotected' | sha256sum
        let tag = "b58ad34cf5f9952d38726b6f140050b311bd4a4d0cdbd9949c4749946176b306";
        assert_eq!(place.tag("deps-1-non_protected"), tag);
        let tag = "3c59970b222e54453c54c4685a7bf9cb108c86997bdcfa33f92ebb80396ddb8f";
        assert_eq!(protected.tag("deps-1-non_protected"), tag);
        assert_eq!(place.at("any key/at all\n").unwrap().name(), place.name);
    }

    /// CACHE-10, CACHE-11
    #[test]
    fn with_a_cache_repository_it_is_exactly_that_and_the_tag_the_hash_of_the_key_alone() {
        let place = of(&granted(Some("caches/g/p/protected"), HOUR)).unwrap();
        assert_eq!(place.name, "registry.example.com:5000/caches/g/p/protected");
        assert!(place.of_job);
        assert_eq!(place.tag("abc"), Digest::of(b"abc").hex());
    }

    /// CACHE-12
    #[test]
    fn a_repository_that_is_none_is_skipped_by_name() {
        for bad in [
            "",
            "UPPER/case",
            "a//b",
            "/a",
            "a/../b",
            "a:b",
            "a@b",
            "a b",
        ] {
            let skip = of(&granted(Some(bad), HOUR)).unwrap_err();
            assert!(matches!(skip, Skip::BadName { .. }), "{bad}: {skip}");
        }
        let mut odd = job();
        odd.server_url = "https://gitlab.example.com/~user".to_owned();
        let skip = Place::of(&caches(), &odd, Instant::now()).unwrap_err();
        assert!(skip.to_string().contains("~user"), "{skip}");
        // Docker Hub is meant by nobody.
        let nowhere = Caches {
            repo: Some("vk".to_owned()),
            ..caches()
        };
        assert!(matches!(of(&nowhere), Err(Skip::BadName { .. })));
    }

    /// CACHE-13
    #[test]
    fn an_expired_token_is_not_used() {
        let caches = granted(Some("caches/g/p"), HOUR);
        let later = Instant::now() + HOUR;
        assert_eq!(Place::of(&caches, &job(), later), Err(Skip::Expired));
        assert!(of(&caches).is_ok());
    }

    /// CACHE-14, CACHE-15, OPEN-02
    #[test]
    fn without_a_cache_repository_the_nodes_own_credential_serves_unless_it_may_not() {
        for mut caches in [caches(), granted(None, HOUR)] {
            let place = of(&caches).unwrap();
            assert!(!place.of_job && place.name.contains("/vk/ci-cache/"));
            caches.job_token_only = true;
            assert_eq!(of(&caches), Err(Skip::NoToken));
        }
        let mut own = granted(Some("caches/g/p"), HOUR);
        own.job_token_only = true;
        assert!(of(&own).unwrap().of_job);
        assert_eq!(of(&Caches::default()), Err(Skip::NoRegistry));
        let why = "cannot read registry.ca_file".to_owned();
        own.unusable = Some(why.clone());
        assert_eq!(of(&own), Err(Skip::Unusable(why)));
    }
}
