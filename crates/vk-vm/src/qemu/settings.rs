use std::fs;
use std::path::{Path, PathBuf};

use super::firmware;
use vk_net::Needs;

use crate::confine::{Confinement, Place, Walls, needed_by};
use crate::machine::Accelerator;
use crate::network::NetMode;
use crate::programs::{find, find_beside};
use crate::start_error::StartError;
use crate::vsock::Vsock;

/// What a QEMU is prepared from.
#[derive(Debug, Clone)]
pub struct QemuSettings {
    /// The boot bundle's directory.
    pub bundle: PathBuf,
    /// `qemu-system-x86_64`; searched for where `None`.
    pub qemu: Option<PathBuf>,
    /// `vhost-device-vsock`; searched for beside this program and then in PATH where `None`.
    pub vsock_daemon: Option<PathBuf>,
    /// Which vsock guests use.
    pub vsock: Vsock,
    /// Who confines, and how strictly.
    pub confinement: Confinement,
    /// What guests run on.
    pub accelerator: Accelerator,
    /// What network guests have.
    pub network: NetMode,
    /// The device file of KVM.
    pub kvm: PathBuf,
}

impl QemuSettings {
    /// Settings for programs found by themselves.
    #[must_use]
    pub fn new(bundle: PathBuf, confinement: Confinement, accelerator: Accelerator) -> Self {
        Self {
            bundle,
            qemu: None,
            vsock_daemon: None,
            vsock: Vsock::Auto,
            confinement,
            accelerator,
            network: NetMode::None,
            kvm: PathBuf::from("/dev/kvm"),
        }
    }

    /// Where QEMU is.
    ///
    /// # Errors
    /// [`StartError::NoProgram`].
    pub(crate) fn find_qemu(&self) -> Result<PathBuf, StartError> {
        let hint = "package qemu-system-x86";
        program(self.qemu.as_deref(), "qemu-system-x86_64", hint, find)
    }

    fn find_daemon(&self) -> Result<PathBuf, StartError> {
        let hint = "`cargo install vhost-device-vsock`";
        program(
            self.vsock_daemon.as_deref(),
            "vhost-device-vsock",
            hint,
            find_beside,
        )
    }
}

fn program(
    configured: Option<&Path>,
    name: &str,
    hint: &'static str,
    search: fn(&str) -> Option<PathBuf>,
) -> Result<PathBuf, StartError> {
    let found = match configured {
        Some(path) => path.exists().then(|| path.to_owned()),
        None => search(name),
    };
    let missing = || StartError::NoProgram {
        program: configured.map_or(name.to_owned(), |path| path.display().to_string()),
        hint,
    };
    // Modules and firmware lie beside the program itself, not beside a link to it.
    found
        .and_then(|path| fs::canonicalize(path).ok())
        .ok_or_else(missing)
}

/// A program and every file it needs in its view.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    pub(super) path: PathBuf,
    pub(super) needs: Vec<Place>,
}

/// The programs of a VM.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) qemu: Tool,
    /// None where the kernel's vsock serves.
    pub(super) daemon: Option<Tool>,
    pub(super) firmware: PathBuf,
    /// What guests' networks are made with; none where they have none.
    pub(super) network: Option<Needs>,
}

impl Tools {
    /// Finds them, and what they need.
    pub(super) async fn find(settings: &QemuSettings, vsock: Vsock) -> Result<Self, StartError> {
        let qemu = settings.find_qemu()?;
        let firmware = firmware::directory(&qemu)?;
        let modules = firmware::modules(&qemu);
        let daemon = match vsock {
            Vsock::Kernel => None,
            Vsock::Auto | Vsock::Daemon => Some(settings.find_daemon()?),
        };
        let network = match (settings.network, settings.confinement.walls) {
            (NetMode::None, _) => None,
            (NetMode::Switch, Walls::Required) => {
                Some(Needs::check(find).map_err(StartError::Network)?)
            }
            (NetMode::Switch, Walls::Off) => return Err(StartError::NetworkUnconfined),
        };
        let daemon = async {
            match daemon {
                Some(path) => Ok(Some(Tool {
                    needs: needed_by(&path, &[]).await?,
                    path,
                })),
                None => Ok(None),
            }
        };
        let (needs, daemon) = tokio::try_join!(needed_by(&qemu, &modules), daemon)?;
        Ok(Self {
            qemu: Tool { path: qemu, needs },
            daemon,
            firmware,
            network,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_qemu_is_named_with_its_package() {
        let confinement = Confinement::default();
        let bundle = PathBuf::from("/bundle");
        let mut settings = QemuSettings::new(bundle, confinement, Accelerator::Tcg);
        settings.qemu = Some(PathBuf::from("/nowhere/qemu-system-x86_64"));
        let error = Tools::find(&settings, Vsock::Daemon)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/nowhere/qemu-system-x86_64 is not installed"),
            "{error}"
        );
        assert!(error.contains("package qemu-system-x86"), "{error}");
    }
}
