//! What the tests are made of: IDs, specs, messages of nodes.

use vk_hub_core::{Digest, Principal};
use vk_hub_proto::client::{Envelope, JobSubmission, Placement};
use vk_hub_proto::dispatch::{HeldJob, HeldReservation, RefusalReason, RunState};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::job::{
    CiJob, CiJobInfo, Image, JobResult, JobSpec, ObjectFormat, RefType, Sources,
};
use vk_hub_proto::node_session::{
    Admission, Hardware, Heartbeat, Inventory, NodeState, Placed, Report, StorageFree, StorageRole,
    Versions,
};
use vk_hub_proto::relay_session::{RelayReport, RelayServer};
use vk_hub_proto::{JobId, NodeId, RelayId, RequestId, ReservationId, Secret};

pub(crate) const ENVELOPE: Envelope = Envelope {
    mem_mib: 1_000,
    cpus: 1,
    disk_bytes: 1_000,
};
pub(crate) const SECRET: &str = "glcbt-very-secret";

pub(crate) fn node(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}

pub(crate) fn relay(n: u8) -> Principal {
    Principal::Relay(RelayId::from_bytes([n; 16]))
}

pub(crate) fn relay_id(n: u8) -> RelayId {
    RelayId::from_bytes([n; 16])
}

/// A report of the specs' server, under this key.
pub(crate) fn relay_report(key: u8) -> RelayReport {
    RelayReport {
        version: "1.0".to_owned(),
        host: "host".to_owned(),
        system_id: "s_1".to_owned(),
        concurrent: 4,
        server: RelayServer {
            url: "https://gitlab.example.com".to_owned(),
            spki_sha256: Some(Hex([key; 32])),
        },
        runners: Vec::new(),
    }
}

pub(crate) fn job(n: u8) -> JobId {
    JobId::from_bytes([n; 16])
}

pub(crate) fn request_id(n: u8) -> RequestId {
    RequestId::from_bytes([n; 16])
}

pub(crate) fn reservation(n: u8) -> ReservationId {
    ReservationId::from_bytes([n; 16])
}

pub(crate) fn digest(n: u8) -> Digest {
    Hex([n; 32])
}

pub(crate) fn placement() -> Placement {
    Placement {
        pool: "ci".parse().unwrap(),
        labels: Vec::new(),
        envelope: ENVELOPE,
    }
}

pub(crate) fn spec(n: u8) -> JobSpec {
    let job = CiJobInfo {
        id: u64::from(n) + 1,
        name: format!("job {n}"),
        stage: "test".to_owned(),
        project_id: 12,
        project_path: "acme/web".to_owned(),
        ..Default::default()
    };
    JobSpec::GitlabCi(Box::new(CiJob {
        server_url: "https://gitlab.example.com".to_owned(),
        server_ca_pem: None,
        job,
        token: Secret::from(SECRET),
        timeout_secs: 3_600,
        sources: Sources {
            repo_url: "https://gitlab.example.com/acme/web.git".to_owned(),
            object_format: ObjectFormat::Sha1,
            ref_name: "main".to_owned(),
            ref_type: RefType::Branch,
            sha: "1".repeat(40),
            before_sha: "0".repeat(40),
            refspecs: Vec::new(),
            depth: 0,
            protected: None,
            allow_fetch: true,
        },
        image: Image::default(),
        services: Vec::new(),
        variables: Vec::new(),
        steps: Vec::new(),
        hooks: Vec::new(),
        artifacts: Vec::new(),
        caches: Vec::new(),
        dependencies: Vec::new(),
        registry_credentials: Vec::new(),
        trace: Default::default(),
    }))
}

pub(crate) fn submission(n: u8, reservation: Option<ReservationId>) -> JobSubmission {
    JobSubmission {
        request_id: request_id(n),
        placement: placement(),
        reservation,
        place_within_secs: 300,
        spec: spec(n),
    }
}

pub(crate) fn result() -> JobResult {
    JobResult {
        failure: None,
        exit_code: None,
        message: None,
        output_len: 0,
        artifacts: Vec::new(),
        usage: None,
    }
}

pub(crate) fn refused(reason: RefusalReason) -> RunState {
    RunState::Refused {
        reason,
        message: None,
    }
}

pub(crate) fn stage(name: &str) -> RunState {
    RunState::Running {
        stage: name.to_owned(),
        activity: None,
        guest: None,
    }
}

pub(crate) fn held_job(n: u8) -> HeldJob {
    HeldJob {
        job: job(n),
        state: RunState::Accepted,
        output_len: 0,
        finished: false,
    }
}

pub(crate) fn held_reservation(id: ReservationId, remaining_secs: u32) -> HeldReservation {
    HeldReservation {
        reservation: id,
        envelope: ENVELOPE,
        remaining_secs,
    }
}

/// A node with room for so many of [`ENVELOPE`].
pub(crate) fn heartbeat(room: u64) -> Heartbeat {
    Heartbeat {
        admission: Some(Admission {
            committed_mib: 500,
            budget_mib: Some(500 + room * ENVELOPE.mem_mib),
            running: 0,
            waiting: 0,
        }),
        storage: vec![StorageFree {
            role: StorageRole::Jobs,
            free_bytes: 1_000_000,
            free_inodes: 1,
            inodes: 1,
        }],
        ..Default::default()
    }
}

pub(crate) fn inventory(cpus: u32, labels: &[&str]) -> Inventory {
    Inventory {
        hostname: "host".to_owned(),
        hardware: Hardware {
            cpus,
            cpu_model: None,
            mem_total_mib: None,
            memory_nodes: Vec::new(),
            checks: Vec::new(),
        },
        storage: Vec::new(),
        versions: Versions {
            vk: "1".to_owned(),
            guest_kernel: None,
            config_hash: String::new(),
            vk_sha256: None,
        },
        runner: None,
        labels: labels.iter().map(|label| label.parse().unwrap()).collect(),
        registry_url: None,
    }
}

pub(crate) fn ready() -> Report {
    Report {
        state: Some(NodeState::Ready),
        placed: Some(Placed::default()),
        ..Default::default()
    }
}
