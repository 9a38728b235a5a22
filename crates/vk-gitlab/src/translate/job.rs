//! The whole job (SPEC-07 to SPEC-82).

use gitlab_runner_api::response::{self, JobResponse};
use gitlab_runner_api::short_token;
use vk_hub_proto::Secret;
use vk_hub_proto::job::{
    ArtifactFormat, ArtifactSpec, CiJob, CiJobInfo, Dependency, DependencyFile, FailureClass, Hook,
    HookName, ObjectFormat, RefType, RegistryCredential, Sources, Step, TraceOptions, Variable,
    When,
};

use super::cache::cache;
use super::expand::Expander;
use super::image::image;
use super::url::{clean_repo_url, project_path};

/// Seconds of a job whose timeout GitLab does not say (FAIL-38).
const UNKNOWN_TIMEOUT: u64 = 7200;

/// What the daemon knows of the runner.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The configured URL (SPEC-64).
    pub url: String,
    /// The contents of its `tls_ca_file` (SPEC-62).
    pub ca_pem: Option<String>,
    /// Its token: only the short form leaves.
    pub token: Secret,
    /// GitLab's number for it; 0 where unknown (SPEC-80).
    pub id: u64,
    /// Where traces are cut (SPEC-53).
    pub output_limit: u64,
    /// Whether this GitLab takes nobody without a client certificate, as nodes are (CFG-16).
    pub needs_certificate: bool,
    /// The program's version.
    pub version: String,
    /// The program's revision.
    pub revision: String,
}

/// A job that can be run.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The spec.
    pub job: CiJob,
    /// For log and trace: what was left out or bent. No values.
    pub warnings: Vec<String>,
}

/// A job that cannot be run: its class, and what the trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The class of the failure.
    pub class: FailureClass,
    /// The trace's lines.
    pub lines: Vec<String>,
}

/// Translates a response.
///
/// # Errors
/// The job asks for what was never advertised: secrets, `run:` steps, unknown executor options
/// (SPEC-56, SPEC-59, SPEC-70).
pub fn translate(from: &JobResponse, runner: &Runner) -> Result<Translated, Refused> {
    check(from)?;
    if runner.needs_certificate {
        return Err(without_certificate());
    }
    let mut warnings = Vec::new();
    let variables = job_variables(from, runner);
    let expander = Expander::new(&variables);
    let repo_url = clean_repo_url(from.git_info.repo_url.expose());
    let default_key = format!("{}/{}", from.job_info.name, from.git_info.ref_name);
    let caches = from.cache.iter();
    let caches = caches
        .filter_map(|one| cache(one, &default_key, &expander, &mut warnings))
        .collect();
    let job = CiJob {
        server_url: runner.url.clone(),
        server_ca_pem: runner.ca_pem.clone(),
        job: info(from, runner, &repo_url),
        token: from.token.clone(),
        timeout_secs: timeout(from.runner_info.timeout),
        sources: sources(from, repo_url),
        image: image(&from.image, &mut warnings),
        services: from
            .services
            .iter()
            .map(|one| image(one, &mut warnings))
            .collect(),
        steps: from.steps.iter().map(step).collect(),
        hooks: from
            .hooks
            .iter()
            .filter_map(|one| hook(one, &mut warnings))
            .collect(),
        artifacts: from
            .artifacts
            .iter()
            .map(|one| artifact(one, &mut warnings))
            .collect(),
        caches,
        dependencies: from.dependencies.iter().map(dependency).collect(),
        registry_credentials: credentials(&from.credentials),
        trace: TraceOptions {
            sections: from.features.trace_sections,
            mask_prefixes: from.features.token_mask_prefixes.clone(),
            limit_bytes: runner.output_limit,
        },
        variables,
    };
    Ok(Translated { job, warnings })
}

fn check(from: &JobResponse) -> Result<(), Refused> {
    let refuse = |lines: Vec<String>| Refused {
        class: FailureClass::Configuration,
        lines,
    };
    if from.has_secrets() {
        let line = "ERROR: this runner does not fetch secrets: `secrets:` cannot be used here";
        return Err(refuse(vec![line.to_owned()]));
    }
    if from.has_run() {
        let line = "ERROR: this runner has no steps of its own: use `script:` instead of `run:`";
        return Err(refuse(vec![line.to_owned()]));
    }
    let images = std::iter::once(&from.image).chain(&from.services);
    let unsupported = images.filter_map(|image| image.executor_opts.check().err());
    let lines: Vec<String> = unsupported
        .flat_map(|error| {
            error
                .to_string()
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(refuse(lines))
    }
}

/// The certificate stays with the daemon, so no node could fetch sources or send artifacts (CFG-16).
fn without_certificate() -> Refused {
    let line = "ERROR: this GitLab takes nobody without a client certificate, and the node that would \
                run the job has none: let GitLab take runners' nodes without one, as git, artifacts \
                and caches need it";
    Refused {
        class: FailureClass::Configuration,
        lines: vec![line.to_owned()],
    }
}

/// The runner's variables around the job's own (SPEC-35, SPEC-71).
fn job_variables(from: &JobResponse, runner: &Runner) -> Vec<Variable> {
    let own = |key: &str, value: &str| Variable {
        key: key.to_owned(),
        value: Secret::from(value),
        public: true,
        file: false,
        masked: false,
        raw: true,
    };
    let mut all = vec![own(
        "CI_RUNNER_SHORT_TOKEN",
        short_token(runner.token.expose()),
    )];
    all.extend(variables(&from.variables));
    all.push(own("CI_RUNNER_VERSION", &runner.version));
    all.push(own("CI_RUNNER_REVISION", &runner.revision));
    all.push(own("CI_RUNNER_EXECUTABLE_ARCH", "linux/amd64"));
    all
}

pub(crate) fn variables(from: &[response::Variable]) -> Vec<Variable> {
    let variable = |one: &response::Variable| Variable {
        key: one.key.clone(),
        value: one.value.clone(),
        public: one.public,
        file: one.file,
        masked: one.masked,
        raw: one.raw,
    };
    from.iter().map(variable).collect()
}

fn info(from: &JobResponse, runner: &Runner, repo_url: &str) -> CiJobInfo {
    let job = &from.job_info;
    let project_path = match job.project_full_path.as_str() {
        "" => project_path(repo_url),
        path => path.to_owned(),
    };
    CiJobInfo {
        id: positive(from.id),
        name: job.name.clone(),
        stage: job.stage.clone(),
        pipeline_id: positive(job.pipeline_id),
        project_id: positive(job.project_id),
        project_name: job.project_name.clone(),
        project_path,
        namespace_id: positive(job.namespace_id),
        root_namespace_id: positive(job.root_namespace_id),
        user_id: positive(job.user_id),
        runner_id: runner.id,
    }
}

/// Negative numbers are 0 (SPEC-76).
fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn timeout(secs: i64) -> u64 {
    match positive(secs) {
        0 => UNKNOWN_TIMEOUT,
        secs => secs,
    }
}

fn sources(from: &JobResponse, repo_url: String) -> Sources {
    let git = &from.git_info;
    Sources {
        repo_url,
        object_format: match git.repo_object_format.as_str() {
            "sha256" => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        },
        ref_name: git.ref_name.clone(),
        ref_type: if git.ref_type == "tag" {
            RefType::Tag
        } else {
            RefType::Branch
        },
        sha: git.sha.clone(),
        before_sha: git.before_sha.clone(),
        refspecs: git.refspecs.clone(),
        depth: u32::try_from(git.depth.max(0)).unwrap_or(u32::MAX),
        protected: git.protected,
        allow_fetch: from.allow_git_fetch,
    }
}

pub(crate) fn when(word: &str) -> When {
    match word {
        "on_failure" => When::OnFailure,
        "always" => When::Always,
        _ => When::OnSuccess,
    }
}

fn step(from: &response::Step) -> Step {
    Step {
        name: from.name.clone(),
        script: from.script.clone(),
        timeout_secs: positive(from.timeout),
        when: when(&from.when),
        allow_failure: from.allow_failure,
    }
}

fn hook(from: &response::Hook, warnings: &mut Vec<String>) -> Option<Hook> {
    let name = match from.name.as_str() {
        "pre_get_sources_script" => HookName::PreGetSourcesScript,
        "post_get_sources_script" => HookName::PostGetSourcesScript,
        name => {
            warnings.push(format!("hook {name:?} is unknown and was left out"));
            return None;
        }
    };
    Some(Hook {
        name,
        script: from.script.clone(),
    })
}

fn artifact(from: &response::Artifact, warnings: &mut Vec<String>) -> ArtifactSpec {
    let format = match from.artifact_format.as_str() {
        "" | "zip" => ArtifactFormat::Zip,
        "gzip" => ArtifactFormat::Gzip,
        "raw" => ArtifactFormat::Raw,
        "zipzstd" => ArtifactFormat::Zipzstd,
        "tarzstd" => ArtifactFormat::Tarzstd,
        word => {
            warnings.push(format!("artifact format {word:?} is unknown; zip is used"));
            ArtifactFormat::Zip
        }
    };
    let or = |text: &str, default: &str| match text {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    ArtifactSpec {
        name: or(&from.name, "artifacts"),
        untracked: from.untracked,
        paths: from.paths.clone(),
        exclude: from.exclude.clone(),
        when: when(&from.when),
        artifact_type: or(&from.artifact_type, "archive"),
        format,
        expire_in: from.expire_in.clone(),
    }
}

fn dependency(from: &response::Dependency) -> Dependency {
    let file = &from.artifacts_file;
    let filename = file.filename.clone();
    let some = !filename.is_empty();
    Dependency {
        id: positive(from.id),
        token: from.token.clone(),
        name: from.name.clone(),
        artifacts_file: some.then(|| DependencyFile {
            filename,
            size: positive(file.size),
        }),
    }
}

/// Those of type `registry`, by its exact word (SPEC-49).
fn credentials(from: &[response::Credentials]) -> Vec<RegistryCredential> {
    let registry = from.iter().filter(|one| one.kind == "registry");
    let credential = |one: &response::Credentials| RegistryCredential {
        url: one.url.clone(),
        username: one.username.clone(),
        password: one.password.clone(),
    };
    registry.map(credential).collect()
}

/// Whether the job's trace has stamps: its `FF_TIMESTAMPS`, on by default (STAGE-21, GL-27).
#[must_use]
pub fn is_timestamped(variables: &[response::Variable]) -> bool {
    let last = variables
        .iter()
        .rev()
        .find(|one| one.key == "FF_TIMESTAMPS");
    vk_trace::timestamps_wanted(last.map(|one| one.value.expose())).unwrap_or(true)
}
