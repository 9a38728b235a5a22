//! One job, its core, and what stands around it: GitLab, the hub, an edge with real bytes, a clock,
//! and a state file that survives a crash.

use std::collections::VecDeque;
use std::time::Duration;

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::job::{
    CiJob, CiJobInfo, FailureClass, Image, JobSpec, ObjectFormat, RefType, Sources, TraceOptions,
};
use vk_hub_proto::{RequestId, ReservationId};
use vk_step::{Core, Now, Step};

use super::fake_gitlab::{FakeGitLab, Status};
use super::fake_hub::{FakeHub, result};
use crate::job::{CallId, Config, Effect, Input, Job, Note, Record, Span};
use crate::{NewJob, WithoutReservation, Work};

/// Wall-clock seconds at the world's beginning.
pub(super) const WALL: u64 = 1_790_000_000;

/// The clock at the world's beginning.
const BEGUN: Now = Now::from_millis(5_000_000);

pub(super) struct World {
    pub(super) now: Now,
    pub(super) core: Job,
    /// What the state file holds.
    pub(super) records: Vec<Record>,
    pub(super) gitlab: FakeGitLab,
    pub(super) hub: FakeHub,
    pub(super) notes: Vec<Note>,
    pub(super) released: Vec<ReservationId>,
    pub(super) over: u32,
    pub(super) removed: bool,
    /// Crash once the state file holds so many records.
    pub(super) crash_at: Option<usize>,
    /// Writes fail.
    pub(super) store_broken: bool,
    /// So many times the edge does not hold the output that it is to send.
    pub(super) loses_bytes: u32,
    /// Calls to GitLab with their moments.
    pub(super) timeline: Vec<(Duration, String)>,
    queue: VecDeque<Effect>,
    view: Option<(CallId, Option<u64>, Now)>,
    fetch: Option<(CallId, u64, u64, Now)>,
    /// Calls of before a failed write, which are answered late.
    late: Vec<Input>,
    /// What the edge holds of the hub's output: first byte, bytes.
    held: (u64, Vec<u8>),
}

pub(super) fn config(now: Now) -> Config {
    Config {
        hub_url: "https://hub.example.com".to_owned(),
        place_within_secs: 300,
        wall: WALL + now.since(BEGUN).as_secs(),
        seed: 5,
    }
}

pub(super) fn spec() -> JobSpec {
    JobSpec::GitlabCi(Box::new(CiJob {
        server_url: "https://gitlab.example.com".to_owned(),
        server_ca_pem: None,
        job: CiJobInfo {
            id: 77,
            project_id: 12,
            project_path: "acme/web".to_owned(),
            ..CiJobInfo::default()
        },
        token: "glcbt-job".into(),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: "https://gitlab.example.com/acme/web.git".to_owned(),
            object_format: ObjectFormat::Sha1,
            ref_name: "main".to_owned(),
            ref_type: RefType::Branch,
            sha: "0".repeat(40),
            before_sha: "0".repeat(40),
            refspecs: Vec::new(),
            depth: 20,
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
        trace: TraceOptions::default(),
    }))
}

pub(super) fn reservation() -> ReservationId {
    ReservationId::from_bytes([4; 16])
}

pub(super) fn new_job() -> NewJob {
    NewJob {
        gitlab_job: 77,
        token: "glcbt-job".into(),
        request_id: RequestId::from_bytes([7; 16]),
        work: Work::Run(Box::new(spec())),
        spec_bytes: 1000,
        preamble: "Job triggered by policy\n".to_owned(),
        failure_reasons: [
            "runner_configuration_error",
            "image_pull_failure",
            "runner_interrupted",
        ]
        .map(str::to_owned)
        .to_vec(),
        debug_trace: false,
        timestamps: false,
        taken_at: WALL,
        token_ends: Some(WALL + 3600 + 300),
    }
}

pub(super) fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

impl World {
    pub(super) fn new() -> World {
        let now = BEGUN;
        let (core, effects) = Job::open(config(now), now, []).expect("opens");
        assert_eq!(effects, []);
        World {
            now,
            core,
            records: Vec::new(),
            gitlab: FakeGitLab::default(),
            hub: FakeHub::default(),
            notes: Vec::new(),
            released: Vec::new(),
            over: 0,
            removed: false,
            crash_at: None,
            store_broken: false,
            loses_bytes: 0,
            timeline: Vec::new(),
            queue: VecDeque::new(),
            view: None,
            fetch: None,
            late: Vec::new(),
            held: (0, Vec::new()),
        }
    }

    /// A world whose job was handed over.
    pub(super) fn with(job: NewJob) -> World {
        let mut world = World::new();
        world.take(job);
        world
    }

    /// A world whose job runs on a node and is committed, its preamble patched a second ago.
    pub(super) fn running() -> World {
        let mut world = World::with(new_job());
        world.hub.accept();
        world.pass_secs(1);
        assert_eq!(world.gitlab.calls(), ["running", "patch 0+24"]);
        world
    }

    pub(super) fn take(&mut self, job: NewJob) {
        self.take_with(job, Ok(reservation()));
    }

    pub(super) fn take_with(
        &mut self,
        job: NewJob,
        reservation: Result<ReservationId, WithoutReservation>,
    ) {
        let placement = placement();
        self.give(Input::Take {
            job: Box::new(job),
            placement,
            reservation,
        });
        self.pump();
    }

    /// The daemon dies and starts again: only the records are left.
    pub(super) fn crash(&mut self) {
        self.queue.clear();
        self.view = None;
        self.fetch = None;
        self.late.clear();
        self.held = (0, Vec::new());
        // Another process, another clock.
        let (core, effects) =
            Job::open(config(self.now), self.now, self.records.clone()).expect("opens");
        self.core = core;
        self.queue.extend(effects);
        if self.core.next_deadline().is_some() {
            self.give(Input::Timeout);
        }
        // An edge counts the jobs that are not over when it starts.
        if self
            .core
            .record()
            .is_none_or(crate::job::JobRecord::is_over)
        {
            self.over = self.over.max(1);
        }
    }

    pub(super) fn give(&mut self, input: Input) {
        let step = self.core.handle(self.now, input);
        self.take_step(step);
        assert!(
            self.core.next_deadline().is_none_or(|at| at > self.now),
            "a deadline that has passed is no deadline"
        );
    }

    fn take_step(&mut self, step: Step<Record, Effect>) {
        if self.store_broken && !step.records.is_empty() {
            let kept = !self.records.is_empty();
            // What is on its way comes late: the core makes its calls anew.
            if let Some((call, after, _)) = self.view.take() {
                let answer = self.hub.view(after, true).expect("an answer");
                self.late.push(Input::ViewAnswer(call, answer));
            }
            if let Some((call, offset, max, _)) = self.fetch.take() {
                let answer = self.hub.fetch(offset, max, true).expect("an answer");
                let read = answer.map(|(read, _)| read);
                self.late.push(Input::FetchAnswer(call, read));
            }
            self.give(Input::StoreFailed {
                why: "no space left".to_owned(),
                kept,
            });
            return;
        }
        self.records.extend(step.records);
        if let Some(at) = self.crash_at.filter(|at| self.records.len() >= *at) {
            self.crash_at = None;
            self.records.truncate(at);
            self.crash();
            return;
        }
        self.queue.extend(step.effects);
    }

    /// Serves effects until none is left, and long polls that have something.
    pub(super) fn pump(&mut self) {
        let mut steps = 0;
        loop {
            while let Some(effect) = self.queue.pop_front() {
                steps += 1;
                assert!(steps < 20_000, "never comes to rest");
                self.serve(effect);
            }
            if !self.serve_polls() {
                return;
            }
        }
    }

    fn serve_polls(&mut self) -> bool {
        if let Some((call, after, until)) = self.view
            && let Some(answer) = self.hub.view(after, self.now >= until)
        {
            self.view = None;
            self.give(Input::ViewAnswer(call, answer));
            return true;
        }
        if let Some((call, offset, max, until)) = self.fetch
            && let Some(answer) = self.hub.fetch(offset, max, self.now >= until)
        {
            self.fetch = None;
            let answer = answer.map(|(read, bytes)| {
                self.held = (offset, bytes);
                read
            });
            self.give(Input::FetchAnswer(call, answer));
            return true;
        }
        false
    }

    fn bytes(&self, span: Span) -> Vec<u8> {
        if span.is_empty() {
            return Vec::new();
        }
        let job = self.core.record().expect("a job");
        let (all, from, len) = match span {
            Span::Preamble { from, len } => (job.preamble().as_bytes(), from, len),
            Span::Suffix { from, len } => (job.suffix().as_bytes(), from, len),
            Span::Output { from, len } => (&self.held.1[..], from - self.held.0, len),
        };
        let from = usize::try_from(from).expect("small");
        let len = usize::try_from(len).expect("small");
        all[from..from + len].to_vec()
    }

    fn called(&mut self) {
        let at = self.now.since(BEGUN);
        let name = self.gitlab.calls.last().cloned().unwrap_or_default();
        self.timeline.push((at, name));
    }

    fn serve(&mut self, effect: Effect) {
        match effect {
            Effect::Submit { call, submission } => {
                let answer = self.hub.submit(&submission);
                self.give(Input::SubmitAnswer(call, answer));
            }
            Effect::View {
                call,
                after,
                wait_secs,
                ..
            } => {
                assert!(self.view.is_none(), "one view at a time");
                let until = self.now.after(Duration::from_secs(wait_secs.into()));
                self.view = Some((call, after, until));
            }
            Effect::Fetch {
                call,
                offset,
                max_bytes,
                wait_secs,
                ..
            } => {
                assert!(self.fetch.is_none(), "one read at a time");
                self.held = (0, Vec::new());
                let until = self.now.after(Duration::from_secs(wait_secs.into()));
                self.fetch = Some((call, offset, max_bytes, until));
            }
            Effect::Sum { call, span, crc } => {
                let mut hasher = crc32fast::Hasher::new_with_initial(crc);
                hasher.update(&self.bytes(span));
                self.give(Input::SumAnswer(call, hasher.finalize()));
            }
            Effect::Cancel { call, mode, .. } => {
                let answer = self.hub.cancel(mode);
                self.give(Input::CancelAnswer(call, answer));
            }
            Effect::Settle { call, .. } => {
                let answer = self.hub.settle();
                self.give(Input::SettleAnswer(call, answer));
            }
            Effect::Release { reservation } => self.released.push(reservation),
            Effect::RenderSuffix {
                call,
                lines,
                timestamps,
            } => {
                let stamp = if timestamps { "[stamp] " } else { "" };
                let text = lines
                    .iter()
                    .map(|line| format!("{stamp}{line}\n"))
                    .collect();
                self.give(Input::SuffixAnswer(call, text));
            }
            Effect::Update { call, update } => {
                let answer = self.gitlab.put(&update);
                self.called();
                self.give(Input::UpdateAnswer(call, answer));
            }
            Effect::Patch {
                call,
                offset,
                span,
                crc,
            } => {
                if self.loses_bytes > 0 && matches!(span, Span::Output { .. }) {
                    self.loses_bytes -= 1;
                    return self.give(Input::NotHeld(call));
                }
                let bytes = self.bytes(span);
                assert!(bytes.len() <= 1 << 20, "GL-18");
                let answer = self.gitlab.patch(offset, &bytes);
                self.called();
                let crc = crc.map(|crc| {
                    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
                    hasher.update(&bytes);
                    hasher.finalize()
                });
                self.give(Input::PatchAnswer { call, answer, crc });
            }
            Effect::Over => self.over += 1,
            Effect::Removed => self.removed = true,
            Effect::Note(note) => self.notes.push(note),
        }
    }

    /// Lets time pass, with everything that is due on the way.
    pub(super) fn pass(&mut self, by: Duration) {
        let end = self.now.after(by);
        self.pump();
        for late in std::mem::take(&mut self.late) {
            self.give(late);
            self.pump();
        }
        loop {
            let polls = [
                self.view.map(|(_, _, until)| until),
                self.fetch.map(|(_, _, _, until)| until),
            ];
            let next = polls
                .into_iter()
                .chain([self.core.next_deadline()])
                .flatten()
                .filter(|at| *at > self.now)
                .min();
            let Some(at) = next.filter(|at| *at <= end) else {
                break;
            };
            self.now = at;
            if self.core.next_deadline().is_some_and(|due| due <= at) {
                self.give(Input::Timeout);
            }
            self.pump();
        }
        self.now = end;
    }

    pub(super) fn pass_secs(&mut self, secs: u64) {
        self.pass(Duration::from_secs(secs));
    }

    pub(super) fn print(&mut self, text: &str) {
        self.hub.output.extend_from_slice(text.as_bytes());
        self.pump();
    }

    pub(super) fn finish(&mut self, failure: Option<FailureClass>) {
        self.hub.finish(result(failure));
        self.pump();
    }

    /// What GitLab's trace must be at the end.
    pub(super) fn whole_trace(&self) -> Vec<u8> {
        let suffix = self.records.iter().rev().find_map(|record| match record {
            Record::Suffix { text } => Some(text.as_str()),
            _ => None,
        });
        let taken = self.records.iter().find_map(|record| match record {
            Record::Taken(taken) => Some(taken.preamble.as_str()),
            _ => None,
        });
        let mut all = taken.unwrap_or_default().as_bytes().to_vec();
        all.extend_from_slice(&self.hub.output);
        all.extend_from_slice(suffix.unwrap_or_default().as_bytes());
        all
    }

    /// The right end: told, byte for byte, with a true checksum, settled, dropped.
    pub(super) fn assert_right_end(&self, status: Status) {
        assert_eq!(self.gitlab.status, status);
        let trace = String::from_utf8_lossy(&self.gitlab.trace).into_owned();
        let whole = String::from_utf8_lossy(&self.whole_trace()).into_owned();
        assert_eq!(trace, whole);
        let output = self.gitlab.output.expect("a checksum");
        assert_eq!(output.offset, self.gitlab.trace.len() as u64);
        assert_eq!(output.crc, crc(&self.gitlab.trace), "GL-72");
        self.assert_dropped();
    }

    /// Nothing is left of the job anywhere.
    pub(super) fn assert_dropped(&self) {
        assert!(self.removed, "{:?}", self.records.last());
        assert_eq!(self.records.last(), Some(&Record::Removed));
        assert!(
            self.hub.submission.is_none() || self.hub.settled || self.hub.forgotten,
            "settled at the hub"
        );
        assert_eq!(self.over.min(1), 1, "the slot is free");
    }

    pub(super) fn is_cancelled(&self, mode: CancelMode) -> bool {
        self.hub.cancels.contains(&mode)
    }
}

fn placement() -> vk_hub_proto::client::Placement {
    vk_hub_proto::client::Placement {
        pool: "default".parse().expect("a name"),
        labels: Vec::new(),
        envelope: vk_hub_proto::client::Envelope {
            mem_mib: 1024,
            cpus: 1,
            disk_bytes: 0,
        },
    }
}
