//! What pipelines are made of a file, by the behaviours that GitLab documents.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use vk_ci_config::{AllowFailure, ArtifactsWhen, Cache, Config, Context, Job, Pipeline, When};

fn context(variables: &[(&str, &str)]) -> Context {
    let pairs = variables
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()));
    Context {
        predefined: pairs.collect(),
        ..Context::default()
    }
}

fn pipeline_with(text: &str, context: &Context) -> Result<Pipeline, String> {
    let config = Config::parse("ci.yml", text).map_err(|error| error.to_string())?;
    config.pipeline(context).map_err(|error| error.to_string())
}

fn pipeline(text: &str) -> Pipeline {
    pipeline_with(text, &Context::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn job<'a>(pipeline: &'a Pipeline, name: &str) -> &'a Job {
    pipeline.jobs.iter().find(|job| job.name == name).unwrap()
}

fn names(pipeline: &Pipeline) -> Vec<&str> {
    pipeline.jobs.iter().map(|job| job.name.as_str()).collect()
}

fn value<'a>(job: &'a Job, name: &str) -> Option<&'a str> {
    job.variables
        .get(name)
        .map(|variable| variable.value.as_str())
}

#[test]
fn a_job_without_a_stage_is_in_test_and_runs_on_success() {
    let pipeline = pipeline("a:\n  script: echo a\n");
    let job = job(&pipeline, "a");
    assert_eq!((job.stage.as_str(), job.when), ("test", When::OnSuccess));
    assert_eq!(job.script, ["echo a"]);
    assert_eq!(job.allow_failure, AllowFailure::All(false));
    assert_eq!(
        (&job.needs, &job.dependencies, job.timeout_secs),
        (&None, &None, None)
    );
    assert_eq!(pipeline.stages, ["test"]);
}

#[test]
fn stages_have_the_files_order_with_pre_first_and_post_last() {
    let text = "stages: [.post, two, one, two, .pre]\n\
                z: {stage: .post, script: x}\ny: {stage: one, script: x}\n\
                x: {stage: two, script: x}\nw: {stage: .pre, script: x}\n";
    assert_eq!(pipeline(text).stages, [".pre", "two", "one", ".post"]);
    let text = "d: {stage: deploy, script: x}\nb: {stage: build, script: x}\nt: {script: x}\n";
    assert_eq!(pipeline(text).stages, ["build", "test", "deploy"]);
}

#[test]
fn scripts_are_text_or_lists_in_lists_and_before_script_comes_first() {
    let text = "default:\n  before_script: [a]\n  after_script: z\n\
                one:\n  script: [b, [c, [d]], \"e: f\"]\n\
                two:\n  before_script: []\n  script: |\n    x\n    y\n  after_script: [v, w]\n";
    let pipeline = pipeline(text);
    assert_eq!(job(&pipeline, "one").script, ["a", "b", "c", "d", "e: f"]);
    assert_eq!(job(&pipeline, "one").after_script, ["z"]);
    assert_eq!(job(&pipeline, "two").script, ["x\ny\n"]);
    assert_eq!(job(&pipeline, "two").after_script, ["v", "w"]);
}

#[test]
fn default_and_the_old_keywords_at_the_top_fill_what_a_job_lacks() {
    let text = "image: alpine\n\
                default:\n  tags: [t]\n  retry: 1\n  artifacts: {paths: [d]}\n\
                one: {script: x}\n\
                two: {script: x, image: {name: busybox, entrypoint: ['']}, tags: [], retry: 0, \
                artifacts: {name: n}}\n";
    let pipeline = pipeline(text);
    let (one, two) = (job(&pipeline, "one"), job(&pipeline, "two"));
    assert_eq!(one.image.as_ref().unwrap().name, "alpine");
    assert_eq!((&one.tags[..], one.retry.max), (&["t".to_string()][..], 1));
    assert_eq!(one.artifacts.as_ref().unwrap().paths, ["d"]);
    let image = two.image.as_ref().unwrap();
    assert_eq!(image.name, "busybox");
    assert_eq!(image.entrypoint.as_deref(), Some(&[String::new()][..]));
    assert_eq!((two.tags.len(), two.retry.max), (0, 0));
    // Nothing of the default's artifacts is merged in.
    assert!(two.artifacts.as_ref().unwrap().paths.is_empty());
}

#[test]
fn variables_of_rules_win_over_the_jobs_and_those_over_global_ones() {
    let text = "variables: {A: g, B: g, C: g, D: {value: g, description: d, options: [g, h]}}\n\
                workflow: {rules: [{if: $X, variables: {A: w, B: w, E: w}}]}\n\
                j:\n  variables: {B: j, C: j, F: {value: \"$A\", expand: false}}\n  script: x\n\
                \x20 rules: [{if: \"$C == 'j'\", variables: {C: r}}]\n";
    let pipeline = pipeline_with(text, &context(&[("X", "1")])).unwrap();
    let j = job(&pipeline, "j");
    let values = ["A", "B", "C", "D", "E"].map(|name| value(j, name).unwrap());
    assert_eq!(values, ["w", "j", "r", "g", "w"]);
    assert!(j.variables["F"].raw && !j.variables["A"].raw);
    assert_eq!(pipeline.variables["A"].value, "w");
    assert!(!pipeline.variables.contains_key("F"));
}

#[test]
fn rules_see_project_variables_over_the_files_over_predefined_ones() {
    let text = "variables: {P: file, Q: file}\n\
                a: {script: x, rules: [{if: \"$P == 'project' && $Q == 'file' && $R == 'pre'\"}]}\n\
                b: {script: x, rules: [{if: \"$CI_JOB_NAME == 'b' && $CI_JOB_STAGE == 'test'\"}]}\n\
                c: {script: x, variables: {Q: job}, rules: [{if: \"$Q == 'job'\"}]}\n";
    let mut context = context(&[("P", "pre"), ("Q", "pre"), ("R", "pre")]);
    context.project.insert("P".into(), "project".into());
    assert_eq!(
        names(&pipeline_with(text, &context).unwrap()),
        ["a", "b", "c"]
    );
}

#[test]
fn scalars_of_variables_are_text_as_ruby_writes_them() {
    let text =
        "j:\n  script: x\n  variables: {A: 1.10, B: 010, C: yes, D: '010', E: 1_000, F: 2e3}\n";
    let pipeline = pipeline(text);
    let j = job(&pipeline, "j");
    let values = ["A", "B", "C", "D", "E", "F"].map(|name| value(j, name).unwrap());
    assert_eq!(values, ["1.1", "8", "true", "010", "1000", "2e3"]);
}

#[test]
fn the_first_rule_that_matches_decides_and_none_leaves_the_job_out() {
    let text = "\
j:\n  script: x\n  rules:\n    - if: $A == 'never'\n      when: never\n    - if: $A == 'manual'\n      \
when: manual\n    - if: $A == 'fail'\n      allow_failure: true\n    - if: $A == 'late'\n      \
when: on_failure\n    - if: $A == 'all'\n      when: always\n    - if: $A\nk: {script: x}\n";
    let rows = [
        ("never", None),
        ("", None),
        ("manual", Some((When::Manual, false))),
        ("fail", Some((When::OnSuccess, true))),
        ("late", Some((When::OnFailure, false))),
        ("all", Some((When::Always, false))),
        ("other", Some((When::OnSuccess, false))),
    ];
    for (a, expected) in rows {
        let pipeline = pipeline_with(text, &context(&[("A", a)])).unwrap();
        let job = pipeline.jobs.iter().find(|job| job.name == "j");
        let found = job.map(|job| (job.when, job.allow_failure == AllowFailure::All(true)));
        assert_eq!(found, expected, "{a}");
    }
}

#[test]
fn a_rule_without_when_leaves_the_jobs_own() {
    let text = "a: {script: x, when: on_failure, rules: [{if: $A}]}\nb: {script: x}\n";
    let pipeline = pipeline_with(text, &context(&[("A", "1")])).unwrap();
    assert_eq!(job(&pipeline, "a").when, When::OnFailure);
}

#[test]
fn a_manual_job_may_fail_unless_it_says_otherwise_or_a_rule_made_it_manual() {
    let text = "a: {script: x, when: manual}\n\
                b: {script: x, when: manual, allow_failure: false}\n\
                c: {script: x, rules: [{when: manual}]}\n\
                d: {script: x, rules: [{when: manual, allow_failure: true}]}\n\
                e: {script: x, allow_failure: {exit_codes: [1, 137]}}\n\
                f: {script: x, allow_failure: {exit_codes: 2}}\n";
    let pipeline = pipeline(text);
    let of = |name| job(&pipeline, name).allow_failure.clone();
    let codes = |codes: &[i64]| AllowFailure::ExitCodes {
        exit_codes: codes.to_vec(),
    };
    assert_eq!(of("a"), AllowFailure::All(true));
    assert_eq!(of("b"), AllowFailure::All(false));
    assert_eq!(of("c"), AllowFailure::All(false));
    assert_eq!(of("d"), AllowFailure::All(true));
    assert_eq!(of("e"), codes(&[1, 137]));
    assert_eq!(of("f"), codes(&[2]));
}

#[test]
fn workflow_rules_decide_whether_there_is_a_pipeline() {
    let text = "workflow: {rules: [{if: $SKIP, when: never}, {if: $RUN}]}\nj: {script: x}\n";
    let of = |name| pipeline_with(text, &context(&[(name, "1")]));
    assert_eq!(names(&of("RUN").unwrap()), ["j"]);
    assert!(of("SKIP").unwrap_err().contains("leaves this pipeline out"));
    assert!(
        of("OTHER")
            .unwrap_err()
            .contains("no rule of `workflow:rules` matches")
    );
}

#[test]
fn a_pipeline_without_jobs_or_with_pre_and_post_only_is_none() {
    let text =
        "a: {script: x, rules: [{if: $A}]}\nb: {stage: .pre, script: x, rules: [{if: $B}]}\n";
    let of = |name| pipeline_with(text, &context(&[(name, "1")]));
    assert!(of("OTHER").unwrap_err().contains("no job in the pipeline"));
    assert!(
        of("B")
            .unwrap_err()
            .contains("only jobs of `.pre` and `.post`")
    );
    assert_eq!(names(&of("A").unwrap()), ["a"]);
}

#[test]
fn needs_give_order_and_artifacts_unless_they_say_otherwise() {
    let text = "a: {stage: build, script: x}\nb: {stage: build, script: x}\n\
                c: {script: x, needs: [a, {job: b, artifacts: false}]}\n\
                d: {script: x, needs: []}\n\
                e: {script: x, needs: [a, b], dependencies: [b]}\n\
                f: {script: x, dependencies: [a]}\n\
                g: {script: x, dependencies: []}\n\
                h: {script: x, needs: [c]}\n";
    let pipeline = pipeline(text);
    let of = |name| {
        let job = job(&pipeline, name);
        let list = |list: &Option<Vec<String>>| list.as_ref().map(|list| list.join(" "));
        (list(&job.needs), list(&job.dependencies))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("a"), (None, None));
    assert_eq!(of("c"), (some("a b"), some("a")));
    assert_eq!(of("d"), (some(""), some("")));
    assert_eq!(of("e"), (some("a b"), some("b")));
    assert_eq!(of("f"), (None, some("a")));
    assert_eq!(of("g"), (None, some("")));
    assert_eq!(of("h"), (some("c"), some("c")));
}

#[test]
fn an_optional_need_may_be_left_out_or_not_be_there_at_all() {
    let text = "a: {script: x, stage: build, rules: [{if: $A}]}\n\
                b: {script: x, needs: [{job: a, optional: true}, {job: none, optional: true}]}\n\
                c: {script: x, dependencies: [a]}\n";
    let of = |name| pipeline_with(text, &context(&[(name, "1")])).unwrap();
    assert_eq!(
        job(&of("A"), "b").needs.as_deref(),
        Some(&["a".to_string()][..])
    );
    let without = of("OTHER");
    assert_eq!(job(&without, "b").needs.as_deref(), Some(&[][..]));
    assert_eq!(job(&without, "b").dependencies.as_deref(), Some(&[][..]));
    // Without needs, a dependency that is left out is simply not there.
    assert_eq!(job(&without, "c").dependencies.as_deref(), Some(&[][..]));
}

#[test]
fn a_need_that_the_rules_leave_out_is_said_where_it_is_named() {
    let text =
        "a:\n  stage: build\n  script: x\n  rules: [{if: $A}]\nb:\n  script: x\n  needs: [a]\n";
    let error = pipeline_with(text, &Context::default()).unwrap_err();
    assert!(
        error.starts_with("ci.yml:7:11: job \"b\": it needs `a`, which the rules leave out;"),
        "{error}"
    );
}

#[test]
fn a_pattern_in_a_variable_that_is_none_is_said_where_it_is_used() {
    let text = "a:\n  script: x\n  rules:\n    - if: $A =~ $B\n";
    let context = context(&[("A", "x"), ("B", "/hidden(/")]);
    let error = pipeline_with(text, &context).unwrap_err();
    assert!(
        error.starts_with("ci.yml:4:11: job \"a\": this `if` cannot be decided"),
        "{error}"
    );
    assert!(!error.contains("hidden"), "{error}");
}

#[test]
fn extends_merges_mappings_deeply_and_replaces_lists() {
    let text = ".a:\n  script: [a]\n  variables: {A: a, B: a}\n  tags: [a]\n\
                .b:\n  variables: {B: b, C: b}\n  image: b\n\
                .c: {extends: .a, variables: {C: c}}\n\
                one: {extends: [.a, .b], tags: [one], variables: {D: one}}\n\
                two: {extends: [.b, .c]}\n\
                three: {extends: .a, script: [three], variables: null}\n\
                four: {extends: one, image: four}\n";
    let pipeline = pipeline(text);
    let variables = |name| {
        let variables = job(&pipeline, name).variables.iter();
        let pairs = variables.map(|(name, variable)| format!("{name}={}", variable.value));
        pairs.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(variables("one"), "A=a B=b C=b D=one");
    assert_eq!(job(&pipeline, "one").tags, ["one"]);
    assert_eq!(job(&pipeline, "one").script, ["a"]);
    assert_eq!(variables("two"), "A=a B=a C=c");
    assert_eq!(variables("three"), "");
    assert_eq!(job(&pipeline, "three").script, ["three"]);
    assert_eq!(variables("four"), "A=a B=b C=b D=one");
    assert_eq!(job(&pipeline, "four").image.as_ref().unwrap().name, "four");
}

/// A chain `j0 <- j1 <- …` of so many jobs.
fn chain(jobs: usize) -> String {
    let links = (1..jobs).map(|n| format!("j{n}: {{extends: j{}}}\n", n - 1));
    format!("j0: {{script: x}}\n{}", links.collect::<String>())
}

#[test]
fn extends_goes_over_eleven_levels_and_no_more() {
    assert_eq!(pipeline(&chain(11)).jobs.len(), 11);
    let error = pipeline_with(&chain(12), &Context::default()).unwrap_err();
    assert!(error.contains("more than 11 levels"), "{error}");
    // The same in the other order, where the longest chain is met first.
    let text: String = chain(12)
        .lines()
        .rev()
        .map(|line| format!("{line}\n"))
        .collect();
    let error = pipeline_with(&text, &Context::default()).unwrap_err();
    assert!(error.contains("more than 11 levels"), "{error}");
}

#[test]
fn references_take_parts_of_other_jobs_after_extends() {
    let text = ".base: {script: [one]}\n.setup: {extends: .base, variables: {URL: u, N: 2}}\n\
                .rules: {rules: [{if: $NO, when: never}]}\n\
                .all: {script: [!reference [.setup, script], two]}\n\
                j:\n  script:\n    - !reference [.all, script]\n    - three\n\
                \x20 variables: {MY: !reference [.setup, variables, URL]}\n\
                \x20 rules:\n    - !reference [.rules, rules]\n    - if: $CI\n\
                k: {script: !reference [j, script], variables: !reference [.setup, variables]}\n";
    let pipeline = pipeline_with(text, &context(&[("CI", "true")])).unwrap();
    assert_eq!(job(&pipeline, "j").script, ["one", "two", "three"]);
    assert_eq!(value(job(&pipeline, "j"), "MY"), Some("u"));
    assert_eq!(job(&pipeline, "k").script, ["one", "two", "three"]);
    assert_eq!(value(job(&pipeline, "k"), "N"), Some("2"));
}

#[test]
fn anchors_and_merge_keys_serve_jobs() {
    let text = ".tmpl: &tmpl\n  image: alpine\n  variables: &vars {A: a}\n\
                .lines: &lines [one, two]\n\
                j:\n  <<: *tmpl\n  script: [*lines, three]\n  variables:\n    <<: *vars\n    B: b\n";
    let pipeline = pipeline(text);
    let j = job(&pipeline, "j");
    assert_eq!(j.image.as_ref().unwrap().name, "alpine");
    assert_eq!(j.script, ["one", "two", "three"]);
    assert_eq!((value(j, "A"), value(j, "B")), (Some("a"), Some("b")));
}

#[test]
fn artifacts_and_the_rest_of_a_job_are_read() {
    let text = "j:\n  script: x\n  timeout: 1h 30m\n  tags: [a, b]\n\
                \x20 retry: {max: 2, when: [script_failure, api_failure], exit_codes: 3}\n\
                \x20 artifacts:\n    name: $CI_JOB_NAME\n    paths: [out/, '*.log']\n    exclude: [out/tmp]\n\
                \x20   untracked: true\n    when: always\n    expire_in: 1 week\n\
                \x20   reports:\n      junit: report.xml\n      dotenv: [a.env, b.env]\n\
                \x20     coverage_report: {coverage_format: cobertura, path: c.xml}\n";
    let pipeline = pipeline(text);
    let j = job(&pipeline, "j");
    assert_eq!(j.timeout_secs, Some(5_400));
    assert_eq!(j.retry.when, ["script_failure", "api_failure"]);
    assert_eq!((j.retry.max, &j.retry.exit_codes[..]), (2, &[3][..]));
    let json = serde_json::to_value(j.artifacts.as_ref().unwrap()).unwrap();
    let expected = serde_json::json!({
        "name": "$CI_JOB_NAME", "paths": ["out/", "*.log"], "exclude": ["out/tmp"],
        "untracked": true, "when": "always", "expire_in": "1 week",
        "reports": {"junit": ["report.xml"], "dotenv": ["a.env", "b.env"], "cobertura": ["c.xml"]},
    });
    assert_eq!(json, expected);
}

#[test]
fn always_among_the_reasons_of_a_retry_means_any() {
    let of = |retry: &str| {
        let pipeline = pipeline(&format!("j: {{script: x, retry: {retry}}}\n"));
        let retry = &job(&pipeline, "j").retry;
        (retry.max, retry.when.join(" "), retry.exit_codes.clone())
    };
    let row = |max, when: &str, codes: &[i64]| (max, when.to_owned(), codes.to_vec());
    assert_eq!(of("{max: 1, when: always}"), row(1, "", &[]));
    assert_eq!(
        of("{max: 1, when: [api_failure, always], exit_codes: 2}"),
        row(1, "", &[])
    );
    assert_eq!(of("{max: 1, exit_codes: [2]}"), row(1, "", &[2]));
    assert_eq!(of("{when: api_failure}"), row(0, "api_failure", &[]));
}

#[test]
fn hidden_jobs_run_never_and_may_hold_anything() {
    let text = ".a: [1, 2]\n.b: text\n.c: {nonsense: true}\nj: {script: x}\n";
    assert_eq!(names(&pipeline(text)), ["j"]);
}

#[test]
fn a_keyword_that_is_null_is_as_if_it_were_not_there() {
    let text =
        "variables:\nworkflow:\nj: {script: x, image: null, needs: , rules: null, cache: null}\n";
    let pipeline = pipeline(text);
    assert_eq!(
        (&job(&pipeline, "j").image, &job(&pipeline, "j").needs),
        (&None, &None)
    );
}

#[test]
fn a_cache_has_what_gitlab_gives_it_and_a_job_gets_rid_of_one_by_an_empty_mapping() {
    let text = "cache: {paths: [a]}
a: {script: x}
b: {script: x, cache: {}}
c:
  script: x
  cache:
    - key: deps-$CI_COMMIT_REF_SLUG
      paths: [deps/]
      policy: pull
      fallback_keys: [deps]
    - {key: odd, untracked: true, unprotect: true, policy: $HOW, when: always}
";
    let pipeline = pipeline(text);
    let plain = Cache {
        key: "default".to_owned(),
        paths: vec!["a".to_owned()],
        policy: "pull-push".to_owned(),
        ..Cache::default()
    };
    assert_eq!(job(&pipeline, "a").caches, [plain]);
    assert_eq!(job(&pipeline, "b").caches, []);
    let [deps, odd] = &job(&pipeline, "c").caches[..] else {
        panic!("two caches");
    };
    assert_eq!(deps.key, "deps-$CI_COMMIT_REF_SLUG");
    assert_eq!(
        (deps.policy.as_str(), deps.when),
        ("pull", ArtifactsWhen::OnSuccess)
    );
    assert_eq!(deps.fallback_keys, ["deps"]);
    assert_eq!(
        (odd.policy.as_str(), odd.when),
        ("$HOW", ArtifactsWhen::Always)
    );
    assert!(odd.untracked && odd.unprotect && !deps.untracked && !deps.unprotect);
}

#[test]
fn a_job_has_the_hook_of_default_unless_it_has_its_own() {
    let text = "default: {hooks: {pre_get_sources_script: [a, b]}}
a: {script: x}
b: {script: x, hooks: {pre_get_sources_script: c}}
";
    let pipeline = pipeline(text);
    assert_eq!(job(&pipeline, "a").pre_get_sources, ["a", "b"]);
    assert_eq!(job(&pipeline, "b").pre_get_sources, ["c"]);
}
