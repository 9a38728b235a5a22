//! The daemon's side of one job: finds or starts its process, tells it its orders, and reports what
//! becomes of it.

use std::io;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, interval, sleep, timeout};
use vk_hub_proto::node_session::VersionRange;
use vk_node_core::ledger::Resource;
use vk_node_core::{JobEvent, Stop};

use super::directory::{JobDir, Tenant};
use super::socket;
use super::spawn::Spawned;
use super::wire::{FrameReader, FromJob, Progress, ToJob, versions, write_frame};

/// How long a process that lives may take to answer before it is called alive unheard.
const UNHEARD: Duration = Duration::from_secs(10);
/// The pause before a process that lives and does not answer is asked again, growing to the last.
const PAUSES: [u64; 6] = [5, 20, 100, 300, 1000, 3000];
/// How often the files of a job are looked at whose process speaks other versions.
const FILES: Duration = Duration::from_secs(1);
/// How long a process may take to take a frame.
const FRAME: Duration = Duration::from_secs(10);
/// How long the end of a child that let its lock go may take to be heard of.
const EXIT: Duration = Duration::from_secs(10);

/// What a job's process is to be told, as far as it is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// It has all it asked for.
    pub granted: bool,
    /// It will not get it.
    pub denied: Option<Resource>,
    /// It is to stop.
    pub stop: Option<Stop>,
}

impl Orders {
    fn said(self) -> impl Iterator<Item = ToJob> {
        let granted = self.granted.then_some(ToJob::Grant);
        let denied = self.denied.map(|short| ToJob::Deny { short });
        let stop = self.stop.map(|how| ToJob::Stop { how });
        granted.into_iter().chain(denied).chain(stop)
    }
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// For the core, in order.
    pub events: Vec<JobEvent>,
    /// How the job stands, for display.
    pub progress: Option<Progress>,
}

impl News {
    fn of(event: JobEvent) -> News {
        News {
            events: vec![event],
            progress: None,
        }
    }
}

/// One job's attendant.
pub struct Attendant {
    dir: JobDir,
    orders: watch::Receiver<Orders>,
    news: mpsc::Sender<News>,
    /// What was told of the job so far.
    told: Progress,
    alive: bool,
}

/// Waits for the next look at a job's files, where that is how it is followed.
async fn tick(files: &mut Option<Interval>) {
    match files {
        Some(files) => drop(files.tick().await),
        None => std::future::pending().await,
    }
}

/// Nobody listens to the news any more.
#[derive(Debug)]
struct Unheard;

impl Attendant {
    /// An attendant that tells what becomes of the job.
    #[must_use]
    pub fn new(dir: JobDir, orders: watch::Receiver<Orders>, news: mpsc::Sender<News>) -> Self {
        Attendant {
            dir,
            orders,
            news,
            told: Progress::default(),
            alive: false,
        }
    }

    /// Follows the job's process to its end. `spawned` says that it was started just now, so that
    /// one that is gone without a mark of having begun has ended rather than never run; none where
    /// it was looked for.
    pub async fn follow(mut self, spawned: Option<Spawned>) {
        // Where nobody listens any more there is nothing to do.
        let _ = self.attend(spawned).await;
    }

    async fn attend(&mut self, spawned: Option<Spawned>) -> Result<(), Unheard> {
        let mut pauses = PAUSES.iter();
        let mut last = 0;
        let unheard = tokio::time::Instant::now() + UNHEARD;
        while self.lives().await {
            match self.subscribe().await {
                Ok(stream) => {
                    pauses = PAUSES.iter();
                    match self.listen(stream).await? {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(error) => {
                            tracing::info!(job = %self.dir.job(), %error, "a job's process is asked anew");
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(job = %self.dir.job(), %error, "a job's process does not answer");
                }
            }
            if !self.alive && tokio::time::Instant::now() > unheard {
                self.alive = true;
                let output_len = self.dir.output_len();
                self.tell(News::of(JobEvent::Alive { output_len })).await?;
            }
            last = pauses.next().copied().unwrap_or(last.max(5));
            sleep(Duration::from_millis(last)).await;
        }
        let end = self.end(spawned).await;
        self.tell(end).await
    }

    async fn lives(&self) -> bool {
        match self.dir.tenant() {
            Ok(Tenant::Lives) => true,
            Ok(Tenant::None(_)) => false,
            Err(_) if !self.dir.path().exists() => false,
            Err(error) => {
                tracing::error!(job = %self.dir.job(), %error, "whether a job's process lives cannot be asked");
                sleep(Duration::from_secs(1)).await;
                true
            }
        }
    }

    async fn subscribe(&self) -> io::Result<UnixStream> {
        let mut stream = timeout(FRAME, socket::connect(self.dir.path(), "job.sock")).await??;
        let subscribe = ToJob::Subscribe {
            versions: versions(),
        };
        timeout(FRAME, write_frame(&mut stream, &subscribe)).await??;
        Ok(stream)
    }

    /// Listens until the connection ends; true where the job is over.
    async fn listen(&mut self, stream: UnixStream) -> Result<io::Result<bool>, Unheard> {
        let (from, mut to) = stream.into_split();
        let mut frames = FrameReader::new(from);
        self.orders.mark_changed();
        let mut files = None;
        loop {
            tokio::select! {
                told = frames.next::<FromJob>() => match told {
                    Err(error) => return Ok(Err(error)),
                    Ok(None) => return Ok(Ok(false)),
                    Ok(Some(FromJob::State(state))) => {
                        if self.state(*state).await? {
                            return Ok(Ok(true));
                        }
                    }
                    Ok(Some(FromJob::Refused { versions })) => {
                        self.unlike(versions);
                        files = Some(interval(FILES));
                    }
                    Ok(Some(FromJob::Subscribed { .. } | FromJob::Other)) => {}
                },
                () = tick(&mut files) => {
                    let now = Progress {
                        output_len: self.dir.output_len().max(self.told.output_len),
                        ..self.told.clone()
                    };
                    self.state(now).await?;
                }
                changed = self.orders.changed() => {
                    if changed.is_err() {
                        return Err(Unheard);
                    }
                    let orders = *self.orders.borrow_and_update();
                    for order in orders.said() {
                        match timeout(FRAME, write_frame(&mut to, &order)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => return Ok(Err(error)),
                            Err(late) => return Ok(Err(late.into())),
                        }
                    }
                }
            }
        }
    }

    /// The process and this daemon have no version in common: what it is about is not known, only its
    /// files.
    fn unlike(&mut self, theirs: VersionRange) {
        let ours = versions();
        let why = format!(
            "its process is of another release (versions {} to {}, the node's {} to {}): only its log \
             and its end are seen",
            theirs.min, theirs.max, ours.min, ours.max
        );
        if self.told.activity.as_ref() != Some(&why) {
            tracing::warn!(job = %self.dir.job(), "{why}");
            self.told.activity = Some(why);
        }
    }

    /// Tells what is new; true where the job is over.
    async fn state(&mut self, now: Progress) -> Result<bool, Unheard> {
        let mut events = Vec::new();
        if !self.alive {
            self.alive = true;
            let output_len = now.output_len;
            events.push(JobEvent::Alive { output_len });
        }
        let stage = |of: &Progress| (of.stage.clone(), of.activity.clone());
        if let (Some(stage), true) = (&now.stage, stage(&now) != stage(&self.told)) {
            events.push(JobEvent::Stage {
                stage: stage.clone(),
                activity: now.activity.clone(),
            });
        }
        if let Some(guest) = now.guest.filter(|guest| self.told.guest != Some(*guest)) {
            events.push(JobEvent::Guest(guest));
        }
        if now.output_len > self.told.output_len {
            let len = now.output_len;
            events.push(JobEvent::Output { len });
        }
        events.extend(now.result.clone().map(JobEvent::Result));
        let over = now.result.is_some();
        self.told = now.clone();
        let progress = Some(now);
        self.tell(News { events, progress }).await?;
        Ok(over)
    }

    /// What a job without a process has come to.
    async fn end(&self, spawned: Option<Spawned>) -> News {
        let event = match self.dir.result() {
            Ok(Some(result)) => JobEvent::Result(result),
            Ok(None) if spawned.is_none() && !self.alive && !self.dir.began() => {
                JobEvent::NotStarted
            }
            Ok(None) => self.died(spawned).await,
            Err(error) => {
                tracing::error!(job = %self.dir.job(), %error, "a job's result cannot be read");
                self.died(spawned).await
            }
        };
        News {
            events: vec![event],
            progress: self.dir.left_state(),
        }
    }

    /// That it is gone without a result, and what is known of it.
    async fn died(&self, spawned: Option<Spawned>) -> JobEvent {
        let exit = match spawned {
            // Its lock is let go shortly before its parent hears of its end.
            Some(Spawned::Started(exit)) => timeout(EXIT, exit).await.ok().and_then(Result::ok),
            Some(Spawned::Before) | None => None,
        };
        let death = self.dir.began_as().died(exit);
        let job = self.dir.job();
        tracing::warn!(%job, "a job's process ended without a result: {death}");
        let output_len = self.dir.output_len();
        JobEvent::Ended { output_len, death }
    }

    async fn tell(&self, news: News) -> Result<(), Unheard> {
        self.news.send(news).await.map_err(|_| Unheard)
    }
}
