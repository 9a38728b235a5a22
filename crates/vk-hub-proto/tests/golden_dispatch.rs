//! The exact JSON of the job messages in a node's session.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod golden;
mod sample;

use golden::golden;
use sample::*;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::*;
use vk_hub_proto::job::*;
use vk_hub_proto::node_session::{HubMessage, NodeMessage};
use vk_hub_proto::{ReservationId, Secret};

fn result() -> JobResult {
    JobResult {
        failure: None,
        exit_code: None,
        message: None,
        output_len: 12,
        artifacts: vec![],
        usage: None,
    }
}

/// DISP-01, DISP-07
#[test]
fn offer() {
    golden!(
        "offer",
        HubMessage::Job(HubJobMessage::Offer {
            reservation: reservation(),
            envelope: envelope(),
            lease_secs: 90
        })
    );
}

/// DISP-08
#[test]
fn renew() {
    golden!(
        "renew",
        HubMessage::Job(HubJobMessage::Renew {
            reservation: reservation(),
            lease_secs: 90
        })
    );
}

/// DISP-09
#[test]
fn release() {
    golden!(
        "release",
        HubMessage::Job(HubJobMessage::Release {
            reservation: reservation()
        })
    );
}

/// DISP-10
#[test]
fn start() {
    let start = |reservation| start_with(reservation, None);
    golden!("start", start(Some(reservation())));
    golden!("start_without_reservation", start(None));
}

fn start_with(reservation: Option<ReservationId>, registry: Option<RegistryGrant>) -> HubMessage {
    HubMessage::Job(HubJobMessage::Start {
        job: job(),
        reservation,
        envelope: envelope(),
        spec: spec(),
        registry: registry.map(Box::new),
    })
}

/// DISP-71, REG-01
#[test]
fn a_start_with_a_registry_token() {
    let namespace = |prefix: &str, rights: &str| Namespace {
        prefix: prefix.into(),
        rights: rights.into(),
    };
    let repository = "ci-cache/gitlab.example.com/12/unprotected";
    let whole = RegistryGrant {
        url: "https://registry.example.com:5000".into(),
        username: "vk-job".into(),
        token: Secret::from("e30.e30.c2ln"),
        expires_in_secs: 7800,
        cache_repository: Some(repository.into()),
        namespaces: vec![namespace(repository, "rw"), namespace("images/base", "r")],
    };
    let least = RegistryGrant {
        cache_repository: None,
        namespaces: Vec::new(),
        ..whole.clone()
    };
    // CRED-14
    let shown = format!("{whole:?}");
    assert!(shown.contains("7800") && !shown.contains("c2ln"), "{shown}");
    golden!("start_with_registry", start_with(None, Some(whole)));
    golden!("start_with_registry_alone", start_with(None, Some(least)));
}

/// DISP-11
#[test]
fn output_ack() {
    golden!(
        "output_ack",
        HubMessage::Job(HubJobMessage::OutputAck {
            job: job(),
            offset: 12
        })
    );
}

/// DISP-12
#[test]
fn cancel() {
    golden!(
        "cancel",
        HubMessage::Job(HubJobMessage::Cancel {
            job: job(),
            mode: CancelMode::Graceful
        })
    );
}

/// DISP-13
#[test]
fn recorded() {
    golden!(
        "recorded",
        HubMessage::Job(HubJobMessage::Recorded { job: job() })
    );
}

/// DISP-14, DISP-68
#[test]
fn held() {
    let jobs = [
        (RunState::Accepted, false),
        (
            RunState::Running {
                stage: "get_sources".into(),
                activity: None,
                guest: None,
            },
            false,
        ),
        (RunState::Finished, true),
    ]
    .map(|(state, finished)| HeldJob {
        job: job(),
        state,
        output_len: 12,
        finished,
    });
    let reservations = vec![HeldReservation {
        reservation: reservation(),
        envelope: envelope(),
        remaining_secs: 61,
    }];
    golden!(
        "held",
        NodeMessage::Job(NodeJobMessage::Held {
            reservations,
            jobs: jobs.to_vec()
        })
    );
}

/// DISP-16, DISP-67
#[test]
fn offer_reply() {
    let reply = |reply| {
        NodeMessage::Job(NodeJobMessage::OfferReply {
            reservation: reservation(),
            reply,
        })
    };
    golden!(
        "offer_accepted",
        reply(OfferReply::Accepted { lease_secs: 90 })
    );
    golden!(
        "offer_refused",
        reply(OfferReply::Refused {
            reason: RefusalReason::Disk,
            message: Some("4 GiB free of 16 GiB".into())
        })
    );
    let unknown: OfferReply = serde_json::from_str(r#"{"state":"perhaps","x":1}"#).unwrap();
    assert_eq!(unknown, OfferReply::Other);
}

/// DISP-17, DISP-67
#[test]
fn lease() {
    let lease = |state| {
        NodeMessage::Job(NodeJobMessage::Lease {
            reservation: reservation(),
            state,
        })
    };
    golden!("lease_held", lease(LeaseState::Held { remaining_secs: 30 }));
    golden!(
        "lease_expired",
        lease(LeaseState::Gone {
            why: GoneWhy::Expired
        })
    );
    golden!(
        "lease_released",
        lease(LeaseState::Gone {
            why: GoneWhy::Released
        })
    );
    golden!(
        "lease_started",
        lease(LeaseState::Gone {
            why: GoneWhy::Started
        })
    );
    golden!(
        "lease_unknown",
        lease(LeaseState::Gone {
            why: GoneWhy::Unknown
        })
    );
    let unknown: LeaseState = serde_json::from_str(r#"{"state":"pawned"}"#).unwrap();
    assert_eq!(unknown, LeaseState::Other);
}

/// DISP-18, DISP-67, DISP-85
#[test]
fn job_state() {
    let state = |state| NodeMessage::Job(NodeJobMessage::Job { job: job(), state });
    golden!("job_accepted", state(RunState::Accepted));
    golden!(
        "job_refused",
        state(RunState::Refused {
            reason: RefusalReason::NoReservation,
            message: None
        })
    );
    golden!(
        "job_running",
        state(RunState::Running {
            stage: "prepare_executor".into(),
            activity: Some("pulling debian:12".into()),
            guest: Some(GuestSize {
                cpus: 2,
                mem_mib: 2048
            }),
        })
    );
    golden!("job_finished", state(RunState::Finished));
    let unknown: RunState = serde_json::from_str(r#"{"state":"dreaming"}"#).unwrap();
    assert_eq!(unknown, RunState::Other);
}

/// DISP-24
#[test]
fn a_running_state_without_what_later_versions_add_reads() {
    let older = r#"{"state":"running","stage":"step_script"}"#;
    let state: RunState = serde_json::from_str(older).unwrap();
    let stage = "step_script".to_owned();
    assert_eq!(
        state,
        RunState::Running {
            stage,
            activity: None,
            guest: None
        }
    );
}

/// DISP-19
#[test]
fn output_travels_as_base64() {
    let data = Chunk::try_from(b"hello \xff\x00\n".to_vec()).unwrap();
    golden!(
        "output",
        NodeMessage::Job(NodeJobMessage::Output {
            job: job(),
            offset: 4096,
            data
        })
    );
}

/// DISP-20
#[test]
fn result_message() {
    golden!(
        "result",
        NodeMessage::Job(NodeJobMessage::Result {
            job: job(),
            result: result()
        })
    );
}

/// DISP-30, DISP-34
#[test]
fn refusal_reasons() {
    let reasons = [
        ("memory", RefusalReason::Memory),
        ("disk", RefusalReason::Disk),
        ("cpus", RefusalReason::Cpus),
        ("not_ready", RefusalReason::NotReady),
        ("policy", RefusalReason::Policy),
        ("no_reservation", RefusalReason::NoReservation),
        ("invalid", RefusalReason::Invalid),
        ("ceiling", RefusalReason::Ceiling),
        ("concurrency", RefusalReason::Concurrency),
        ("runner", RefusalReason::Runner),
    ];
    for (word, reason) in reasons {
        let json = format!("\"{word}\"");
        assert_eq!(serde_json::to_string(&reason).unwrap(), json);
        assert_eq!(
            serde_json::from_str::<RefusalReason>(&json).unwrap(),
            reason
        );
    }
    let unknown: RefusalReason = serde_json::from_str("\"mood\"").unwrap();
    assert_eq!(unknown, RefusalReason::Other);
}

#[test]
fn a_message_of_a_later_version_reads_as_other() {
    let hub: HubMessage =
        serde_json::from_str(r#"{"type":"job","kind":"teleport","x":1}"#).unwrap();
    assert_eq!(hub, HubMessage::Job(HubJobMessage::Other));
    let hub: HubMessage = serde_json::from_str(r#"{"type":"song","verse":1}"#).unwrap();
    assert_eq!(hub, HubMessage::Other);
    let node: NodeMessage =
        serde_json::from_str(r#"{"type":"job","kind":"egress","job":"x"}"#).unwrap();
    assert_eq!(node, NodeMessage::Job(NodeJobMessage::Other));
}
