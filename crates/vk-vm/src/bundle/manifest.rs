use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::BundleError;

/// The version of the bundle this program writes and the only one it reads: of the manifest, and of what
/// the agent in it speaks. It is raised with the lowest version of the agent's protocol.
const FORMAT: u32 = 3;
/// No manifest is larger.
const MANIFEST_MAX: u64 = 1 << 20;

pub(super) const KERNEL: &str = "kernel";
pub(super) const INITRAMFS: &str = "initramfs";
pub(super) const MANIFEST: &str = "manifest.json";

/// How the bundle's kernel is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelForm {
    /// An ELF file, unpacked, entered through PVH: the guest unpacks nothing.
    PvhElf,
    /// The distribution's boot image as it was.
    BzImage,
}

/// What a bundle says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The manifest's own version.
    pub format: u32,
    /// The kernel's release, as `uname -r` says it in the guest.
    pub kernel_release: String,
    /// The kernel's form.
    pub kernel_form: KernelForm,
    /// The kernel file.
    pub kernel: FileIdentity,
    /// The initramfs file.
    pub initramfs: FileIdentity,
    /// The agent inside the initramfs.
    pub agent: FileIdentity,
    /// The modules inside the initramfs, in the order they are loaded.
    pub modules: Vec<String>,
}

/// A file's size and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
}

impl FileIdentity {
    /// The identity of `data`.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        let sum = digest::digest(&digest::SHA256, data);
        let sha256 = sum
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            size: u64::try_from(data.len()).unwrap_or(u64::MAX),
            sha256,
        }
    }
}

/// Where a bundle is installed.
const INSTALLED: &str = "/usr/share/vk/guest";

/// The bundle nobody configured: the directory `guest` beside this program or beside its directory,
/// else the installed one.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program
        .iter()
        .flat_map(|program| program.ancestors().skip(1).take(2));
    beside
        .map(|directory| directory.join("guest"))
        .chain([PathBuf::from(INSTALLED)])
        .find(|directory| directory.join(MANIFEST).exists())
}

/// A boot bundle on disk, ready to be booted.
#[derive(Debug, Clone)]
pub struct Bundle {
    directory: PathBuf,
    manifest: Manifest,
}

impl Bundle {
    /// Opens the bundle in `directory`: its manifest, and that its files are there in their size.
    ///
    /// # Errors
    /// [`BundleError::Read`] for a missing file, [`BundleError::Unusable`] for a damaged bundle.
    pub fn open(directory: &Path) -> Result<Self, BundleError> {
        let path = directory.join(MANIFEST);
        let unusable = |why: String| BundleError::Unusable {
            directory: directory.to_owned(),
            why,
        };
        let size = fs::metadata(&path)
            .map_err(|e| BundleError::Read(path.clone(), e))?
            .len();
        if size > MANIFEST_MAX {
            return Err(unusable("its manifest is too large".to_owned()));
        }
        let text = fs::read(&path).map_err(|e| BundleError::Read(path.clone(), e))?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|e| unusable(format!("its manifest cannot be read: {e}")))?;
        if manifest.format != FORMAT {
            let found = manifest.format;
            return Err(unusable(format!(
                "its format is {found}, this program's is {FORMAT}"
            )));
        }
        let bundle = Self {
            directory: directory.to_owned(),
            manifest,
        };
        for (file, identity) in bundle.files() {
            let size = fs::metadata(&file)
                .map_err(|e| BundleError::Read(file.clone(), e))?
                .len();
            if size != identity.size {
                return Err(unusable(format!(
                    "{} is not the file packed",
                    file.display()
                )));
            }
        }
        Ok(bundle)
    }

    /// Reads the bundle's files whole and compares them with the manifest.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn verify(&self) -> Result<(), BundleError> {
        for (file, identity) in self.files() {
            let data = fs::read(&file).map_err(|e| BundleError::Read(file.clone(), e))?;
            if FileIdentity::of(&data) != *identity {
                let why = format!("{} is not the file packed", file.display());
                return Err(BundleError::Unusable {
                    directory: self.directory.clone(),
                    why,
                });
            }
        }
        Ok(())
    }

    /// What the bundle says of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The kernel's file.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// The initramfs' file, without any VM's secret.
    #[must_use]
    pub fn initramfs(&self) -> PathBuf {
        self.directory.join(INITRAMFS)
    }

    fn files(&self) -> [(PathBuf, &FileIdentity); 2] {
        [
            (self.kernel(), &self.manifest.kernel),
            (self.initramfs(), &self.manifest.initramfs),
        ]
    }
}

impl Manifest {
    /// A manifest of the format written here.
    pub(super) fn new(
        kernel_release: String,
        kernel_form: KernelForm,
        [kernel, initramfs, agent]: [FileIdentity; 3],
        modules: Vec<String>,
    ) -> Self {
        Self {
            format: FORMAT,
            kernel_release,
            kernel_form,
            kernel,
            initramfs,
            agent,
            modules,
        }
    }
}
