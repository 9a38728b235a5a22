//! The merged configuration: readable, and the same configuration again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use vk_ci_config::{Config, Context};

/// A file with something of everything.
const ALL: &str = r#"# a comment
.hidden: &hidden
  image: {name: "debian:12", entrypoint: [""]}
  variables: {A: 1.10, B: "yes", C: !reference [.vars, variables, C]}
.vars:
  variables: {C: 'it''s: #1'}
  script:
    - echo "one"
    - |
      if true; then
        echo two
      fi
stages: [build, test]
workflow:
  rules:
    - if: $CI_COMMIT_BRANCH =~ /^ma.*$/ && $X != null
      variables: {FROM: workflow}
    - when: always
default:
  before_script: [uname -a]
  tags: [vm]
  retry: {max: 1, when: always}
variables:
  GLOBAL: {value: on, description: "what: it is", options: ["true", "false"]}
build:
  <<: *hidden
  stage: build
  script: [!reference [.vars, script], "a: b", '- c', " d ", "", 'x "y"']
  artifacts: {paths: [out/], reports: {dotenv: a.env}, expire_in: 1 week, when: always}
"test 1: unit":
  extends: [.vars, .hidden]
  before_script: []
  needs: [{job: build, artifacts: false}]
  timeout: 1h 30m
  allow_failure: {exit_codes: [2, 3]}
  rules:
    - if: $A == "1.1"
      when: manual
      allow_failure: true
    - if: '$A'
      variables: {R: 1}
after:
  stage: .post
  script: echo
  after_script: echo
  when: on_failure
  dependencies: []
"#;

#[test]
fn the_merged_configuration_is_written_for_people() {
    let merged = Config::parse("f", ALL).unwrap().merged();
    let expected = r#"stages:
  - .pre
  - build
  - test
  - .post

workflow:
  rules:
    - if: $CI_COMMIT_BRANCH =~ /^ma.*$/ && $X != null
      variables:
        FROM: workflow
    - when: always

variables:
  GLOBAL:
    value: true
    description: 'what: it is'
    options:
      - 'true'
      - 'false'

build:
  image:
    name: debian:12
    entrypoint:
      - ''
  variables:
    A: 1.1
    B: 'yes'
    C: 'it''s: #1'
  stage: build
  script:
    - echo "one"
    - |
      if true; then
        echo two
      fi
    - 'a: b'
    - '- c'
    - ' d '
    - ''
    - x "y"
  artifacts:
    paths:
      - out/
    reports:
      dotenv: a.env
    expire_in: 1 week
    when: always
  tags:
    - vm
  before_script:
    - uname -a
  retry:
    max: 1
    when: always

'test 1: unit':
  variables:
    C: 'it''s: #1'
    A: 1.1
    B: 'yes'
  script:
    - echo "one"
    - |
      if true; then
        echo two
      fi
  image:
    name: debian:12
    entrypoint:
      - ''
  before_script: []
  needs:
    - job: build
      artifacts: false
  timeout: 1h 30m
  allow_failure:
    exit_codes:
      - 2
      - 3
  rules:
    - if: $A == "1.1"
      when: manual
      allow_failure: true
    - if: $A
      variables:
        R: 1
  tags:
    - vm
  retry:
    max: 1
    when: always

after:
  stage: .post
  script: echo
  after_script: echo
  when: on_failure
  dependencies: []
  tags:
    - vm
  before_script:
    - uname -a
  retry:
    max: 1
    when: always
"#;
    assert_eq!(merged, expected);
}

/// What a configuration comes to, for some contexts.
fn meaning(config: &Config) -> Vec<String> {
    let contexts = [
        &[][..],
        &[("A", "1"), ("CI_COMMIT_BRANCH", "main")],
        &[("B", "x"), ("CI_PIPELINE_SOURCE", "push")],
    ];
    let of = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        let context = Context {
            predefined: pairs.collect(),
            ..Context::default()
        };
        match config.pipeline(&context) {
            Ok(pipeline) => format!("{pipeline:?}"),
            // Places differ between a file and its merged form.
            Err(error) => error.faults.iter().map(ToString::to_string).collect(),
        }
    };
    contexts.map(of).to_vec()
}

fn same_again(text: &str) -> Result<(), TestCaseError> {
    let Ok(config) = Config::parse("f", text) else {
        return Ok(());
    };
    let merged = config.merged();
    let again = Config::parse("merged", &merged)
        .map_err(|error| TestCaseError::fail(format!("{error}\n{text}\n---\n{merged}")))?;
    prop_assert_eq!(again.merged(), merged);
    prop_assert_eq!(meaning(&again), meaning(&config));
    Ok(())
}

#[test]
fn the_merged_configuration_is_the_same_configuration() {
    same_again(ALL).unwrap();
}

/// A text in double quotes.
fn quoted() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        "[ -~]{0,30}",
        "[a-z \\n:#'\"-]{0,20}",
        "\\PC{1,8}",
        "(yes|1\\.0|null|~|<<|- a|010)",
    ];
    text.prop_map(|text| serde_json::to_string(&text).unwrap())
}

/// One keyword of a job and its value.
fn keyword() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "stage: deploy",
        "image: a",
        "image: {name: b, entrypoint: [c]}",
        "needs: []",
        "needs: [j0]",
        "needs: [{job: gone, optional: true}, {job: j0, artifacts: false}]",
        "dependencies: [j0]",
        "when: manual",
        "when: always",
        "allow_failure: true",
        "allow_failure: {exit_codes: 3}",
        "timeout: 90 minutes",
        "retry: 2",
        "tags: [a]",
        "rules: [{if: $A}]",
        "rules: [{if: \"$A =~ /x|1/ || $B\", when: never}, !reference [.h0, rules]]",
        "rules: [{if: $B, allow_failure: true, variables: {V: r}}, {when: on_failure}]",
        "variables: {V: 1.50, W: {value: w, expand: false}}",
        "variables: null",
        "variables: !reference [.h1, variables]",
        "artifacts: {paths: [a], untracked: true}",
        "extends: .h0",
        "extends: [.h1, .h0]",
        "<<: *h",
        "before_script: []",
    ]);
    let written = (
        prop::sample::select(vec!["script", "before_script", "after_script"]),
        prop::collection::vec(quoted(), 1..4),
    );
    let written = written.prop_map(|(key, lines)| format!("{key}: [{}]", lines.join(", ")));
    let variables = quoted().prop_map(|value| format!("variables: {{V: {value}}}"));
    prop_oneof![4 => fixed.prop_map(String::from), 2 => written, 1 => variables]
}

/// A job with some keywords; those that would not do there are left out, those it must have added.
fn job(name: &'static str, without: &'static [&str], with: &'static str) -> BoxedStrategy<String> {
    let keywords = prop::collection::vec(keyword(), 0..6);
    let job = keywords.prop_map(move |mut lines| {
        let key = |line: &str| line.split(':').next().unwrap().to_owned();
        lines.retain(|line| !without.iter().any(|part| line.contains(part)));
        // A key may stand once.
        lines.sort_by_key(|line| key(line));
        lines.dedup_by_key(|line| key(line));
        if !lines.iter().any(|line| key(line) == key(with)) {
            lines.push(with.into());
        }
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        format!("{name}:\n{lines}")
    });
    job.boxed()
}

fn file() -> impl Strategy<Value = String> {
    let head = prop::sample::select(vec![
        "",
        "stages: [test, deploy]\n",
        "default: {image: d, before_script: [x, [y]]}\n",
        "workflow: {rules: [{if: $A, variables: {V: w}}, {if: $B, when: never}, {when: always}]}\n",
        "variables: {V: g, X: {value: \"1\", options: [\"1\"]}}\n",
    ]);
    let alone = &[
        "needs",
        "dependencies",
        "stage",
        "extends",
        "!reference",
        "null",
    ];
    let jobs = [
        job(".h0", alone, "rules: [{if: $C}]"),
        job(".h1", alone, "variables: {Z: z}"),
        job("j0", &["needs", "dependencies", "stage"], "script: [x]"),
        job("j1", &[], "script: [x]"),
        job("\"j: 2\"", &[], "script: [x]"),
    ];
    (head, jobs).prop_map(|(head, jobs)| {
        format!(
            "{head}.h: &h {{script: [h], rules: [{{if: $A}}]}}\n{}",
            jobs.concat()
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_merged_means_the_same(text in file()) {
        same_again(&text)?;
    }

    #[test]
    fn no_file_makes_it_panic(
        text in file(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[\\PC\\n]{0,2}"), 0..6),
    ) {
        let mut text: Vec<char> = text.chars().collect();
        for (index, new) in changes {
            let at = index.index(text.len());
            text.splice(at..=at, new.chars());
        }
        let text: String = text.into_iter().collect();
        same_again(&text)?;
    }
}

/// Most files that the strategy makes are good ones, else the property says little.
#[test]
fn the_strategy_makes_good_files() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let good = (0..200)
        .filter(|_| {
            let text = file().new_tree(&mut runner).unwrap().current();
            Config::parse("f", &text).is_ok()
        })
        .count();
    assert!(good >= 100, "{good} of 200");
}
