//! The configurations of hub, node and daemon.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use toml::{Table, Value};

use super::error::{RunError, file};
use super::options::FleetOptions;

/// Largest file that is merged into the node's.
const MAX_BYTES: u64 = 1 << 20;

/// Writes all three into the private directory.
pub(super) fn write(dir: &Path, options: &FleetOptions, gitlab: &str) -> Result<(), RunError> {
    let put = |name: &str, table: Table| {
        let path = dir.join(name);
        fs::write(&path, table.to_string()).map_err(file("write", &path))
    };
    put("hub.toml", hub())?;
    put("node.toml", node(options)?)?;
    put("daemon.toml", daemon(options, gitlab))
}

/// A table from its keys and values.
macro_rules! table {
    ($($key:ident = $value:expr),* $(,)?) => {{
        let mut table = Table::new();
        $(table.insert(stringify!($key).to_owned(), Value::from($value));)*
        table
    }};
}

fn hub() -> Table {
    // The kernel chooses the port; the hub tells it by its admin socket.
    table! {
        addr = "127.0.0.1:0",
        data_dir = "hub",
        gitlab = table! { approve = "all" },
    }
}

fn node(options: &FleetOptions) -> Result<Table, RunError> {
    let mut vm = table! {
        cpus = i64::from(options.cpus()),
        mem = options.memory.clone(),
    };
    if let Some(bundle) = &options.bundle {
        let bundle = std::path::absolute(bundle).map_err(RunError::System)?;
        vm.insert("bundle".into(), path(&bundle)?);
    }
    // Without a network, what an earlier run pulled will do.
    let policies: Vec<Value> = vec!["always".into(), "if-not-present".into()];
    let mut executor = table! { vm = vm, pull_policy = policies };
    if let Some(image) = &options.image {
        executor.insert("image".into(), image.clone().into());
    }
    // A node of a few minutes, which nothing else gives work to: what else the host runs is no
    // matter.
    let own = table! { runner = "none" };
    let mut table = table! { executor = executor, node = own };
    if let Some(given) = &options.node_config {
        merge(&mut table, read(given)?);
    }
    table.insert("state_dir".into(), "node".into());
    Ok(table)
}

fn daemon(options: &FleetOptions, gitlab: &str) -> Table {
    let at_once = i64::try_from(options.concurrent()).unwrap_or(1);
    let envelope = table! {
        mem = options.memory.clone(),
        cpus = i64::from(options.cpus()),
        disk = options.disk.clone(),
    };
    let runner = table! {
        name = "lab",
        token_file = "runner-token",
        envelope = envelope,
    };
    table! {
        concurrent = at_once,
        check_interval = 1,
        state_dir = "daemon",
        system_id_file = "daemon/system-id",
        gitlab = table! { url = gitlab },
        runners = vec![runner],
    }
}

fn path(path: &Path) -> Result<Value, RunError> {
    let text = path.to_str().ok_or_else(|| RunError::Option {
        option: "--bundle",
        why: "its path is no UTF-8 text; move it".into(),
    })?;
    Ok(text.into())
}

fn read(path: &Path) -> Result<Table, RunError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|opened| opened.take(MAX_BYTES).read_to_string(&mut text))
        .map_err(file("read the node's configuration", path))?;
    let table: Table = toml::from_str(&text).map_err(|error| RunError::Option {
        option: "--node-config",
        why: format!("{}: {error}", path.display()),
    })?;
    if table.contains_key("state_dir") {
        let why = "state_dir is a run's own; leave it out".to_owned();
        return Err(RunError::Option {
            option: "--node-config",
            why,
        });
    }
    Ok(table)
}

/// Puts what was given over what is there, table by table.
fn merge(into: &mut Table, given: Table) {
    for (key, value) in given {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> FleetOptions {
        FleetOptions {
            import: Vec::new(),
            image: Some("debian:12".into()),
            image_store: None,
            state: None,
            bundle: Some("/srv/guest".into()),
            node_config: None,
            concurrent: Some(3),
            cpus: Some(2),
            memory: "1G".into(),
            disk: "4G".into(),
        }
    }

    #[test]
    fn what_was_given_wins_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let given = dir.path().join("node.toml");
        let text = "[executor.vm]\nmem = \"2G\"\n[registry]\ninsecure = [\"localhost:5000\"]\n";
        fs::write(&given, text).unwrap();
        let mut options = options();
        options.node_config = Some(given.clone());
        let table = node(&options).unwrap();
        let vm = &table["executor"]["vm"];
        assert_eq!(vm["mem"].as_str(), Some("2G"));
        assert_eq!(vm["cpus"].as_integer(), Some(2));
        assert_eq!(vm["bundle"].as_str(), Some("/srv/guest"));
        assert_eq!(table["state_dir"].as_str(), Some("node"));
        assert!(table.contains_key("registry"));
        let policies = table["executor"]["pull_policy"].as_array().unwrap();
        let policies: Vec<_> = policies.iter().filter_map(Value::as_str).collect();
        assert_eq!(policies, ["always", "if-not-present"]);
        fs::write(&given, "[executor]\npull_policy = \"never\"\n").unwrap();
        let table = node(&options).unwrap();
        assert_eq!(table["executor"]["pull_policy"].as_str(), Some("never"));
        fs::write(&given, "state_dir = \"/etc\"\n").unwrap();
        assert!(node(&options).unwrap_err().is_of_input());
    }

    #[test]
    fn the_daemon_asks_for_as_many_jobs_as_there_may_be() {
        let table = daemon(&options(), "http://127.0.0.1:1");
        assert_eq!(table["concurrent"].as_integer(), Some(3));
        let runner = &table["runners"][0];
        assert_eq!(runner["envelope"]["disk"].as_str(), Some("4G"));
    }
}
