//! From a project's configuration to the pipeline that is run.

use std::collections::{BTreeMap, BTreeSet};

use vk_ci_config::{AllowFailure, ArtifactsWhen, Cache, Image, Job, Pipeline};

use super::error::RunError;
use crate::gitlab::spec::{
    self, AllowFailure as SpecFailure, ArtifactsSpec, CacheSpec, ImageSpec, JobSpec, PipelineSpec,
    RetrySpec, Variable, VariableSpec, When,
};

/// A job's timeout where neither it nor the configuration says one: GitLab's own.
const TIMEOUT_SECS: u64 = 3_600;

/// The pipeline of a configuration whose rules are decided.
///
/// `project` names the project's variables, which win over those of the file.
pub(super) fn pipeline(decided: Pipeline, project: &BTreeSet<&str>) -> PipelineSpec {
    let jobs = decided.jobs.into_iter();
    PipelineSpec {
        project: None,
        git_ref: None,
        source: Some("push".into()),
        stages: decided.stages,
        // They stand in each job's variables too.
        variables: BTreeMap::new(),
        jobs: jobs.map(|decided| job(decided, project)).collect(),
    }
}

fn job(job: Job, project: &BTreeSet<&str>) -> JobSpec {
    let artifacts = job.artifacts.map(|artifacts| ArtifactsSpec {
        name: artifacts.name,
        paths: artifacts.paths,
        exclude: artifacts.exclude,
        untracked: artifacts.untracked,
        when: kept(artifacts.when),
        expire_in: artifacts.expire_in,
        reports: artifacts.reports,
    });
    let own = job.variables.into_iter();
    let variables = own.filter(|(name, _)| !project.contains(name.as_str()));
    JobSpec {
        name: job.name,
        stage: job.stage,
        image: job.image.map(image),
        script: job.script,
        after_script: job.after_script,
        variables: variables.map(variable).collect(),
        artifacts,
        cache: job.caches.into_iter().map(cache).collect(),
        pre_get_sources_script: job.pre_get_sources,
        needs: job.needs,
        dependencies: job.dependencies,
        timeout_secs: job.timeout_secs.unwrap_or(TIMEOUT_SECS),
        allow_failure: match job.allow_failure {
            AllowFailure::All(all) => SpecFailure::All(all),
            AllowFailure::ExitCodes { exit_codes } => SpecFailure::ExitCodes { exit_codes },
        },
        when: match job.when {
            vk_ci_config::When::OnSuccess => When::OnSuccess,
            vk_ci_config::When::OnFailure => When::OnFailure,
            vk_ci_config::When::Always => When::Always,
            vk_ci_config::When::Manual => When::Manual,
        },
        tags: job.tags,
        retry: RetrySpec {
            max: job.retry.max,
            when: job.retry.when,
            exit_codes: job.retry.exit_codes,
        },
        response: None,
    }
}

fn kept(when: ArtifactsWhen) -> When {
    match when {
        ArtifactsWhen::OnSuccess => When::OnSuccess,
        ArtifactsWhen::OnFailure => When::OnFailure,
        ArtifactsWhen::Always => When::Always,
    }
}

fn cache(cache: Cache) -> CacheSpec {
    CacheSpec {
        key: cache.key,
        paths: cache.paths,
        untracked: cache.untracked,
        unprotect: cache.unprotect,
        policy: cache.policy,
        when: kept(cache.when),
        fallback_keys: cache.fallback_keys,
    }
}

fn image(image: Image) -> ImageSpec {
    match image.entrypoint {
        None => ImageSpec::Name(image.name),
        entrypoint => ImageSpec::Full(spec::Image {
            name: image.name,
            entrypoint,
        }),
    }
}

fn variable((name, variable): (String, vk_ci_config::Variable)) -> (String, VariableSpec) {
    let full = Variable {
        value: variable.value,
        raw: variable.raw,
        ..Variable::default()
    };
    (name, VariableSpec::Full(full))
}

/// Keeps the named jobs and all that must end before them; nothing is left out where none is named.
/// Manual jobs that are named are started by that.
pub(super) fn choose(spec: &mut PipelineSpec, names: &[String]) -> Result<(), RunError> {
    if names.is_empty() {
        return Ok(());
    }
    let known: BTreeSet<&str> = spec.jobs.iter().map(|job| job.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
        let list: Vec<&str> = known.into_iter().collect();
        return Err(RunError::Option {
            option: "--job",
            why: format!(
                "the pipeline has no job {unknown:?}; it has {}",
                list.join(", ")
            ),
        });
    }
    let kept = wanted(spec, names);
    spec.jobs.retain(|job| kept.contains(&job.name));
    for job in &mut spec.jobs {
        if names.contains(&job.name) && job.when == When::Manual {
            job.when = When::OnSuccess;
        }
        for list in [&mut job.needs, &mut job.dependencies]
            .into_iter()
            .flatten()
        {
            list.retain(|name| kept.contains(name));
        }
    }
    Ok(())
}

fn wanted(spec: &PipelineSpec, names: &[String]) -> BTreeSet<String> {
    let stages = spec.stage_order();
    let manual = |job: &JobSpec| job.when == When::Manual && !names.contains(&job.name);
    let mut kept: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<&str> = names.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let found = spec.jobs.iter().find(|job| job.name == name);
        // A manual job that nobody asked for runs in no case.
        let Some(job) = found.filter(|job| !manual(job)) else {
            continue;
        };
        if kept.insert(job.name.clone()) {
            open.extend(spec.predecessors(job, &stages));
            let sources = job.dependencies.iter().flatten();
            open.extend(sources.map(String::as_str));
        }
    }
    kept
}

/// Every tag that a job asks for: the one runner has them all.
pub(super) fn tags(spec: &PipelineSpec) -> Vec<String> {
    let all: BTreeSet<&String> = spec.jobs.iter().flat_map(|job| &job.tags).collect();
    all.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PipelineSpec {
        let text = r#"{"stages":["a","b","c"],"jobs":[
            {"name":"one","stage":"a","script":["x"],"tags":["big"]},
            {"name":"two","stage":"a","script":["x"],"tags":["big","arm"]},
            {"name":"by-hand","stage":"b","script":["x"],"when":"manual"},
            {"name":"needs","stage":"c","script":["x"],"needs":["two"]},
            {"name":"last","stage":"c","script":["x"]}]}"#;
        serde_json::from_str(text).unwrap()
    }

    fn chosen(names: &[&str]) -> Vec<(String, When)> {
        let mut spec = spec();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        choose(&mut spec, &names).unwrap();
        spec.check().unwrap();
        let jobs = spec.jobs.into_iter();
        jobs.map(|job| (job.name, job.when)).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        chosen(names).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn named_jobs_come_with_what_they_need() {
        assert_eq!(names(&[]).len(), 5);
        assert_eq!(names(&["needs"]), ["two", "needs"]);
        assert_eq!(names(&["last"]), ["one", "two", "last"]);
        let by_hand = chosen(&["by-hand"]);
        assert_eq!(by_hand[2], ("by-hand".to_owned(), When::OnSuccess));
    }

    #[test]
    fn a_job_that_is_not_there_is_told_with_those_that_are() {
        let error = choose(&mut spec(), &["nope".into()]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("\"nope\"") && text.contains("by-hand"),
            "{text}"
        );
        assert!(error.is_of_input());
    }

    #[test]
    fn the_runner_has_every_tag() {
        assert_eq!(tags(&spec()), ["arm", "big"]);
    }
}
