//! From the model to a pipeline: rules decided for one set of variables.

mod scope;

use std::collections::{BTreeMap, BTreeSet};

use crate::expression::{Lookup, Patterns};
use crate::faults::Faults;
use crate::model::{JobModel, Model, Rule, RuleWhen};
use crate::pipeline::{AllowFailure, Job, Pipeline, Variable, When};
use crate::{ConfigError, Context};
use scope::Scope;

type Variables = BTreeMap<String, Variable>;

/// Decides all rules.
pub(crate) fn decide(
    file: &str,
    model: &Model,
    context: &Context,
) -> Result<Pipeline, ConfigError> {
    let mut faults = Faults::default();
    let mut patterns = Patterns::default();
    let Some(variables) = workflow(model, context, &mut patterns, &mut faults) else {
        return Err(faults.into_error(file));
    };
    let mut jobs = Vec::new();
    for job in &model.jobs {
        faults.enter(Some(&job.named.name));
        jobs.extend(decided(
            job,
            &variables,
            context,
            &mut patterns,
            &mut faults,
        ));
    }
    faults.enter(None);
    check(&jobs, &mut faults);
    needs(model, &mut jobs, &mut faults);
    let stages = model.stages.iter();
    let stages = stages.filter(|stage| jobs.iter().any(|job| job.stage == **stage));
    let pipeline = Pipeline {
        stages: stages.cloned().collect(),
        variables,
        jobs,
    };
    faults.or(file, pipeline)
}

/// The global variables, with those of the rule of `workflow` that matches.
fn workflow(
    model: &Model,
    context: &Context,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<Variables> {
    let mut variables = model.variables.clone();
    let Some(rules) = &model.workflow else {
        return Some(variables);
    };
    let scope = Scope {
        context,
        variables: &variables,
        job: None,
    };
    let left_out = match first(rules, &scope, patterns, faults) {
        Err(()) => return None,
        Ok(Some(rule)) if rule.when != Some(RuleWhen::Never) => {
            variables.extend(rule.variables.clone());
            return Some(variables);
        }
        Ok(Some(_)) => "`workflow:rules` leaves this pipeline out",
        Ok(None) => "no rule of `workflow:rules` matches this pipeline",
    };
    let hint = "check the variables that its rules look at";
    faults.add(None, left_out, hint);
    None
}

/// The first rule that matches; an error where one cannot be decided.
fn first<'a>(
    rules: &'a [Rule],
    variables: &dyn Lookup,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Result<Option<&'a Rule>, ()> {
    for rule in rules {
        let Some((at, expression)) = &rule.condition else {
            return Ok(Some(rule));
        };
        match expression.holds(variables, patterns) {
            Ok(true) => return Ok(Some(rule)),
            Ok(false) => {}
            Err(undecided) => {
                let what = format!("this `if` cannot be decided: {}", undecided.0);
                let hint = "write it as `/pattern/` in RE2's syntax";
                faults.add(*at, what, hint);
                return Err(());
            }
        }
    }
    Ok(None)
}

/// A job as its rules make it; nothing where they leave it out.
fn decided(
    job: &JobModel,
    global: &Variables,
    context: &Context,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<Job> {
    let mut variables = global.clone();
    variables.extend(job.variables.clone());
    let mut when = job.when;
    let mut allow_failure = job.allow_failure.clone();
    if let Some(rules) = &job.rules {
        let scope = Scope {
            context,
            variables: &variables,
            job: Some(job),
        };
        let rule = first(rules, &scope, patterns, faults).ok().flatten()?;
        match rule.when {
            Some(RuleWhen::Never) => return None,
            Some(RuleWhen::Run(of_rule)) => when = of_rule,
            None => {}
        }
        if let Some(all) = rule.allow_failure {
            allow_failure = AllowFailure::All(all);
        }
        variables.extend(rule.variables.clone());
    }
    Some(made(job, variables, when, allow_failure))
}

fn made(job: &JobModel, variables: Variables, when: When, allow_failure: AllowFailure) -> Job {
    Job {
        name: job.named.name.clone(),
        stage: job.stage.name.clone(),
        image: job.image.clone(),
        script: job.script.clone(),
        after_script: job.after_script.clone(),
        variables,
        artifacts: job.artifacts.clone(),
        caches: job.caches.clone(),
        pre_get_sources: job.pre_get_sources.clone(),
        needs: None,
        dependencies: None,
        timeout_secs: job.timeout_secs,
        allow_failure,
        when,
        tags: job.tags.clone(),
        retry: job.retry.clone(),
    }
}

/// GitLab makes no pipeline of no job, nor of jobs of `.pre` and `.post` only.
fn check(jobs: &[Job], faults: &mut Faults) {
    if faults.any() {
        return;
    }
    let hint = "check the variables that the rules of the jobs look at";
    if jobs.is_empty() {
        faults.add(None, "the rules leave no job in the pipeline", hint);
    } else if jobs
        .iter()
        .all(|job| matches!(job.stage.as_str(), ".pre" | ".post"))
    {
        let what = "the rules leave only jobs of `.pre` and `.post` in the pipeline";
        faults.add(None, what, hint);
    }
}

/// Gives each job the needs and dependencies that are in the pipeline.
fn needs(model: &Model, jobs: &mut [Job], faults: &mut Faults) {
    let names: BTreeSet<String> = jobs.iter().map(|job| job.name.clone()).collect();
    let models: BTreeMap<&str, &JobModel> = model
        .jobs
        .iter()
        .map(|job| (job.named.name.as_str(), job))
        .collect();
    for job in jobs {
        let Some(model) = models.get(job.name.as_str()) else {
            continue;
        };
        faults.enter(Some(&job.name));
        resolve(model, job, &names, faults);
        faults.enter(None);
    }
}

fn resolve(model: &JobModel, job: &mut Job, names: &BTreeSet<String>, faults: &mut Faults) {
    let named = model.dependencies.as_ref().map(|named| {
        let names = named.iter().map(|named| named.name.as_str());
        names.collect::<BTreeSet<&str>>()
    });
    let Some(needs) = &model.needs else {
        job.dependencies = named.map(|named| {
            let there = named.into_iter().filter(|name| names.contains(*name));
            there.map(String::from).collect()
        });
        return;
    };
    let mut wanted = Vec::new();
    let mut dependencies = Vec::new();
    for need in needs {
        let name = &need.job.name;
        if !names.contains(name) {
            if !need.optional {
                let what = format!("it needs `{name}`, which the rules leave out");
                let hint = "give both the same rules, or write `{job: …, optional: true}`";
                faults.add(need.job.at, what, hint);
            }
            continue;
        }
        wanted.push(name.clone());
        let asked = named
            .as_ref()
            .is_none_or(|named| named.contains(name.as_str()));
        if need.artifacts && asked {
            dependencies.push(name.clone());
        }
    }
    job.needs = Some(wanted);
    job.dependencies = Some(dependencies);
}
