//! The machine as its driver sees it: inputs in, effects out.

mod attempts;
mod order;
mod settings;
mod stopped;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use vk_hub_proto::Secret;
use vk_hub_proto::job::{
    ArtifactFormat, ArtifactSpec, CachePolicy, CacheSpec, CiJob, CiJobInfo, Dependency,
    DependencyFile, FailureClass, Image, ObjectFormat, RefType, Sources, Step, TraceOptions, When,
};
use vk_step::{Core, Now};

use crate::{
    Effect, End, Input, JobStatus, Kill, Line, Plan, Record, Stage, StageCore, StageEnd, Stop,
};

/// A job that has everything: caches, dependencies, artifacts, `script` and `after_script`.
fn spec() -> CiJob {
    CiJob {
        server_url: "https://gitlab.example.com".to_owned(),
        server_ca_pem: None,
        job: CiJobInfo::default(),
        token: Secret::default(),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: String::new(),
            object_format: ObjectFormat::Sha1,
            ref_name: String::new(),
            ref_type: RefType::Branch,
            sha: String::new(),
            before_sha: String::new(),
            refspecs: Vec::new(),
            depth: 0,
            protected: None,
            allow_fetch: true,
        },
        image: Image::default(),
        services: Vec::new(),
        variables: Vec::new(),
        steps: vec![
            step("script", When::OnSuccess),
            step("after_script", When::Always),
        ],
        hooks: Vec::new(),
        artifacts: vec![artifact(When::Always)],
        caches: vec![cache(When::Always)],
        dependencies: vec![Dependency {
            id: 1,
            token: Secret::default(),
            name: "build".to_owned(),
            artifacts_file: Some(DependencyFile {
                filename: "artifacts.zip".to_owned(),
                size: 1,
            }),
        }],
        registry_credentials: Vec::new(),
        trace: TraceOptions::default(),
    }
}

fn step(name: &str, when: When) -> Step {
    Step {
        name: name.to_owned(),
        script: vec!["true".to_owned()],
        timeout_secs: 3600,
        when,
        allow_failure: false,
    }
}

fn artifact(when: When) -> ArtifactSpec {
    ArtifactSpec {
        name: "artifacts".to_owned(),
        untracked: false,
        paths: vec!["out".to_owned()],
        exclude: Vec::new(),
        when,
        artifact_type: "archive".to_owned(),
        format: ArtifactFormat::Zip,
        expire_in: String::new(),
    }
}

fn cache(when: When) -> CacheSpec {
    CacheSpec {
        key: "key".to_owned(),
        fallback_keys: Vec::new(),
        untracked: false,
        paths: vec!["deps".to_owned()],
        policy: CachePolicy::PullPush,
        when,
    }
}

fn plan(job: &CiJob, variables: &[(&str, &str)]) -> Plan {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Plan::new(job, |name| variables.get(name).map(|v| (*v).to_owned()))
}

/// A job being driven: each stage ends as told, well where nothing is told.
struct Job {
    core: StageCore,
    plan: Plan,
    now: Now,
    ends: BTreeMap<String, VecDeque<StageEnd>>,
    /// Stages run, in order.
    ran: Vec<String>,
    printed: Vec<Line>,
    statuses: Vec<JobStatus>,
    kills: Vec<(String, Kill)>,
    /// The attempt that runs.
    running: Option<(Stage, u32)>,
    end: Option<End>,
    kept: Vec<Record>,
}

impl Job {
    fn new(plan: Plan) -> Job {
        let (core, effects) = StageCore::open(plan.clone(), Now::ZERO, []).unwrap();
        assert_eq!(effects, []);
        Job {
            core,
            plan,
            now: Now::ZERO,
            ends: BTreeMap::new(),
            ran: Vec::new(),
            printed: Vec::new(),
            statuses: Vec::new(),
            kills: Vec::new(),
            running: None,
            end: None,
            kept: Vec::new(),
        }
    }

    fn ends(mut self, stage: &str, ends: &[StageEnd]) -> Job {
        self.ends.insert(stage.to_owned(), ends.to_vec().into());
        self
    }

    fn give(&mut self, input: Input) {
        let step = self.core.handle(self.now, input);
        self.kept.extend(step.records);
        for effect in step.effects {
            assert_eq!(self.end, None, "{effect:?} after the end");
            match effect {
                Effect::Run { stage, attempt, .. } => {
                    assert_eq!(self.running, None);
                    self.running = Some((stage, attempt));
                    self.ran.push(self.plan.name(stage).to_owned());
                }
                Effect::Kill { stage, how } => {
                    assert_eq!(self.running.map(|(stage, _)| stage), Some(stage));
                    self.kills.push((self.plan.name(stage).to_owned(), how));
                }
                Effect::SetJobStatus(status) => self.statuses.push(status),
                Effect::Print(line) => self.printed.push(line),
                Effect::Finish(end) => self.end = Some(end),
            }
        }
    }

    /// Ends the running attempt.
    fn over(&mut self, end: StageEnd) {
        let (stage, attempt) = self.running.take().expect("a stage runs");
        self.give(Input::Ended {
            stage,
            attempt,
            end,
        });
    }

    /// Ends stages until this one runs.
    fn until(mut self, stage: &str) -> Job {
        if self.ran.is_empty() {
            self.give(Input::Begin);
        }
        while self.ran.last().map(String::as_str) != Some(stage) {
            assert_eq!(self.end, None, "{stage} does not run: {:?}", self.ran);
            self.turn();
        }
        self
    }

    /// Ends stages, and waits, until the job is over.
    fn finish(mut self) -> Job {
        if self.ran.is_empty() {
            self.give(Input::Begin);
        }
        while self.end.is_none() {
            self.turn();
        }
        assert_eq!(self.core.next_deadline(), None);
        self
    }

    fn turn(&mut self) {
        let Some((stage, _)) = self.running else {
            self.now = self.core.next_deadline().expect("something will happen");
            return self.give(Input::Timeout);
        };
        let ends = self.ends.get_mut(self.plan.name(stage));
        let end = ends.and_then(VecDeque::pop_front);
        self.over(end.unwrap_or(StageEnd::Done));
    }

    /// Lets time pass, giving each deadline its timeout.
    fn wait(&mut self, secs: u64) {
        let until = self.now.after(Duration::from_secs(secs));
        while let Some(next) = self.core.next_deadline().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.give(Input::Timeout);
        }
        self.now = until;
    }

    fn class(&self) -> Option<FailureClass> {
        self.end.as_ref().expect("the job is over").failure
    }

    fn message(&self) -> Option<&str> {
        let end = self.end.as_ref().expect("the job is over");
        end.message.as_deref()
    }

    /// The stages from this one on.
    fn from(&self, stage: &str) -> Vec<&str> {
        let ran = self.ran.iter().map(String::as_str);
        ran.skip_while(|name| *name != stage).collect()
    }
}

fn failed(class: FailureClass) -> StageEnd {
    StageEnd::Failed {
        class,
        message: "it broke".to_owned(),
        transient: false,
    }
}
