//! Cancels and timeouts.

use proptest::prelude::*;

use super::*;

const AFTER_THE_SCRIPT: [&str; 4] = [
    "after_script",
    "archive_cache_on_failure",
    "upload_artifacts_on_failure",
    "cleanup_file_variables",
];

fn job() -> Job {
    Job::new(plan(&spec(), &[]))
}

/// STAGE-31
#[test]
fn a_graceful_cancel_stops_the_script_and_runs_what_follows() {
    let mut job = job().until("step_script");
    job.give(Input::Stop(Stop::Graceful));
    assert_eq!(job.kills, [("step_script".to_owned(), Kill::Term)]);
    job.over(StageEnd::Exit(143));
    let job = job.finish();
    assert_eq!(job.from("after_script"), AFTER_THE_SCRIPT);
    assert_eq!(job.statuses, [JobStatus::Canceled]);
    let line = "script canceled externally (UI, API)";
    assert_eq!(job.printed[0].to_string(), line);
    let end = job.end.unwrap();
    assert_eq!(end.failure, Some(FailureClass::Canceled));
    assert_eq!(end.exit_code, None);
    assert_eq!(end.line().to_string(), "Job failed: canceled");
}

/// STAGE-31
#[test]
fn a_script_that_ends_well_under_a_cancel_is_cancelled_all_the_same() {
    let mut spec = spec();
    spec.steps.insert(1, step("release", When::Always));
    let mut job = Job::new(plan(&spec, &[])).until("step_script");
    job.give(Input::Stop(Stop::Graceful));
    job.over(StageEnd::Done);
    let job = job.finish();
    // No further step runs, whatever its `when`.
    assert_eq!(job.from("after_script"), AFTER_THE_SCRIPT);
    assert!(!job.ran.contains(&"step_release".to_owned()));
    assert_eq!(job.class(), Some(FailureClass::Canceled));
}

/// STAGE-31
#[test]
fn a_graceful_cancel_before_the_steps_ends_the_job_at_once() {
    for stage in ["prepare_executor", "get_sources", "download_artifacts"] {
        let mut job = job().until(stage);
        job.give(Input::Stop(Stop::Graceful));
        assert_eq!(job.kills, [(stage.to_owned(), Kill::Vm)]);
        job.over(failed(FailureClass::System));
        assert_eq!(job.ran.last().unwrap(), stage);
        assert_eq!(job.class(), Some(FailureClass::Canceled));
    }
}

#[test]
fn a_graceful_cancel_after_the_steps_changes_nothing() {
    for stage in AFTER_THE_SCRIPT {
        let exit = StageEnd::Exit(1);
        let mut job = job().ends("step_script", &[exit]).until(stage);
        job.give(Input::Stop(Stop::Graceful));
        assert_eq!(job.kills, []);
        let job = job.finish();
        assert_eq!(job.from("after_script"), AFTER_THE_SCRIPT);
        assert_eq!(job.class(), Some(FailureClass::Script));
    }
}

/// STAGE-31
#[test]
fn an_immediate_cancel_ends_any_stage_and_the_job() {
    let all = job().finish().ran;
    for stage in &all {
        let mut job = job().until(stage);
        job.give(Input::Stop(Stop::Immediate));
        assert_eq!(job.kills, [(stage.clone(), Kill::Vm)]);
        job.running = None;
        job.give(Input::VmDied {
            message: "killed".to_owned(),
        });
        assert_eq!(job.ran.last(), Some(stage));
        assert_eq!(job.class(), Some(FailureClass::Canceled));
    }
}

/// STAGE-31
#[test]
fn an_immediate_cancel_overrides_a_graceful_one() {
    let mut job = job().until("step_script");
    job.give(Input::Stop(Stop::Graceful));
    job.give(Input::Stop(Stop::Graceful));
    job.give(Input::Stop(Stop::Immediate));
    let hows: Vec<_> = job.kills.iter().map(|(_, how)| *how).collect();
    assert_eq!(hows, [Kill::Term, Kill::Vm]);
    job.over(StageEnd::Exit(137));
    assert_eq!(job.ran.last().unwrap(), "step_script");
    assert_eq!(job.class(), Some(FailureClass::Canceled));
}

/// FAIL-12
#[test]
fn a_node_that_stops_ends_the_job_interrupted() {
    let mut job = job().until("step_script");
    job.give(Input::Stop(Stop::Interrupt));
    job.over(StageEnd::Exit(137));
    assert_eq!(job.class(), Some(FailureClass::Interrupted));
}

/// STAGE-32, FAIL-36
#[test]
fn the_jobs_timeout_ends_any_stage_and_the_job() {
    let all = job().finish().ran;
    for stage in &all {
        let mut spec = spec();
        spec.timeout_secs = 100;
        let mut job = Job::new(plan(&spec, &[])).until(stage);
        job.wait(99);
        assert_eq!(job.kills, []);
        job.wait(1);
        assert_eq!(job.kills, [(stage.clone(), Kill::Vm)]);
        job.over(failed(FailureClass::System));
        assert_eq!(job.ran.last(), Some(stage));
        assert_eq!(job.class(), Some(FailureClass::Timeout));
        let text = "execution took longer than 1m40s seconds";
        assert_eq!(job.message(), Some(text));
        let line = Line::StageTimeout {
            stage: stage.clone(),
        };
        assert_eq!(job.printed[0], line);
        let hinted = job.printed.contains(&Line::ScriptTimeoutHint);
        assert_eq!(hinted, stage == "step_script");
    }
    let hint = Line::ScriptTimeoutHint.to_string();
    assert!(hint.contains("RUNNER_SCRIPT_TIMEOUT"));
}

/// STAGE-32
#[test]
fn the_scripts_timeout_ends_only_the_script() {
    let mut spec = spec();
    spec.steps.insert(1, step("release", When::OnSuccess));
    let variables = [("RUNNER_SCRIPT_TIMEOUT", "5m")];
    let mut job = Job::new(plan(&spec, &variables)).until("step_script");
    // Around all steps together.
    job.wait(200);
    job.over(StageEnd::Done);
    job.wait(99);
    assert_eq!(job.kills, []);
    job.wait(1);
    assert_eq!(job.kills, [("step_release".to_owned(), Kill::Term)]);
    job.over(StageEnd::Exit(143));
    let job = job.finish();
    assert_eq!(job.from("after_script"), AFTER_THE_SCRIPT);
    assert_eq!(job.statuses, [JobStatus::TimedOut]);
    assert_eq!(job.class(), Some(FailureClass::Timeout));
    let text = "script timeout: context deadline exceeded";
    assert_eq!(job.message(), Some(text));
    let stage = "step_release".to_owned();
    assert_eq!(job.printed, [Line::StageTimeout { stage }]);
}

/// STAGE-32
#[test]
fn an_after_script_gets_its_own_time_after_the_script_used_up_its() {
    let variables = [("RUNNER_SCRIPT_TIMEOUT", "5m")];
    let mut job = Job::new(plan(&spec(), &variables)).until("step_script");
    job.wait(300);
    job.over(StageEnd::Exit(143));
    job.wait(299);
    assert_eq!(job.kills.len(), 1);
    job.wait(1);
    assert_eq!(job.kills[1], ("after_script".to_owned(), Kill::Term));
    job.over(StageEnd::Exit(143));
    let texts: Vec<_> = job.printed.iter().skip(2).map(Line::to_string).collect();
    let ignored = "after_script failed, but job will continue unaffected: \
                   context deadline exceeded";
    assert_eq!(texts, [ignored]);
    let job = job.finish();
    assert_eq!(job.from("after_script"), AFTER_THE_SCRIPT);
}

/// GitLab sends one with each step, and gitlab-runner does not look at it: the job's timeout and
/// `RUNNER_SCRIPT_TIMEOUT` are the ones that count.
#[test]
fn a_steps_own_timeout_changes_nothing() {
    let mut spec = spec();
    spec.steps[0].timeout_secs = 10;
    let mut job = Job::new(plan(&spec, &[])).until("step_script");
    job.wait(1000);
    assert_eq!(job.kills, []);
    job.over(StageEnd::Done);
    assert_eq!(job.finish().class(), None);
}

/// A stage that ended when its time was over is judged by the time, not by its exit code.
#[test]
fn an_end_that_comes_with_the_deadline_is_the_deadlines() {
    let variables = [("RUNNER_SCRIPT_TIMEOUT", "5m")];
    let mut job = Job::new(plan(&spec(), &variables)).until("step_script");
    job.now = job.now.after(Duration::from_secs(300));
    job.over(StageEnd::Exit(1));
    assert_eq!(job.kills, []);
    let job = job.finish();
    assert_eq!(job.class(), Some(FailureClass::Timeout));
    assert_eq!(job.statuses, [JobStatus::TimedOut]);

    let mut job = super::stopped::job().until("step_script");
    job.now = job.now.after(Duration::from_secs(3600));
    job.over(StageEnd::Done);
    assert_eq!(job.class(), Some(FailureClass::Timeout));
    assert_eq!(job.ran.last().unwrap(), "step_script");
}

#[test]
fn what_does_not_end_is_killed_harder_and_given_up_in_the_end() {
    let mut job = job().until("step_script");
    job.give(Input::Stop(Stop::Graceful));
    job.wait(10);
    job.wait(10);
    let hows: Vec<_> = job.kills.iter().map(|(_, how)| *how).collect();
    assert_eq!(hows, [Kill::Term, Kill::Kill, Kill::Vm]);
    job.wait(9);
    assert_eq!(job.end, None);
    job.running = None;
    job.wait(1);
    // The VM is gone, so nothing follows.
    assert_eq!(job.ran.last().unwrap(), "step_script");
    assert_eq!(job.class(), Some(FailureClass::Canceled));
}

#[test]
fn an_after_script_that_ends_only_with_its_vm_is_no_success() {
    let mut job = job().until("after_script");
    job.wait(320);
    assert_eq!(job.kills.last().unwrap().1, Kill::Vm);
    job.over(StageEnd::Exit(137));
    assert_eq!(job.class(), Some(FailureClass::System));
    assert_eq!(job.ran.last().unwrap(), "after_script");
}

fn input() -> impl Strategy<Value = (u64, u8, i32)> {
    (0..400u64, 0..12u8, 0..3i32)
}

proptest! {
    /// STAGE-05, STAGE-31, STAGE-32
    #[test]
    fn whatever_happens_a_job_ends_once_and_in_order(inputs in proptest::collection::vec(input(), 0..60)) {
        let variables = [
            ("GET_SOURCES_ATTEMPTS", "4"),
            ("RUNNER_SCRIPT_TIMEOUT", "9m"),
        ];
        let mut job = Job::new(plan(&spec(), &variables));
        job.give(Input::Begin);
        for (secs, what, code) in inputs {
            match what {
                0 => job.give(Input::Stop(Stop::Graceful)),
                1 if code == 0 => job.give(Input::Stop(Stop::Immediate)),
                1 => job.wait(secs),
                2 if code == 0 => {
                    job.running = None;
                    job.give(Input::VmDied { message: "died".to_owned() });
                }
                _ if job.running.is_some() => job.over(StageEnd::Exit(code)),
                _ => job.wait(10),
            }
            if job.end.is_some() {
                job.running = None;
            }
        }
        // The job's time and every grace pass.
        for _ in 0..10 {
            job.wait(1000);
        }
        let end = job.end.clone().expect("the job ends by its timeout");
        let finished = |record: &&Record| matches!(record, Record::Finished { .. });
        prop_assert_eq!(job.kept.iter().filter(finished).count(), 1);
        let count = |stage: &str| job.ran.iter().filter(|ran| *ran == stage).count();
        prop_assert!(count("get_sources") <= 4);
        prop_assert!(count("after_script") <= 1);
        prop_assert!(count("after_script") <= count("step_script"));
        prop_assert!(job.statuses.len() <= 1);
        prop_assert_eq!(end.exit_code.is_some(), end.failure == Some(FailureClass::Script));
        if end.failure.is_none() {
            prop_assert_eq!(job.ran.last().unwrap(), "cleanup_file_variables");
        }
    }
}
