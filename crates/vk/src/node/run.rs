//! `vk node run`, and the job processes it starts.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use vk_hub_proto::NodeId;
use vk_hub_proto::node_session::Versions;
use vk_kill::KillPoints;
use vk_node::config::Config;
use vk_node::daemon::{self, Setup};
use vk_node::job::process;
use vk_node::job::spawn::JobProgram;
use vk_node::state_dir::StateDir;

use super::driver::Driver;
use super::vmm::JobSettings;
use crate::owner::{refuse_other_users, warn_of_root};
use crate::start::VERSION;

/// A node that cannot run yet.
#[derive(Debug)]
pub(super) struct NotJoined(PathBuf);

impl fmt::Display for NotJoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.display();
        write!(
            f,
            "the node on {state} has joined no hub: run `vk node join` first"
        )
    }
}

impl std::error::Error for NotJoined {}

/// Runs the daemon.
pub(super) async fn run(config: Config) -> anyhow::Result<()> {
    refuse_other_users(&config.state_dir, "vk node run")?;
    warn_of_root();
    let state = StateDir::open(&config.state_dir)?;
    let lock = state.lock()?;
    let kill = KillPoints::from_env()?;
    let enrolment = state.enrolment().load::<NodeId>()?;
    let enrolment = enrolment.ok_or_else(|| NotJoined(state.root().to_owned()))?;
    let settings = JobSettings::of(&config, state.root());
    // Where VMs cannot be started no job is taken.
    settings.vmm().await.context("cannot start VMs here")?;
    // A job would only lose its caches by it; who starts a node wants to know.
    settings.caches.read()?;
    let versions = Versions {
        vk: VERSION.to_owned(),
        guest_kernel: None,
        config_hash: config.hash.clone(),
        vk_sha256: None,
    };
    let setup = Setup {
        config,
        state,
        lock,
        enrolment,
        program: JobProgram::own(&["node", "job"])?,
        settings: serde_json::to_value(settings)?,
        versions,
        kill,
    };
    Ok(Box::pin(daemon::run(setup)).await?)
}

/// Runs one job's process.
pub(super) fn job(dir: &Path) -> anyhow::Result<()> {
    process::run(dir, || {
        crate::start::log_of_job();
        Ok(Box::new(Driver))
    })?;
    Ok(())
}
