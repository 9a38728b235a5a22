//! Which images a node lets in, and when it asks their registry.

use vk_oci::{Reference, ReferenceError};

use crate::pattern;
use crate::pull::PullPolicy;

/// A node's settings for images.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The image of a job that names none.
    pub default_image: Option<String>,
    /// Patterns of allowed names (`*` within a part, `**` across parts), matched against the name as
    /// it is written and in full; empty allows all.
    pub allowed_images: Vec<String>,
    /// When a job leaves it open; empty is `always`.
    pub pull_policy: Vec<PullPolicy>,
    /// What a job may ask for; empty is what `pull_policy` says.
    pub allowed_pull_policies: Vec<PullPolicy>,
    /// Whom a job may name as the user of its scripts, word by word; empty allows all. Who is named
    /// by the image alone is allowed.
    pub allowed_users: Vec<String>,
}

/// Of an operator's list, so much is shown to a job.
const SHOWN: usize = 20;

/// What the rules make of a job's wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The image.
    pub reference: Reference,
    /// Policies to be tried in order, at least one.
    pub policies: Vec<PullPolicy>,
}

/// A wish against the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No image, and no default.
    #[error(
        "the job names no image and this node has no default: set `image:` in the job, or a default image on the node"
    )]
    NoImage,
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] ReferenceError),
    /// A name that no pattern fits.
    #[error("image {name:?} is not allowed on this node; allowed are {}", shown(.allowed))]
    NotAllowed {
        /// As it was asked for.
        name: String,
        /// The patterns.
        allowed: Vec<String>,
    },
    /// A user that is not on the list.
    #[error("user {user:?} is not allowed on this node; allowed are {}", shown(.allowed))]
    User {
        /// As it was asked for.
        user: String,
        /// The list.
        allowed: Vec<String>,
    },
    /// Policies of which none is allowed.
    #[error("invalid pull policy for image {name:?}: pull_policy ({}) is not one of the allowed_pull_policies ({})", list(.asked), list(.allowed))]
    PullPolicy {
        /// As it was asked for.
        name: String,
        /// The job's.
        asked: Vec<PullPolicy>,
        /// The node's.
        allowed: Vec<PullPolicy>,
    },
}

impl Rules {
    /// The image and policies for a job's name (empty where it has none) and policies (empty where it
    /// leaves them open).
    ///
    /// # Errors
    /// A wish against the rules; each is an error of configuration.
    pub fn resolve(&self, name: &str, asked: &[PullPolicy]) -> Result<Choice, RuleError> {
        let name = match (name.trim(), &self.default_image) {
            ("", Some(default)) => default.as_str(),
            ("", None) => return Err(RuleError::NoImage),
            (name, _) => name,
        };
        let reference: Reference = name.parse()?;
        self.check_name(name, &reference)?;
        let policies = self.policies(name, asked)?;
        Ok(Choice {
            reference,
            policies,
        })
    }

    /// Whether a job may have its scripts run as `user`, whom it names itself; empty where it leaves
    /// that to its image.
    ///
    /// # Errors
    /// One that is not allowed, an error of configuration.
    pub fn check_user(&self, user: &str) -> Result<(), RuleError> {
        let is_listed = self.allowed_users.iter().any(|allowed| allowed == user);
        if user.is_empty() || self.allowed_users.is_empty() || is_listed {
            return Ok(());
        }
        Err(RuleError::User {
            user: user.into(),
            allowed: self.allowed_users.clone(),
        })
    }

    /// The node's default is allowed without being listed.
    fn check_name(&self, name: &str, reference: &Reference) -> Result<(), RuleError> {
        let full = reference.to_string();
        let familiar = reference.familiar();
        let fits = |pattern: &String| {
            [name, &full, &familiar]
                .iter()
                .any(|form| pattern::matches(pattern, form))
        };
        let is_default = self.default_image.as_deref() == Some(name);
        if self.allowed_images.is_empty() || is_default || self.allowed_images.iter().any(fits) {
            return Ok(());
        }
        Err(RuleError::NotAllowed {
            name: name.into(),
            allowed: self.allowed_images.clone(),
        })
    }

    fn policies(&self, name: &str, asked: &[PullPolicy]) -> Result<Vec<PullPolicy>, RuleError> {
        let own = match self.pull_policy.as_slice() {
            [] => &[PullPolicy::Always],
            own => own,
        };
        let allowed = match self.allowed_pull_policies.as_slice() {
            [] => own,
            allowed => allowed,
        };
        let wanted = if asked.is_empty() { own } else { asked };
        let policies: Vec<_> = wanted
            .iter()
            .copied()
            .filter(|policy| allowed.contains(policy))
            .collect();
        if policies.is_empty() {
            let (asked, allowed) = (wanted.to_vec(), allowed.to_vec());
            return Err(RuleError::PullPolicy {
                name: name.into(),
                asked,
                allowed,
            });
        }
        Ok(policies)
    }
}

/// As much of a list as a message may have.
fn shown(list: &[String]) -> String {
    let first: Vec<&str> = list.iter().take(SHOWN).map(String::as_str).collect();
    let first = first.join(", ");
    match list.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn list(policies: &[PullPolicy]) -> String {
    let names: Vec<String> = policies
        .iter()
        .map(|policy| format!("[{policy}]"))
        .collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    use PullPolicy::{Always, IfNotPresent, Never};

    fn rules(allowed: &[&str]) -> Rules {
        Rules {
            allowed_images: allowed.iter().map(ToString::to_string).collect(),
            ..Rules::default()
        }
    }

    /// SPEC-39, SPEC-81
    #[test]
    fn a_job_without_an_image_gets_the_nodes_default() {
        let rules = Rules {
            default_image: Some("debian:12".into()),
            ..rules(&["alpine"])
        };
        let choice = rules.resolve("", &[]).unwrap();
        assert_eq!(choice.reference.to_string(), "docker.io/library/debian:12");
        assert_eq!(choice.policies, [Always]);
        assert_eq!(Rules::default().resolve(" ", &[]), Err(RuleError::NoImage));
    }

    /// SPEC-39
    #[test]
    fn only_allowed_images_are_let_in_however_they_are_written() {
        let rules = rules(&["debian:*", "registry.example.com/**"]);
        for name in [
            "debian:12",
            "docker.io/library/debian:12",
            "debian",
            "registry.example.com/a/b",
        ] {
            assert!(rules.resolve(name, &[]).is_ok(), "{name}");
        }
        for name in ["alpine", "evil.com/debian:12", "docker.io/other/debian:12"] {
            let error = rules.resolve(name, &[]).unwrap_err();
            assert!(matches!(error, RuleError::NotAllowed { .. }), "{name}");
            assert!(
                error.to_string().contains("registry.example.com/**"),
                "{error}"
            );
        }
        assert!(matches!(
            rules.resolve("Bad Name", &[]),
            Err(RuleError::Name(_))
        ));
    }

    /// SPEC-39
    #[test]
    fn a_jobs_policies_are_those_the_node_allows_in_the_jobs_order() {
        let open = Rules {
            allowed_pull_policies: vec![Always, IfNotPresent],
            ..Rules::default()
        };
        assert_eq!(
            open.resolve("a", &[IfNotPresent, Never, Always])
                .unwrap()
                .policies,
            [IfNotPresent, Always]
        );
        assert_eq!(open.resolve("a", &[]).unwrap().policies, [Always]);
        let error = open.resolve("a", &[Never]).unwrap_err().to_string();
        assert!(
            error.contains("([never])") && error.contains("([always] [if-not-present])"),
            "{error}"
        );
        assert!(
            Rules::default().resolve("a", &[IfNotPresent]).is_err(),
            "the node's own policy binds"
        );
    }
    /// SPEC-39
    #[test]
    fn a_job_names_no_user_that_is_not_listed() {
        let rules = Rules {
            allowed_users: vec!["1000".into(), "build:build".into()],
            ..Rules::default()
        };
        for user in ["", "1000", "build:build"] {
            assert_eq!(rules.check_user(user), Ok(()), "{user}");
            assert_eq!(Rules::default().check_user(user), Ok(()), "{user}");
        }
        for user in ["root", "0", "build", "1000:0", " 1000"] {
            let said = rules.check_user(user).unwrap_err().to_string();
            assert!(said.ends_with("allowed are 1000, build:build"), "{said}");
        }
    }

    #[test]
    fn a_long_list_is_not_shown_whole() {
        let many: Vec<String> = (0..23).map(|n| format!("image-{n}")).collect();
        let rules = Rules {
            allowed_images: many,
            ..Rules::default()
        };
        let said = rules.resolve("debian", &[]).unwrap_err().to_string();
        assert!(said.ends_with("image-18, image-19 and 3 more"), "{said}");
    }
}
