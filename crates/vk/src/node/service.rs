//! `vk node service …`: the node under systemd.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use vk_node::admin::{self, CallError};
use vk_node::config::Config;
use vk_node::state_dir::StateDir;

use super::show::line;

/// The unit as packages bring it.
const UNIT: &str = include_str!("../../../../packaging/vk-node.service");
/// Its name.
const NAME: &str = "vk-node.service";

const EXAMPLES: &str = "Examples:
  sudo useradd --system --home-dir /var/lib/vk --shell /usr/sbin/nologin --groups kvm vk
  sudo install --directory --mode 0700 --owner vk --group vk /var/lib/vk
  vk-hub token create | sudo -u vk vk node join https://hub.example.com:8443 --token -
  sudo vk node service install --user vk
  vk node service install --user vk --print    # only show the unit";

const UNINSTALL_EXAMPLES: &str = "Examples:
  sudo -u vk vk node drain --wait && sudo vk node service uninstall";

/// Arguments of `vk node service`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write the unit, enable it and start the node. Jobs outlive the node's restarts.
    #[command(after_help = EXAMPLES)]
    Install(Install),
    /// Stop the node and remove its unit; its state stays. Refused while jobs are here.
    #[command(after_help = UNINSTALL_EXAMPLES)]
    Uninstall(Uninstall),
}

#[derive(Debug, Args)]
struct Install {
    /// The user that the node runs as, never root; it must be there.
    #[arg(long, default_value = "vk")]
    user: String,
    /// Enable it without starting it.
    #[arg(long)]
    no_start: bool,
    /// Seconds that a stop may take before the node is killed; jobs go on either way.
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(5..=3600))]
    stop_timeout: u32,
    /// Print the unit, with what it supposes of this host, and change nothing.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    place: Systemd,
}

#[derive(Debug, Args)]
struct Uninstall {
    /// Also while jobs are here: they run to their end, and nobody tells the hub.
    #[arg(long)]
    force: bool,
    /// The node's configuration; the one that the unit's user has and /etc/vk/config.toml, where not
    /// given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The node's state directory, to look for jobs in; the configurations' and /var/lib/vk where not
    /// given.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    place: Systemd,
}

#[derive(Debug, Args)]
struct Systemd {
    /// Where units lie.
    #[arg(long, value_name = "DIR", default_value = "/etc/systemd/system")]
    unit_dir: PathBuf,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Action::Install(install) => install.run(),
        Action::Uninstall(uninstall) => uninstall.run().await,
    }
}

impl Install {
    fn run(&self) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let configurations = configurations(home_of(&self.user).as_deref());
        if self.print {
            let printed = self.printed(&program, &configurations)?;
            return line(format_args!("{}", printed.trim_end()));
        }
        let state_dir = state_dir_among(&configurations)?;
        let unit = unit(&program, &self.user, self.stop_timeout, &state_dir)?;
        self.check_user()?;
        let file = self.place.file();
        let was_there = file.exists();
        write_whole(&file, &unit)?;
        systemctl(&["daemon-reload"])?;
        let what = match (self.no_start, was_there) {
            (true, _) => {
                systemctl(&["enable", NAME])?;
                "enabled"
            }
            (false, false) => {
                systemctl(&["enable", "--now", NAME])?;
                "started"
            }
            // A node that runs is still the old program under the old unit.
            (false, true) => {
                systemctl(&["enable", NAME])?;
                systemctl(&["restart", NAME])?;
                "written anew and restarted; jobs went on"
            }
        };
        line(format_args!("{} is {what}: {}", NAME, file.display()))
    }

    /// The unit for whoever looks at it or takes it elsewhere: what is not here yet, or not as the
    /// node's own host will have it, is supposed, and a comment says so.
    fn printed(&self, program: &Path, configurations: &[PathBuf]) -> anyhow::Result<String> {
        let found = configurations.iter().find(|file| file.exists());
        let (state_dir, of_state) = match (state_dir_among(configurations), found) {
            (Ok(dir), Some(file)) => {
                let said = format!("its state is in {}, by {}", dir.display(), file.display());
                (dir, said)
            }
            (Ok(dir), None) => {
                let said = format!("its state is in {STATE_DIR}: no configuration is here yet");
                (dir, said)
            }
            (Err(why), _) => {
                let said = format!("its state is in {STATE_DIR}, since: {why:#}");
                (PathBuf::from(STATE_DIR), said)
            }
        };
        let (program, of_program) = match program_in_unit(program) {
            Ok(path) => (path.to_owned(), format!("the program is {path}, this one")),
            Err(why) => {
                let said = format!("the program is {PROGRAM}, since this one cannot be: {why}");
                (PROGRAM.to_owned(), said)
            }
        };
        let of_user = match self.check_user() {
            Ok(()) => format!("it runs as {}, a user of this host", self.user),
            Err(why) => format!("it runs as {}; {why:#}", self.user),
        };
        let unit = unit(
            Path::new(&program),
            &self.user,
            self.stop_timeout,
            &state_dir,
        )?;
        let mut printed = String::from("# What is supposed here:\n");
        for said in [of_program, of_user, of_state] {
            let said = said.replace(char::is_control, " ");
            printed.push_str(&format!("# - {said}\n"));
        }
        Ok(printed + &unit)
    }

    /// A unit of a user that is not there fails only once it is started.
    fn check_user(&self) -> anyhow::Result<()> {
        let path = "/etc/passwd";
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let known = |line: &str| line.split(':').next() == Some(&self.user);
        // Users of directories are in no file: systemd finds them.
        let asked = || Command::new("id").arg("--").arg(&self.user).output();
        if text.lines().any(known) || asked().is_ok_and(|id| id.status.success()) {
            return Ok(());
        }
        bail!(
            "there is no user {}: make it with `useradd --system --home-dir /var/lib/vk --shell \
             /usr/sbin/nologin --groups kvm {}`, or name another with --user",
            self.user,
            self.user
        )
    }
}

impl Uninstall {
    async fn run(&self) -> anyhow::Result<()> {
        let file = self.place.file();
        if !file.exists() {
            bail!("{} is not there: nothing is installed", file.display());
        }
        let state_dirs = self.state_dirs(&file)?;
        if !self.force {
            for dir in &state_dirs {
                refuse_jobs(dir).await?;
            }
        }
        systemctl(&["disable", "--now", NAME])?;
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        systemctl(&["daemon-reload"])?;
        let there = state_dirs.iter().filter(|dir| dir.exists());
        let there: Vec<String> = there.map(|dir| dir.display().to_string()).collect();
        match there.is_empty() {
            true => line(format_args!("{NAME} is gone")),
            false => line(format_args!("{NAME} is gone; {} stays", there.join(", "))),
        }
    }

    /// Wherever the node that the unit runs may have its state: configurations come and go while it
    /// runs.
    fn state_dirs(&self, unit: &Path) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(dir) = &self.state_dir {
            return Ok(vec![dir.clone()]);
        }
        if let Some(file) = &self.config {
            return Ok(vec![state_dir_of(file)?]);
        }
        let text = fs::read_to_string(unit).with_context(|| unit.display().to_string())?;
        let home = user_of(&text).and_then(home_of);
        let files = configurations(home.as_deref());
        let files = files.iter().filter(|file| file.exists());
        let mut dirs = files
            .map(|file| state_dir_of(file))
            .collect::<anyhow::Result<Vec<PathBuf>>>()?;
        dirs.push(PathBuf::from(STATE_DIR));
        dirs.sort();
        dirs.dedup();
        Ok(dirs)
    }
}

/// Where the node that a unit runs will have its state, by the configurations that it may find.
fn state_dir_among(files: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let Some(file) = files.iter().find(|file| file.exists()) else {
        return Ok(PathBuf::from(STATE_DIR));
    };
    let config = Config::read(Some(file))
        .context("the unit's service will read this configuration: mend it first")?;
    if is_hidden(&config.state_dir) {
        bail!(
            "{} has state_dir = {:?}, which is hidden from services: keep the node's state \
             elsewhere, such as in {STATE_DIR}",
            file.display(),
            config.state_dir
        );
    }
    Ok(config.state_dir)
}

fn state_dir_of(file: &Path) -> anyhow::Result<PathBuf> {
    let config = Config::read(Some(file)).context(
        "where the node's state lies is not known: name it with --state-dir, or the node's \
         configuration with --config",
    )?;
    Ok(config.state_dir)
}

/// The configurations that the unit's service may find: `ProtectHome` hides what is in a home where
/// people have theirs.
fn configurations(home: Option<&Path>) -> Vec<PathBuf> {
    let seen = home.filter(|home| !is_hidden(home));
    let of_user = seen.map(|home| home.join(OF_USER));
    of_user
        .into_iter()
        .chain([PathBuf::from(OF_HOST)])
        .collect()
}

/// Whether `ProtectHome` hides it.
fn is_hidden(path: &Path) -> bool {
    let places = ["/home", "/root", "/run/user"];
    places.iter().any(|place| path.starts_with(place))
}

/// Refuses while jobs are here.
async fn refuse_jobs(state_dir: &Path) -> anyhow::Result<()> {
    if !state_dir.join("node").exists() {
        return Ok(());
    }
    let state = StateDir::look(state_dir)?;
    let jobs = match admin::status(&state).await {
        Ok(status) => status.jobs,
        Err(CallError::NotRunning { .. }) => state.jobs_on_disk()?.len(),
        Err(error) => return Err(error.into()),
    };
    if jobs > 0 {
        bail!("{jobs} jobs are here: wait for them with `vk node drain --wait`, or give --force");
    }
    Ok(())
}

/// Where a user has the node's configuration, from its home.
const OF_USER: &str = ".config/vk/config.toml";
/// Where a host has it.
const OF_HOST: &str = "/etc/vk/config.toml";
/// Where the node's state is where no configuration says.
const STATE_DIR: &str = "/var/lib/vk";
/// Where the program is supposed to be, where this one is not for services.
const PROGRAM: &str = "/usr/bin/vk";

/// The user that a unit runs as.
fn user_of(unit: &str) -> Option<&str> {
    let user = unit.lines().find_map(|line| line.strip_prefix("User="))?;
    Some(user.trim()).filter(|user| !user.is_empty())
}

/// A user's home, where the user has one.
fn home_of(user: &str) -> Option<PathBuf> {
    // Users of directories are in no file.
    let asked = Command::new("getent").args(["passwd", "--", user]).output();
    let told = asked.ok().filter(|told| told.status.success());
    let text = match told {
        Some(told) => String::from_utf8_lossy(&told.stdout).into_owned(),
        None => fs::read_to_string("/etc/passwd").ok()?,
    };
    home_in(&text, user)
}

fn home_in(passwd: &str, user: &str) -> Option<PathBuf> {
    let mut fields = passwd.lines().map(|line| line.split(':'));
    let mut of_user = fields.find_map(|mut of| (of.next() == Some(user)).then_some(of))?;
    let home = of_user.nth(4)?;
    Some(PathBuf::from(home)).filter(|home| home.is_absolute())
}

impl Systemd {
    fn file(&self) -> PathBuf {
        self.unit_dir.join(NAME)
    }
}

fn is_plain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    !text.is_empty() && text.chars().all(fits)
}

/// A program's path, where a service can run it.
fn program_in_unit(program: &Path) -> anyhow::Result<&str> {
    let path = program.to_str().filter(|path| is_plain(path));
    let path = path.with_context(|| {
        let shown = program.display();
        format!("{shown} cannot stand in a unit: put vk where its path has plain letters only")
    })?;
    let first = program.components().nth(1);
    let first = first.and_then(|first| first.as_os_str().to_str());
    // ProtectHome, and what a reboot empties.
    if first.is_some_and(|first| ["home", "root", "run", "tmp"].contains(&first)) {
        bail!(
            "{path} is hidden from services: put vk where all may read it, such as /usr/local/bin"
        );
    }
    Ok(path)
}

/// The unit for a program, a user and where its state lies.
fn unit(program: &Path, user: &str, stop_secs: u32, state_dir: &Path) -> anyhow::Result<String> {
    let path = program_in_unit(program)?;
    if !is_plain(user) {
        bail!("{user:?} is no user's name");
    }
    if user == "root" {
        bail!("a node never runs as root: make a user of its own, and name it with --user");
    }
    let mounts = format!("RequiresMountsFor={}\n", quoted(state_dir)?);
    Ok(UNIT
        .replace("RequiresMountsFor=/var/lib/vk\n", &mounts)
        .replace("ExecStart=/usr/bin/vk ", &format!("ExecStart={path} "))
        .replace("User=vk\n", &format!("User={user}\n"))
        .replace(
            "TimeoutStopSec=30\n",
            &format!("TimeoutStopSec={stop_secs}\n"),
        ))
}

/// A path as a unit has it among others: blanks, quotes and percent signs mean something there.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    let text = text.with_context(|| {
        let shown = path.display();
        format!("{shown:?} cannot stand in a unit: give state_dir a path of plain letters")
    })?;
    let escaped = text
        .replace('\\', r"\\")
        .replace('"', r#"\""#)
        .replace('%', "%%");
    if escaped == text && !text.contains([' ', '\'']) {
        return Ok(escaped);
    }
    Ok(format!("\"{escaped}\""))
}

fn write_whole(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("service.new");
    let written = fs::File::create(&new).and_then(|mut to| {
        to.write_all(text.as_bytes())?;
        to.sync_all()
    });
    written
        .and_then(|()| fs::rename(&new, file))
        .with_context(|| format!("cannot write {}: are you root?", file.display()))
}

fn systemctl(arguments: &[&str]) -> anyhow::Result<()> {
    let said = || format!("systemctl {}", arguments.join(" "));
    let ran = Command::new("systemctl")
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}: is systemd on this host?", said()))?;
    if !ran.status.success() {
        let why = String::from_utf8_lossy(&ran.stderr);
        bail!("{} ended with {}: {}", said(), ran.status, why.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
