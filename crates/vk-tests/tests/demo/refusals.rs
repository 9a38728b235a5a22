//! What cannot be run is told with what to do, and leaves nothing.

use std::fs;

use crate::run::{Place, ran, test_root};

#[test]
fn a_configuration_that_is_wrong_is_told_with_its_line_and_nothing_is_started() {
    let Some(root) = test_root("configuration") else {
        return;
    };
    let place = Place::with_processes(&root);
    for (text, says) in [
        ("a:\n  script: [x]\n  service: db\n", ".gitlab-ci.yml:3:"),
        ("a:\n  script: [x\n", ".gitlab-ci.yml:"),
        (
            "a:\n  script: [x]\n\ninclude: other.yml\n",
            ".gitlab-ci.yml:4:",
        ),
        ("a:\n  script: [x]\n  needs: [b]\n", ".gitlab-ci.yml:3:"),
    ] {
        place.file(".gitlab-ci.yml", text);
        let run = place.run(&[]);
        assert_eq!(run.code, Some(2), "{text}");
        assert!(run.err.contains(says), "{text}: {}", run.err);
        assert!(run.out.is_empty(), "{}", run.out);
        assert!(!place.path("out").exists(), "{text}");
    }
    place.assert_nothing_is_left();
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    let Some(root) = test_root("input") else {
        return;
    };
    let place = Place::with_processes(&root);
    let none = place.run(&[]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("no .gitlab-ci.yml"), "{}", none.err);
    place.file(".gitlab-ci.yml", "a: {script: [x]}\n");
    let unknown = place.run(&["--job", "b"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("it has a"), "{}", unknown.err);
    place.file("secrets.toml", "A = 'x'\n");
    let inside = place.path("project/secrets.toml");
    let inside = place.run(&["--variables", inside.to_str().unwrap()]);
    assert_eq!(inside.code, Some(2));
    assert!(inside.err.contains("inside the project"), "{}", inside.err);
    for (option, value, says) in [
        ("--import", "a=gone.tar", "gone.tar for a"),
        ("--memory", "lots", "such as 2G"),
        ("--disk", "1", "less than 16M"),
    ] {
        let wrong = ran(&mut place.lab(&["run", "project", option, value]));
        assert_eq!(wrong.code, Some(2), "{}", wrong.err);
        assert!(wrong.err.contains(says), "{}", wrong.err);
    }
    let nowhere = ran(&mut place.lab(&["run", "nowhere"]));
    assert_eq!(nowhere.code, Some(2), "{}", nowhere.err);
    assert!(nowhere.err.contains("nowhere"), "{}", nowhere.err);
    place.assert_nothing_is_left();
}

/// `config` prints what the file says once all is put together, and that reads as the same again.
#[test]
fn a_configuration_is_printed_put_together() {
    let Some(root) = test_root("config") else {
        return;
    };
    let place = Place::with_processes(&root);
    place.file(
        ".gitlab-ci.yml",
        ".base: {image: busybox}\na: {extends: .base, script: [x]}\n",
    );
    let merged = |place: &Place| ran(&mut place.lab(&["config", "--merged", "project"]));
    let first = merged(&place);
    assert_eq!(first.code, Some(0));
    assert!(first.out.contains("image: busybox") && !first.out.contains("extends"));
    place.file(".gitlab-ci.yml", &first.out);
    assert_eq!(merged(&place).out, first.out);
    place.file(".gitlab-ci.yml", "a: {}\n");
    let wrong = ran(&mut place.lab(&["config", "project"]));
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains(".gitlab-ci.yml:1:"), "{}", wrong.err);
}

#[test]
fn an_image_that_is_nowhere_fails_its_job() {
    let Some(root) = test_root("image") else {
        return;
    };
    let place = Place::with_processes(&root);
    place.file(
        ".gitlab-ci.yml",
        "a: {image: '127.0.0.1:1/none:1', script: [x]}\n",
    );
    let run = place.run(&[]);
    assert_eq!(run.code, Some(1));
    assert!(run.out.contains("127.0.0.1:1/none:1"), "{}", run.out);
    assert!(place.job("a")["exit_code"].is_null());
    place.assert_nothing_is_left();
}

#[test]
fn a_fleet_that_does_not_start_is_told_with_its_own_words() {
    let Some(root) = test_root("fleet") else {
        return;
    };
    let place = Place::with_processes(&root);
    place.file(".gitlab-ci.yml", "a: {image: busybox, script: [x]}\n");
    fs::write(place.path("node.toml"), "[executor.vm]\ncpus = 0\n").unwrap();
    let run = place.run(&[]);
    assert_eq!(run.code, Some(5));
    assert!(run.err.contains("executor.vm.cpus"), "{}", run.err);
    // Alone, the program knows whom it misses.
    let alone = place.path("vk-lab");
    fs::copy(place.program("vk-lab"), &alone).unwrap();
    let run = ran(std::process::Command::new(&alone)
        .args(["run", "project", "--state", "state"])
        .current_dir(place.path(".")));
    assert_eq!(run.code, Some(5));
    assert!(run.err.contains("there is no vk beside"), "{}", run.err);
    place.assert_nothing_is_left();
}
