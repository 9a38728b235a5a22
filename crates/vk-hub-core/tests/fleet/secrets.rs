//! What must not outlive its use, or be kept at all.

use std::sync::Arc;

use vk_hub_core::{Effect, Record};
use vk_hub_proto::Secret;
use vk_hub_proto::dispatch::RunState;
use vk_hub_proto::job::{JobSpec, RegistryCredential, Variable};

use crate::bench::{Bench, SECRET, job, refused, relay, result, submission};

/// CRED-11
#[test]
fn the_spec_leaves_memory_once_a_node_has_accepted_the_job() {
    let (mut bench, session) = Bench::with_node(2);
    let effects = bench.submit(1, None);
    let spec = effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Start { spec, .. } => Some(Arc::downgrade(spec)),
            _ => None,
        })
        .expect("a start");
    drop(effects);
    assert!(spec.upgrade().is_some(), "it may have to be sent again");
    bench.job_is(
        session,
        1,
        refused(vk_hub_proto::dispatch::RefusalReason::Policy),
    );
    assert!(bench.fleet.job(job(1)).unwrap().has_spec);
    bench.pass_secs(2);
    bench.job_is(session, 1, RunState::Accepted);
    assert!(spec.upgrade().is_none());
    assert!(!bench.fleet.job(job(1)).unwrap().has_spec);
}

/// CRED-11
#[test]
fn the_spec_leaves_memory_when_the_job_ends_before_that() {
    let (mut bench, session) = Bench::with_node(2);
    bench.submit(1, None);
    bench.ends(session, 1, result());
    assert!(!bench.fleet.job(job(1)).unwrap().has_spec);
    let (mut bench, _) = Bench::with_node(0);
    bench.submit(1, None);
    bench.cancel(1, vk_hub_proto::client::CancelMode::Immediate);
    assert!(!bench.fleet.job(job(1)).unwrap().has_spec);
}

/// CRED-12
#[test]
fn no_record_holds_a_secret() {
    let mut request = submission(1, None);
    let JobSpec::GitlabCi(ci) = &mut request.spec;
    ci.variables.push(Variable {
        key: "KEY".to_owned(),
        value: Secret::from(SECRET),
        public: false,
        file: false,
        masked: true,
        raw: true,
    });
    ci.image.variables = ci.variables.clone();
    ci.registry_credentials.push(RegistryCredential {
        url: "registry.example.com".to_owned(),
        username: "u".to_owned(),
        password: Secret::from(SECRET),
    });
    let (mut bench, session) = Bench::with_node(2);
    bench.send(relay(1), Bench::submit_request(1, request));
    bench.job_is(session, 1, RunState::Accepted);
    bench.ends(session, 1, result());
    bench.settle(1);
    let kept = serde_json::to_string(&bench.records).unwrap();
    assert!(kept.contains("acme/web"), "{kept}");
    assert!(!kept.contains(SECRET), "{kept}");
    let shown = format!("{:?}{:?}", bench.records, bench.fleet);
    assert!(!shown.contains(SECRET));
}

#[test]
fn records_are_read_back_as_they_were_written() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.ends(session, 1, result());
    bench.settle(1);
    for record in &bench.records {
        let text = serde_json::to_string(record).unwrap();
        assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
