//! The exact JSON of both sessions' other messages, and of enrolment.

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
use vk_hub_proto::enroll::*;
use vk_hub_proto::node_session::*;
use vk_hub_proto::relay_session::*;
use vk_hub_proto::{CommandId, Incarnation};

fn incarnation() -> Incarnation {
    Incarnation::from_bytes(bytes(0xaa))
}

/// DISP-04
#[test]
fn the_handshake() {
    golden!(
        "node_hello",
        NodeMessage::Hello {
            versions: VersionRange { min: 1, max: 3 },
            node_id: node(),
            incarnation: incarnation(),
            vk_version: "0.1.0".into()
        }
    );
    golden!(
        "challenge",
        HubMessage::Challenge {
            version: 3,
            versions: VersionRange { min: 1, max: 3 },
            nonce: hex(0x11)
        }
    );
    golden!(
        "node_auth",
        NodeMessage::Auth {
            signature: hex(0x22)
        }
    );
    golden!("welcome", HubMessage::Welcome { heartbeat_secs: 5 });
    golden!(
        "refused",
        HubMessage::Refused {
            code: RefusedCode::BadSignature,
            reason: "not this key".into()
        }
    );
    assert_eq!(PROTOCOL, VersionRange { min: 1, max: 2 });
}

/// DISP-05, DISP-06
#[test]
fn the_highest_common_version_is_chosen() {
    let hub = VersionRange { min: 1, max: 3 };
    let common = |min, max| hub.highest_common(VersionRange { min, max });
    assert_eq!(common(1, 3), Some(3));
    assert_eq!(common(1, 6), Some(3));
    assert_eq!(common(1, 2), Some(2));
    assert_eq!(common(4, 6), None);
}

/// SESS-21
#[test]
fn only_three_refusals_are_for_good() {
    let good = [
        RefusedCode::NotEnrolled,
        RefusedCode::BadSignature,
        RefusedCode::Revoked,
    ];
    let again = [
        RefusedCode::Version,
        RefusedCode::Superseded,
        RefusedCode::Protocol,
        RefusedCode::Internal,
        RefusedCode::Other,
    ];
    assert!(good.iter().all(|code| code.is_for_good()));
    assert!(!again.iter().any(|code| code.is_for_good()));
}

/// PLACE-04, PLACE-05, REG-04, REG-22
#[test]
fn inventory() {
    let full = Inventory {
        hostname: "node-1".into(),
        hardware: Hardware {
            cpus: 16,
            cpu_model: Some("A CPU".into()),
            mem_total_mib: Some(65_536),
            memory_nodes: vec![MemoryNode {
                id: 0,
                cpus: 16,
                mem_total_mib: 65_536,
            }],
            checks: vec![Check {
                name: "kvm".into(),
                ok: true,
                detail: "booted".into(),
            }],
        },
        storage: vec![StorageInfo {
            role: StorageRole::Jobs,
            path: "/var/lib/vk".into(),
            device: "259:1".into(),
            size_bytes: 1_000_000,
            tmpfs: false,
            speed: Some(StorageSpeed::Fast),
        }],
        versions: Versions {
            vk: "0.1.0".into(),
            guest_kernel: Some("6.1.0".into()),
            config_hash: "ab".into(),
            vk_sha256: Some(hex(0x33)),
        },
        runner: Some(RunnerInfo {
            config: "/etc/gitlab-runner/config.toml".into(),
            concurrent: Some(4),
            runners: vec!["own".into()],
        }),
        labels: vec!["large-memory".parse().unwrap()],
        registry_url: Some("https://registry.example.com".into()),
    };
    golden!("inventory", NodeMessage::Inventory(Box::new(full.clone())));
    let least = Inventory {
        hardware: Hardware {
            cpus: 1,
            cpu_model: None,
            mem_total_mib: None,
            memory_nodes: vec![],
            checks: vec![],
        },
        storage: vec![],
        versions: Versions {
            vk: "0.1.0".into(),
            guest_kernel: None,
            config_hash: String::new(),
            vk_sha256: None,
        },
        runner: None,
        labels: vec![],
        registry_url: None,
        ..full
    };
    golden!("inventory_least", NodeMessage::Inventory(Box::new(least)));
}

/// PLACE-26
#[test]
fn heartbeat() {
    let full = Heartbeat {
        admission: Some(Admission {
            committed_mib: 4096,
            budget_mib: Some(60_000),
            running: 2,
            waiting: 1,
        }),
        desired_concurrency: Some(8),
        mem_available_mib: Some(50_000),
        storage: vec![StorageFree {
            role: StorageRole::Checkouts,
            free_bytes: 1,
            free_inodes: 2,
            inodes: 3,
        }],
        workload_mem_bytes: [("ab".to_owned(), 7)].into(),
        load1_hundredths: Some(150),
    };
    golden!("heartbeat", NodeMessage::Heartbeat(full));
    golden!(
        "heartbeat_least",
        NodeMessage::Heartbeat(Heartbeat::default())
    );
}

/// PLACE-09, PLACE-14
#[test]
fn report() {
    let full = Report {
        workloads: Some(vec![Workload {
            id: hex(0x44),
            kind: WorkloadKind::CiJob,
            state_dir: "/var/lib/vk/node/jobs/x".into(),
            label: None,
            project: Some("acme/web".into()),
            job_name: Some("test".into()),
            job_id: Some(10),
            cpus: Some(2),
            mem_reserved_mib: Some(2048),
            started_at: Some(1_790_000_000),
        }]),
        workloads_omitted: 3,
        applied: Some(DesiredState {
            generation: 4,
            ceiling: Some(2),
            acquisition: Acquisition::Stop,
        }),
        unsupported: vec!["tools".into()],
        state: Some(NodeState::Draining),
        acquisition: Some(Acquisition::Run),
        runner: Some(RunnerMode::None),
        runner_state: Some(RunnerState::Stopped),
        concurrency: Some(Concurrency {
            estimate: Some(8),
            hub_ceiling: None,
            local_ceiling: Some(4),
            effective: Some(4),
        }),
        concurrency_error: None,
        drain: Some(Drain {
            runner_stopped: true,
            ledger_empty: false,
            active_jobs: 1,
        }),
        placed: Some(Placed {
            runner: Some("gitlab-runner.service".into()),
            limit: Some(4),
            image_cache_idle_secs: Some(1800),
        }),
    };
    golden!("report", NodeMessage::Report(Box::new(full)));
    golden!("report_least", NodeMessage::Report(Box::default()));
}

#[test]
fn steering() {
    golden!(
        "desired",
        HubMessage::Desired(DesiredState {
            generation: 4,
            ceiling: None,
            acquisition: Acquisition::Run
        })
    );
    let id = CommandId::from_bytes(bytes(0x0c));
    let op = CommandOp::Reset { images: true };
    golden!(
        "command",
        HubMessage::Command {
            id,
            expires_at: 1_790_000_000,
            op
        }
    );
    let outcome = CommandOutcome::Failed {
        message: "why".into(),
    };
    golden!(
        "ack",
        NodeMessage::Ack {
            id,
            outcome: outcome.clone()
        }
    );
    golden!("command_recorded", HubMessage::Recorded { id, outcome });
}

/// SESS-16
#[test]
fn a_relays_handshake() {
    golden!(
        "relay_hello",
        RelayMessage::Hello {
            versions: VersionRange { min: 1, max: 1 },
            relay_id: relay(),
            incarnation: incarnation(),
            version: "0.1.0".into()
        }
    );
    golden!(
        "relay_challenge",
        HubRelayMessage::Challenge {
            version: 1,
            versions: VersionRange { min: 1, max: 1 },
            nonce: hex(0x11)
        }
    );
    golden!(
        "relay_auth",
        RelayMessage::Auth {
            signature: hex(0x22)
        }
    );
    golden!(
        "relay_welcome",
        HubRelayMessage::Welcome { heartbeat_secs: 5 }
    );
    golden!(
        "relay_refused",
        HubRelayMessage::Refused {
            code: RefusedCode::Revoked,
            reason: "removed".into()
        }
    );
}

/// SESS-03, SESS-04, SESS-05, SESS-17
#[test]
fn relay_report() {
    let report = RelayReport {
        version: "0.1.0".into(),
        host: "relay-1".into(),
        system_id: "s_0123456789ab".into(),
        concurrent: 10,
        server: RelayServer {
            url: "https://gitlab.example.com".into(),
            spki_sha256: Some(hex(0x55)),
        },
        runners: vec![RelayRunner {
            name: "ci".into(),
            runner_id: Some(7),
            placement: placement(),
            limit: 0,
            token_accepted: Some(true),
        }],
    };
    golden!("relay_report", RelayMessage::Report(Box::new(report)));
}

/// SESS-06, SESS-07, SESS-18
#[test]
fn relay_heartbeat() {
    let states = [
        RelayRunnerState::Polling,
        RelayRunnerState::WaitingCapacity,
        RelayRunnerState::ServerPending,
        RelayRunnerState::Unhealthy,
        RelayRunnerState::TokenRefused,
    ];
    let runners = states.map(|state| RunnerBeat {
        name: "ci".into(),
        state,
        requests: 1,
        jobs: 2,
        last_answer: (state == RelayRunnerState::Polling).then_some(LastAnswer {
            status: 204,
            age_secs: 3,
        }),
    });
    golden!(
        "relay_heartbeat",
        RelayMessage::Heartbeat {
            runners: runners.to_vec()
        }
    );
}

/// SESS-08, SESS-19
#[test]
fn server_status() {
    let server = |status| HubRelayMessage::Server {
        status,
        message: None,
    };
    golden!("server_approved", server(ServerStatus::Approved));
    golden!("server_rejected", server(ServerStatus::Rejected));
    golden!("server_rebound", server(ServerStatus::Rebound));
    golden!("server_pending", server(ServerStatus::Pending));
    let unknown: ServerStatus = serde_json::from_str("\"adored\"").unwrap();
    assert_eq!(
        unknown,
        ServerStatus::Pending,
        "an unknown status approves nothing"
    );
}

/// ENR-11
#[test]
fn enrolment() {
    golden!(
        "enroll_request",
        EnrollRequest {
            token: "secret.hash".into(),
            public_key: hex(0x66),
            signature: hex(0x77),
            hostname: "node-1".into()
        }
    );
    golden!("node_enrolled", NodeEnrolled { node_id: node() });
    golden!("relay_enrolled", RelayEnrolled { relay_id: relay() });
}
