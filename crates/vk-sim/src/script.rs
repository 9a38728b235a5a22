//! What a model job prints and how it ends: fixed by its number, so that every reader can tell.

use vk_hub_proto::Secret;
use vk_hub_proto::job::{
    CiJob, CiJobInfo, FailureClass, Image, JobSpec, ObjectFormat, RefType, Sources, Step,
    TraceOptions, Variable, When,
};

/// A value no record of hub or node may ever hold.
pub(crate) const SECRET: &str = "s3cret-of-the-simulation";

/// A job's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// GitLab's number of the job.
    pub(crate) gitlab_job: u64,
    /// Pieces it prints.
    pub(crate) pieces: u32,
    /// Bytes of a piece.
    pub(crate) piece_bytes: u32,
    /// Milliseconds between two pieces.
    pub(crate) every_ms: u64,
    /// Its exit code.
    pub(crate) exit_code: i32,
}

impl Script {
    /// One piece of the output.
    #[must_use]
    pub(crate) fn piece(&self, number: u32) -> Vec<u8> {
        let line = format!("job {} piece {number}\n", self.gitlab_job);
        line.into_bytes()
            .into_iter()
            .cycle()
            .take(self.piece_bytes as usize)
            .collect()
    }

    /// The class it fails with, if it does.
    #[must_use]
    pub(crate) const fn failure(&self) -> Option<FailureClass> {
        if self.exit_code == 0 {
            None
        } else {
            Some(FailureClass::Script)
        }
    }

    /// The job as the daemon translated it, secrets and all.
    #[must_use]
    pub(crate) fn spec(&self) -> JobSpec {
        let secret = Variable {
            key: "DEPLOY_KEY".into(),
            value: Secret::from(SECRET),
            public: false,
            file: false,
            masked: true,
            raw: false,
        };
        JobSpec::GitlabCi(Box::new(CiJob {
            server_url: "https://gitlab.example.com".into(),
            server_ca_pem: None,
            job: CiJobInfo {
                id: self.gitlab_job,
                name: "job".into(),
                project_id: 12,
                project_path: "acme/web".into(),
                ..CiJobInfo::default()
            },
            token: token(self.gitlab_job),
            timeout_secs: 3600,
            sources: Sources {
                repo_url: "https://gitlab.example.com/acme/web.git".into(),
                object_format: ObjectFormat::Sha1,
                ref_name: "main".into(),
                ref_type: RefType::Branch,
                sha: String::new(),
                before_sha: String::new(),
                refspecs: vec![],
                depth: 20,
                protected: None,
                allow_fetch: true,
            },
            image: Image::default(),
            services: vec![],
            variables: vec![secret],
            steps: vec![Step {
                name: "script".into(),
                script: vec!["run".into()],
                timeout_secs: 0,
                when: When::OnSuccess,
                allow_failure: false,
            }],
            hooks: vec![],
            artifacts: vec![],
            caches: vec![],
            dependencies: vec![],
            registry_credentials: vec![],
            trace: TraceOptions::default(),
        }))
    }
}

/// A job's token: a secret like the variable's value.
#[must_use]
pub(crate) fn token(gitlab_job: u64) -> Secret {
    Secret::new(format!("{SECRET}-token-{gitlab_job}"))
}
