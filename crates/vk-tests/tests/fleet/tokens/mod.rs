//! Jobs' own registry tokens: signed by the hub, enforced by `docker-registry`, used by jobs.

mod registry;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::fleet::{Fleet, Party, test_root};
use crate::program::eventually;
use crate::secrets::{Wanted, search, search_processes};
use crate::settings::Settings;
use registry::{Registry, key_pair};

/// A hub's `[[registries]]`.
fn registries(url: &str, keys: &Path) -> String {
    let of = |name: &str| keys.join(name).display().to_string();
    format!(
        "[[registries]]\nurl = \"{url}\"\nservice = \"registry\"\nissuer = \"hub\"\n\
         key_file = \"{}\"\ncertificate_file = \"{}\"\nread = [\"images/base\"]\n",
        of("r.key"),
        of("r.pem")
    )
}

/// A job that says what its cache has, keeps something else there, and waits in its middle for a
/// file to read out. The process stand-in for VMs lets it see the host's files.
struct Waiting<'a> {
    fleet: &'a Fleet,
    name: &'static str,
    pipeline: u64,
    job: u64,
}

impl<'a> Waiting<'a> {
    fn start(fleet: &'a Fleet, name: &'static str, protected: bool) -> Waiting<'a> {
        let at = format!("/proc/1/root{}", fleet.path(name).display());
        let (pipeline, jobs) = fleet.lab.trigger(&json!([{
            "name": name,
            "script": [
                "mkdir -p deps; cat deps/a || echo deps are not there",
                format!("echo kept by {name} > deps/a"),
                format!("until [ -e {at} ]; do sleep 0.1; done; cat {at}"),
            ],
            "cache": [{ "key": "k", "paths": ["deps/"], "unprotect": true }],
            "response": { "git_info": { "protected": protected } },
        }]));
        Waiting {
            fleet,
            name,
            pipeline,
            job: jobs[0],
        }
    }

    /// The registry's part of the start, from the file that the node keeps while the job runs.
    fn registry(&self) -> Value {
        eventually("the job's start is journaled", || {
            let jobs = fs::read_dir(self.fleet.path("node/node/jobs")).ok()?;
            jobs.flatten().find_map(|job| {
                let start = fs::read(job.path().join("start.json")).ok()?;
                let start: Value = serde_json::from_slice(&start).ok()?;
                let is_own = start["spec"]["job"]["id"] == self.job;
                is_own.then(|| start["registry"].clone())
            })
        })
    }

    /// Lets it go on with this in its file, to its good end; its trace.
    fn end(self, with: &str) -> String {
        write_whole(&self.fleet.path(self.name), &format!("read {with}\n"));
        let ended = self.fleet.ended_of(self.pipeline);
        let trace = self.fleet.trace(self.job);
        assert_eq!(ended["status"], "success", "{trace}");
        println!("{trace}");
        trace
    }
}

/// Writes a file that is there with all of its text, or not at all.
fn write_whole(file: &Path, text: &str) {
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, file).unwrap();
}

#[track_caller]
fn says(trace: &str, line: &str) {
    assert!(trace.contains(line), "no {line:?} in {trace}");
}

fn text(of: &Value) -> String {
    of.as_str().unwrap().to_owned()
}

/// REG-01, REG-02, REG-05, REG-16, REG-21, CACHE-10, CACHE-21
#[test]
fn a_job_has_its_caches_by_a_token_that_covers_its_projects_protection_alone() {
    let Some(root) = test_root("registry tokens") else {
        return;
    };
    let keys = tempfile::tempdir().unwrap();
    let (_, _, certificate) = key_pair(keys.path());
    let registry = Registry::of_tokens(&root, &certificate);
    let settings = Settings {
        hub: registries(&format!("http://{}", registry.host), keys.path()),
        registry: format!(
            "repo = \"{}/vk\"\nguest_credential = \"job\"",
            registry.host
        ),
        ..Settings::default()
    };
    let mut fleet = Fleet::with(&root, &settings);

    let job = Waiting::start(&fleet, "open", false);
    let given = job.registry();
    let (token, open) = (text(&given["token"]), text(&given["cache_repository"]));
    assert!(open.starts_with("ci-cache/127.0.0.1-"), "{open}");
    assert!(open.ends_with("/unprotected"), "{open}");
    assert_eq!(given["expires_in_secs"], 3600 + 600);
    let rights = |prefix: &str, rights: &str| json!({ "prefix": prefix, "rights": rights });
    let rights = json!([rights(&open, "rw"), rights("images/base", "r")]);
    assert_eq!(given["namespaces"], rights);
    let wanted = [Wanted::new("the registry token", &token)];
    let mut found = Vec::new();
    let read = search_processes(&wanted, &mut found);
    assert!(read >= 5, "environments of {read} processes were read");
    let trace = job.end(&token);
    says(&trace, "Cache miss for k-non_protected");
    says(&trace, "deps are not there");
    says(&trace, "read [MASKED]");
    says(&trace, "Cache k-non_protected is saved");
    assert!(!trace.contains(&token), "{trace}");

    // The same project, the same key, a protected ref.
    let job = Waiting::start(&fleet, "protected", true);
    let given = job.registry();
    let (other, protected) = (text(&given["token"]), text(&given["cache_repository"]));
    assert_eq!(protected, open.replace("/unprotected", "/protected"));
    let trace = job.end("nothing");
    says(&trace, "Cache miss for k-non_protected");
    says(&trace, "Cache k-non_protected is saved");

    // printf k-non_protected | sha256sum
    let tag = "11d9bf40ec9f2dc005084a902ac0dd7f9d770635565e855461c82d7b33485eb8";
    let (open_at, protected_at) = (
        format!("/v2/{open}/manifests/{tag}"),
        format!("/v2/{protected}/manifests/{tag}"),
    );
    for (token, at, status) in [
        (&token, &open_at, "200"),
        (&token, &protected_at, "401"),
        (&other, &protected_at, "200"),
        (&other, &open_at, "401"),
    ] {
        assert_eq!(registry.answers("GET", at, token), status, "{at}");
    }
    let upload = |repository: &str| format!("/v2/{repository}/blobs/uploads/");
    assert_eq!(registry.answers("POST", &upload(&protected), &token), "401");
    assert_eq!(registry.answers("POST", &upload(&open), &token), "202");
    assert_eq!(
        registry.answers("POST", &upload("images/base"), &token),
        "401"
    );
    // Nothing is there, which only whoever may read is told.
    let image = "/v2/images/base/manifests/latest";
    assert_eq!(registry.answers("GET", image, &token), "404");

    // The node dies with the start journaled and the job not begun, and the token is good still.
    let killed = fleet.kill_file("node");
    write_whole(&killed, "Started:synced:1");
    let job = Waiting::start(&fleet, "again", false);
    eventually("the node dies", || (!killed.exists()).then_some(()));
    let (pipeline, number) = (job.pipeline, job.job);
    fleet.restart(Party::Node);
    let job = Waiting {
        fleet: &fleet,
        name: "again",
        pipeline,
        job: number,
    };
    let trace = job.end("nothing");
    says(&trace, "Cache hit for k-non_protected");
    says(&trace, "kept by open");

    let asked = registry.asked();
    let own = |line: &&String| line.contains(&format!("/v2/{open}/"));
    assert!(asked.iter().filter(own).count() >= 6, "{asked:#?}");
    assert!(
        !asked.iter().any(|line| line.contains("/v2/vk/")),
        "{asked:#?}"
    );
    fleet.assert_nothing_is_left();
    nowhere(&fleet, &wanted, found);
}

/// Nothing that a party keeps, logs or answers has it.
fn nowhere(fleet: &Fleet, wanted: &[Wanted], mut found: Vec<String>) {
    for place in ["hub", "daemon", "node", "hub.log", "daemon.log", "node.log"] {
        let looked = search(&fleet.path(place), wanted, &mut found);
        // A node on which all goes well says nothing.
        assert!(looked > 0 || place == "node.log", "nothing was in {place}");
    }
    for job in fleet.hub_jobs().unwrap() {
        let show = [
            "jobs",
            "show",
            job["view"]["id"].as_str().unwrap(),
            "--json",
        ];
        let shown = fleet.hub_command(&show).output().unwrap();
        assert!(shown.status.success());
        found.extend(wanted.iter().filter_map(|one| one.in_bytes(&shown.stdout)));
    }
    assert_eq!(found, Vec::<String>::new());
}

/// REG-05, CACHE-14, CACHE-15
#[test]
fn without_a_token_the_nodes_credential_serves_unless_it_serves_no_job() {
    let Some(root) = test_root("registry tokens") else {
        return;
    };
    let keys = tempfile::tempdir().unwrap();
    key_pair(keys.path());
    let registry = Registry::of_passwords(&root);
    let password = keys.path().join("password");
    fs::write(&password, "s3cret\n").unwrap();
    let settings = Settings {
        // Another port: another registry.
        hub: registries("http://127.0.0.1:9", keys.path()),
        registry: format!(
            "repo = \"{}/vk\"\nusername = \"user\"\npassword_file = \"{}\"\n\
             guest_credential = \"node\"",
            registry.host,
            password.display()
        ),
        ..Settings::default()
    };
    let mut fleet = Fleet::with(&root, &settings);
    let job = Waiting::start(&fleet, "first", false);
    assert_eq!(job.registry(), Value::Null);
    let trace = job.end("nothing");
    says(&trace, "Cache miss for k-non_protected");
    says(&trace, "Cache k-non_protected is saved");
    let kept = |line: &&String| {
        let is_own = line.starts_with("PUT /v2/vk/ci-cache/127.0.0.1-");
        is_own && line.contains("/manifests/") && line.ends_with(" 201")
    };
    let asked = registry.asked();
    assert_eq!(asked.iter().filter(kept).count(), 1, "{asked:#?}");

    let file = fleet.path("vk.toml");
    let text = fs::read_to_string(&file).unwrap();
    let [node, job] = ["node", "job"].map(|whose| format!("guest_credential = \"{whose}\""));
    assert!(text.contains(&node), "{text}");
    fs::write(&file, text.replace(&node, &job)).unwrap();
    fleet.restart(Party::Node);
    fleet.wait_for_node();
    let trace = Waiting::start(&fleet, "second", false).end("nothing");
    says(
        &trace,
        "this node keeps caches only with a job's own registry token",
    );
    says(&trace, "deps are not there");
    assert_eq!(registry.asked(), asked);
    fleet.assert_nothing_is_left();
}
