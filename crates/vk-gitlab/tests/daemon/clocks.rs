//! A signature that the hub does not take: most often a clock is off.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::log::Log;
use crate::world::World;

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The first line that holds all of these.
async fn logged(log: &Log, parts: &[&str]) -> String {
    for _ in 0..6000 {
        if let Some(line) = log.lines(parts).first() {
            return line.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not logged within 60 s: {parts:?}");
}

/// AUTH-20
#[tokio::test]
async fn a_refused_signature_is_logged_with_the_hubs_clock_and_ours() {
    const DATE: &str = "Mon, 30 Nov 2026 09:00:00 GMT";
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world.hub.change(|state| {
        state.unauthorized = true;
        state.date = Some(DATE);
    });
    let before = unix_now();
    let daemon = world.start();
    let line = logged(&log, &["ERROR", "did not accept a signature"]).await;
    assert!(line.contains(&format!("hub_date=\"{DATE}\"")), "{line}");
    assert!(line.contains("hub_says=\"no\""), "{line}");
    let (_, ours) = line.split_once("our_unix_time=").unwrap();
    let ours: u64 = ours.split(' ').next().unwrap().parse().unwrap();
    assert!((before..=unix_now()).contains(&ours), "{line}");
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
}
