//! What unit tests share.

use vk_hub_proto::job::{
    CiJob, CiJobInfo, Image, ObjectFormat, RefType, Sources, Step, TraceOptions, When,
};

/// A job that does next to nothing.
pub(crate) fn job() -> CiJob {
    CiJob {
        server_url: "https://gitlab.example.com".to_owned(),
        server_ca_pem: None,
        job: CiJobInfo {
            id: 7,
            name: "hello".to_owned(),
            project_id: 3,
            project_path: "g/p".to_owned(),
            ..CiJobInfo::default()
        },
        token: "job-token-of-7".into(),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: "https://gitlab.example.com/g/p.git".to_owned(),
            object_format: ObjectFormat::Sha1,
            ref_name: "main".to_owned(),
            ref_type: RefType::Branch,
            sha: "0".repeat(40),
            before_sha: "0".repeat(40),
            refspecs: Vec::new(),
            depth: 0,
            protected: None,
            allow_fetch: true,
        },
        image: Image::default(),
        services: Vec::new(),
        variables: Vec::new(),
        steps: vec![Step {
            name: "script".to_owned(),
            script: vec!["true".to_owned()],
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
