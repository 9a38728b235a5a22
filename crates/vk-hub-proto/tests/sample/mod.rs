//! Values that the golden files hold.

#![allow(dead_code, reason = "each test binary takes what it needs")]

use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::job::*;
use vk_hub_proto::{JobId, NodeId, RelayId, RequestId, ReservationId, Secret};

/// An identifier's bytes: zeros and this one.
pub(crate) fn bytes(last: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[15] = last;
    bytes
}

pub(crate) fn job() -> JobId {
    JobId::from_bytes(bytes(9))
}

pub(crate) fn reservation() -> ReservationId {
    ReservationId::from_bytes(bytes(7))
}

pub(crate) fn node() -> NodeId {
    NodeId::from_bytes(bytes(1))
}

pub(crate) fn relay() -> RelayId {
    RelayId::from_bytes(bytes(0x12))
}

pub(crate) fn request() -> RequestId {
    RequestId::from_bytes(bytes(0x45))
}

pub(crate) fn hex<const N: usize>(byte: u8) -> Hex<N> {
    Hex([byte; N])
}

pub(crate) fn envelope() -> Envelope {
    Envelope {
        mem_mib: 2048,
        cpus: 2,
        disk_bytes: 1_073_741_824,
    }
}

pub(crate) fn placement() -> Placement {
    Placement {
        pool: "ci".parse().unwrap(),
        labels: vec!["large-memory".parse().unwrap()],
        envelope: envelope(),
    }
}

pub(crate) fn variable(key: &str, value: &str, public: bool, masked: bool, file: bool) -> Variable {
    Variable {
        key: key.into(),
        value: Secret::from(value),
        public,
        file,
        masked,
        raw: false,
    }
}

/// A spec with every field filled.
pub(crate) fn full_job() -> CiJob {
    CiJob {
        server_url: "https://gitlab.example.com".into(),
        server_ca_pem: Some("-----BEGIN CERTIFICATE-----".into()),
        job: CiJobInfo {
            id: 10,
            name: "test".into(),
            stage: "build".into(),
            pipeline_id: 20,
            project_id: 12,
            project_name: "web".into(),
            project_path: "acme/web".into(),
            namespace_id: 3,
            root_namespace_id: 2,
            user_id: 5,
            runner_id: 7,
        },
        token: "glcbt-token".into(),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: "https://gitlab.example.com/acme/web.git".into(),
            object_format: ObjectFormat::Sha1,
            ref_name: "main".into(),
            ref_type: RefType::Branch,
            sha: "6907208d755b60ebeacb2e9dfea74c92c3449a1f".into(),
            before_sha: "c347ca2e140aa667b968e51ed0ffe055501fe4f4".into(),
            refspecs: vec!["+refs/heads/main:refs/remotes/origin/main".into()],
            depth: 20,
            protected: Some(true),
            allow_fetch: true,
        },
        image: Image {
            name: "debian:12".into(),
            aliases: vec!["base".into()],
            entrypoint: vec!["/bin/sh".into()],
            command: vec!["-c".into()],
            ports: vec![Port {
                number: 80,
                protocol: "http".into(),
                name: Some("web".into()),
            }],
            variables: vec![variable("IMAGE_SECRET", "image value", false, false, false)],
            pull_policy: vec![
                PullPolicy::Always,
                PullPolicy::IfNotPresent,
                PullPolicy::Never,
            ],
            platform: Some("linux/amd64".into()),
            user: Some("1000".into()),
        },
        services: vec![Image {
            name: "postgres:16".into(),
            variables: vec![variable(
                "POSTGRES_PASSWORD",
                "service value",
                true,
                true,
                false,
            )],
            ..Image::default()
        }],
        variables: vec![
            variable("CI", "true", true, false, false),
            variable("DEPLOY_KEY", "file value", true, false, true),
        ],
        steps: vec![Step {
            name: "script".into(),
            script: vec!["echo hello".into()],
            timeout_secs: 0,
            when: When::OnSuccess,
            allow_failure: false,
        }],
        hooks: vec![Hook {
            name: HookName::PreGetSourcesScript,
            script: vec!["echo before".into()],
        }],
        artifacts: vec![ArtifactSpec {
            name: "artifacts".into(),
            untracked: false,
            paths: vec!["out/".into()],
            exclude: vec!["out/tmp".into()],
            when: When::Always,
            artifact_type: "archive".into(),
            format: ArtifactFormat::Zip,
            expire_in: "1 week".into(),
        }],
        caches: vec![CacheSpec {
            key: "main-0-protected".into(),
            fallback_keys: vec!["main-0".into()],
            untracked: true,
            paths: vec!["vendor/".into()],
            policy: CachePolicy::PullPush,
            when: When::OnSuccess,
        }],
        dependencies: vec![Dependency {
            id: 9,
            token: "glcbt-dependency".into(),
            name: "compile".into(),
            artifacts_file: Some(DependencyFile {
                filename: "artifacts.zip".into(),
                size: 1234,
            }),
        }],
        registry_credentials: vec![RegistryCredential {
            url: "registry.example.com".into(),
            username: "gitlab-ci-token".into(),
            password: "registry password".into(),
        }],
        trace: TraceOptions {
            sections: true,
            mask_prefixes: vec!["acme-".into()],
            limit_bytes: 4_194_304,
        },
    }
}

/// A spec with nothing that may be left out.
pub(crate) fn least_job() -> CiJob {
    CiJob {
        server_url: "https://gitlab.example.com".into(),
        server_ca_pem: None,
        job: CiJobInfo {
            id: 10,
            project_id: 12,
            project_path: "acme/web".into(),
            ..CiJobInfo::default()
        },
        token: "t".into(),
        timeout_secs: 7200,
        sources: Sources {
            repo_url: String::new(),
            object_format: ObjectFormat::Sha256,
            ref_name: "v1".into(),
            ref_type: RefType::Tag,
            sha: String::new(),
            before_sha: String::new(),
            refspecs: vec![],
            depth: 0,
            protected: None,
            allow_fetch: false,
        },
        image: Image::default(),
        services: vec![],
        variables: vec![],
        steps: vec![],
        hooks: vec![],
        artifacts: vec![],
        caches: vec![],
        dependencies: vec![],
        registry_credentials: vec![],
        trace: TraceOptions::default(),
    }
}

pub(crate) fn spec() -> JobSpec {
    JobSpec::GitlabCi(Box::new(least_job()))
}
