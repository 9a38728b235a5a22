//! Job responses that no GitLab should send: each fails its own job, or is told of, and nothing else.

use serde_json::{Value, json};
use vk_gitlab::edge::Ended;

use crate::gitlab::job;
use crate::log::Log;
use crate::server::Reply;
use crate::world::World;

/// What becomes of a job.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    /// GitLab is told that it failed, and the trace says this.
    Failed(&'static str),
    /// The same, by the configuration's fault.
    Refused(&'static str),
    /// Nobody can tell GitLab anything: the log says this.
    Lost(&'static str),
    /// It runs: what is wrong is what upstream takes too.
    Runs,
}

use Becomes::{Failed, Lost, Refused, Runs};

/// A field by its path, what stands there instead, and what becomes of the job.
type Row = (&'static str, Value, Becomes);

const TYPE: &str = " is of another type or size than it should be, at line 1 column ";

/// Every field that the daemon reads, with a value of another type.
fn types() -> Vec<(&'static str, Value)> {
    let (text, list, map, number) = (json!("x"), json!([1]), json!({"a": 1}), json!(7));
    vec![
        ("allow_git_fetch", text.clone()),
        ("job_info", text.clone()),
        ("job_info.name", number.clone()),
        ("job_info.stage", list),
        ("job_info.pipeline_id", text.clone()),
        ("job_info.project_id", json!(1.5)),
        ("job_info.project_id", json!(1e300)),
        ("job_info.project_name", map.clone()),
        ("job_info.project_full_path", number.clone()),
        ("job_info.namespace_id", text.clone()),
        ("job_info.root_namespace_id", text.clone()),
        ("job_info.user_id", text.clone()),
        ("job_info.time_in_queue_seconds", text.clone()),
        (
            "job_info.project_jobs_running_on_instance_runners_count",
            number.clone(),
        ),
        ("job_info.queue_size", text.clone()),
        ("job_info.queue_depth", text.clone()),
        ("git_info", number.clone()),
        ("git_info.repo_url", number.clone()),
        ("git_info.repo_object_format", number.clone()),
        ("git_info.ref", json!(false)),
        ("git_info.sha", number.clone()),
        ("git_info.before_sha", number.clone()),
        ("git_info.ref_type", number.clone()),
        ("git_info.refspecs", text.clone()),
        ("git_info.depth", json!("many")),
        ("git_info.protected", text.clone()),
        ("runner_info", number.clone()),
        ("runner_info.timeout", json!("1h")),
        ("runner_info.timeout", json!(1.5)),
        ("runner_info.timeout", json!(u64::MAX)),
        ("runner_info.uuid", number.clone()),
        ("variables", map.clone()),
        ("variables[0]", text.clone()),
        ("variables[0].key", number.clone()),
        ("variables[0].value", number.clone()),
        ("variables[0].public", text.clone()),
        ("variables[0].file", text.clone()),
        ("variables[0].masked", number.clone()),
        ("variables[0].raw", text.clone()),
        ("steps", text.clone()),
        ("steps[0]", text.clone()),
        ("steps[0].name", number.clone()),
        ("steps[0].script", text.clone()),
        ("steps[0].script[0]", number.clone()),
        ("steps[0].timeout", text.clone()),
        ("steps[0].when", number.clone()),
        ("steps[0].allow_failure", text.clone()),
        ("image", text.clone()),
        ("image.name", number.clone()),
        ("image.entrypoint", text.clone()),
        ("image.ports", text.clone()),
        ("image.pull_policy", text.clone()),
        ("image.executor_opts", text.clone()),
        ("services", map.clone()),
        ("services[0]", text.clone()),
        ("services[0].alias", number.clone()),
        ("services[0].command", text.clone()),
        ("services[0].variables", map.clone()),
        ("artifacts", map.clone()),
        ("artifacts[0].name", number.clone()),
        ("artifacts[0].untracked", text.clone()),
        ("artifacts[0].paths", text.clone()),
        ("artifacts[0].exclude", text.clone()),
        ("artifacts[0].when", number.clone()),
        ("artifacts[0].artifact_type", number.clone()),
        ("artifacts[0].artifact_format", number.clone()),
        ("artifacts[0].expire_in", number.clone()),
        ("cache", map.clone()),
        ("cache[0].key", number.clone()),
        ("cache[0].untracked", text.clone()),
        ("cache[0].policy", number.clone()),
        ("cache[0].paths", text.clone()),
        ("cache[0].when", number.clone()),
        ("cache[0].fallback_keys", text.clone()),
        ("credentials", map.clone()),
        ("credentials[0].type", number.clone()),
        ("credentials[0].url", number.clone()),
        ("credentials[0].username", number.clone()),
        ("credentials[0].password", number.clone()),
        ("dependencies", map.clone()),
        ("dependencies[0].id", text.clone()),
        ("dependencies[0].token", number.clone()),
        ("dependencies[0].name", number.clone()),
        ("dependencies[0].artifacts_file", text.clone()),
        ("dependencies[0].artifacts_file.filename", number.clone()),
        ("dependencies[0].artifacts_file.size", text.clone()),
        ("features", text.clone()),
        ("features.trace_sections", text.clone()),
        ("features.token_mask_prefixes", text.clone()),
        ("features.failure_reasons", map.clone()),
        ("hooks", map.clone()),
        ("hooks[0].name", number.clone()),
        ("hooks[0].script", text.clone()),
        ("policy_options", number.clone()),
        ("policy_options.execution_policy_job", text),
        ("policy_options.policy_name", number),
        (
            "policy_options.policy_variables_override_allowed",
            json!("yes"),
        ),
        ("policy_options.policy_variables_override_exceptions", map),
    ]
}

/// Values of the right type that make no sense, or little.
fn values() -> Vec<Row> {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    vec![
        ("steps", Value::Null, Runs),
        ("steps", json!([]), Runs),
        ("steps[0].script", json!([]), Runs),
        ("image", Value::Null, Runs),
        ("variables", Value::Null, Runs),
        ("job_info", Value::Null, Runs),
        ("git_info", Value::Null, Runs),
        ("features", Value::Null, Runs),
        ("runner_info", Value::Null, Runs),
        ("runner_info.timeout", json!(0), Runs),
        ("runner_info.timeout", json!(-5), Runs),
        ("runner_info.timeout", json!(i64::MAX), Runs),
        ("job_info.project_id", json!(-1), Runs),
        ("unheard_of", json!({"by": ["this", "version"]}), Runs),
        (
            "secrets",
            json!({"A": {"vault": {}}}),
            Refused("`secrets:` cannot be used here"),
        ),
        (
            "secrets",
            json!("x"),
            Refused("`secrets:` cannot be used here"),
        ),
        (
            "run",
            json!("[{\"name\": \"a\"}]"),
            Refused("use `script:` instead of `run:`"),
        ),
        ("run", json!(7), Refused("use `script:` instead of `run:`")),
        (
            "image.executor_opts",
            json!({"vm": {}}),
            Refused("Unsupported \"image\" options [vm] for \"executor_opts\""),
        ),
        (
            "steps[0].script",
            json!(["x".repeat(600 << 10)]),
            Refused("its specification has"),
        ),
        ("unheard_of", deep.clone(), Runs),
        ("variables", deep, Failed("the field variables")),
    ]
}

/// What the job's text is, made of a good one's.
type Text = fn(u64) -> Vec<u8>;

fn texts() -> Vec<(Text, Becomes)> {
    fn good(id: u64) -> String {
        job(id).to_string()
    }
    /// Number and token, and then this.
    fn begun(id: u64, rest: &[u8]) -> Vec<u8> {
        let mut text = format!("{{\"id\":{id},\"token\":\"glcbt-{id}\",").into_bytes();
        text.extend_from_slice(rest);
        text
    }
    fn with_id(id: &str, token: &str) -> Vec<u8> {
        format!("{{\"id\":{id},\"token\":{token},\"steps\":[]}}").into_bytes()
    }
    vec![
        (
            |id| begun(id, b"\"steps\":[{\"name\":\"scr"),
            Failed("breaks off, at line 1 column "),
        ),
        (|id| begun(id, b"\"steps\":[]"), Failed("breaks off")),
        (
            |id| begun(id, b"\"job_info\":{\"name\":\"\xff\"}}"),
            Failed("job_info.name is no JSON"),
        ),
        (
            |id| begun(id, b"\"job_info\":{\"name\":\"a\nb\"}}"),
            Failed("is no JSON, at line 2 column 0"),
        ),
        (
            |id| begun(id, b"\"steps\":[],\"steps\":[]}"),
            Failed("has a field twice"),
        ),
        (
            |id| begun(id, b"\"job_info\":{\"name\":\"a\",\"name\":\"b\"}}"),
            Failed("has a field twice"),
        ),
        (
            |id| begun(id, b"\"steps\":[]} trailing"),
            Failed("it is no JSON"),
        ),
        (|id| begun(id, b"'steps':[]}"), Failed("is no JSON")),
        (
            |id| begun(id, b"\"runner_info\":{\"timeout\":NaN}}"),
            Failed("runner_info.timeout is no JSON"),
        ),
        (
            |id| begun(id, b"\"runner_info\":{\"timeout\":1e999}}"),
            Failed("runner_info.timeout"),
        ),
        (
            |id| {
                let mut text = begun(id, b"\"variables\":[{\"key\":\"a\",\"value\":\"");
                text.resize(17 << 20, b'x');
                text.extend_from_slice(b"\"}]}");
                text
            },
            Failed("it did not come whole: the answer is larger than 16777216 bytes"),
        ),
        (|_| Vec::new(), Lost("it breaks off")),
        (|_| b"null".to_vec(), Lost("it is of another type")),
        (|_| b"[]".to_vec(), Lost("")),
        (|_| b"<html>s3cret</html>".to_vec(), Lost("it is no JSON")),
        (|_| b"{}".to_vec(), Lost("it has no id")),
        (
            |id| good(id).replace("\"id\":", "\"di\":").into_bytes(),
            Lost("it has no id"),
        ),
        (
            |id| good(id).replace("\"token\":", "\"nekot\":").into_bytes(),
            Lost("it has no token that can be sent"),
        ),
        (|_| with_id("0", "\"s3cret\""), Lost("it has no id")),
        (|_| with_id("-4", "\"s3cret\""), Lost("it has no id")),
        (|_| with_id("null", "\"s3cret\""), Lost("it has no id")),
        (
            |_| with_id("9223372036854775808", "\"s3cret\""),
            Lost("the field id is of another type or size"),
        ),
        (
            |_| with_id("1e3", "\"s3cret\""),
            Lost("the field id is of another type"),
        ),
        (
            |_| with_id("\"12\"", "\"s3cret\""),
            Lost("the field id is of another type"),
        ),
        (
            |id| with_id(&id.to_string(), "\"\""),
            Lost("it has no token that can be sent"),
        ),
        (
            |id| with_id(&id.to_string(), "null"),
            Lost("it has no token that can be sent"),
        ),
        (
            |id| with_id(&id.to_string(), "7"),
            Lost("the field token is of another type"),
        ),
        (
            |id| with_id(&id.to_string(), "\"s3cret\\r\\nx: y\""),
            Lost("it has no token that can be sent"),
        ),
        (
            |id| with_id(&id.to_string(), "\"s3cret \""),
            Lost("it has no token that can be sent"),
        ),
    ]
}

/// A job with something in every list.
fn full(id: u64) -> Value {
    let mut job = job(id);
    job["variables"] = json!([{"key": "a", "value": "s3cret", "public": true}]);
    job["services"] = json!([{"name": "postgres"}]);
    job["artifacts"] = json!([{"name": "a", "paths": ["x"]}]);
    job["cache"] = json!([{"key": "k", "paths": ["x"]}]);
    job["credentials"] =
        json!([{"type": "registry", "url": "x", "username": "u", "password": "s3cret"}]);
    job["dependencies"] = json!([{"id": 1, "token": "s3cret", "name": "d", "artifacts_file": {"filename": "f", "size": 1}}]);
    job["hooks"] = json!([{"name": "pre_get_sources_script", "script": ["true"]}]);
    job["policy_options"] = json!({"execution_policy_job": false});
    job
}

/// The good job with one field replaced.
fn with(id: u64, path: &str, value: &Value) -> Vec<u8> {
    let mut job = full(id);
    let mut place = &mut job;
    for part in path.split(['.', '[']) {
        place = match part.strip_suffix(']') {
            Some(index) => &mut place[index.parse::<usize>().unwrap()],
            None => &mut place[part],
        };
    }
    *place = value.clone();
    job.to_string().into_bytes()
}

/// Every row: what it is called, the body of its job, what becomes of that.
fn rows() -> Vec<(String, Vec<u8>, Becomes)> {
    let mut rows = Vec::new();
    let next = |rows: &Vec<_>| u64::try_from(rows.len()).unwrap() + 1;
    for (path, value) in types() {
        let body = with(next(&rows), path, &value);
        rows.push((format!("{path} = {value}"), body, Failed(TYPE)));
    }
    for (path, value, becomes) in values() {
        let body = with(next(&rows), path, &value);
        let shown: String = value.to_string().chars().take(40).collect();
        rows.push((format!("{path} = {shown}"), body, becomes));
    }
    for (text, becomes) in texts() {
        let body = text(next(&rows));
        let shown: String = String::from_utf8_lossy(&body).chars().take(80).collect();
        rows.push((shown, body, becomes));
    }
    rows
}

/// SPEC-02, SPEC-67, SPEC-69, SPEC-78, CRED-01, FAIL-38, GL-26
#[tokio::test]
async fn a_malformed_job_fails_in_gitlab_with_its_reason_and_nothing_else_does() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world.token("other", "glrt-t1_mnopqrstuvwx");
    let more = "request_concurrency = 8\nunhealthy_requests_limit = 1000\n";
    world.configure("concurrent = 60", &["ci"]);
    world.add_to_configuration(&format!(
        "{more}[[runners]]\nname = 'other'\ntoken_file = 'other.token'\n{more}"
    ));
    let daemon = world.start();
    world
        .gitlab
        .until("all ask", |state| state.open == 16)
        .await;
    // One job runs all the while; what is malformed comes beside it.
    world.queue(ALL_THE_WHILE);
    world.running(1).await;
    world
        .gitlab
        .until("all ask", |state| state.open == 16)
        .await;
    let rows = rows();
    world.gitlab.change(|state| {
        for (_, body, _) in &rows {
            let body = body.clone();
            state.requests.push_back(Reply {
                status: 201,
                body,
                ..Reply::default()
            });
        }
        state.no_job += 16;
    });
    let mut lost = 0;
    for (index, (what, _, becomes)) in rows.iter().enumerate() {
        let id = u64::try_from(index).unwrap() + 1;
        println!("{id}: {what}");
        match becomes {
            Lost(_) => lost += 1,
            Runs => ran(&world, id).await,
            Failed(_) | Refused(_) => world.over(id).await,
        }
        world.gitlab.look(|state| ended(state, id, what, *becomes));
    }
    world
        .gitlab
        .until("all ask again", |state| state.open == 16)
        .await;
    let told = log.lines(&["WARN", "a job may be lost"]);
    assert_eq!(told.len(), lost, "{told:#?}");
    for (what, _, becomes) in &rows {
        if let Lost(why) = becomes {
            assert!(
                told.iter().any(|line| line.contains(why)),
                "{what}: {told:#?}"
            );
        }
    }
    let socket = crate::looking::served(&world, &daemon).await;
    let metrics = crate::looking::get(&socket, "/metrics").await;
    let counted = |line: &&str| line.starts_with("vk_gitlab_job_requests_lost_total{");
    let counted = metrics.lines().filter(counted);
    let counted = counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap());
    assert_eq!(counted.sum::<usize>(), lost, "{metrics}");
    // Jobs as GitLab makes them, by the same daemon: one of before, one of after.
    ran(&world, ALL_THE_WHILE).await;
    world.queue(ALL_THE_WHILE + 1);
    ran(&world, ALL_THE_WHILE + 1).await;
    world
        .gitlab
        .until("all ask again", |state| state.open == 16)
        .await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 16);
    assert_eq!(daemon.ended().await, Ended::Drained);
    let all = log.lines(&[]);
    let secret = all
        .iter()
        .find(|line| line.contains("s3cret") || line.contains("glcbt-"));
    assert_eq!(secret, None);
    for runner in ["ci", "other"] {
        let state = world.state(runner);
        assert!(!state.contains("gitlab_job"), "no record is left: {state}");
    }
}

/// The job that runs all the while.
const ALL_THE_WHILE: u64 = 1_000_000;

/// Waits until a job runs, ends it, and waits until GitLab knows that it ended well.
async fn ran(world: &World, id: u64) {
    let this = |job: &crate::hub::Job| job.submission["spec"]["job"]["id"] == id;
    world
        .hub
        .until("the hub runs the job", |state| {
            state
                .jobs
                .values()
                .any(|job| this(job) && job.state == "running")
        })
        .await;
    world.hub.change(|state| {
        for job in state.jobs.values_mut().filter(|job| this(job)) {
            job.output = b"ran\n".to_vec();
            job.state = "finished";
            job.revision += 1;
        }
    });
    world.over(id).await;
    world.gitlab.look(|state| {
        assert_eq!(state.states[&id].last().unwrap()["state"], "success");
        assert!(state.traces[&id].ends_with(b"ran\n"));
    });
}

/// What GitLab was told of a job.
fn ended(state: &crate::gitlab::State, id: u64, what: &str, becomes: Becomes) {
    let (reason, said) = match becomes {
        Lost(_) => {
            assert!(!state.states.contains_key(&id), "{what}");
            return;
        }
        Runs => return,
        Failed(said) => ("runner_system_failure", said),
        // This GitLab does not know runner_configuration_error.
        Refused(said) => ("script_failure", said),
    };
    let told = &state.states[&id];
    assert_eq!(told.len(), 1, "{what}: {told:?}");
    assert_eq!(told[0]["state"], "failed", "{what}: {told:?}");
    assert_eq!(told[0]["failure_reason"], reason, "{what}: {told:?}");
    let trace = String::from_utf8(state.traces[&id].clone()).unwrap();
    assert!(trace.contains(said), "{what}: {trace}, not {said}");
    assert!(!trace.contains("s3cret"), "{what}: {trace}");
    if reason == "runner_system_failure" {
        let (stamp, line) = trace.split_once(' ').unwrap();
        assert_eq!(
            stamp.len(),
            "2026-01-02T03:04:05.000007Z".len(),
            "{what}: {trace}"
        );
        let form = "00O \u{1b}[31;1mERROR: this runner cannot read the job that GitLab sent: ";
        assert!(
            line.starts_with(form) && trace.ends_with("\u{1b}[0;m\n"),
            "{what}: {trace:?}"
        );
        if said == TYPE {
            let field = what.split(" = ").next().unwrap();
            assert!(
                trace.contains(&format!("the field {field}{TYPE}")),
                "{what}: {trace}"
            );
        }
    }
}
