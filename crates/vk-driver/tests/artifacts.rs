//! Artifacts of whole jobs, to a GitLab and from it; the guest is a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

#[path = "support/gitlab.rs"]
mod gitlab;
#[path = "artifacts/stopped.rs"]
mod stopped;
mod support;

use std::io::{Cursor, Read as _, Write as _};

use gitlab::{Answer, GitLab, Request, status, with};
use serde_json::{Value, json};
use support::{Node, Ran, Started, add, spec};
use vk_driver::{ArtifactsAt, Control, Stop};
use vk_hub_proto::job::{ArtifactState, FailureClass};

fn artifact(kind: &str, format: &str, name: &str, paths: &[&str]) -> Value {
    json!({
        "name": name, "untracked": false, "paths": paths, "when": "always",
        "artifact_type": kind, "format": format, "expire_in": "1 week"
    })
}

/// Runs a job at a GitLab; archives of more than `cap` bytes are too large.
async fn run(node: &Node, gitlab: &GitLab, mut job: Value, cap: u64) -> Ran {
    job["server_url"] = json!(gitlab.url);
    let mut context = node.context(node.process(), job, node.job_dir());
    context.artifacts = ArtifactsAt::GitLab;
    context.artifact_cap = cap;
    Started::new(context).end().await
}

fn states(ran: &Ran) -> Vec<ArtifactState> {
    ran.result.artifacts.iter().map(|one| one.state).collect()
}

/// Every type that GitLab knows, with the one format it takes.
const TYPES: [(&str, &str); 28] = [
    ("archive", "zip"),
    ("lsif", "zip"),
    ("scip", "zip"),
    ("junit", "gzip"),
    ("metrics", "gzip"),
    ("dotenv", "gzip"),
    ("cobertura", "gzip"),
    ("jacoco", "gzip"),
    ("cyclonedx", "gzip"),
    ("annotations", "gzip"),
    ("repository_xray", "gzip"),
    ("sast", "raw"),
    ("secret_detection", "raw"),
    ("dependency_scanning", "raw"),
    ("container_scanning", "raw"),
    ("cluster_image_scanning", "raw"),
    ("dast", "raw"),
    ("license_scanning", "raw"),
    ("accessibility", "raw"),
    ("codequality", "raw"),
    ("performance", "raw"),
    ("browser_performance", "raw"),
    ("load_performance", "raw"),
    ("terraform", "raw"),
    ("requirements", "raw"),
    ("requirements_v2", "raw"),
    ("coverage_fuzzing", "raw"),
    ("api_fuzzing", "raw"),
];

/// What an upload's file holds, by its name's ending.
fn content(request: &Request) -> String {
    let mut text = String::new();
    let file = request.file.as_slice();
    let read = match request.file_name.rsplit('.').next().unwrap() {
        "zip" => {
            let mut zip = zip::ZipArchive::new(Cursor::new(file)).unwrap();
            assert_eq!(zip.len(), 1);
            zip.by_index(0).unwrap().read_to_string(&mut text)
        }
        "gz" => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text),
        _ => {
            text = String::from_utf8(file.to_vec()).unwrap();
            Ok(0)
        }
    };
    read.unwrap();
    text
}

/// ART-02, ART-05, CRED-06
#[tokio::test]
async fn reports_of_every_type_arrive_in_their_format_with_the_jobs_own_token() {
    let Some(node) = Node::new("reports") else {
        return;
    };
    let gitlab = GitLab::new(None, |_, _| status("201 Created"));
    let mut job = spec(&["echo content > report.txt"]);
    for (kind, format) in TYPES {
        let one = artifact(kind, format, &format!("{kind}.txt"), &["report.txt"]);
        add(&mut job, "artifacts", one);
    }
    let ran = run(&node, &gitlab, job, 1 << 20).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert_eq!(states(&ran), [ArtifactState::Uploaded; TYPES.len()]);
    let requests = gitlab.requests();
    assert_eq!(requests.len(), TYPES.len());
    for (request, (kind, format)) in requests.iter().zip(TYPES) {
        let query = format!("artifact_format={format}&artifact_type={kind}&expire_in=1+week");
        let line = format!("POST /api/v4/jobs/7/artifacts?{query} HTTP/1.1");
        assert_eq!(request.line, line);
        assert_eq!(request.header("job-token"), Some("token-of-the-job"));
        assert_eq!(request.header("private-token"), None);
        let ending = match format {
            "zip" => ".zip",
            "gzip" => ".gz",
            _ => "",
        };
        assert_eq!(request.file_name, format!("{kind}.txt{ending}"));
        assert_eq!(content(request), "content\n", "{kind}");
        let said = format!("Uploading artifacts as \"{kind}\" to coordinator... 201 Created");
        assert!(ran.output.contains(&said), "{said}: {}", ran.output);
    }
}

/// ART-02, ART-03, ART-07, ART-15, ART-18, ART-19, ART-21
#[tokio::test]
async fn each_outcome_is_in_the_result_and_in_the_trace() {
    let Some(node) = Node::new("outcomes") else {
        return;
    };
    let busy = "503 Service Unavailable\r\nRetry-After: 1";
    // Answers to the uploads, their outcomes, what the trace says of it, how often GitLab is asked.
    let rows: [(Vec<&str>, ArtifactState, &str, usize); 4] = [
        (
            vec!["200 OK"],
            ArtifactState::Failed,
            "200 OK instead of 201: a proxy before GitLab probably turned the upload into another",
            3,
        ),
        (
            vec![busy, busy, "201 Created"],
            ArtifactState::Uploaded,
            "WARNING: Retrying...",
            3,
        ),
        (
            vec!["413 Request Entity Too Large"],
            ArtifactState::TooLarge,
            "FATAL: artifacts too large",
            1,
        ),
        (
            vec!["403 Forbidden"],
            ArtifactState::Failed,
            "ERROR: Uploading artifacts as \"archive\" to coordinator... 403 Forbidden",
            1,
        ),
    ];
    for (answers, state, says, asked) in rows {
        let heads: Vec<String> = answers.iter().map(|text| (*text).to_owned()).collect();
        let gitlab = GitLab::new(None, move |_, number| {
            status(&heads[number.min(heads.len() - 1)])
        });
        let mut job = spec(&["echo content > a"]);
        add(
            &mut job,
            "artifacts",
            artifact("archive", "zip", "one", &["a"]),
        );
        add(
            &mut job,
            "artifacts",
            artifact("junit", "gzip", "two", &["a"]),
        );
        let mut unwanted = artifact("junit", "gzip", "three", &["a"]);
        unwanted["when"] = json!("on_failure");
        add(&mut job, "artifacts", unwanted);
        let ran = run(&node, &gitlab, job, 1 << 20).await;
        // After a failure nothing more is sent.
        let uploaded = state == ArtifactState::Uploaded;
        let second = if uploaded {
            state
        } else {
            ArtifactState::Skipped
        };
        let third = ArtifactState::Skipped;
        assert_eq!(states(&ran), [state, second, third], "{}", ran.output);
        assert!(ran.output.contains(says), "{says}: {}", ran.output);
        let requests = gitlab.requests();
        assert_eq!(requests.len(), asked + usize::from(uploaded), "{says}");
        let same = |request: &Request| request.file == requests[0].file;
        assert!(requests[..asked].iter().all(same), "{says}: other bytes");
        let class = (!uploaded).then_some(FailureClass::ExternalDependency);
        assert_eq!(ran.result.failure, class, "{}", ran.output);
    }
}

/// GUEST-07, GUEST-11
#[tokio::test]
async fn an_archive_over_the_nodes_cap_is_too_large_and_never_sent() {
    let Some(node) = Node::new("the cap") else {
        return;
    };
    let of_format = |format: &str| {
        let mut job = spec(&["dd if=/dev/urandom of=a bs=1k count=300 2>/dev/null"]);
        let one = artifact("archive", format, "x", &["a"]);
        add(&mut job, "artifacts", one);
        job
    };
    for format in ["zip", "tarzstd"] {
        let gitlab = GitLab::new(None, |_, _| status("201 Created"));
        let small = run(&node, &gitlab, of_format(format), 200 << 10).await;
        assert_eq!(
            states(&small),
            [ArtifactState::TooLarge],
            "{}",
            small.output
        );
        let class = Some(FailureClass::ExternalDependency);
        assert_eq!(small.result.failure, class, "{}", small.output);
        let message = small.result.message.clone().unwrap();
        assert!(message.contains("204800 bytes"), "{message}");
        assert_eq!(gitlab.requests().len(), 0);
    }
    let gitlab = GitLab::new(None, |_, _| status("201 Created"));
    let large = run(&node, &gitlab, of_format("zip"), 400 << 10).await;
    assert_eq!(
        states(&large),
        [ArtifactState::Uploaded],
        "{}",
        large.output
    );
}

/// GUEST-11: what a job has of the node's disk is set aside for it; an archive lies beside that.
#[tokio::test]
async fn an_archive_larger_than_the_jobs_disk_is_too_large() {
    let Some(node) = Node::new("the disk's cap") else {
        return;
    };
    let gitlab = GitLab::new(None, |_, _| status("201 Created"));
    let mut job = spec(&["truncate -s 32M sparse"]);
    add(
        &mut job,
        "artifacts",
        artifact("trace", "raw", "x", &["sparse"]),
    );
    job["server_url"] = json!(gitlab.url);
    let mut context = node.context(node.process(), job, node.job_dir());
    context.artifacts = ArtifactsAt::GitLab;
    context.plan.disk_bytes = 16 << 20;
    let ran = Started::new(context).end().await;
    assert_eq!(states(&ran), [ArtifactState::TooLarge], "{}", ran.output);
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("16777216 bytes"), "{message}");
    assert_eq!(gitlab.requests().len(), 0);
}

fn zip_of(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o644);
    zip.start_file(name, options).unwrap();
    zip.write_all(bytes).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A job that needs an earlier one's archive.
fn depending(script: &[&str]) -> Value {
    let mut job = spec(script);
    let dependency = json!({
        "id": 5, "token": "token-of-the-dependency", "name": "build",
        "artifacts_file": { "filename": "artifacts.zip", "size": 1 }
    });
    add(&mut job, "dependencies", dependency);
    let none = json!({ "id": 6, "token": "token-of-none", "name": "lint" });
    add(&mut job, "dependencies", none);
    job
}

/// CRED-07, ART-11, ART-17, ART-22, GUEST-06
#[tokio::test]
async fn a_dependencys_token_serves_its_archive_alone_and_only_archives_touch_the_disk() {
    let Some(node) = Node::new("a dependency") else {
        return;
    };
    let zip = zip_of("from/dir/é.txt", b"of the build\n");
    let storage = GitLab::new(None, move |_, _| with("200 OK", &zip));
    let to = format!("{}/bucket/1?signed=yes", storage.url);
    let dir = node.job_dir();
    let gitlab = GitLab::new(Some(dir.join("work")), move |request, _| {
        match request.line.starts_with("GET") {
            true => status(&format!("302 Found\r\nLocation: {to}")),
            false => status("201 Created"),
        }
    });
    let mut job = depending(&["cat from/dir/*", "cp -r from to"]);
    job["server_url"] = json!(gitlab.url);
    for format in ["zip", "tarzstd"] {
        add(
            &mut job,
            "artifacts",
            artifact("archive", format, "x", &["to"]),
        );
    }
    let mut context = node.context(node.process(), job, dir);
    context.artifacts = ArtifactsAt::GitLab;
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has("of the build"), "{}", ran.output);

    let [get, zip, tar] = gitlab.requests().try_into().unwrap();
    let direct = "GET /api/v4/jobs/5/artifacts?direct_download=true HTTP/1.1";
    assert_eq!(get.line, direct);
    assert_eq!(get.header("job-token"), Some("token-of-the-dependency"));
    assert_eq!(zip.header("job-token"), Some("token-of-the-job"));
    assert_eq!(
        tar.query(),
        "artifact_format=tarzstd&artifact_type=archive&expire_in=1+week"
    );
    let [stored] = storage.requests().try_into().unwrap();
    assert_eq!(stored.line, "GET /bucket/1?signed=yes HTTP/1.1");
    let everywhere = |token: &str| {
        let requests = [gitlab.requests(), storage.requests()].concat();
        requests
            .iter()
            .filter(|request| format!("{request:?}").contains(token))
            .count()
    };
    assert_eq!(everywhere("token-of-the-dependency"), 1);
    assert_eq!(everywhere("token-of-the-job"), 2);
    assert_eq!(everywhere("token-of-none"), 0);

    // Of what came and what went, only whole archives were files of the host, each while it was
    // needed.
    let before = names(&get);
    assert_eq!(names(&zip), ["artifact-0"], "{before:?}");
    assert_eq!(names(&tar), ["artifact-1"]);
}

/// The files of transfers that were on the disk.
fn names(request: &Request) -> Vec<&str> {
    let of_transfers = |name: &&str| {
        ["artifact", "dependency", "zip", "tar"]
            .iter()
            .any(|part| name.contains(part))
    };
    let mut names: Vec<&str> = request
        .on_disk
        .iter()
        .map(String::as_str)
        .filter(of_transfers)
        .collect();
    names.sort_unstable();
    names
}

/// GUEST-07, GUEST-11, ART-12, ART-17
#[tokio::test]
async fn an_archive_that_cannot_be_taken_ends_the_job_and_leaves_nothing_outside() {
    let Some(node) = Node::new("hostile archives") else {
        return;
    };
    let large = zip_of("a", &incompressible(3000));
    let mut short = zip_of("a", b"0123456789");
    lie(&mut short, 10, 11);
    let rows: [(Vec<u8>, &str); 3] = [
        (large, "more than 2000 bytes"),
        (zip_of("../../escaped", b"x"), "leads out"),
        (short, "shorter than the archive says"),
    ];
    for (archive, says) in rows {
        let gitlab = GitLab::new(None, move |_, _| -> Answer { with("200 OK", &archive) });
        let job = depending(&["echo not reached"]);
        let ran = run(&node, &gitlab, job, 2000).await;
        let class = Some(FailureClass::ExternalDependency);
        assert_eq!(ran.result.failure, class, "{says}: {}", ran.output);
        let message = ran.result.message.clone().unwrap();
        assert!(message.contains(says), "{message}");
        assert!(!ran.output.contains("not reached"), "{}", ran.output);
        assert!(!node.dir.path().join("escaped").exists());
    }
}

fn incompressible(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(next).collect()
}

/// Has a zip say another size of content, wherever it says it.
fn lie(zip: &mut [u8], from: u32, to: u32) {
    let mut said = 0;
    for at in 0..zip.len() - 8 {
        // Of the local header, and of the archive's own directory.
        let field = match &zip[at..at + 4] {
            b"PK\x03\x04" => at + 22,
            b"PK\x01\x02" => at + 24,
            _ => continue,
        };
        assert_eq!(zip[field..field + 4], from.to_le_bytes());
        zip[field..field + 4].copy_from_slice(&to.to_le_bytes());
        said += 1;
    }
    assert_eq!(said, 2);
}

/// What GitLab does with a job's archive, and what ends the job meanwhile.
struct Hanging {
    job: Value,
    /// The answer; none keeps the job waiting.
    answer: Option<Answer>,
    stop: Option<Stop>,
    failure: FailureClass,
    states: &'static [ArtifactState],
}

/// FAIL-36: neither an upload nor a download holds a job up that is over, and what was being sent did
/// not arrive.
#[tokio::test]
async fn a_transfer_that_hangs_ends_with_its_job() {
    let Some(node) = Node::new("artifacts") else {
        return;
    };
    let uploading = || {
        let mut job = spec(&["echo of the job > a"]);
        add(
            &mut job,
            "artifacts",
            artifact("archive", "zip", "a", &["a"]),
        );
        job
    };
    let timed = || {
        let mut job = uploading();
        job["timeout_secs"] = json!(10);
        job
    };
    let later = Some(status("503 Service Unavailable\r\nRetry-After: 600"));
    let row = |job, answer, stop, failure, states| Hanging {
        job,
        answer,
        stop,
        failure,
        states,
    };
    let (canceled, timeout) = (FailureClass::Canceled, FailureClass::Timeout);
    let cut: &[ArtifactState] = &[ArtifactState::Failed];
    let downloading = depending(&["echo not reached"]);
    let rows = [
        row(uploading(), None, Some(Stop::Immediate), canceled, cut),
        row(uploading(), later, Some(Stop::Immediate), canceled, cut),
        row(downloading, None, Some(Stop::Graceful), canceled, &[]),
        row(timed(), None, None, timeout, cut),
    ];
    let ended = rows.map(|of| Box::pin(hang(&node, of)));
    let [a, b, c, d] = ended;
    tokio::join!(a, b, c, d);
}

async fn hang(node: &Node, of: Hanging) {
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let answer = of.answer.clone();
    let gitlab = GitLab::new(None, move |_, _| {
        // The test may be over.
        let _ = asked.send(());
        match &answer {
            Some(answer) => answer.clone(),
            None => loop {
                std::thread::park();
            },
        }
    });
    let mut job = of.job;
    job["server_url"] = json!(gitlab.url);
    let mut context = node.context(node.process(), job, node.job_dir());
    context.artifacts = ArtifactsAt::GitLab;
    let started = Started::new(context);
    if let Some(stop) = of.stop {
        asks.recv().await.unwrap();
        started.control.send(Control::Stop(stop)).await.unwrap();
    }
    // Sooner than GitLab would be asked again, or its answer given up.
    let limit = std::time::Duration::from_secs(180);
    let ended = tokio::time::timeout(limit, started.end()).await;
    let ran = ended.expect("it ends");
    assert_eq!(ran.result.failure, Some(of.failure), "{}", ran.output);
    if of.stop.is_some() {
        assert_eq!(states(&ran), of.states, "{}", ran.output);
    }
    assert!(!ran.output.contains("not reached"), "{}", ran.output);
}
