//! What is refused or bent while it is read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod sample;

use proptest::prelude::*;
use sample::*;
use vk_hub_proto::client::*;
use vk_hub_proto::dispatch::{Chunk, NodeJobMessage, RegistryGrant};
use vk_hub_proto::job::*;
use vk_hub_proto::limit;
use vk_hub_proto::node_session::{Check, Inventory, NodeMessage, Report, Workload, WorkloadKind};
use vk_hub_proto::{JobId, Name, Secret};

/// API-55
#[test]
fn an_id_has_one_spelling() {
    let good = "0123456789abcdef0123456789abcdef";
    assert_eq!(good.parse::<JobId>().unwrap().to_string(), good);
    let bad = [
        "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0",
        "01234567-89ab-cdef-0123-456789abcdef",
        " 123456789abcdef0123456789abcdef",
        "0x23456789abcdef0123456789abcdef",
        "",
        "ßßßßßßßßßßßßßßßß",
    ];
    for text in bad {
        assert!(text.parse::<JobId>().is_err(), "{text}");
        assert!(
            serde_json::from_value::<JobId>(text.into()).is_err(),
            "{text}"
        );
    }
}

/// API-45
#[test]
fn a_request_id_is_16_bytes_in_hex() {
    assert_eq!(request().as_bytes().len(), 16);
    assert_eq!(request().to_string().len(), 32);
}

/// PLACE-42
#[test]
fn names_follow_the_rule() {
    let longest = "a".repeat(64);
    for good in ["ci", "0", "large-memory", "A.b_c-d", &longest] {
        assert!(good.parse::<Name>().is_ok(), "{good}");
    }
    let too_long = "a".repeat(65);
    for bad in ["", "-a", ".a", "_a", "a b", "a/b", "ä", &too_long] {
        assert!(bad.parse::<Name>().is_err(), "{bad}");
        assert!(serde_json::from_value::<Name>(bad.into()).is_err(), "{bad}");
    }
}

/// PLACE-42
#[test]
fn a_placement_has_at_most_32_labels_and_an_envelope_of_something() {
    let of = |labels: usize, envelope| Placement {
        labels: vec!["l".parse().unwrap(); labels],
        envelope,
        ..placement()
    };
    assert_eq!(of(32, envelope()).validate(), Ok(()));
    assert_eq!(
        of(33, envelope()).validate(),
        Err(Invalid::Labels { count: 33 })
    );
    let no_mem = Envelope {
        mem_mib: 0,
        ..envelope()
    };
    let no_cpu = Envelope {
        cpus: 0,
        ..envelope()
    };
    let no_disk = Envelope {
        disk_bytes: 0,
        ..envelope()
    };
    assert!(of(0, no_mem).validate().is_err());
    assert!(of(0, no_cpu).validate().is_err());
    assert_eq!(of(0, no_disk).validate(), Ok(()));
}

/// API-56
#[test]
fn leases_and_placing_times_have_bounds() {
    let lease = |lease_secs| RenewRequest { lease_secs }.validate().is_ok();
    assert!(lease(1) && lease(600) && !lease(0) && !lease(601));
    let within = |place_within_secs| {
        let submission = JobSubmission {
            request_id: request(),
            placement: placement(),
            reservation: None,
            place_within_secs,
            spec: spec(),
        };
        submission.validate().is_ok()
    };
    assert!(within(0) && within(86_400) && !within(86_401));
}

/// ERR-05, DISP-81
#[test]
fn a_job_has_a_number_a_project_and_a_path_of_gitlabs_shape() {
    let job = |id, project_id, path: &str| {
        let mut job = least_job();
        job.job = CiJobInfo {
            id,
            project_id,
            project_path: path.into(),
            ..CiJobInfo::default()
        };
        job.validate()
    };
    assert_eq!(job(1, 1, "acme/web"), Ok(()));
    assert_eq!(job(1, 1, "acme/a.b/C_d-9"), Ok(()));
    assert_eq!(job(0, 1, "acme/web"), Err(Invalid::NoJobNumber));
    assert_eq!(job(1, 0, "acme/web"), Err(Invalid::NoProject));
    assert_eq!(job(1, 1, ""), Err(Invalid::NoProject));
    for path in [
        "/web",
        "acme/",
        "acme//web",
        "../web",
        "acme/.",
        "a b",
        "acme/wéb",
        "a\\b",
    ] {
        assert_eq!(job(1, 1, path), Err(Invalid::ProjectPath), "{path}");
    }
}

/// ERR-02
#[test]
fn an_unknown_code_reads_as_other() {
    let error: ClientError = serde_json::from_str(r#"{"error":"x","code":"tuesday"}"#).unwrap();
    assert_eq!(
        (error.code, error.retry_after_secs),
        (ErrorCode::Other, None)
    );
    assert!(!error.code.is_retryable());
}

/// ERR-27
#[test]
fn an_answer_without_a_code_is_judged_by_its_status() {
    for status in [500, 502, 503, 504, 599] {
        assert!(ErrorCode::of_status(status).is_retryable(), "{status}");
    }
    for status in [400, 401, 403, 404, 408, 409, 413, 429, 431] {
        assert!(!ErrorCode::of_status(status).is_retryable(), "{status}");
    }
}

/// ERR-28
#[test]
fn retryable_codes_say_when_to_ask_again() {
    assert_eq!(ErrorCode::NoCapacity.retry_after_secs(), Some(5));
    assert_eq!(ErrorCode::Unavailable.retry_after_secs(), Some(1));
    assert_eq!(ErrorCode::Internal.retry_after_secs(), Some(1));
    assert_eq!(ErrorCode::Conflict.retry_after_secs(), None);
}

/// CRED-13
#[test]
fn a_redacted_job_holds_no_secret() {
    let redacted = JobSpec::GitlabCi(Box::new(full_job())).redacted();
    let json = serde_json::to_string(&redacted).unwrap();
    let secrets = [
        "glcbt-token",
        "glcbt-dependency",
        "registry password",
        "image value",
        "service value",
        "file value",
    ];
    for secret in secrets {
        assert!(!json.contains(secret), "{secret} is in {json}");
    }
    assert_eq!(json.matches(MASKED).count(), secrets.len());
    assert!(
        json.contains(r#"{"key":"CI","value":"true","public":true"#),
        "public values stay"
    );
}

/// CRED-14
#[test]
fn debug_output_shows_no_secret_and_no_output() {
    let shown = format!("{:?}", full_job());
    for secret in [
        "glcbt-token",
        "glcbt-dependency",
        "registry password",
        "image value",
        "true\"",
    ] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    assert_eq!(format!("{:?}", Secret::from("x")), "[secret]");
    let chunk = Chunk::try_from(b"users output".to_vec()).unwrap();
    assert_eq!(format!("{chunk:?}"), "12 bytes");
}

/// DISP-19
#[test]
fn a_chunk_of_more_than_256_kib_is_refused() {
    let message = |len: usize| {
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![0; len]);
        let job = job();
        serde_json::from_str::<NodeMessage>(&format!(
            r#"{{"type":"job","kind":"output","job":"{job}","offset":0,"data":"{data}"}}"#
        ))
    };
    assert!(message(limit::CHUNK_BYTES).is_ok());
    assert!(message(limit::CHUNK_BYTES + 1).is_err());
}

/// DISP-03
#[test]
fn the_largest_output_message_fits_a_session_message() {
    let data = Chunk::try_from(vec![0xff; limit::CHUNK_BYTES]).unwrap();
    let message = NodeMessage::Job(NodeJobMessage::Output {
        job: job(),
        offset: u64::MAX,
        data,
    });
    assert!(serde_json::to_vec(&message).unwrap().len() < limit::MESSAGE_BYTES);
}

#[test]
fn an_inventory_is_cut_to_what_the_hub_keeps() {
    let text = include_str!("golden/inventory.json");
    let NodeMessage::Inventory(inventory) = serde_json::from_str(text).unwrap() else {
        panic!("an inventory")
    };
    let check = Check {
        name: "\u{202e}x".into(),
        ok: true,
        detail: "y".repeat(1000),
    };
    let mut many: Inventory = *inventory;
    many.hardware.checks = vec![check; 100];
    let bounded = many.bounded();
    assert_eq!(bounded.hardware.checks.len(), limit::INVENTORY_LIST);
    assert_eq!(bounded.hardware.checks[0].name, "x");
    assert_eq!(
        bounded.hardware.checks[0].detail.len(),
        limit::DISPLAY_CHARS
    );
}

#[test]
fn a_reports_workloads_are_cut_and_the_rest_counted() {
    let workload = Workload {
        id: hex(1),
        kind: WorkloadKind::CiJob,
        state_dir: "a\u{7}b".into(),
        label: None,
        project: None,
        job_name: None,
        job_id: None,
        cpus: None,
        mem_reserved_mib: None,
        started_at: None,
    };
    let report = Report {
        workloads: Some(vec![workload; 300]),
        workloads_omitted: 1,
        ..Report::default()
    };
    let bounded = report.bounded();
    assert_eq!(bounded.workloads_omitted, 45);
    let kept = bounded.workloads.unwrap();
    assert_eq!(
        (kept.len(), kept[0].state_dir.as_str()),
        (limit::WORKLOADS, "ab")
    );
}

proptest! {
    #[test]
    fn output_bytes_survive_the_wire(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let chunk = Chunk::try_from(bytes.clone()).unwrap();
        let json = serde_json::to_string(&chunk).unwrap();
        let back: Chunk = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(back.into_bytes(), bytes);
    }

    #[test]
    fn arbitrary_text_never_panics_the_readers(text in ".{0,200}") {
        let _ = serde_json::from_str::<NodeMessage>(&text);
        let _ = serde_json::from_str::<JobSubmission>(&text);
        let _ = text.parse::<JobId>();
        let _ = vk_hub_proto::display::sanitized(&text);
    }
}

/// CACHE-21
#[test]
fn whether_a_ref_is_protected_is_gitlabs_to_say_and_no_jobs() {
    for (said, variables, protected) in [
        (Some(true), &[][..], true),
        (Some(false), &["true"], false),
        (None, &["true"], true),
        (None, &["false"], false),
        (None, &[""], false),
        (None, &[], false),
        // GitLab's own, and what the job makes of it.
        (None, &["false", "true"], false),
        (None, &["true", "false"], true),
    ] {
        let mut job = full_job();
        job.sources.protected = said;
        let one = |value: &&str| variable("CI_COMMIT_REF_PROTECTED", value, true, false, false);
        job.variables = variables.iter().map(one).collect();
        assert_eq!(job.is_protected(), protected, "{said:?} {variables:?}");
    }
}

/// DISP-71: what is too long, or would split a header or a list, is refused while it is read.
#[test]
fn a_registry_token_that_fits_no_header_is_refused() {
    let good = || {
        serde_json::json!({
            "url": "https://r", "username": "u", "token": "t", "expires_in_secs": 60,
            "cache_repository": "r", "namespaces": [{ "prefix": "r", "rights": "rwl" }]
        })
    };
    let read = |field: &str, value: serde_json::Value| {
        let mut grant = good();
        *grant.pointer_mut(field).unwrap() = value;
        serde_json::from_value::<RegistryGrant>(grant).is_ok()
    };
    let names = [
        "/url",
        "/username",
        "/cache_repository",
        "/namespaces/0/prefix",
    ];
    for name in names {
        assert!(read(name, "a".repeat(1024).into()), "{name}");
        assert!(!read(name, "a".repeat(1025).into()), "{name}");
    }
    assert!(read("/token", "t".repeat(16_384).into()));
    for token in ["", "a b", "a\r\nx: y", "\u{e4}", &"t".repeat(16_385)] {
        assert!(!read("/token", token.into()), "{token:.9}");
    }
    for prefix in ["a b", "a=r", "\u{e4}"] {
        assert!(!read("/namespaces/0/prefix", prefix.into()), "{prefix}");
    }
    assert!(
        read("/namespaces/0/rights", "rwlx".into()),
        "of a later version"
    );
    for rights in ["", "r w", "R", "abcdefghi"] {
        assert!(!read("/namespaces/0/rights", rights.into()), "{rights}");
    }
    let many = |count| vec![serde_json::json!({ "prefix": "r", "rights": "r" }); count];
    assert!(read("/namespaces", many(128).into()));
    assert!(!read("/namespaces", many(129).into()));
}
