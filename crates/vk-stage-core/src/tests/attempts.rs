//! Stages tried more than once.

use super::*;

fn job(variables: &[(&str, &str)]) -> Job {
    Job::new(plan(&spec(), variables))
}

const TRIED_THREE_TIMES: [(&str, &str); 3] = [
    ("GET_SOURCES_ATTEMPTS", "3"),
    ("RESTORE_CACHE_ATTEMPTS", "3"),
    ("ARTIFACT_DOWNLOAD_ATTEMPTS", "3"),
];

fn times(job: &Job, stage: &str) -> usize {
    job.ran.iter().filter(|name| *name == stage).count()
}

/// STAGE-33
#[test]
fn a_stage_is_tried_as_often_as_the_job_says() {
    let exits = vec![StageEnd::Exit(1); 9];
    for stage in ["get_sources", "restore_cache", "download_artifacts"] {
        let job = job(&TRIED_THREE_TIMES).ends(stage, &exits).finish();
        assert_eq!(times(&job, stage), 3);
        assert_eq!(job.printed, [Line::Retrying, Line::Retrying]);
        assert_eq!(job.class(), Some(FailureClass::ExternalDependency));
        let cleared = usize::from(stage == "get_sources");
        assert_eq!(times(&job, "clear_worktree"), cleared);
        assert_eq!(times(&job, "after_script"), 0);
    }
}

/// STAGE-33
#[test]
fn an_attempt_that_works_goes_on_as_the_first_would() {
    let exits = [StageEnd::Exit(1)];
    let job = job(&TRIED_THREE_TIMES).ends("get_sources", &exits).finish();
    let order = [
        "get_sources",
        "clear_worktree",
        "get_sources",
        "restore_cache",
    ];
    assert_eq!(job.from("get_sources")[..4], order);
    assert_eq!(job.class(), None);
}

#[test]
fn a_work_tree_that_cannot_be_cleared_costs_the_attempt() {
    let job = job(&TRIED_THREE_TIMES)
        .ends("get_sources", &[StageEnd::Exit(1)])
        .ends("clear_worktree", &[StageEnd::Exit(1)])
        .finish();
    assert_eq!(times(&job, "get_sources"), 2);
    assert_eq!(times(&job, "clear_worktree"), 1);
    assert_eq!(job.class(), None);
}

#[test]
fn waits_between_attempts_grow() {
    let waits = |variables: &[(&str, &str)]| {
        let mut all = variables.to_vec();
        all.push(("RESTORE_CACHE_ATTEMPTS", "10"));
        let mut job = job(&all).until("restore_cache");
        let mut waits = Vec::new();
        for _ in 0..9 {
            job.over(StageEnd::Exit(1));
            let before = job.now;
            job.turn();
            waits.push(job.now.since(before).as_secs());
        }
        waits
    };
    assert_eq!(waits(&[]), [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    let off = [("FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY", "0")];
    assert_eq!(waits(&off), [1, 2, 4, 5, 5, 5, 5, 5, 5]);
}

#[test]
fn preparing_is_tried_three_times_where_that_may_help() {
    let passing = || StageEnd::Failed {
        class: FailureClass::System,
        message: "no VM".to_owned(),
        transient: true,
    };
    let stage = "prepare_executor";
    let job = job(&[]).ends(stage, &[passing(), passing(), passing()]);
    let job = job.finish();
    assert_eq!(times(&job, stage), 3);
    assert_eq!(job.class(), Some(FailureClass::System));
    let texts: Vec<_> = job.printed.iter().map(Line::to_string).collect();
    let once = ["Preparation failed: no VM", "Will be retried in 3s ..."];
    assert_eq!(texts, [once, once].concat());
    assert_eq!(job.now, Now::from_millis(6000));
}

/// STAGE-33
#[test]
fn a_timeout_or_cancel_ends_the_wait_for_an_attempt() {
    let mut late = spec();
    late.timeout_secs = 3;
    let variables = [("GET_SOURCES_ATTEMPTS", "10")];
    let mut job = Job::new(plan(&late, &variables)).until("get_sources");
    job.over(StageEnd::Exit(1));
    let mut canceled = Job::new(plan(&late, &variables)).until("get_sources");
    canceled.over(StageEnd::Exit(1));
    job.wait(3);
    assert_eq!(job.class(), Some(FailureClass::Timeout));
    canceled.give(Input::Stop(Stop::Graceful));
    assert_eq!(canceled.class(), Some(FailureClass::Canceled));
}
