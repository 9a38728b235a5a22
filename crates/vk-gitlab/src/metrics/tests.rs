use super::*;

fn metrics(project_labels: bool) -> Arc<Metrics> {
    let build = ("0.1.0", "abcd1234");
    Metrics::new(build, project_labels, &Written::default())
}

fn job(project: &str, queue_seconds: f64) -> JobInfo {
    JobInfo {
        project_full_path: project.to_owned(),
        time_in_queue_seconds: queue_seconds,
        project_jobs_running_on_instance_runners_count: "+Inf".to_owned(),
        queue_size: 5,
        queue_depth: -1,
        ..JobInfo::default()
    }
}

fn meter(metrics: &Arc<Metrics>) -> Meter {
    Meter::new(Arc::clone(metrics), "ci".to_owned())
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
}

/// SPEC-20
#[test]
fn what_gitlab_says_of_its_queue_is_counted() {
    let metrics = metrics(false);
    meter(&metrics).taken(&job("acme/web", 2.5));
    meter(&metrics).taken(&job("acme/web", f64::NAN));
    let text = metrics.text(&Snapshot::default()).unwrap();
    has(
        &text,
        "vk_gitlab_jobs_taken_total{runner=\"ci\",project=\"\"} 2",
    );
    has(&text, "vk_gitlab_job_queue_seconds_sum{runner=\"ci\"} 2.5");
    has(
        &text,
        "vk_gitlab_job_queue_seconds_bucket{le=\"2.0\",runner=\"ci\"} 0",
    );
    has(
        &text,
        "vk_gitlab_job_queue_seconds_bucket{le=\"5.0\",runner=\"ci\"} 1",
    );
    has(&text, "vk_gitlab_queue_size{runner=\"ci\"} 5.0");
    has(&text, "vk_gitlab_queue_depth{runner=\"ci\"} -1.0");
    has(&text, "vk_gitlab_project_running_jobs{runner=\"ci\"} inf");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn projects_are_named_where_that_is_wanted_and_not_without_bound() {
    let metrics = metrics(true);
    for number in 0..PROJECTS + 7 {
        meter(&metrics).taken(&job(&format!("acme/{number}"), 0.0));
    }
    meter(&metrics).taken(&job("acme/0", 0.0));
    let text = metrics.text(&Snapshot::default()).unwrap();
    has(
        &text,
        "vk_gitlab_jobs_taken_total{runner=\"ci\",project=\"acme/0\"} 2",
    );
    has(
        &text,
        "vk_gitlab_jobs_taken_total{runner=\"ci\",project=\"other\"} 7",
    );
    let labels = text.lines().filter(|line| line.contains("project=\""));
    assert_eq!(labels.count(), PROJECTS + 1);
}

#[test]
fn answers_are_counted_by_endpoint_and_status() {
    let metrics = metrics(false);
    for status in [Some(204), Some(204), Some(429), None, Some(999)] {
        metrics.answered(Endpoint::JobRequest, status);
    }
    metrics.answered(Endpoint::Trace, Some(202));
    let text = metrics.text(&Snapshot::default()).unwrap();
    for (status, count) in [("204", 2), ("429", 1), ("none", 1), ("other", 1)] {
        let of = format!("endpoint=\"job_request\",status=\"{status}\"");
        has(&text, &format!("vk_gitlab_requests_total{{{of}}} {count}"));
    }
    has(
        &text,
        "vk_gitlab_requests_total{endpoint=\"trace\",status=\"202\"} 1",
    );
    has(
        &text,
        "vk_gitlab_rate_limited_total{endpoint=\"job_request\"} 1",
    );
}

#[test]
fn what_stands_is_what_the_loop_said_last() {
    let metrics = metrics(false);
    let first = RunnerNow {
        name: "ci".to_owned(),
        state: "polling",
        jobs: vec![("taken", 1), ("committed", 2)],
        requests: 1,
        trace_lag: 77,
        undelivered: 3,
        since_poll: Some(9),
        stores: true,
    };
    let then = RunnerNow {
        state: "token_refused",
        jobs: vec![("committed", 1)],
        since_poll: None,
        ..first.clone()
    };
    let text = |runner: &RunnerNow| {
        let runners = vec![runner.clone()];
        metrics.text(&Snapshot { runners }).unwrap()
    };
    let before = text(&first);
    has(&before, "vk_gitlab_jobs{runner=\"ci\",state=\"taken\"} 1");
    has(
        &before,
        "vk_gitlab_jobs{runner=\"ci\",state=\"committed\"} 2",
    );
    has(
        &before,
        "vk_gitlab_runner_state{runner=\"ci\",state=\"polling\"} 1",
    );
    has(&before, "vk_gitlab_trace_lag_bytes{runner=\"ci\"} 77");
    has(&before, "vk_gitlab_outcomes_pending{runner=\"ci\"} 3");
    has(&before, "vk_gitlab_open_job_requests{runner=\"ci\"} 1");
    has(
        &before,
        "vk_gitlab_since_last_poll_seconds{runner=\"ci\"} 9",
    );
    let after = text(&then);
    has(
        &after,
        "vk_gitlab_runner_state{runner=\"ci\",state=\"token_refused\"} 1",
    );
    for gone in ["state=\"taken\"", "polling", "since_last_poll_seconds{"] {
        assert!(!after.contains(gone), "{gone}");
    }
}
