//! Pipelines and their ends.

use std::fs;
use std::process::Command;

use crate::run::{Place, ran, test_root};

/// Stages, needs, artifacts, variables, an allowed failure, a masked value.
const WHOLE: &str = r#"
stages: [build, test, package]
default:
  image: busybox
variables:
  WORD: global
build:
  stage: build
  script:
    - mkdir out && echo "built $WORD" > out/file
    - printf 'one\rtwo\n\033[31mred\033[0m\n'
  artifacts:
    paths: [out/]
    reports:
      dotenv: []
needs nothing:
  stage: test
  tags: [large, fast]
  needs: []
  script: ["test ! -e out", "echo secret is $DEPLOY_TOKEN"]
fails:
  stage: test
  allow_failure: true
  script: ["exit 3"]
package:
  stage: package
  variables: {WORD: own}
  needs: [build]
  rules:
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_PIPELINE_SOURCE == "push"
      variables: {RULE: "yes"}
  before_script: ["cat out/file"]
  script: ["echo rule=$RULE word=$WORD project=$GIVEN", "cp out/file packed"]
  after_script: ["echo ended as $CI_JOB_STATUS"]
  artifacts: {paths: [packed]}
"#;

#[test]
fn stages_pass_artifacts_on_and_the_table_tells_what_was_measured() {
    let Some(root) = test_root("artifacts") else {
        return;
    };
    let place = Place::with_processes(&root);
    place.file(
        ".gitlab-ci.yml",
        &WHOLE.replace("    reports:\n      dotenv: []\n", ""),
    );
    let secret = "a-secret-that-nobody-knows";
    let variables = place.variables(&format!(
        "GIVEN = 'given'\n[DEPLOY_TOKEN]\nvalue = '{secret}'\nmasked = true\n"
    ));
    let variables = variables.to_str().unwrap();
    let first = place.run(&["--variables", variables]);
    assert_eq!(first.code, Some(0));
    assert!(first.err.contains("importing busybox"), "{}", first.err);
    for text in [
        "rule=yes word=own project=given",
        "built global",
        "ended as success",
        "secret is [MASKED]",
        "==> fails: failed (exit code 3), allowed after ",
        "pipeline: success",
    ] {
        assert!(first.out.contains(text), "no {text:?}");
    }
    // What goes into a pipe is plain: no colours, no section markers, nothing overwritten.
    for text in ["\u{1b}", "\r", "section_", "one\n", secret] {
        assert!(!first.out.contains(text), "{text:?} is there");
    }
    assert!(place.trace("build").contains("section_start:"));
    let packed = fs::read_to_string(place.path("out/jobs/package/artifacts/packed")).unwrap();
    assert_eq!(packed, "built global\n");
    assert_eq!(
        fs::read_to_string(place.path("out/.gitignore")).unwrap(),
        "*\n"
    );
    measured(&place, &first.out);
    // A second run finds the image there.
    let second = place.run(&["--variables", variables, "--job", "needs nothing"]);
    assert_eq!(second.code, Some(0));
    assert!(!second.err.contains("importing"), "{}", second.err);
    assert_eq!(place.result()["jobs"].as_array().unwrap().len(), 1);
    assert!(
        !place.path("out/jobs/package").exists(),
        "of the run before"
    );
    place.assert_nothing_is_left();
}

fn measured(place: &Place, out: &str) {
    let result = place.result();
    assert_eq!(result["status"], "success");
    assert_eq!(result["broken"].as_array().unwrap().len(), 0);
    let job = place.job("package");
    for key in ["queue_ms", "boot_ms", "wall_ms", "peak_bytes"] {
        assert!(job[key].as_u64().is_some(), "{key}: {job}");
    }
    assert!(job["wall_ms"].as_u64() >= job["boot_ms"].as_u64(), "{job}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(job["node"], host.trim());
    assert_eq!(place.job("fails")["exit_code"], 3);
    let table: Vec<&str> = out
        .lines()
        .skip_while(|line| !line.starts_with("job "))
        .collect();
    let head: Vec<&str> = table[0].split_whitespace().collect();
    assert_eq!(
        head,
        [
            "job", "status", "node", "queue", "boot", "wall", "peak", "memory"
        ]
    );
    assert!(table[1].starts_with("build "), "{}", table[1]);
    assert!(table[5].starts_with("VMM: "), "{}", table[5]);
}

/// STAGE-37, FAIL-28
#[test]
fn a_pipeline_that_fails_says_so_with_the_jobs_own_exit_code() {
    let Some(root) = test_root("failure") else {
        return;
    };
    let place = Place::with_processes(&root);
    place.file(
        ".gitlab-ci.yml",
        r#"
breaks: {stage: build, script: ["echo begun", "exit 42"]}
again: {stage: build, retry: 1, allow_failure: {exit_codes: [9]}, script: ["exit 9"]}
not any more: {stage: test, script: ["echo never"]}
only then: {stage: test, when: on_failure, script: ["echo repaired"]}
by hand: {stage: test, when: manual, script: ["echo never"]}
last: {stage: deploy, when: always, script: ["echo always"]}
"#,
    );
    let run = place.run(&["--image", "busybox"]);
    assert_eq!(run.code, Some(1));
    assert!(run.out.contains("pipeline: failed"));
    let breaks = place.job("breaks");
    assert_eq!(breaks["exit_code"], 42);
    assert_eq!(breaks["failure_reason"], "script_failure");
    assert_eq!(place.job("not any more")["status"], "skipped");
    assert_eq!(place.job("only then")["status"], "success");
    assert_eq!(place.job("last")["status"], "success");
    let result = place.result();
    let jobs = result["jobs"].as_array().unwrap();
    let again: Vec<_> = jobs.iter().filter(|job| job["name"] == "again").collect();
    assert_eq!(again.len(), 2, "it was retried: {result}");
    assert!(again[0]["superseded"] == true && again[1]["allow_failure"] == true);
    assert!(place.trace("again").contains("exit code 9"));
    assert!(!run.out.contains("echo never"));
    place.assert_nothing_is_left();
}

#[test]
fn a_manual_job_runs_when_it_is_named_and_the_head_of_a_repository_is_run() {
    let Some(root) = test_root("repository") else {
        return;
    };
    let place = Place::with_processes(&root);
    let dir = place.path("project");
    place.file(
        ".gitlab-ci.yml",
        "default: {image: busybox}\n\
         first: {stage: build, script: ['cat file']}\n\
         other: {stage: test, script: ['echo not this one']}\n\
         by hand: {stage: test, when: manual, script: ['echo by hand on $CI_COMMIT_REF_NAME']}\n",
    );
    place.file("file", "committed\n");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&dir)
            .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        assert_eq!(ran(command.args(arguments)).code, Some(0));
    };
    git(&["init", "--quiet", "--initial-branch", "trunk"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "one"]);
    git(&["checkout", "--quiet", "--detach"]);
    place.file("file", "not committed\n");
    let run = place.run(&["--job", "by hand"]);
    assert_eq!(run.code, Some(0));
    let notes = run.err.lines().filter(|line| line.contains("uncommitted"));
    let notes: Vec<&str> = notes.collect();
    assert!(notes.len() == 1 && notes[0].contains("M file"), "{notes:?}");
    assert!(run.out.contains("committed") && !run.out.contains("not committed"));
    assert!(
        run.out.contains("by hand on detached-"),
        "HEAD is on no branch"
    );
    assert!(!run.out.contains("not this one"));
    git(&[
        "diff",
        "--exit-code",
        "--quiet",
        "HEAD",
        "--",
        ".gitlab-ci.yml",
    ]);
    place.assert_nothing_is_left();
}

/// Its commits have parents that are not there: what is fetched from it says so.
#[test]
fn a_shallow_clone_is_run() {
    let Some(root) = test_root("shallow") else {
        return;
    };
    let place = Place::with_processes(&root);
    let whole = place.path("whole");
    fs::create_dir(&whole).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&whole)
            .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        assert_eq!(ran(command.args(arguments)).code, Some(0));
    };
    git(&["init", "--quiet", "--initial-branch", "trunk"]);
    let text = "default: {image: busybox}\n\
                cut: {script: ['ls -A']}\n\
                all: {script: ['ls -A'], variables: {GIT_DEPTH: '0'}}\n";
    fs::write(whole.join(".gitlab-ci.yml"), text).unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "one"]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "two"]);
    let url = format!("file://{}", whole.display());
    let project = place.path("project");
    let _ = fs::remove_dir(&project);
    let project = project.to_str().unwrap();
    git(&["clone", "--quiet", "--depth", "1", &url, project]);
    let run = place.run(&[]);
    assert_eq!(run.code, Some(0), "{}{}", run.err, run.out);
    assert!(run.err.contains("shallow clone"), "{}", run.err);
    assert_eq!(place.job("cut")["status"], "success");
    assert_eq!(place.job("all")["status"], "success");
    place.assert_nothing_is_left();
}
