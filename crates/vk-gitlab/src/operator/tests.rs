use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        World { dir }
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.dir.path().join(name)).unwrap();
    }

    fn config(&self, rest: &str) {
        let text = format!(
            "state_dir = 'state'\n{rest}\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
             [[runners]]\nname = 'ci'\ntoken_file = 'ci.token'\n"
        );
        self.write("config.toml", &text);
    }

    fn operator(&self) -> Operator {
        let path = self.dir.path().join("config.toml");
        let config = Config::read(&path).unwrap().0;
        let state = StateDir::open(&config.state_dir).unwrap();
        let relay = RelayId::from_bytes([1; 16]);
        let mut operator = Operator::new(path, config, state, relay, "r_abcdefghijkl".into());
        operator.settings().unwrap();
        operator
    }
}

fn started(rest: &str) -> (World, Operator) {
    let world = World::new();
    world.write("ci.token", "glrt-t1_abcdefghijkl\n");
    world.config(rest);
    let operator = world.operator();
    (world, operator)
}

fn settings(word: Option<Word>) -> Settings {
    match word {
        Some(Word::Settings(settings)) => *settings,
        Some(Word::Stop | Word::Tell(_)) => panic!("another word"),
        None => panic!("nothing"),
    }
}

#[test]
fn a_token_file_that_changes_is_read_and_nothing_else_of_the_configuration() {
    let (world, mut operator) = started("concurrent = 2");
    assert!(operator.look_at_tokens().is_none(), "nothing has changed");
    world.config("concurrent = 9");
    world.write("ci.token", "glrt-t1_mnopqrstuvwx\n");
    let settings = settings(operator.look_at_tokens());
    assert_eq!(settings.concurrent, 2);
    let runner = &settings.runners[0];
    assert_eq!(runner.config.token.expose(), "glrt-t1_mnopqrstuvwx");
    assert_eq!(
        runner.client.identity().token.expose(),
        "glrt-t1_mnopqrstuvwx"
    );
    assert!(runner.file.is_none(), "its state is in the daemon's memory");
    assert!(operator.look_at_tokens().is_none(), "once is enough");
    world.write("ci.token", "glrt-t1_mnopqrstuvwx\n");
    assert!(operator.look_at_tokens().is_none(), "the same token");
}

/// Two token files cannot be replaced at one moment.
#[test]
fn tokens_that_change_places_are_taken_once_each_is_one_runners_again() {
    let world = World::new();
    world.write("ci.token", "glrt-t1_abcdefghijkl\n");
    world.write("big.token", "glrt-t1_mnopqrstuvwx\n");
    let text = "state_dir = 'state'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                [[runners]]\nname = 'ci'\ntoken_file = 'ci.token'\n\
                [[runners]]\nname = 'big'\ntoken_file = 'big.token'\n";
    world.write("config.toml", text);
    let mut operator = world.operator();
    world.write("ci.token", "glrt-t1_mnopqrstuvwx\n");
    assert!(operator.look_at_tokens().is_none(), "both have the same");
    let token = operator.config().runners[0].token.expose();
    assert_eq!(token, "glrt-t1_abcdefghijkl", "the old one stays");
    world.write("big.token", "glrt-t1_abcdefghijkl\n");
    let settings = settings(operator.look_at_tokens());
    let tokens: Vec<&str> = settings
        .runners
        .iter()
        .map(|one| one.config.token.expose())
        .collect();
    assert_eq!(tokens, ["glrt-t1_mnopqrstuvwx", "glrt-t1_abcdefghijkl"]);
}

#[test]
fn a_token_file_that_is_gone_or_empty_leaves_the_old_token() {
    let (world, mut operator) = started("");
    world.write("ci.token", "\n");
    assert!(operator.look_at_tokens().is_none());
    fs::remove_file(world.dir.path().join("ci.token")).unwrap();
    assert!(operator.look_at_tokens().is_none());
    let token = operator.config().runners[0].token.expose();
    assert_eq!(token, "glrt-t1_abcdefghijkl");
    world.write("ci.token", "glrt-t1_mnopqrstuvwx\n");
    assert!(operator.look_at_tokens().is_some());
}

/// STATE-10
#[test]
fn a_new_token_of_a_runner_without_a_name_begins_an_empty_state_file() {
    let world = World::new();
    world.write("ci.token", "glrt-t1_abcdefghijkl\n");
    let text = "state_dir = 'state'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                [[runners]]\ntoken_file = 'ci.token'\n";
    world.write("config.toml", text);
    let mut operator = world.operator();
    assert_eq!(operator.config().runners[0].name, "abcdefghi");
    world.write("ci.token", "glrt-t1_mnopqrstuvwx\n");
    let settings = settings(operator.look_at_tokens());
    let runner = &settings.runners[0];
    assert_eq!(runner.config.name, "mnopqrstu");
    assert_eq!(runner.file.as_ref().unwrap().jobs, []);
}

/// CFG-09
#[test]
fn a_reload_brings_the_new_settings() {
    let (world, mut operator) = started("");
    assert_eq!(operator.config().concurrent, 1);
    world.config("concurrent = 7\nshutdown_timeout = 99");
    let settings = settings(operator.reload());
    assert_eq!(settings.concurrent, 7);
    assert_eq!(settings.shutdown_timeout.as_secs(), 99);
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_the_old_one_stays() {
    let (world, mut operator) = started("concurrent = 2");
    world.config("concurrent = 0");
    assert!(operator.reload().is_none(), "no sense");
    world.config("state_dir = 'x'");
    assert!(operator.reload().is_none(), "no TOML: the key stands twice");
    let text = fs::read_to_string(world.dir.path().join("config.toml")).unwrap();
    let text = text.replace("state_dir = 'x'", "");
    world.write(
        "config.toml",
        &text.replace("gitlab.example.com", "other.example.com"),
    );
    assert!(
        operator.reload().is_none(),
        "another GitLab needs a restart"
    );
    world.write("config.toml", &text.replace("'state'", "'elsewhere'"));
    assert!(
        operator.reload().is_none(),
        "so does another place for state"
    );
    let file = "name = 'ci'\ntls_ca_file = 'missing.pem'";
    world.write("config.toml", &text.replace("name = 'ci'", file));
    assert!(operator.reload().is_none(), "a file it names is missing");
    assert_eq!(operator.config().concurrent, 2);
    assert!(operator.look_at_tokens().is_none());
}

#[test]
fn a_runner_that_is_added_brings_its_state_file_once() {
    let (world, mut operator) = started("");
    let text = fs::read_to_string(world.dir.path().join("config.toml")).unwrap();
    let more = format!("{text}[[runners]]\nname = 'more'\ntoken = 'glrt-t1_mnopqrstuvwx'\n");
    world.write("config.toml", &more);
    let first = settings(operator.reload());
    let files: Vec<bool> = first.runners.iter().map(|one| one.file.is_some()).collect();
    assert_eq!(files, [false, true]);
    world.write("config.toml", &text);
    assert_eq!(settings(operator.reload()).runners.len(), 1);
    world.write("config.toml", &more);
    let again = settings(operator.reload());
    assert!(
        again.runners.iter().all(|one| one.file.is_none()),
        "memory knows it"
    );
}

/// CFG-08
#[test]
fn a_runners_ca_goes_to_its_jobs_and_to_no_other_runners() {
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = rcgen::CertificateParams::new(vec![])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    let world = World::new();
    world.write("ci.token", "glrt-t1_abcdefghijkl\n");
    world.write("ca.pem", &ca);
    world.config("");
    let text = fs::read_to_string(world.dir.path().join("config.toml")).unwrap();
    let other = "[[runners]]\nname = 'other'\ntoken = 'glrt-t1_mnopqrstuvwx'\n";
    world.write(
        "config.toml",
        &format!("{text}tls_ca_file = 'ca.pem'\n{other}"),
    );
    let mut operator = world.operator();
    let runners = operator.settings().unwrap().runners;
    let pems: Vec<Option<&str>> = runners
        .iter()
        .map(|one| one.translation.ca_pem.as_deref())
        .collect();
    assert_eq!(pems, [Some(ca.as_str()), None]);
    check(operator.config()).unwrap();
    world.write("ca.pem", "no certificate");
    let error = format!("{:#}", check(operator.config()).unwrap_err());
    assert!(error.contains("ca.pem"), "{error}");
}
