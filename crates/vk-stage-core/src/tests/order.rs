//! Which stage follows what, and how the job ends.

use super::*;

const AFTER_A_FAILURE: [&str; 4] = [
    "after_script",
    "archive_cache_on_failure",
    "upload_artifacts_on_failure",
    "cleanup_file_variables",
];

fn job() -> Job {
    Job::new(plan(&spec(), &[]))
}

/// STAGE-01, STAGE-02, STAGE-03, STAGE-04, STAGE-05
#[test]
fn a_job_runs_gitlab_runners_stages_in_their_order() {
    let mut spec = spec();
    spec.steps.insert(1, step("Release", When::OnSuccess));
    let job = Job::new(plan(&spec, &[])).finish();
    let order = [
        "prepare_executor",
        "prepare_script",
        "get_sources",
        "restore_cache",
        "download_artifacts",
        "step_script",
        "step_release",
        "after_script",
        "archive_cache",
        "upload_artifacts_on_success",
        "cleanup_file_variables",
    ];
    assert_eq!(job.ran, order);
    assert_eq!(job.end, Some(End::default()));
    assert_eq!(job.statuses, [JobStatus::Success]);
    assert_eq!(job.printed, []);
    let last = job.end.unwrap().line();
    assert_eq!(last.to_string(), "Job succeeded");
}

/// STAGE-02, STAGE-03, STAGE-04, STAGE-37, FAIL-28
#[test]
fn a_failing_script_is_followed_by_what_follows_a_failure() {
    let exit = StageEnd::Exit(42);
    let job = job().ends("step_script", &[exit]).finish();
    assert_eq!(job.from("after_script"), AFTER_A_FAILURE);
    assert_eq!(job.statuses, [JobStatus::Failed]);
    let end = job.end.unwrap();
    assert_eq!(end.failure, Some(FailureClass::Script));
    assert_eq!(end.exit_code, Some(42));
    assert_eq!(end.line().to_string(), "Job failed: exit code 42");
}

/// STAGE-02
#[test]
fn a_job_that_fails_before_its_steps_runs_no_after_script() {
    for stage in ["get_sources", "restore_cache", "download_artifacts"] {
        let exit = StageEnd::Exit(1);
        let job = job().ends(stage, &[exit]).finish();
        let mut expected = vec![stage];
        expected.extend(&AFTER_A_FAILURE[1..]);
        assert_eq!(job.from(stage), expected);
        assert_eq!(job.class(), Some(FailureClass::ExternalDependency));
        assert_eq!(job.end.unwrap().exit_code, None);
        assert_eq!(job.statuses, []);
    }
}

#[test]
fn a_job_that_cannot_be_prepared_runs_nothing_more() {
    let ends = [failed(FailureClass::ImagePull)];
    let job = job().ends("prepare_executor", &ends).finish();
    assert_eq!(job.ran, ["prepare_executor"]);
    assert_eq!(job.class(), Some(FailureClass::ImagePull));

    let ends = [StageEnd::Exit(2)];
    let job = super::order::job().ends("prepare_script", &ends).finish();
    assert_eq!(job.ran, ["prepare_executor", "prepare_script"]);
    assert_eq!(job.class(), Some(FailureClass::System));
    let text = "prepare environment: exit code 2. Check \
                https://docs.gitlab.com/runner/shells/#shell-profile-loading for more information";
    assert_eq!(job.message(), Some(text));
}

#[test]
fn artifacts_go_as_the_script_ended_whatever_became_of_the_cache() {
    let ends = [failed(FailureClass::System)];
    let job = job().ends("archive_cache", &ends).finish();
    let rest = [
        "archive_cache",
        "upload_artifacts_on_success",
        "cleanup_file_variables",
    ];
    assert_eq!(job.from("archive_cache"), rest);
    assert_eq!(job.class(), Some(FailureClass::System));
}

/// ART-12, ART-24
#[test]
fn a_failed_upload_fails_the_job() {
    let exit = StageEnd::Exit(1);
    let job = job().ends("upload_artifacts_on_success", &[exit]).finish();
    assert_eq!(job.class(), Some(FailureClass::ExternalDependency));
    assert_eq!(job.ran.last().unwrap(), "cleanup_file_variables");
}

#[test]
fn the_first_failure_is_the_jobs() {
    let exit = StageEnd::Exit(3);
    let broken = || [failed(FailureClass::ExternalDependency)];
    let job = job()
        .ends("step_script", &[exit])
        .ends("archive_cache_on_failure", &broken())
        .ends("upload_artifacts_on_failure", &broken())
        .ends("cleanup_file_variables", &broken())
        .finish();
    assert_eq!(job.class(), Some(FailureClass::Script));
}

#[test]
fn what_cleaning_up_says_changes_nothing() {
    let ends = [failed(FailureClass::System)];
    let ended = job().ends("cleanup_file_variables", &ends).finish();
    assert_eq!(ended.class(), None);
    let mut died = job().until("cleanup_file_variables");
    died.give(Input::VmDied {
        message: "gone".to_owned(),
    });
    assert_eq!(died.class(), None);
}

/// STAGE-36
#[test]
fn a_failing_after_script_changes_the_result_only_where_the_job_says_so() {
    let exit = || [StageEnd::Exit(7)];
    let ignored = job().ends("after_script", &exit()).finish();
    assert_eq!(ignored.class(), None);
    let line = "after_script failed, but job will continue unaffected: exit code 7";
    assert_eq!(ignored.printed[0].to_string(), line);
    let heeds = plan(&spec(), &[("AFTER_SCRIPT_IGNORE_ERRORS", "false")]);
    let heeded = Job::new(heeds.clone())
        .ends("after_script", &exit())
        .finish();
    assert_eq!(heeded.class(), Some(FailureClass::Script));
    assert_eq!(heeded.end.as_ref().unwrap().exit_code, Some(7));
    assert_eq!(heeded.from("after_script"), AFTER_A_FAILURE);
    // Never a failure that is there already.
    let both = Job::new(heeds)
        .ends("step_script", &[StageEnd::Exit(1)])
        .ends("after_script", &exit())
        .finish();
    assert_eq!(both.end.unwrap().exit_code, Some(1));
}

/// A step's own `when` and `allow_failure` change nothing, as in gitlab-runner: a job that may fail
/// must fail first, so that GitLab can allow it.
#[test]
fn the_first_step_that_fails_is_the_last_whatever_steps_say_of_failures() {
    let mut spec = spec();
    spec.steps = vec![
        Step {
            allow_failure: true,
            ..step("lint", When::OnSuccess)
        },
        step("build", When::OnSuccess),
        step("collect", When::OnFailure),
        step("report", When::Always),
    ];
    let run = |failing: &[&str]| {
        let mut job = Job::new(plan(&spec, &[]));
        for name in failing {
            job = job.ends(name, &[StageEnd::Exit(1)]);
        }
        let job = job.finish();
        let is_step = |name: &&String| name.starts_with("step_");
        let steps: Vec<_> = job.ran.iter().filter(is_step).cloned().collect();
        (steps.join(" "), job.class())
    };
    let fine = "step_lint step_build step_collect step_report";
    assert_eq!(run(&[]), (fine.to_owned(), None));
    let script = Some(FailureClass::Script);
    assert_eq!(run(&["step_lint"]), ("step_lint".to_owned(), script));
    let broken = "step_lint step_build".to_owned();
    assert_eq!(run(&["step_build"]), (broken, script));
}

/// STAGE-30
#[test]
fn a_stage_with_nothing_to_do_does_not_run() {
    let mut bare = spec();
    bare.artifacts.clear();
    bare.caches.clear();
    bare.dependencies.clear();
    bare.steps.pop();
    let job = Job::new(plan(&bare, &[])).finish();
    let order = [
        "prepare_executor",
        "prepare_script",
        "get_sources",
        "step_script",
        "cleanup_file_variables",
    ];
    assert_eq!(job.ran, order);

    // What is there but says nothing is nothing.
    let mut empty = spec();
    empty.artifacts[0].paths.clear();
    empty.caches[0].paths.clear();
    empty.dependencies[0].artifacts_file = None;
    empty.steps[1].script.clear();
    assert_eq!(Job::new(plan(&empty, &[])).finish().ran, order);
    empty.dependencies[0].artifacts_file = Some(DependencyFile {
        filename: String::new(),
        size: 0,
    });
    assert_eq!(Job::new(plan(&empty, &[])).finish().ran, order);
}

/// STAGE-30: as little as there can be of a stage's work has it run.
#[test]
fn a_stage_with_the_least_to_do_runs() {
    let mut least = spec();
    least.steps[0].script.clear();
    least.steps[1].script = vec![String::new()];
    for (artifact, cache) in least.artifacts.iter_mut().zip(&mut least.caches) {
        artifact.paths.clear();
        artifact.untracked = true;
        cache.paths.clear();
        cache.untracked = true;
    }
    least.artifacts.truncate(1);
    least.caches.truncate(1);
    least.dependencies[0].artifacts_file = Some(DependencyFile {
        filename: "a".to_owned(),
        size: 0,
    });
    let job = Job::new(plan(&least, &[])).finish();
    for stage in [
        "restore_cache",
        "download_artifacts",
        "step_script",
        "after_script",
        "archive_cache",
        "upload_artifacts_on_success",
    ] {
        assert!(
            job.ran.iter().any(|ran| ran == stage),
            "{stage}: {:?}",
            job.ran
        );
    }
    // An exclude alone selects artifacts, too.
    least.artifacts[0].untracked = false;
    least.artifacts[0].exclude = vec!["x".to_owned()];
    let job = Job::new(plan(&least, &[])).finish();
    assert!(
        job.ran
            .iter()
            .any(|ran| ran == "upload_artifacts_on_success")
    );
}

/// STAGE-03, STAGE-04
#[test]
fn caches_and_artifacts_are_kept_after_the_ends_they_are_for() {
    let run = |when, exit| {
        let mut spec = spec();
        spec.artifacts = vec![artifact(when)];
        spec.caches = vec![cache(when)];
        let ends = [StageEnd::Exit(exit)];
        let job = Job::new(plan(&spec, &[])).ends("step_script", &ends);
        let job = job.finish();
        let kept = |name: &str| job.ran.iter().any(|ran| ran.starts_with(name));
        (kept("archive_cache"), kept("upload_artifacts"))
    };
    assert_eq!(run(When::OnSuccess, 0), (true, true));
    assert_eq!(run(When::OnSuccess, 1), (false, false));
    assert_eq!(run(When::OnFailure, 0), (false, false));
    assert_eq!(run(When::OnFailure, 1), (true, true));
    assert_eq!(run(When::Always, 1), (true, true));
}

/// FAIL-32
#[test]
fn a_vm_that_dies_ends_the_job_there() {
    for stage in [
        "prepare_executor",
        "get_sources",
        "step_script",
        "archive_cache",
    ] {
        let mut job = job().until(stage);
        job.give(Input::VmDied {
            message: "out of memory".to_owned(),
        });
        assert_eq!(job.class(), Some(FailureClass::System), "{stage}");
        assert_eq!(job.message(), Some("out of memory"));
        assert_eq!(job.ran.last().unwrap(), stage);
        let last = job.end.unwrap().line().to_string();
        assert_eq!(last, "Job failed (system failure): out of memory");
    }
    // After the script failed, that is what the job died of.
    let exit = StageEnd::Exit(1);
    let mut job = job().ends("step_script", &[exit]).until("after_script");
    job.give(Input::VmDied {
        message: "gone".to_owned(),
    });
    assert_eq!(job.class(), Some(FailureClass::Script));
}

/// FAIL-34
#[test]
fn a_process_that_finds_an_earlier_life_ends_its_job_interrupted() {
    let job = job().finish();
    for len in 1..=job.kept.len() {
        let kept = job.kept[..len].to_vec();
        let (mut core, effects) = StageCore::open(job.plan.clone(), Now::ZERO, kept).unwrap();
        let [Effect::Finish(end)] = &effects[..] else {
            panic!("{effects:?}");
        };
        let expected = match len == job.kept.len() {
            true => None,
            false => Some(FailureClass::Interrupted),
        };
        assert_eq!(end.failure, expected);
        let step = core.handle(Now::ZERO, Input::Begin);
        assert!(step.is_empty());
    }
    let mut twice = job.kept.clone();
    twice.extend(job.kept.clone());
    let at = StageCore::open(job.plan, Now::ZERO, twice).unwrap_err().at;
    assert_eq!(at, job.kept.len());
}

#[test]
fn an_end_of_another_attempt_is_ignored() {
    let mut job = job().until("get_sources");
    for (stage, attempt) in [(Stage::GetSources, 2), (Stage::PrepareScript, 1)] {
        let end = StageEnd::Done;
        job.give(Input::Ended {
            stage,
            attempt,
            end,
        });
    }
    assert_eq!(job.ran.last().unwrap(), "get_sources");
}
