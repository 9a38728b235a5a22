//! Registry tokens: which job's start is to carry one, and what it grants.

use std::time::Duration;

use vk_hub_core::{Answer, Effect, FromNode, Registry, SessionHandle, TokenScope};
use vk_hub_proto::client::JobSubmission;
use vk_hub_proto::dispatch::RefusalReason;
use vk_hub_proto::job::{JobSpec, Variable};

use crate::bench::{Bench, answer, inventory, refused, relay, submission};

const URL: &str = "https://registry.example.com:5000";

/// A hub with this registry and another, and a node of this registry.
fn bench(of_node: Option<&str>) -> (Bench, SessionHandle) {
    let registry = |url: &str, read: &[&str]| Registry {
        url: url.to_owned(),
        cache_prefix: "team/ci-cache".to_owned(),
        read: read.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut bench = Bench::with(|settings| {
        settings.registries = vec![
            registry("https://other.example.com", &[]),
            registry(URL, &["images/base", "images/tools"]),
        ];
    });
    bench.add_node(1);
    let session = bench.connect(1, 8);
    let mut told = inventory(4, &[]);
    told.registry_url = of_node.map(str::to_owned);
    bench.from(session, FromNode::Inventory(Box::new(told)));
    (bench, session)
}

/// What the start among these effects is to carry.
fn token(effects: &[Effect]) -> Option<TokenScope> {
    let mut tokens = effects.iter().filter_map(|effect| match effect {
        Effect::Start { token, .. } => Some(token.as_deref().cloned()),
        _ => None,
    });
    let token = tokens.next().expect("a start");
    assert!(tokens.next().is_none(), "started twice");
    token
}

/// What a job gets whose submission is changed so.
fn token_of(bench: &mut Bench, n: u8, change: impl FnOnce(&mut JobSubmission)) -> TokenScope {
    let mut submission = submission(n, None);
    change(&mut submission);
    let (to, effects) = bench.send(relay(1), Bench::submit_request(n, submission));
    let taken = answer(&effects, to);
    assert!(matches!(taken, Some(Answer::Submitted(_))), "{effects:?}");
    token(&effects).expect("a token")
}

/// REG-01, REG-05, REG-16
#[test]
fn a_start_on_a_node_of_the_hubs_registry_carries_a_token_for_the_projects_caches() {
    let (mut bench, _) = bench(Some(URL));
    let expected = TokenScope {
        registry: URL.to_owned(),
        repository: "team/ci-cache/gitlab.example.com/12/unprotected".to_owned(),
        read: vec!["images/base".to_owned(), "images/tools".to_owned()],
        life: Duration::from_secs(3_600 + 600),
    };
    assert_eq!(token(&bench.submit(1, None)), Some(expected));
}

/// REG-05, REG-22
#[test]
fn another_registry_however_like_it_is_not_the_hubs() {
    for url in [
        None,
        Some("https://registry.example.com"),
        Some("http://registry.example.com:5000"),
        Some("https://registry.example.com:5000/"),
        Some("https://REGISTRY.example.com:5000"),
        Some("https://registry.example.com:50001"),
        Some(""),
    ] {
        let (mut bench, _) = bench(url);
        assert_eq!(token(&bench.submit(1, None)), None, "{url:?}");
    }
}

/// REG-21, CACHE-21
#[test]
fn a_token_covers_the_repository_of_its_own_protection_alone() {
    let (mut bench, _) = bench(Some(URL));
    let said = |job: &mut JobSubmission, protected: Option<bool>, variables: &[&str]| {
        let JobSpec::GitlabCi(job) = &mut job.spec;
        job.sources.protected = protected;
        let variable = |value: &&str| Variable {
            key: "CI_COMMIT_REF_PROTECTED".to_owned(),
            value: (*value).into(),
            public: true,
            file: false,
            masked: false,
            raw: false,
        };
        job.variables = variables.iter().map(variable).collect();
    };
    let cases: [(Option<bool>, &[&str], &str); 5] = [
        (Some(true), &[], "protected"),
        (Some(false), &["true"], "unprotected"),
        (None, &["true"], "protected"),
        // The second is a job's own.
        (None, &["false", "true"], "unprotected"),
        (None, &[], "unprotected"),
    ];
    for (n, (protected, variables, own)) in (1..).zip(cases) {
        let token = token_of(&mut bench, n, |job| said(job, protected, variables));
        let repository = format!("team/ci-cache/gitlab.example.com/12/{own}");
        assert_eq!(token.repository, repository, "{protected:?} {variables:?}");
    }
}

/// REG-16
#[test]
fn a_token_outlives_its_jobs_timeout_by_ten_minutes_and_no_number_makes_it_eternal() {
    let (mut bench, _) = bench(Some(URL));
    let month = 31 * 86_400;
    let cases = [
        (60, 660),
        (0, 7_800),
        (month, month + 600),
        (u64::MAX, month + 600),
    ];
    for (n, (timeout, life)) in (1..).zip(cases) {
        let token = token_of(&mut bench, n, |job| {
            let JobSpec::GitlabCi(job) = &mut job.spec;
            job.timeout_secs = timeout;
        });
        assert_eq!(token.life.as_secs(), life, "{timeout}");
    }
}

/// REG-01: whatever became of the first one.
#[test]
fn a_job_that_is_sent_again_is_to_carry_a_token_again() {
    let (mut bench, session) = bench(Some(URL));
    let first = token(&bench.submit(1, None));
    assert!(first.is_some());
    // Refused, and taken to be free again.
    bench.job_is(session, 1, refused(RefusalReason::Memory));
    let again = bench.pass_secs(3);
    assert_eq!(token(&again), first);
    // Sent, and not there in the next session.
    bench.close(session);
    let session = bench.greet(1, 4);
    let mut told = inventory(4, &[]);
    told.registry_url = Some(URL.to_owned());
    bench.from(session, FromNode::Inventory(Box::new(told)));
    let again = bench.held(session, Vec::new(), Vec::new());
    assert_eq!(token(&again), first);
}
