//! The file as it was read: typed, with the places that later errors name.

use std::collections::BTreeMap;

use crate::Position;
use crate::expression::Expression;
use crate::pipeline::{AllowFailure, Artifacts, Cache, Image, Retry, Variable, When};

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// The name.
    pub(crate) name: String,
    /// Where it stands.
    pub(crate) at: Position,
}

/// The whole file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// Stages in order, `.pre` and `.post` included.
    pub(crate) stages: Vec<String>,
    /// Global variables.
    pub(crate) variables: BTreeMap<String, Variable>,
    /// `workflow:rules`.
    pub(crate) workflow: Option<Vec<Rule>>,
    /// The jobs in order.
    pub(crate) jobs: Vec<JobModel>,
}

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct JobModel {
    /// Its name and place.
    pub(crate) named: Named,
    /// Its stage.
    pub(crate) stage: Named,
    /// Its image.
    pub(crate) image: Option<Image>,
    /// `before_script` and `script`.
    pub(crate) script: Vec<String>,
    /// `after_script`.
    pub(crate) after_script: Vec<String>,
    /// Its own variables.
    pub(crate) variables: BTreeMap<String, Variable>,
    /// Its artifacts.
    pub(crate) artifacts: Option<Artifacts>,
    /// Its caches.
    pub(crate) caches: Vec<Cache>,
    /// `hooks:pre_get_sources_script`.
    pub(crate) pre_get_sources: Vec<String>,
    /// `needs`.
    pub(crate) needs: Option<Vec<Need>>,
    /// `dependencies`.
    pub(crate) dependencies: Option<Vec<Named>>,
    /// `timeout` in seconds.
    pub(crate) timeout_secs: Option<u64>,
    /// `allow_failure`, or what `when` makes of it.
    pub(crate) allow_failure: AllowFailure,
    /// `when`.
    pub(crate) when: When,
    /// `rules`.
    pub(crate) rules: Option<Vec<Rule>>,
    /// `tags`.
    pub(crate) tags: Vec<String>,
    /// `retry`.
    pub(crate) retry: Retry,
}

/// An entry of `needs`.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    /// The job.
    pub(crate) job: Named,
    /// Whether its artifacts are wanted.
    pub(crate) artifacts: bool,
    /// Whether it may be missing.
    pub(crate) optional: bool,
}

/// An entry of `rules`.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// `if` and its place; a rule without one always matches.
    pub(crate) condition: Option<(Position, Expression)>,
    /// `when`.
    pub(crate) when: Option<RuleWhen>,
    /// `allow_failure`.
    pub(crate) allow_failure: Option<bool>,
    /// `variables`.
    pub(crate) variables: BTreeMap<String, Variable>,
}

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleWhen {
    /// It runs then.
    Run(When),
    /// It is left out.
    Never,
}
