//! What is wrong with a file is said with its place, all at once, and nothing is ignored.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use vk_ci_config::{Config, limit};

fn faults(text: &str) -> Vec<String> {
    let error = Config::parse("ci.yml", text).map(|_| ()).unwrap_err();
    error.to_string().lines().map(String::from).collect()
}

/// The text has exactly this one fault, which begins and goes on so.
fn one(text: &str, begins: &str, says: &str) {
    let faults = faults(text);
    let [fault] = &faults[..] else {
        panic!("{text}\n{faults:#?}");
    };
    assert!(
        fault.starts_with(begins) && fault.contains(says),
        "{text}\n{fault}"
    );
    assert!(fault.contains("; "), "no hint: {fault}");
}

/// A job with this line at 3:3.
fn in_job(line: &str) -> String {
    format!("j:\n  script: x\n  {line}\n")
}

#[test]
fn keywords_that_are_not_supported_are_refused_where_they_stand() {
    let keys = [
        "services: [a]",
        "only: [main]",
        "except: [main]",
        "environment: prod",
        "coverage: /x/",
        "parallel: 3",
        "trigger: a/b",
        "release: {tag_name: x}",
        "resource_group: x",
        "secrets: {A: b}",
        "id_tokens: {A: b}",
        "inherit: {default: false}",
        "interruptible: true",
        "pages: true",
        "start_in: 1 day",
        "run: []",
    ];
    for key in keys {
        let name = key.split(':').next().unwrap();
        let says = format!("`{name}` is not supported here");
        one(&in_job(key), "ci.yml:3:3: job \"j\": ", &says);
    }
    for key in ["include: a.yml", "services: [a]", "types: [a]"] {
        one(
            &format!("j: {{script: x}}\n{key}\n"),
            "ci.yml:2:1: `",
            "not supported here",
        );
    }
    one(
        "pages:\n  script: x\nj: {script: x}\n",
        "ci.yml:1:1: a job `pages`",
        "another name",
    );
}

#[test]
fn a_job_of_a_keyword_that_is_not_supported_is_said_once() {
    one(
        "j:\n  trigger: a/b\n",
        "ci.yml:2:3: job \"j\": `trigger` is not",
        "",
    );
}

#[test]
fn keywords_that_are_none_are_refused_where_they_stand() {
    let rows = [
        (in_job("scirpt: y"), "3:3", "`scirpt` is no keyword"),
        (
            in_job("artifacts: {path: [a]}"),
            "3:15",
            "`artifacts:path` is no keyword",
        ),
        (
            in_job("artifacts: {public: false}"),
            "3:15",
            "`artifacts:public` is not supported",
        ),
        (
            in_job("artifacts: {reports: {foo: a}}"),
            "3:25",
            "`artifacts:reports:foo` is no type",
        ),
        (
            in_job("image: {name: a, x: b}"),
            "3:20",
            "`image:x` is no keyword",
        ),
        (
            in_job("image: {name: a, pull_policy: b}"),
            "3:20",
            "`image:pull_policy` is not",
        ),
        (
            in_job("retry: {max: 1, foo: 2}"),
            "3:19",
            "`retry:foo` is no keyword",
        ),
        (
            in_job("allow_failure: {exit_code: 1, exit_codes: 1}"),
            "3:19",
            "`allow_failure:exit_code`",
        ),
        (
            in_job("rules: [{changes: [a]}]"),
            "3:12",
            "`rules:changes` is not supported",
        ),
        (
            in_job("rules: [{if: $A, exists: [a]}]"),
            "3:20",
            "`rules:exists` is not supported",
        ),
        (
            in_job("rules: [{unless: $A}]"),
            "3:12",
            "`rules:unless` is no keyword",
        ),
        (
            in_job("needs: [{pipeline: p, job: a, optional: true}]"),
            "3:12",
            "`needs:pipeline` is",
        ),
        (
            in_job("variables: {A: {value: a, description: b}}"),
            "3:29",
            "`variables:NAME:descr",
        ),
    ];
    for (text, place, says) in rows {
        one(&text, &format!("ci.yml:{place}: job \"j\": "), says);
    }
    let rows = [
        (
            "workflow: {name: x}",
            "2:12",
            "`workflow:name` is not supported",
        ),
        (
            "workflow: {rules: [{if: $A, allow_failure: true}]}",
            "2:29",
            "`workflow:rules:allow",
        ),
        (
            "default: {coverage: /x/}",
            "2:11",
            "`coverage` is not supported in `default`",
        ),
        (
            "default: {timeout: 1h}",
            "2:11",
            "GitLab gives no job the `timeout`",
        ),
    ];
    for (line, place, says) in rows {
        one(
            &format!("j: {{script: x}}\n{line}\n"),
            &format!("ci.yml:{place}: "),
            says,
        );
    }
}

#[test]
fn values_of_the_wrong_kind_are_refused_where_they_stand() {
    let rows = [
        (
            "after_script: 5",
            "3:17",
            "`after_script` takes text or a list of texts, and this is a num",
        ),
        (
            "after_script: [a: b]",
            "3:18",
            "put it into quotes if it is text with a colon",
        ),
        ("after_script: [true]", "3:18", "and this is a truth value"),
        (
            "stage: [a]",
            "3:10",
            "`stage` takes text, and this is a list",
        ),
        ("image: 5", "3:10", "`image` takes"),
        ("image: ''", "3:10", "`image` has no name"),
        ("image: {entrypoint: [a]}", "3:10", "`image` has no name"),
        ("variables: [A]", "3:14", "`variables` takes a mapping"),
        ("variables: {A: [b]}", "3:18", "`variables` takes a text"),
        ("variables: {A: null}", "3:18", "and this is nothing"),
        (
            "variables: {A-B: c}",
            "3:15",
            "a name that no variable can have",
        ),
        (
            "variables: {A: {value: a, expand: 1}}",
            "3:37",
            "`expand` takes true or false",
        ),
        ("artifacts: [a]", "3:14", "`artifacts` takes a mapping"),
        (
            "artifacts: {paths: a}",
            "3:22",
            "`artifacts:paths` takes a list",
        ),
        (
            "artifacts: {when: manual}",
            "3:21",
            "on_success, on_failure or always",
        ),
        ("artifacts: {expire_in: soon}", "3:26", "no duration"),
        ("artifacts: {untracked: 'yes'}", "3:26", "true or false"),
        (
            "artifacts: {reports: {coverage_report: {path: a}}}",
            "3:42",
            "lacks `coverage_format`",
        ),
        (
            "artifacts: {reports: {coverage_report: {path: a, coverage_format: x}}}",
            "3:69",
            "cobertura or jacoco",
        ),
        ("needs: a", "3:10", "`needs` takes a list"),
        ("needs: [5]", "3:11", "`needs` takes names of jobs"),
        ("needs: [{optional: true}]", "3:11", "lacks `job`"),
        ("dependencies: a", "3:17", "`dependencies` takes a list"),
        ("when: never", "3:9", "it belongs into `rules`"),
        ("when: delayed", "3:9", "`when: delayed` is not supported"),
        ("when: sometimes", "3:9", "`when` knows no `sometimes`"),
        (
            "allow_failure: 1",
            "3:18",
            "`allow_failure` takes true, false or a mapping",
        ),
        ("allow_failure: {}", "3:18", "lacks `exit_codes`"),
        ("allow_failure: {exit_codes: [x]}", "3:32", "a whole number"),
        ("timeout: soon", "3:12", "`timeout` is no duration"),
        ("timeout: 2 months", "3:12", "longer than a month"),
        (
            "timeout: 3600",
            "3:12",
            "`timeout` takes text, and this is a number",
        ),
        ("retry: 3", "3:10", "takes 0, 1 or 2"),
        ("retry: x", "3:10", "`retry` takes a number or a mapping"),
        ("retry: {when: bored}", "3:17", "no reason `bored`"),
        ("tags: a", "3:9", "`tags` takes a list"),
        ("rules: {if: $A}", "3:10", "`rules` takes a list of rules"),
        ("rules: []", "3:10", "has no rule"),
        ("rules: [{}]", "3:11", "a rule is empty"),
        ("rules: [$A]", "3:11", "`rules` takes mappings"),
        ("rules: [{if: true}]", "3:16", "`rules:if` takes text"),
        ("rules: [{if: $A = 1}]", "3:16", "at its character 4"),
        (
            "rules: [{when: delayed}]",
            "3:18",
            "`rules:when: delayed` is not supported",
        ),
        (
            "rules: [{when: soon}]",
            "3:18",
            "`rules:when` knows no `soon`",
        ),
        (
            "rules: [{if: $A, allow_failure: {exit_codes: 1}}]",
            "3:35",
            "true or false",
        ),
        (
            "rules: [{if: $A, variables: {A: {value: b}}}]",
            "3:35",
            "`rules:variables` takes",
        ),
    ];
    for (line, place, says) in rows {
        one(&in_job(line), &format!("ci.yml:{place}: job \"j\": "), says);
    }
    let rows = [
        ("stages: build", "2:9", "`stages` takes a list"),
        ("workflow: [a]", "2:11", "`workflow` takes a mapping"),
        (
            "workflow: {rules: [{when: manual}]}",
            "2:27",
            "it takes always or never",
        ),
        (
            "variables: {A: {value: a, options: [b, c]}}",
            "2:36",
            "not among its `options`",
        ),
        ("default: 5", "2:10", "`default` is a number"),
        ("k: text", "2:4", "neither a keyword nor a job"),
    ];
    for (line, place, says) in rows {
        one(
            &format!("j: {{script: x}}\n{line}\n"),
            &format!("ci.yml:{place}: "),
            says,
        );
    }
}

#[test]
fn a_job_needs_a_script() {
    one(
        "j:\n  stage: test\n",
        "ci.yml:1:1: job \"j\": it has no `script`",
        "",
    );
    one(
        "j:\n  script: []\n",
        "ci.yml:2:11: job \"j\": `script` is empty",
        "",
    );
    one(
        "j:\n  script: ''\n",
        "ci.yml:2:11: job \"j\": `script` is empty",
        "",
    );
    one(".j:\n  script: x\n", "ci.yml: the file has no job", "");
    one("", "ci.yml:1:1: the file is empty", "");
    one("- a\n", "ci.yml:1:1: the file is a list", "");
}

#[test]
fn jobs_name_stages_and_jobs_that_are_there_and_come_before() {
    let file = |line: &str| {
        format!(
            "b: {{stage: build, script: x}}\nd: {{stage: deploy, script: x}}\n.h: {{script: x}}\n\
                 s: {{script: x}}\nj:\n  script: x\n  {line}\n"
        )
    };
    let rows = [
        ("stage: lint", "7:10", "its stage `lint` is not among"),
        (
            "needs: [nope]",
            "7:11",
            "`needs` names `nope`, which is not in the file",
        ),
        (
            "needs: [.h]",
            "7:11",
            "`needs` names `.h`, which is not in the file",
        ),
        ("needs: [d]", "7:11", "whose stage `deploy` comes later"),
        ("needs: [{job: d, optional: true}]", "7:17", "comes later"),
        ("needs: [b, b]", "7:14", "names `b` twice"),
        ("needs: [j]", "5:1", "need each other in a circle"),
        (
            "dependencies: [nope]",
            "7:18",
            "`dependencies` names `nope`",
        ),
        ("dependencies: [d]", "7:18", "comes later"),
        ("dependencies: [s]", "7:18", "of the same stage"),
    ];
    for (line, place, says) in rows {
        one(&file(line), &format!("ci.yml:{place}: job \"j\": "), says);
    }
    let both = "b: {stage: build, script: x}\nj: {script: x, needs: [], dependencies: [b]}\n";
    one(both, "ci.yml:2:42: job \"j\": ", "add it to `needs` too");
    let circle =
        "c: {script: x, needs: [a]}\na: {script: x, needs: [b]}\nb: {script: x, needs: [a]}\n";
    one(circle, "ci.yml:2:1: job \"a\": ", "circle");
}

#[test]
fn extends_and_references_that_lead_nowhere_are_refused() {
    let rows = [
        (
            "j: {extends: .a}\n",
            "1:14",
            "it extends `.a`, which is not in the file",
        ),
        (
            ".a: [x]\nj: {extends: .a}\n",
            "2:14",
            "which is not a mapping",
        ),
        ("j: {extends: 5}\n", "1:14", "`extends` names a number"),
        (
            "j: {extends: [.a, [b]]}\n.a: {}\n",
            "1:19",
            "`extends` names a list",
        ),
        (
            ".a: {extends: .b}\n.b: {extends: .a}\nj: {extends: .a}\n",
            "2:15",
            "comes back to `.a`",
        ),
        (
            "j: {script: !reference [.a, script]}\n",
            "1:24",
            "`!reference [.a, script]` leads nowhere",
        ),
        (
            "j: {script: [!reference [j, script, x]]}\n",
            "1:25",
            "leads nowhere",
        ),
        (
            "j: {script: [!reference [j, script]]}\n",
            "1:25",
            "more than 10 references",
        ),
    ];
    for (text, place, says) in rows {
        one(text, &format!("ci.yml:{place}: job \""), says);
    }
}

#[test]
fn yaml_that_does_not_parse_is_said_with_its_line() {
    one("j:\n  script: x\n  image: [a\n", "ci.yml:", "not YAML");
    one("j:\n\tscript: x\n", "ci.yml:2:2: this is not YAML", "");
    one(
        "a: {script: x}\na: {script: y}\n",
        "ci.yml:2:1: `a` stands twice",
        "",
    );
    one(
        "spec: {inputs: {}}\n---\na: {script: x}\n",
        "ci.yml:2:1: a second document",
        "spec:",
    );
}

#[test]
fn image_at_the_top_and_in_default_is_one_too_many() {
    let text = "default: {image: a}\nimage: b\nj: {script: x}\n";
    one(
        text,
        "ci.yml:2:1: `image` stands at the top",
        "keep the one in `default`",
    );
}

#[test]
fn all_faults_are_said_at_once_in_the_files_order_and_a_shared_one_once() {
    let text = "b:\n  script: 5\n  foo: 1\na:\n  image: []\n  script: x\n  needs: [c]\n";
    let found = faults(text);
    let places: Vec<&str> = found
        .iter()
        .map(|fault| fault.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        ["ci.yml:2:11", "ci.yml:3:3", "ci.yml:5:10", "ci.yml:7:11"]
    );
    let text = "default: {image: []}\na: {script: x}\nb: {script: x}\n";
    one(text, "ci.yml:1:18: ", "`image` takes");
}

#[test]
fn of_very_many_faults_the_first_twenty_are_said_and_the_rest_counted() {
    let keys: String = (0..25).map(|n| format!("  k{n}: 1\n")).collect();
    let found = faults(&format!("j:\n  script: x\n{keys}"));
    assert_eq!(found.len(), limit::MAX_FAULTS + 1);
    assert_eq!(found.last().unwrap(), "ci.yml: 5 more faults");
}

#[test]
fn files_jobs_and_copies_are_bounded() {
    let big = format!("j: {{script: x}}\n#{}\n", "x".repeat(limit::MAX_FILE));
    one(&big, "ci.yml: the file has more than 1048576 bytes", "");
    let jobs = |count| {
        (0..count)
            .map(|n| format!("j{n}: {{script: x}}\n"))
            .collect::<String>()
    };
    assert!(Config::parse("f", &jobs(limit::MAX_JOBS)).is_ok());
    one(
        &jobs(limit::MAX_JOBS + 1),
        "ci.yml: the file has more than 500 jobs",
        "",
    );
    let needs: Vec<String> = (0..51).map(|n| format!("j{n}")).collect();
    let needs = format!(
        "{}z: {{script: x, needs: [{}]}}\n",
        jobs(51),
        needs.join(", ")
    );
    one(
        &needs,
        "ci.yml:52:23: job \"z\": `needs` has more than 50 entries",
        "",
    );
    let patterns = |count| {
        let rules = (0..count).map(|n| format!("    - if: $A =~ /x{n}/\n"));
        format!("j:\n  script: x\n  rules:\n{}", rules.collect::<String>())
    };
    assert!(Config::parse("f", &patterns(limit::MAX_PATTERNS)).is_ok());
    let many = patterns(limit::MAX_PATTERNS + 1);
    one(
        &many,
        "ci.yml:504:11: job \"j\": ",
        "there are more than 500 of them",
    );
    let name = format!("{}: {{script: x}}\n", "n".repeat(256));
    one(&name, "ci.yml:1:1: job ", "longer than 255");
    // Each level holds four times what the one below holds.
    let lines = vec!["x"; 500].join(", ");
    let mut text = format!(".r0: {{script: [{lines}]}}\n");
    for n in 1..10 {
        let below = format!("!reference [.r{}, script]", n - 1);
        text.push_str(&format!(
            ".r{n}: {{script: [{below}, {below}, {below}, {below}]}}\n"
        ));
    }
    text.push_str("j: {script: !reference [.r9, script]}\n");
    one(&text, "ci.yml:", "written out");
}

#[test]
fn a_cache_that_gitlab_would_refuse_or_that_cannot_be_had_is_refused_where_it_stands() {
    let rows = [
        ("cache: 1", "3:10", "`cache` takes a mapping"),
        ("cache: [a]", "3:11", "`cache` takes mappings"),
        (
            "cache: [{}, {}, {}, {}, {}]",
            "3:10",
            "`cache` has more than 4",
        ),
        (
            "cache: {key: {files: [a]}}",
            "3:16",
            "`cache:key` of `files`",
        ),
        ("cache: {policy: never}", "3:19", "`cache:policy` takes"),
        ("cache: {when: manual}", "3:17", "`cache:when` takes"),
        (
            "cache: {fallback_keys: [a, b, c, d, e, f]}",
            "3:26",
            "more than 5",
        ),
        ("cache: {path: [a]}", "3:11", "`cache:path` is no keyword"),
        (
            "hooks: {post_get_sources_script: x}",
            "3:11",
            "`hooks:post_get_sources_script` is no keyword",
        ),
    ];
    for (line, place, says) in rows {
        one(&in_job(line), &format!("ci.yml:{place}: job \"j\": "), says);
    }
}
