//! Doing what the core wants done.

use tokio::sync::{mpsc, watch};
use vk_hub_proto::JobId;
use vk_hub_proto::node_session::{NodeMessage, Placed, Report};
use vk_kill::KillPoints;
use vk_node_core::io::{RunPlan, Status};
use vk_node_core::{Effect, JobEvent, Record};
use vk_step::Variant as _;

use super::actor::{Actor, Attended, Message, Step};
use crate::durable::FileError;
use crate::job::attend::{Attendant, News, Orders};
use crate::job::closing::close_output;
use crate::job::directory::{JobDir, Plan};
use crate::job::spawn::{JobProgram, Spawned, spawn};
use crate::session::{Outbox, chain};

/// News of one job that may wait.
const NEWS: usize = 16;

/// An effect that was released, for kill points: said once what it does is done.
pub(crate) struct Released {
    kill: KillPoints,
    variant: &'static str,
    records: Vec<Record>,
}

impl Released {
    fn done(self) {
        self.kill.after_effect(self.variant);
        self.kill.after_records(&self.records);
    }
}

impl Actor {
    /// Releases a durable step's effects.
    pub(crate) fn release(&mut self, step: Step) {
        let mut records = step.records;
        if let Some((answer, reply)) = step.answer {
            // An operator who left needs no answer.
            let _ = reply.send(answer);
        }
        if step.effects.is_empty() {
            self.parts.kill.after_records(&records);
        }
        for effect in step.effects {
            let released = Released {
                kill: self.parts.kill.clone(),
                variant: effect.variant(),
                records: std::mem::take(&mut records),
            };
            self.act(effect, released);
        }
    }

    fn act(&mut self, effect: Effect, released: Released) {
        match effect {
            Effect::SendReport { session, status } => {
                let report = NodeMessage::Report(Box::new(self.report(&status)));
                self.send(session, |outbox| outbox.message(report));
            }
            Effect::Send { session, message } => {
                self.parts.metrics.says(&message);
                self.send(session, |outbox| outbox.message(NodeMessage::Job(*message)));
            }
            Effect::SendOutput {
                session,
                job,
                offset,
                len,
            } => {
                self.parts.metrics.sends(len);
                self.send(session, |outbox| outbox.output(job, offset, len));
            }
            Effect::SendAck {
                session,
                id,
                outcome,
            } => {
                self.send(session, |outbox| {
                    outbox.message(NodeMessage::Ack { id, outcome });
                });
            }
            Effect::Spawn { job, plan } => return self.attend(job, Some(plan), released),
            Effect::Attach { job } => return self.attend(job, None, released),
            Effect::Grant { job } => self.order(job, |orders| orders.granted = true),
            Effect::Deny { job, short } => self.order(job, |orders| orders.denied = Some(short)),
            Effect::Stop { job, how } => self.order(job, |orders| orders.stop = Some(how)),
            Effect::CleanUp { job } => return self.on_disk(job, clean_up, released),
            Effect::CloseOutput { job, line } => {
                let close = move |dir: &JobDir| {
                    let len = close_output(dir, &line)?;
                    Ok(Some(JobEvent::OutputClosed { len }))
                };
                return self.on_disk(job, close, released);
            }
            Effect::DropSecrets { job } => {
                let drop = |dir: &JobDir| dir.drop_secrets().map(|()| None);
                return self.on_disk(job, drop, released);
            }
            Effect::Remove { job } => {
                if let Some(attended) = self.jobs.remove(&job) {
                    attended.task.abort();
                }
                let remove = |dir: &JobDir| dir.remove().map(|()| Some(JobEvent::Removed));
                return self.on_disk(job, remove, released);
            }
        }
        released.done();
    }

    fn send(&self, session: u64, put: impl FnOnce(&Outbox)) {
        if let Some((open, outbox)) = &self.session
            && *open == session
        {
            put(outbox);
        }
    }

    fn order(&self, job: JobId, change: impl FnOnce(&mut Orders)) {
        if let Some(attended) = self.jobs.get(&job) {
            attended.orders.send_modify(change);
        }
    }

    fn report(&self, status: &Status) -> Report {
        Report {
            workloads: Some(Vec::new()),
            applied: status.applied,
            state: Some(status.state),
            acquisition: Some(status.acquisition),
            drain: status.drain,
            placed: Some(Placed {
                runner: status.own_runner.clone(),
                limit: self.parts.core.max_concurrency,
                image_cache_idle_secs: Some(self.parts.image_cache_idle.as_secs()),
            }),
            ..Report::default()
        }
    }

    fn dir(&self, job: JobId) -> JobDir {
        JobDir::new(job, self.parts.state.job(job))
    }

    /// Shows what jobs of before a restart came to.
    pub(crate) fn read_left_states(&mut self) {
        for view in self.views.all() {
            if let Some(left) = self.dir(view.job).left_state() {
                self.views.progress(view.job, left);
            }
        }
    }

    /// Finds a job's process, or starts it, and follows it.
    fn attend(&mut self, job: JobId, plan: Option<Box<RunPlan>>, released: Released) {
        let dir = self.dir(job);
        let settings = self.parts.settings.clone();
        let program = self.parts.program.clone();
        let past_runs = self.parts.state.past_runs();
        let plan = plan.map(|plan| Plan {
            v: 1,
            job,
            run: *plan,
            settings,
            past_runs: Some(past_runs),
        });
        let (orders, read_orders) = watch::channel(Orders::default());
        let (news, mut read_news) = mpsc::channel(NEWS);
        let inbox = self.own.clone();
        let task = tokio::spawn(async move {
            let following = async {
                let started = start(&dir, plan, program).await;
                released.done();
                match started {
                    Ok(spawned) => {
                        let attendant = Attendant::new(dir, read_orders, news);
                        attendant.follow(spawned).await;
                    }
                    Err(why) => {
                        let event = JobEvent::SpawnFailed { why };
                        let _ = news
                            .send(News {
                                events: vec![event],
                                progress: None,
                            })
                            .await;
                        drop(news);
                    }
                }
            };
            let passing_on = async {
                while let Some(news) = read_news.recv().await {
                    if inbox.send(Message::Job(job, Box::new(news))).await.is_err() {
                        return;
                    }
                }
            };
            tokio::join!(following, passing_on);
        });
        let attended = Attended {
            orders,
            task: task.abort_handle(),
        };
        if let Some(before) = self.jobs.insert(job, attended) {
            before.task.abort();
        }
    }

    /// Does something to a job's directory, and tells the core the answer. What fails is tried
    /// again with growing pauses: it is derived anew from the journal at the next start too.
    fn on_disk(
        &self,
        job: JobId,
        work: impl Fn(&JobDir) -> Result<Option<JobEvent>, FileError> + Send + Sync + Clone + 'static,
        released: Released,
    ) {
        let dir = self.dir(job);
        let inbox = self.own.clone();
        tokio::spawn(async move {
            let mut pause = std::time::Duration::from_millis(100);
            let event = loop {
                let (work, dir) = (work.clone(), dir.clone());
                let done = tokio::task::spawn_blocking(move || work(&dir)).await;
                match done {
                    Ok(Ok(event)) => break event,
                    Ok(Err(error)) => {
                        tracing::warn!(%job, error = chain(&error), "a job's directory fails us");
                    }
                    // The runtime ends.
                    Err(_) => return,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(std::time::Duration::from_secs(30));
            };
            released.done();
            if let Some(event) = event {
                let news = News {
                    events: vec![event],
                    progress: None,
                };
                let _ = inbox.send(Message::Job(job, Box::new(news))).await;
            }
        });
    }
}

fn clean_up(dir: &JobDir) -> Result<Option<JobEvent>, FileError> {
    dir.clean_up()?;
    Ok(Some(JobEvent::CleanedUp))
}

/// Starts the process where there is a plan.
async fn start(
    dir: &JobDir,
    plan: Option<Plan>,
    program: JobProgram,
) -> Result<Option<Spawned>, String> {
    let Some(plan) = plan else {
        return Ok(None);
    };
    let dir = dir.clone();
    let spawned = tokio::task::spawn_blocking(move || spawn(&dir, &plan, &program));
    match spawned.await {
        // One that ran before is followed like one that was started now.
        Ok(Ok(spawned)) => Ok(Some(spawned)),
        Ok(Err(error)) => Err(chain(&error)),
        Err(error) => Err(error.to_string()),
    }
}
