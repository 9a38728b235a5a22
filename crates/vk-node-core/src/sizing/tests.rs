use vk_hub_proto::Secret;
use vk_hub_proto::job::{
    CiJobInfo, Image, ObjectFormat, RefType, Sources, Step, TraceOptions, Variable, When,
};

use super::*;

fn job(variables: &[(&str, &str)], script: &[&str]) -> CiJob {
    CiJob {
        server_url: String::new(),
        server_ca_pem: None,
        job: CiJobInfo::default(),
        token: Secret::default(),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: String::new(),
            object_format: ObjectFormat::Sha1,
            ref_name: String::new(),
            ref_type: RefType::Branch,
            sha: String::new(),
            before_sha: String::new(),
            refspecs: Vec::new(),
            depth: 0,
            protected: None,
            allow_fetch: true,
        },
        image: Image::default(),
        services: Vec::new(),
        variables: variables
            .iter()
            .map(|(key, value)| Variable {
                key: (*key).to_owned(),
                value: (*value).into(),
                public: true,
                file: false,
                masked: false,
                raw: false,
            })
            .collect(),
        steps: vec![Step {
            name: "script".to_owned(),
            script: script.iter().map(|line| (*line).to_owned()).collect(),
            timeout_secs: 0,
            when: When::OnSuccess,
            allow_failure: false,
        }],
        hooks: Vec::new(),
        artifacts: Vec::new(),
        caches: Vec::new(),
        dependencies: Vec::new(),
        registry_credentials: Vec::new(),
        trace: TraceOptions::default(),
    }
}

const SIZES: Sizes = Sizes {
    cpus: 2,
    mem_mib: 2048,
    max_cpus: 8,
    max_mem_mib: 16384,
};

fn sized(variables: &[(&str, &str)], script: &[&str]) -> (u32, u64, usize) {
    let sized = size(&job(variables, script), SIZES);
    (sized.cpus, sized.mem_mib, sized.warnings.len())
}

/// ADM-15, ADM-32
#[test]
fn a_variable_wins_over_the_first_hint_and_that_over_the_default() {
    let hinted = ["make\n  # vk: mem=8G cpus=4", "# vk: cpus=6 mem=1G"];
    assert_eq!(sized(&[], &["make"]), (2, 2048, 0));
    assert_eq!(sized(&[], &hinted), (4, 8192, 0));
    assert_eq!(sized(&[("MICROVM_CPUS", "3")], &hinted), (3, 8192, 0));
    assert_eq!(sized(&[("MICROVM_MEM", "512M")], &hinted), (4, 512, 0));
    // The last of two variables wins, and an empty one equals none.
    let twice = [("MICROVM_CPUS", "3"), ("MICROVM_CPUS", "5")];
    assert_eq!(sized(&twice, &hinted), (5, 8192, 0));
    assert_eq!(sized(&[("MICROVM_CPUS", "")], &hinted), (4, 8192, 0));
}

/// ADM-32: a hint may stand in any step; a variable is read as GitLab sent it, which has put in
/// what it refers to: what only the runner knows is no size.
#[test]
fn a_hint_may_stand_in_any_step_and_a_variable_names_no_other() {
    let mut hinted = job(&[], &["make"]);
    let mut after = hinted.steps[0].clone();
    after.name = "after_script".to_owned();
    after.script = vec!["# vk: cpus=3".to_owned()];
    hinted.steps.push(after);
    assert_eq!(size(&hinted, SIZES).cpus, 3);
    let mut referring = job(&[("SIZE", "8G"), ("MICROVM_MEM", "$SIZE")], &["make"]);
    let sized = size(&referring, SIZES);
    assert_eq!(sized.mem_mib, 2048);
    assert_eq!(sized.warnings, ["MICROVM_MEM is not a size such as 8G"]);
    // A file variable's content is its value.
    referring.variables[1].value = "8G".into();
    referring.variables[1].file = true;
    assert_eq!(size(&referring, SIZES).mem_mib, 8192);
}

/// ADM-32, DISP-63
#[test]
fn the_node_cuts_what_is_more_than_it_gives_and_says_so() {
    let large = [("MICROVM_CPUS", "64"), ("MICROVM_MEM", "1T")];
    assert_eq!(sized(&large, &[]), (8, 16384, 2));
    assert_eq!(sized(&[("MICROVM_CPUS", "99999999999")], &[]), (8, 2048, 1));
}

/// A VM that cannot boot would be told as the node's failure.
#[test]
fn a_job_that_asks_for_less_than_any_vm_has_gets_the_least_and_is_told() {
    let asking = job(&[("MICROVM_MEM", "48M")], &[]);
    let least = size(&asking, SIZES);
    assert_eq!(least.mem_mib, MEM_MIB_MIN);
    assert_eq!(
        least.warnings,
        ["the job asks for 48 MiB of memory; a VM has at least 128 MiB"]
    );
    assert_eq!(sized(&[("MICROVM_MEM", "128M")], &[]), (2, 128, 0));
}

#[test]
fn what_does_not_parse_is_warned_about_without_its_value() {
    for text in [
        "lots",
        "-1",
        "0",
        "4.5",
        "12",
        "G",
        "9Q",
        "1G; rm -rf /",
        "é",
    ] {
        let sized = size(&job(&[("MICROVM_MEM", text)], &[]), SIZES);
        assert_eq!(sized.mem_mib, 2048, "{text}");
        let [warning] = sized.warnings.as_slice() else {
            panic!("{text}: {:?}", sized.warnings);
        };
        assert_eq!(warning, "MICROVM_MEM is not a size such as 8G");
    }
    assert_eq!(sized(&[], &["# vk: mem=plenty"]), (2, 2048, 1));
    assert_eq!(
        sized(&[], &["echo vk: mem=8G", "# vk mem=8G"]),
        (2, 2048, 0)
    );
}

#[test]
fn sizes_have_suffixes_of_powers_of_1024() {
    for (text, value) in [
        ("1048576", Some(1)),
        ("2048K", Some(2)),
        ("3m", Some(3)),
        ("4Gi", Some(4096)),
        ("1 TiB", Some(1 << 20)),
        ("99999999999T", None),
    ] {
        assert_eq!(mib(text), value, "{text}");
    }
}

/// ADM-33
#[test]
fn past_runs_set_aside_their_largest_peak_and_a_quarter() {
    let run = |age_days: u64, peak_mib| PastRun {
        age_secs: age_days * 24 * 3600,
        mem_mib: 8192,
        peak_mib,
    };
    let runs: Vec<_> = [1000, 1200, 1600, 900].map(|peak| run(1, peak)).to_vec();
    assert_eq!(from_history(&runs, 8192), None);
    let with = |more: PastRun| {
        let mut runs = runs.clone();
        runs.push(more);
        from_history(&runs, 8192)
    };
    assert_eq!(with(run(14, 100)), Some(2000));
    assert_eq!(with(run(15, 100)), None);
    assert_eq!(with(run(1, 8000)), Some(8192));
    assert_eq!(from_history(&[run(1, 10); 5], 8192), Some(512));
    assert_eq!(from_history(&[run(1, 10); 5], 4096), None);
}
