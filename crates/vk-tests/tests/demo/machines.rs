//! The examples in microVMs, as `make demo` runs them.

use std::fs;

use crate::run::{Place, Ran, ran, test_root};

fn example(place: &Place, name: &str, variables: &str) -> Ran {
    let dir = place.example(name);
    let run = ran(&mut place.command(&dir, &["--variables", variables]));
    assert_eq!(run.code, Some(0), "{name}");
    let result = place.result();
    assert_eq!(result["broken"].as_array().unwrap().len(), 0);
    for job in result["jobs"].as_array().unwrap() {
        for key in [
            "queue_ms",
            "boot_ms",
            "wall_ms",
            "peak_bytes",
            "to_first_line_ms",
        ] {
            assert!(
                job[key].as_u64().is_some_and(|value| value > 0),
                "{key}: {job}"
            );
        }
        assert_eq!(job["vmm"], "qemu");
    }
    assert!(run.out.contains("\nVMM: qemu, accelerator: "));
    run
}

#[test]
fn the_examples_run_in_machines() {
    let Some(root) = test_root("examples") else {
        return;
    };
    let place = Place::with_machines(&root);
    let secret = "Zq4TvB91kXw7LmP2";
    let variables = place.variables(&format!(
        "[DEPLOY_TOKEN]\nvalue = '{secret}'\nmasked = true\n"
    ));
    let variables = variables.to_str().unwrap();
    let hello = example(&place, "hello", variables);
    assert!(
        hello
            .out
            .contains("\nhello from hello, job 1 of lab/hello\n")
    );
    assert!(hello.out.contains("\nLinux "));
    let left = fs::read_to_string(place.path("out/jobs/hello/artifacts/hello.txt")).unwrap();
    assert_eq!(left, "hello\n");
    let pipeline = example(&place, "pipeline", variables);
    assert!(!pipeline.err.contains("importing"), "once for a file");
    assert!(pipeline.out.contains("the token is [MASKED], signed=yes"));
    assert_eq!(place.job("test:picky")["exit_code"], 1);
    assert!(
        place
            .path("out/jobs/package/artifacts/package.tar")
            .exists()
    );
    for run in [&hello, &pipeline] {
        assert!(!run.out.contains(secret) && !run.err.contains(secret));
    }
    assert!(
        !holds(&place.path("out"), secret.as_bytes()),
        "what is left"
    );
    assert!(
        !holds(&place.path("state"), secret.as_bytes()),
        "what stays"
    );
    place.assert_nothing_is_left();
}

/// Whether a file below a folder holds these bytes.
fn holds(folder: &std::path::Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Images hold what they held before.
            return path.file_name().unwrap() != "images" && holds(&path, bytes);
        }
        let text = fs::read(&path).unwrap();
        text.windows(bytes.len()).any(|window| window == bytes)
    })
}
