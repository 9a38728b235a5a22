//! A job's variables, and what is read of them.

use super::*;
use crate::testing::job;

fn read(rows: &[(&str, &str)]) -> Settings {
    Settings::read(&job(), |name| {
        let found = rows.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// STAGE-07, STAGE-10
#[test]
fn the_strategy_is_what_the_job_says() {
    for (value, strategy, checkout) in [
        ("", Strategy::Fetch, true),
        ("clone", Strategy::Clone, true),
        ("fetch", Strategy::Fetch, true),
        ("none", Strategy::None, false),
        ("empty", Strategy::Empty, false),
    ] {
        let settings = read(&[("GIT_STRATEGY", value)]);
        assert_eq!(
            (settings.strategy, settings.checkout),
            (strategy, checkout),
            "{value}"
        );
        assert_eq!(settings.warnings, Vec::<String>::new());
    }
    let settings = read(&[("GIT_STRATEGY", "rsync"), ("GIT_CHECKOUT", "maybe")]);
    assert_eq!(settings.strategy, Strategy::Fetch);
    assert_eq!(
        settings.warnings,
        [
            "GIT_STRATEGY: expected either 'clone', 'fetch', 'none' or 'empty' got \"rsync\", \
             using default value 'fetch'",
            "GIT_CHECKOUT: expected bool got \"maybe\", using default value: true"
        ]
    );
    assert!(!read(&[("GIT_CHECKOUT", "false")]).checkout);
}

#[test]
fn what_a_job_cannot_have_is_said() {
    for (name, value) in [
        ("GIT_SUBMODULE_STRATEGY", "deep"),
        ("GIT_FETCH_EXTRA_FLAGS", "--upload-pack=id"),
        ("GIT_FETCH_EXTRA_FLAGS", "--quiet -c core.fsmonitor=id"),
        ("GIT_FETCH_EXTRA_FLAGS", "--depth x"),
        (
            "GIT_FETCH_EXTRA_FLAGS",
            "https://elsewhere.example.com/p.git",
        ),
        ("GIT_CLONE_PATH", "/builds/../etc"),
        ("GIT_CLONE_PATH", "/buildsx"),
        ("GIT_CLONE_PATH", "relative"),
        ("GIT_CLONE_PATH", "/go/src"),
        ("GIT_CLONE_PATH", &format!("/builds/{}", "a".repeat(252))),
    ] {
        let refused = read(&[(name, value)]).refused.unwrap();
        assert!(refused.contains(name), "{refused}");
    }
    for (name, value) in [
        ("GIT_SUBMODULE_PATHS", ":(exclude) sub"),
        ("GIT_SUBMODULE_UPDATE_FLAGS", "--reference /etc"),
        ("GIT_SUBMODULE_UPDATE_FLAGS", "--jobs many"),
    ] {
        let rows = [("GIT_SUBMODULE_STRATEGY", "normal"), (name, value)];
        let refused = read(&rows).refused.unwrap();
        assert!(refused.contains(name), "{refused}");
    }
    let none = [("GIT_SUBMODULE_STRATEGY", "deep"), ("GIT_STRATEGY", "none")];
    assert_eq!(read(&none).refused, None);
}

/// STAGE-11
#[test]
fn flags_of_clean_and_fetch_are_split_at_white_space() {
    let plain = read(&[]).git;
    assert_eq!(plain.clean, ["-ffdx"]);
    assert_eq!(plain.fetch, FetchFlags::default());
    let rows = [
        ("GIT_CLEAN_FLAGS", " -ffd  -e a;b $(e)"),
        (
            "GIT_FETCH_EXTRA_FLAGS",
            "--prune --tags --depth 7 --jobs=3 --shallow-since=2020-01-01",
        ),
    ];
    let git = read(&rows).git;
    assert_eq!(git.clean, ["-ffd", "-e", "a;b", "$(e)"]);
    let fetch = FetchFlags {
        tags: Tags::All,
        depth: Some(7),
        shallow: vec!["--shallow-since=2020-01-01".to_owned()],
    };
    assert_eq!(git.fetch, fetch);
    assert_eq!(
        read(&[("GIT_CLEAN_FLAGS", "none")]).git.clean,
        Vec::<String>::new()
    );
    let fetch = read(&[("GIT_FETCH_EXTRA_FLAGS", "--unshallow --no-tags")]);
    assert_eq!(
        (fetch.git.fetch.depth, fetch.git.fetch.tags),
        (Some(0), Tags::None)
    );
}

/// STAGE-09
#[test]
fn submodules_are_as_a_job_wants_them() {
    assert_eq!(read(&[]).git.submodules, None);
    assert_eq!(
        read(&[("GIT_SUBMODULE_STRATEGY", "none")]).git.submodules,
        None
    );
    let normal = read(&[("GIT_SUBMODULE_STRATEGY", "normal")]);
    let normal = normal.git.submodules.unwrap();
    assert!(!normal.recursive && !normal.remote && !normal.force_https);
    assert_eq!((normal.depth, normal.jobs), (0, 1));
    let settings = read(&[
        ("GIT_SUBMODULE_STRATEGY", "recursive"),
        ("GIT_SUBMODULE_DEPTH", "5"),
        ("GIT_SUBMODULE_PATHS", "a :(exclude)b"),
        ("GIT_SUBMODULE_FORCE_HTTPS", "true"),
        ("GIT_SUBMODULE_UPDATE_FLAGS", "--jobs 400 --remote"),
    ]);
    let submodules = settings.git.submodules.unwrap();
    assert!(submodules.recursive && submodules.remote && submodules.force_https);
    assert_eq!((submodules.depth, submodules.jobs), (5, 16));
    assert_eq!(submodules.paths, ["a", ":(exclude)b"]);
    let odd = read(&[
        ("GIT_SUBMODULE_STRATEGY", "normal"),
        ("GIT_SUBMODULE_DEPTH", "deep"),
        ("GIT_SUBMODULE_UPDATE_FLAGS", "-j4"),
    ]);
    let text = "GIT_SUBMODULE_DEPTH: expected int got \"deep\", using default value: 0";
    assert_eq!(odd.warnings, [text]);
    assert_eq!(odd.git.submodules.unwrap().jobs, 4);
}

/// In gitlab-runner's words; a depth is read where no submodule is wanted, too.
#[test]
fn flags_that_are_no_bools_are_told_apart_from_settings() {
    let odd = read(&[
        ("GIT_LFS_SKIP_SMUDGE", "perhaps"),
        ("FF_SCRIPT_SECTIONS", "perhaps"),
        ("GIT_SUBMODULE_DEPTH", "deep"),
    ]);
    let texts = [
        "GIT_SUBMODULE_DEPTH: expected int got \"deep\", using default value: 0",
        "GIT_LFS_SKIP_SMUDGE: expected bool got \"perhaps\", using default value: false",
    ];
    assert_eq!(odd.warnings, texts);
    let fault = "FF_SCRIPT_SECTIONS: could not parse feature flag, expected bool, got perhaps";
    assert_eq!(odd.flag_faults, [fault]);
    assert!(!odd.script_sections && odd.git.lfs);
    // An empty flag is one that is no bool; an empty setting is none.
    let empty = read(&[("FF_SCRIPT_SECTIONS", ""), ("GIT_CHECKOUT", "")]);
    assert_eq!(empty.flag_faults.len(), 1);
    assert_eq!(empty.warnings, Vec::<String>::new());
    assert!(read(&[("FF_SCRIPT_SECTIONS", "true")]).script_sections);
}

#[test]
fn a_job_says_where_its_project_lies() {
    for (path, dir) in [
        ("/builds/go/src/x", "/builds/go/src/x"),
        ("/builds//go/./y/../src/", "/builds/go/src"),
        ("/builds", "/builds"),
    ] {
        let settings = read(&[("GIT_CLONE_PATH", path)]);
        assert_eq!(settings.refused, None);
        let place = place(&job(), settings.strategy, settings.clone_path.as_deref());
        assert_eq!(place.project_dir, dir);
        assert_eq!(place.temp_dir, format!("{dir}.tmp"));
    }
}

#[test]
fn the_project_lies_where_its_urls_path_says() {
    let mut job = job();
    for (url, path) in [
        ("https://gitlab.example.com/g/sub/p.git", "/builds/g/sub/p"),
        ("http://localhost:8080/g//p/", "/builds/g/p"),
        ("https://gitlab.example.com/../p.git", "/builds/project-3"),
        ("https://gitlab.example.com/a%2fb.git", "/builds/project-3"),
        (
            &format!("https://x/g/{}.git", "a".repeat(246)),
            "/builds/project-3",
        ),
        ("not a url", "/builds/project-3"),
        ("", "/builds/project-3"),
    ] {
        job.sources.repo_url = url.to_owned();
        assert_eq!(
            place(&job, Strategy::Fetch, None).project_dir,
            path,
            "{url}"
        );
    }
    job.sources.repo_url = "https://x/g/p.git".to_owned();
    let place = place(&job, Strategy::Empty, None);
    assert_eq!(place.project_dir, "/builds/g/p-empty");
    assert_eq!(place.temp_dir, "/builds/g/p-empty.tmp");
}

#[test]
fn an_artifacts_level_has_gitlab_runners_names() {
    use crate::archive::Level;
    for (value, level) in [
        ("", Level::Default),
        ("fastest", Level::Fastest),
        ("fast", Level::Fast),
        ("default", Level::Default),
        ("slow", Level::Slow),
        ("slowest", Level::Slowest),
    ] {
        let settings = read(&[("ARTIFACT_COMPRESSION_LEVEL", value)]);
        assert_eq!(settings.artifact_level, level, "{value}");
        assert_eq!(settings.warnings, Vec::<String>::new());
    }
    let settings = read(&[("ARTIFACT_COMPRESSION_LEVEL", "best")]);
    assert_eq!(settings.artifact_level, Level::Default);
    assert_eq!(settings.warnings.len(), 1);
}
