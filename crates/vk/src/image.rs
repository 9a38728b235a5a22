//! `vk image …`: the images of this host.

use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use vk_image::{
    Credential, Keep, Keychain, Listed, Password, Platform, Progress, PullPolicy, Puller,
    Reference, Store,
};

use crate::owner::refuse_other_users;
use crate::start::run_async;

/// Arguments of `vk image`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where this host keeps its state; images are in `images` below it.
    #[arg(long, global = true, value_name = "DIR", default_value_os_t = default_state_dir())]
    state_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Import a root file system, a `docker save` archive or an OCI layout.
    ///
    /// FILE is a tar (plain, gzip or zstd), an OCI layout's directory, or `-` for standard input. A
    /// directory is imported as `tar -C DIR -c . | vk image import - NAME`.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Show the images that are here.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArguments),
    /// Remove names, and images with their last name.
    #[command(after_help = RM_EXAMPLES)]
    Rm(RmArguments),
    /// Get an image from its registry.
    #[command(after_help = PULL_EXAMPLES)]
    Pull(PullArguments),
    /// Show one image as JSON.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect {
        /// Its name, or sha256:DIGEST.
        name: String,
    },
}

const IMPORT_EXAMPLES: &str = "Examples:
  docker save tool:1 | sudo -u vk vk image import - tool:1
  sudo -u vk vk image import debian.tar debian:12";

const LIST_EXAMPLES: &str = "Examples:
  sudo -u vk vk image list
  vk image list --json | jq '.[] | select(.in_use)'";

const RM_EXAMPLES: &str = "Examples:
  sudo -u vk vk image rm tool:1
  sudo -u vk vk image rm sha256:DIGEST   # with all its names";

const PULL_EXAMPLES: &str = "Examples:
  sudo -u vk vk image pull debian:12
  sudo -u vk vk image pull registry.example.com/tool:1 --username me --password-file password";

const INSPECT_EXAMPLES: &str = "Examples:
  vk image inspect debian:12 | jq .record.digest";

#[derive(Debug, Args)]
struct ImportArguments {
    /// What to import, or `-`.
    file: PathBuf,
    /// What to call it.
    name: String,
    /// Which image of several platforms.
    #[arg(long, default_value_t = Platform::default())]
    platform: Platform,
}

#[derive(Debug, Args)]
struct ListArguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RmArguments {
    /// Names, or sha256:DIGEST for an image with all its names.
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct PullArguments {
    /// The image.
    name: String,
    /// always, if-not-present or never.
    #[arg(long, default_value_t = PullPolicy::Always)]
    policy: PullPolicy,
    /// For which platform.
    #[arg(long, default_value_t = Platform::default())]
    platform: Platform,
    /// A registry (host[:port]) to speak plain HTTP with; may be given again.
    #[arg(long, value_name = "REGISTRY")]
    insecure: Vec<String>,
    /// A file with the certificates of a further authority, PEM.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Who one is at the registry.
    #[arg(long, requires = "password_file")]
    username: Option<String>,
    /// A file with the password in its first line.
    #[arg(long, value_name = "FILE", requires = "username")]
    password_file: Option<PathBuf>,
}

/// `/var/lib/vk` for root and for whom it belongs to, a node's user; a user's own place for anyone
/// else.
pub(crate) fn default_state_dir() -> PathBuf {
    state_dir_beside(Path::new("/var/lib/vk"))
}

fn state_dir_beside(of_nodes: &Path) -> PathBuf {
    let of = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let me = rustix::process::geteuid();
    let is_mine = std::fs::metadata(of_nodes).is_ok_and(|of| of.uid() == me.as_raw());
    if me.is_root() || is_mine {
        return of_nodes.to_owned();
    }
    let home = || of("HOME").map(|home| home.join(".local/state"));
    of("XDG_STATE_HOME")
        .or_else(home)
        .map_or_else(|| of_nodes.to_owned(), |state| state.join("vk"))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let dir = arguments.state_dir.join("images");
    // Locks are files, too: who only looks makes them.
    refuse_other_users(&arguments.state_dir, "vk image …")?;
    refuse_other_users(&dir, "vk image …")?;
    let store = Store::open(&dir)
        .context("cannot open the image store; another place is chosen with --state-dir")?;
    match arguments.command {
        Command::Import(arguments) => import(&store, &arguments),
        Command::List(arguments) => list(&store, &arguments),
        Command::Rm(arguments) => remove(&store, &arguments),
        Command::Pull(arguments) => run_async(pull(store, arguments)),
        Command::Inspect { name } => inspect(&store, &name),
    }
}

fn import(store: &Store, arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let ImportArguments {
        file,
        name,
        platform,
    } = arguments;
    let lease = if file.as_os_str() == "-" {
        store.import_stream(io::stdin().lock(), name, platform)?
    } else {
        store.import(file, name, platform)?
    };
    print(&format!("{}\n", lease.record().digest))?;
    drop(lease);
    tidy(store);
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store, arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let listed = store.list()?;
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&listed)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&table(&listed))?;
    Ok(ExitCode::SUCCESS)
}

/// Columns for people; the same in a pipe, since they hold no space.
fn table(listed: &[Listed]) -> String {
    let mut rows = vec![["NAME", "DIGEST", "SIZE", "IN-USE"].map(String::from)];
    for image in listed {
        let digest = image
            .record
            .digest
            .hex()
            .chars()
            .take(12)
            .collect::<String>();
        let size = size(image.record.bytes);
        let in_use = if image.in_use { "yes" } else { "no" };
        let names = image.names.iter().map(Reference::familiar);
        let names: Vec<String> = if image.names.is_empty() {
            vec!["-".into()]
        } else {
            names.collect()
        };
        rows.extend(
            names
                .into_iter()
                .map(|name| [name, digest.clone(), size.clone(), in_use.into()]),
        );
    }
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn size(bytes: u64) -> String {
    let mib = bytes / (1 << 20);
    if mib == 0 {
        format!("{}KiB", bytes / 1024)
    } else {
        format!("{mib}MiB")
    }
}

fn remove(store: &Store, arguments: &RmArguments) -> anyhow::Result<ExitCode> {
    let mut outcome = Ok(ExitCode::SUCCESS);
    for name in &arguments.names {
        match store.remove(name) {
            Ok(()) => {}
            Err(error) if outcome.is_ok() => outcome = Err(error.into()),
            Err(error) => complain(&error),
        }
    }
    outcome
}

async fn pull(store: Store, arguments: PullArguments) -> anyhow::Result<ExitCode> {
    let image: Reference = arguments.name.parse()?;
    let mut config = vk_image::RegistryConfig {
        keychain: keychain(&image, &arguments)?,
        insecure: arguments.insecure.into_iter().collect(),
        ..vk_image::RegistryConfig::default()
    };
    if let Some(path) = &arguments.ca_file {
        let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        config.authorities.push(pem);
    }
    let client = vk_image::RegistryClient::new(config)?;
    let puller = Puller::new(store.clone(), client, arguments.platform).past_imports();
    let outcome = puller.get(&image, &[arguments.policy], &show).await?;
    print(&format!("{}\n", outcome.lease.record().digest))?;
    drop(outcome);
    tidy(&store);
    Ok(ExitCode::SUCCESS)
}

fn keychain(image: &Reference, arguments: &PullArguments) -> anyhow::Result<Keychain> {
    let mut keychain = Keychain::default();
    if let (Some(username), Some(path)) = (&arguments.username, &arguments.password_file) {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let password = Password::new(text.lines().next().unwrap_or_default().to_owned());
        keychain.add(
            image.registry(),
            Credential {
                username: username.clone(),
                password,
            },
        );
    }
    Ok(keychain)
}

/// Steps go to stderr; bytes only where someone looks on.
fn show(progress: Progress) {
    let mut stderr = io::stderr();
    let terminal = stderr.is_terminal();
    // A step that cannot be shown is no reason to stop.
    let _ = match progress {
        Progress::Pulling { image } => writeln!(stderr, "pulling {image}"),
        Progress::Waiting {
            registry, waited, ..
        } => {
            let waited = waited.as_secs();
            writeln!(stderr, "no answer from {registry} for {waited} s so far")
        }
        Progress::Fetched { bytes, of } if terminal => {
            write!(
                stderr,
                "\rfetched {} of {}  {}",
                size(bytes),
                size(of),
                if bytes == of { "\n" } else { "" }
            )
        }
        Progress::Building { layers } => {
            writeln!(stderr, "building the disk image of {layers} layers")
        }
        _ => Ok(()),
    };
}

fn inspect(store: &Store, name: &str) -> anyhow::Result<ExitCode> {
    let image = store.inspect(name)?;
    print(&format!("{}\n", serde_json::to_string_pretty(&image)?))?;
    Ok(ExitCode::SUCCESS)
}

/// What a moved name left behind goes now; what cannot go now goes another time.
fn tidy(store: &Store) {
    if let Err(error) = store.collect(Keep::default()) {
        complain(&error);
    }
}

fn complain(error: &dyn std::error::Error) {
    let _ = writeln!(io::stderr(), "vk: {error}");
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node's user imports is what the node's jobs find.
    #[test]
    fn a_nodes_user_has_the_nodes_own_store() {
        let mine = tempfile::tempdir().unwrap();
        assert_eq!(state_dir_beside(mine.path()), mine.path());
        let missing = mine.path().join("missing");
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(state_dir_beside(&missing) == missing, is_root);
    }
}
