use vk_hub_proto::job::{JobSpec, JobUsage};
use vk_node_core::sizing::from_history;

use super::*;

fn job(project: u64, name: &str) -> CiJob {
    let json = include_str!("../../../vk-hub-proto/tests/golden/start_without_reservation.json");
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let spec: JobSpec = serde_json::from_value(value["spec"].clone()).unwrap();
    let JobSpec::GitlabCi(mut job) = spec;
    job.job.project_id = project;
    name.clone_into(&mut job.job.name);
    *job
}

fn used(mib: u64) -> JobResult {
    JobResult {
        failure: None,
        exit_code: Some(0),
        message: None,
        output_len: 0,
        artifacts: Vec::new(),
        usage: Some(JobUsage {
            peak_mem_bytes: Some(mib << 20),
            ..JobUsage::default()
        }),
    }
}

/// ADM-33
#[test]
fn runs_are_kept_by_project_and_job_and_say_what_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PastRuns::in_dir(dir.path().join("history"));
    let of = |project, name: &str| runs.of(&job(project, name));
    for mib in [600, 700, 1000, 800, 640] {
        of(7, "build: [a/b]").add(4096, &used(mib)).unwrap();
        of(8, "build: [a/b]").add(4096, &used(2 * mib)).unwrap();
    }
    of(7, "build: [a/c]").add(4096, &used(3000)).unwrap();
    let read = of(7, "build: [a/b]").read();
    assert_eq!(read.len(), 5);
    assert!(read.iter().all(|run| run.age_secs < 600), "{read:?}");
    assert_eq!(from_history(&read, 4096), Some(1250));
    assert_eq!(from_history(&read, 2048), None);
    let other = of(8, "build: [a/b]").read();
    assert_eq!(from_history(&other, 4096), Some(2500));
    assert_eq!(of(7, "never").read(), []);
}

#[test]
fn a_run_without_a_vm_counts_for_nothing_and_nonsense_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PastRuns::in_dir(dir.path().join("history"));
    let of = runs.of(&job(7, "../../etc/passwd"));
    of.add(
        4096,
        &JobResult {
            usage: None,
            ..used(0)
        },
    )
    .unwrap();
    of.add(4096, &used(0)).unwrap();
    assert_eq!(of.read(), []);
    of.add(4096, &used(5)).unwrap();
    let inside = of.file.strip_prefix(&runs.dir).unwrap();
    assert_eq!(inside.components().count(), 2, "{}", inside.display());
    let mut text = fs::read_to_string(&of.file).unwrap();
    text.push_str("\nx 1 2\n1 2\n1 -2 3\n99999999999 7 4096 later\ntor");
    fs::write(&of.file, text).unwrap();
    let peaks: Vec<u64> = of.read().iter().map(|run| run.peak_mib).collect();
    assert_eq!(peaks, [5, 7]);
}

#[test]
fn a_file_is_cut_to_its_last_runs() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PastRuns::in_dir(dir.path().join("history"));
    let of = runs.of(&job(7, "job"));
    for mib in 1..=6000 {
        of.add(4096, &used(mib)).unwrap();
    }
    let read = of.read();
    assert!(
        read.len() <= RUNS && read.len() >= RUNS / 2,
        "{}",
        read.len()
    );
    assert_eq!(read.last().unwrap().peak_mib, 6000);
    assert!(fs::metadata(&of.file).unwrap().len() <= CUT_BYTES + 100);
}
