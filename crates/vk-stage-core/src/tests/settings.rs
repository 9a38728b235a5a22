//! The job's settings about stages.

use super::*;

const MINUTE: u64 = 60;

fn timeouts(job_secs: u64, script: &str, after: &str) -> (Option<u64>, u64, Vec<String>) {
    let mut spec = spec();
    spec.timeout_secs = job_secs;
    let variables = [
        ("RUNNER_SCRIPT_TIMEOUT", script),
        ("RUNNER_AFTER_SCRIPT_TIMEOUT", after),
    ];
    let plan = plan(&spec, &variables);
    let script = plan.script_timeout.map(|timeout| timeout.as_secs());
    assert_eq!(plan.warnings, Vec::<String>::new());
    (
        script,
        plan.after_script_timeout.as_secs(),
        plan.script_warnings,
    )
}

/// STAGE-32
#[test]
fn script_timeouts_are_read_as_gitlab_runner_reads_them() {
    let hour = 60 * MINUTE;
    let warned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let relative_after = "Ignoring relative RUNNER_AFTER_SCRIPT_TIMEOUT timeout: -10m";
    let relative_script = "Ignoring relative RUNNER_SCRIPT_TIMEOUT timeout: -5m";
    let malformed = "Ignoring malformed RUNNER_SCRIPT_TIMEOUT timeout: foobar";
    let longer = "RUNNER_SCRIPT_TIMEOUT timeout: 60m is longer than job timeout. \
                  Setting to job timeout";
    let five = 5 * MINUTE;
    for (job, script, after, expected) in [
        (hour, "", "0s", (None, five, warned(&[]))),
        (hour, "", "", (None, five, warned(&[]))),
        (
            hour,
            "5m",
            "-10m",
            (Some(five), five, warned(&[relative_after])),
        ),
        (
            hour,
            "-5m",
            "10m",
            (None, 10 * MINUTE, warned(&[relative_script])),
        ),
        (hour, "foobar", "", (None, five, warned(&[malformed]))),
        (40 * MINUTE, "60m", "", (None, five, warned(&[longer]))),
        (hour, "60m", "1m30s", (Some(hour), 90, warned(&[]))),
    ] {
        assert_eq!(timeouts(job, script, after), expected, "{script} {after}");
    }
}

/// STAGE-33
#[test]
fn attempts_are_1_to_10() {
    let name = "GET_SOURCES_ATTEMPTS";
    let cut = |n| format!("{name}: number of attempts out of the range [1, 10], clamping to: {n}");
    let no_number = format!("{name}: expected int got \"many\", using default value: 1");
    for (value, attempts, warning) in [
        ("", 1, None),
        ("1", 1, None),
        ("10", 10, None),
        ("0", 1, Some(cut(1))),
        ("-3", 1, Some(cut(1))),
        ("11", 10, Some(cut(10))),
        ("many", 1, Some(no_number)),
    ] {
        let plan = plan(&spec(), &[(name, value)]);
        assert_eq!(plan.get_sources_attempts, attempts, "{value}");
        assert_eq!(plan.warnings, Vec::from_iter(warning));
    }
}

/// STAGE-36
#[test]
fn flags_are_read_as_go_reads_them() {
    let name = "AFTER_SCRIPT_IGNORE_ERRORS";
    for (value, flag) in [("", true), ("t", true), ("False", false), ("0", false)] {
        let plan = plan(&spec(), &[(name, value)]);
        assert_eq!(plan.after_script_ignore_errors, flag);
        assert_eq!(plan.warnings, Vec::<String>::new());
    }
    let plan = plan(&spec(), &[(name, "no")]);
    let text = format!("{name}: expected bool got \"no\", using default value: true");
    assert_eq!(plan.warnings, [text]);
    assert!(plan.after_script_ignore_errors);
}

#[test]
fn settings_that_were_not_understood_are_one_warning_before_the_first_stage() {
    let variables = [
        ("GET_SOURCES_ATTEMPTS", "0"),
        ("ARTIFACT_DOWNLOAD_ATTEMPTS", "many"),
        ("AFTER_SCRIPT_IGNORE_ERRORS", "never"),
    ];
    let mut job = Job::new(plan(&spec(), &variables));
    job.give(Input::Begin);
    let [Line::Settings(warnings)] = &job.printed[..] else {
        panic!("{:?}", job.printed);
    };
    let words = ["ARTIFACT_DOWNLOAD_ATTEMPTS", "AFTER_SCRIPT", "clamping"];
    assert_eq!(warnings.len(), words.len());
    for (warning, word) in warnings.iter().zip(words) {
        assert!(warning.contains(word), "{warnings:?}");
    }
}

/// STAGE-32: as gitlab-runner has it, and not where no script is reached.
#[test]
fn what_is_wrong_with_scripts_timeouts_is_a_warning_each_before_the_first_script() {
    let variables = [
        ("RUNNER_SCRIPT_TIMEOUT", "10"),
        ("RUNNER_AFTER_SCRIPT_TIMEOUT", "-5m"),
    ];
    let job = Job::new(plan(&spec(), &variables)).until("download_artifacts");
    assert_eq!(job.printed, []);
    let job = job.until("step_script");
    let shown: Vec<_> = job.printed.iter().map(ToString::to_string).collect();
    let expected = [
        "Ignoring malformed RUNNER_SCRIPT_TIMEOUT timeout: 10",
        "Ignoring relative RUNNER_AFTER_SCRIPT_TIMEOUT timeout: -5m",
    ];
    assert_eq!(shown, expected);
}

/// FAIL-38
#[test]
fn a_job_without_a_timeout_has_two_hours() {
    let mut spec = spec();
    spec.timeout_secs = 0;
    assert_eq!(plan(&spec, &[]).timeout, Duration::from_secs(7200));
}

#[test]
fn stages_have_gitlab_runners_names_and_titles() {
    let plan = plan(&spec(), &[]);
    let step = Stage::Step(0);
    assert_eq!(plan.name(step), "step_script");
    let title = "Executing \"step_script\" stage of the job script";
    assert_eq!(plan.title(step), title);
    assert_eq!(plan.title(Stage::RestoreCache), "Restoring cache");
}
