//! The session with the hub, from a daemon that the tests play to a hub that they play.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod hub;
mod key;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use vk_gitlab::session::{About, Line, Said, Told, hold};
use vk_hub_proto::node_session::RefusedCode;
use vk_hub_proto::relay_session::{
    HubRelayMessage, RelayMessage, RelayRunnerState, RunnerBeat, ServerStatus,
};

use hub::Hub;

/// Whatever is waited for comes within this, or the test fails.
const SOON: Duration = Duration::from_secs(30);

fn about(leaf: watch::Receiver<Option<Vec<u8>>>, tls: bool) -> About {
    About {
        version: "1.0".into(),
        host: "host".into(),
        system_id: "r_abcdefghijkl".into(),
        url: "https://gitlab.example.com".into(),
        tls,
        leaf,
    }
}

/// A daemon that says of itself what it is given.
struct Daemon {
    line: Line,
    jobs: u32,
    runners: Vec<vk_hub_proto::relay_session::RelayRunner>,
}

impl Daemon {
    fn of(hub: &Hub) -> Daemon {
        let (_, leaf) = watch::channel(None);
        Daemon::with(hub, about(leaf, false))
    }

    fn with(hub: &Hub, about: About) -> Daemon {
        Daemon {
            line: hold(hub.client(), about),
            jobs: 0,
            runners: vec![],
        }
    }

    fn beat(&self) -> Vec<RunnerBeat> {
        vec![RunnerBeat {
            name: "ci".into(),
            state: RelayRunnerState::Polling,
            requests: 1,
            jobs: self.jobs,
            last_answer: None,
        }]
    }

    /// What the session tells next; questions are answered on the way.
    async fn told(&mut self) -> Option<Told> {
        loop {
            match timeout(SOON, self.line.told.recv()).await.unwrap() {
                Some(Told::WhatToSay(answer)) => {
                    let said = Said {
                        report: self.line.about.report(4, self.runners.clone()),
                        runners: self.beat(),
                    };
                    // The session may have broken meanwhile.
                    let _ = answer.send(said);
                }
                told => return told,
            }
        }
    }

    /// Answers questions while something else goes on.
    async fn while_<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::select! {
            done = other => done,
            told = self.told() => panic!("{told:?} was told"),
        }
    }

    /// The same where the session may say that the hub is yet to be told of the server.
    async fn while_unsaid<T>(&mut self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                told = self.told() => assert!(is_unsaid(told.as_ref()), "{told:?} was told"),
            }
        }
    }

    /// Becomes another GitLab again and again, until one is not reported; the last one that was.
    async fn flaps(&mut self, session: &mut hub::Session) -> String {
        let mut reported = self.line.about.url.clone();
        for number in 0..40 {
            self.line.about.url = format!("https://gitlab{number}.example.com");
            self.line.changed.notify_one();
            loop {
                let told = tokio::select! {
                    // The loop is told before the hub hears the beat.
                    biased;
                    told = self.told() => told,
                    heard = session.hears() => match heard {
                        RelayMessage::Report(report) => {
                            reported = report.server.url;
                            continue;
                        }
                        _ => break,
                    },
                };
                assert!(is_unsaid(told.as_ref()), "{told:?} was told");
                return reported;
            }
        }
        panic!("each was reported");
    }
}

fn is_unsaid(told: Option<&Told>) -> bool {
    let Some(Told::Server { status, message }) = told else {
        return false;
    };
    *status == ServerStatus::Pending
        && message
            .as_deref()
            .is_some_and(|why| why.contains("changed again"))
}

/// SESS-01, SESS-03, SESS-08
#[tokio::test]
async fn the_daemon_reports_what_it_is_and_hears_how_its_server_stands() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    assert_eq!(session.path, "/v1/gitlab/session");
    let report = daemon.while_(session.report()).await;
    assert_eq!(report.version, "1.0");
    assert_eq!(report.host, "host");
    assert_eq!(report.system_id, "r_abcdefghijkl");
    assert_eq!(report.concurrent, 4);
    assert_eq!(report.server.url, "https://gitlab.example.com");
    assert_eq!(report.server.spki_sha256, None);
    session.says_status(ServerStatus::Pending).await;
    let Some(Told::Server { status, message }) = daemon.told().await else {
        panic!("a status")
    };
    assert_eq!(
        (status, message.as_deref()),
        (ServerStatus::Pending, Some("why"))
    );
}

/// SESS-06, SESS-18
#[tokio::test]
async fn a_change_is_said_at_once_and_a_report_only_where_it_changed() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    // No heartbeat is due for minutes: what comes before was rung for.
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    let beat = daemon.while_(session.hears()).await;
    let runners = daemon.beat();
    assert_eq!(beat, RelayMessage::Heartbeat { runners });
    daemon.jobs = 7;
    daemon.line.changed.notify_one();
    let beat = daemon.while_(session.hears()).await;
    let runners = daemon.beat();
    assert_eq!(beat, RelayMessage::Heartbeat { runners });
    daemon.runners = vec![vk_hub_proto::relay_session::RelayRunner {
        name: "ci".into(),
        runner_id: Some(4),
        placement: hub::placement(),
        limit: 2,
        token_accepted: Some(true),
    }];
    daemon.line.changed.notify_one();
    let report = daemon.while_(session.report()).await;
    assert_eq!(report.runners, daemon.runners);
}

/// SESS-24
#[tokio::test]
async fn a_gitlab_that_is_another_each_time_is_not_reported_each_time() {
    let (begun, mut reports) = (std::time::Instant::now(), 0);
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    daemon.while_(session.hears()).await;
    for number in 0..40 {
        daemon.line.about.url = format!("https://gitlab{number}.example.com");
        daemon.line.changed.notify_one();
        while let RelayMessage::Report(_) = daemon.while_unsaid(session.hears()).await {
            reports += 1;
        }
    }
    let most = 8 + begun.elapsed().as_secs() / 10;
    assert!((8..=most).contains(&reports), "{reports}, not 8 to {most}");
    // What is new beside it is said with the next that may be, and how the runners are goes on.
    daemon.jobs = 7;
    daemon.line.changed.notify_one();
    // A report that was held back may be due just now.
    let heard = loop {
        match daemon.while_unsaid(session.hears()).await {
            RelayMessage::Report(_) => {}
            heard => break heard,
        }
    };
    assert!(matches!(heard, RelayMessage::Heartbeat { .. }), "{heard:?}");
}

/// SESS-09, SESS-13
#[tokio::test]
async fn no_approval_covers_a_gitlab_that_the_hub_is_yet_to_be_told_of() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    daemon.while_(session.hears()).await;
    let reported = daemon.flaps(&mut session).await;
    assert_ne!(reported, daemon.line.about.url);
    // What the hub says now is about another one. Once the ping behind it is answered, it was heard.
    session.says_status(ServerStatus::Approved).await;
    session.pings().await;
    daemon.while_(session.pong()).await;
    // One that is as reported again is reported again, for the hub answers reports alone.
    daemon.line.about.url.clone_from(&reported);
    daemon.line.changed.notify_one();
    let again = daemon.while_(session.report()).await;
    assert_eq!(again.server.url, reported);
    session.says_status(ServerStatus::Approved).await;
    let told = daemon.told().await;
    let Some(Told::Server { status, .. }) = told else {
        panic!("{told:?} was told")
    };
    assert_eq!(status, ServerStatus::Approved);
}

/// SESS-02, SESS-22
#[tokio::test]
async fn a_lost_session_is_dialled_again_and_says_nothing_of_the_server() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    drop(session);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
}

/// SESS-21
#[tokio::test]
async fn a_session_that_was_superseded_is_dialled_again() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    session.refuses(RefusedCode::Superseded).await;
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
}

/// SESS-14, SESS-21
#[tokio::test]
async fn a_hub_that_refuses_for_good_is_not_dialled_again() {
    for code in [
        RefusedCode::NotEnrolled,
        RefusedCode::BadSignature,
        RefusedCode::Revoked,
    ] {
        let hub = Hub::start().await;
        let mut daemon = Daemon::of(&hub);
        let mut session = daemon.while_(hub.session(300)).await;
        daemon.while_(session.report()).await;
        session.refuses(code).await;
        let Some(Told::RefusedForGood { why, removed }) = daemon.told().await else {
            panic!("refused for good")
        };
        assert_eq!(removed, code != RefusedCode::BadSignature);
        assert!(why.contains("by the test"), "{why}");
        assert!(daemon.told().await.is_none(), "the session's task ended");
    }
}

/// A hub whose answers stop coming is as good as gone.
#[tokio::test]
async fn a_silent_hub_is_dialled_again() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut silent = daemon.while_(hub.session(1)).await;
    daemon.while_(silent.report()).await;
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
}

/// A hub of a later version may say what this one does not know.
#[tokio::test]
async fn what_is_not_known_is_ignored() {
    let hub = Hub::start().await;
    let mut daemon = Daemon::of(&hub);
    let mut session = daemon.while_(hub.session(300)).await;
    daemon.while_(session.report()).await;
    session.says_text(r#"{"type":"weather","sun":true}"#).await;
    session
        .says(HubRelayMessage::Server {
            status: ServerStatus::Approved,
            message: None,
        })
        .await;
    let told = daemon.told().await;
    assert!(matches!(told, Some(Told::Server { .. })), "{told:?}");
}
