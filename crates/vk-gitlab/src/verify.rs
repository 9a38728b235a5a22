//! `vk-gitlab verify`: what GitLab says of every runner's token (CFG-19).

use std::fmt;

use gitlab_runner_api::VerifyOutcome;

use crate::config::Config;
use crate::operator;

/// What GitLab says of one runner's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The runner.
    pub runner: String,
    /// What is said.
    pub says: Says,
}

/// What GitLab says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// It is taken.
    Taken {
        /// GitLab's number of the runner; 0 where it does not say.
        id: u64,
        /// When the token expires, as GitLab writes it; none for never.
        expires: Option<String>,
    },
    /// It is not known to GitLab.
    Refused,
    /// There was no answer that counts.
    Unknown(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runner = &self.runner;
        match &self.says {
            Says::Taken { id, expires } => {
                let expires = expires.as_deref().unwrap_or("never");
                write!(f, "{runner}: taken, runner {id}, expires {expires}")
            }
            Says::Refused => write!(f, "{runner}: refused: GitLab does not know this token"),
            Says::Unknown(why) => write!(f, "{runner}: not known: {why}"),
        }
    }
}

/// Asks about every runner, one after the other. Nothing else is asked, and no state is touched: the
/// daemon may run meanwhile.
///
/// # Errors
/// A file of TLS cannot be used.
pub async fn verify(config: &Config, system_id: &str) -> anyhow::Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for runner in &config.runners {
        let outcome = operator::client(config, runner, system_id)?.verify().await;
        let says = match outcome {
            VerifyOutcome::Taken(verified) => Says::Taken {
                id: verified.id,
                expires: verified.token_expires_at,
            },
            VerifyOutcome::Refused => Says::Refused,
            VerifyOutcome::Unavailable(outcome) => {
                let status = outcome.status;
                let status = status.map_or_else(String::new, |status| format!("status {status} "));
                Says::Unknown(format!("{status}{}", outcome.message).trim_end().to_owned())
            }
        };
        verdicts.push(Verdict {
            runner: runner.name.clone(),
            says,
        });
    }
    Ok(verdicts)
}
