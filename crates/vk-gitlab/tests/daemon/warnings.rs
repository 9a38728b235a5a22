//! What the translation of a job leaves out or changes.

use std::collections::BTreeSet;

use serde_json::json;

use crate::gitlab::job;
use crate::log::Log;
use crate::world::World;

/// SPEC-75
#[tokio::test]
async fn warnings_stand_first_in_the_trace_and_in_the_log_and_name_no_value() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    let mut job = job(1);
    job["variables"] = json!([
        { "key": "FF_TIMESTAMPS", "value": "false", "public": true },
        { "key": "POLICY", "value": "hunter2-policy", "masked": true },
        { "key": "KEY", "value": "hunter2/../key", "masked": true },
    ]);
    job["hooks"] = json!([{ "name": "unheard_of", "script": [] }]);
    job["cache"] = json!([{ "key": "$KEY", "policy": "$POLICY", "paths": ["a"] }]);
    world.gitlab.change(|state| state.queue.push_back(job));
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
    let trace = world
        .gitlab
        .look(|state| String::from_utf8(state.traces[&1].clone()).unwrap());
    let warnings = trace.strip_suffix("done\n").expect("behind the warnings");
    let expected = [
        "hook \"unheard_of\" is unknown and was left out",
        "cache key \"$KEY\" was sanitized",
        "cache policy \"$POLICY\" is unknown; pull-push is used",
    ];
    let line = |warning: &str| format!("\u{1b}[0;33mWARNING: {warning}\u{1b}[0;m");
    let said: BTreeSet<String> = warnings.lines().map(str::to_owned).collect();
    assert_eq!(said, expected.into_iter().map(line).collect(), "{trace:?}");
    assert_eq!(warnings.lines().count(), 3, "{trace:?}");
    for warning in expected {
        assert_eq!(log.lines(&["WARN", "gitlab_job=1", warning]).len(), 1);
    }
    assert!(!trace.contains("hunter2"), "{trace:?}");
    assert!(log.lines(&["hunter2"]).is_empty());
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
}
