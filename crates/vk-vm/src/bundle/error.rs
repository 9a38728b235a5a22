use std::io;
use std::path::PathBuf;

/// Why a boot bundle could not be packed or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// A file that the bundle is made of or consists of.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    /// A file of the bundle being packed.
    #[error("cannot write {0}")]
    Write(PathBuf, #[source] io::Error),
    /// The kernel given is not one.
    #[error("the kernel is not a Linux boot image (bzImage): {0}")]
    NotABootImage(&'static str),
    /// The kernel inside a boot image could not be unpacked; the image itself may still boot.
    #[error("cannot unpack the kernel's {format} payload: {why}")]
    Payload {
        /// The compression found.
        format: &'static str,
        /// What was wrong.
        why: String,
    },
    /// The kernel has no PVH entry (CONFIG_PVH); the boot image itself may still boot.
    #[error("the unpacked kernel has no PVH entry")]
    NoPvhEntry,
    /// A module the guest needs is neither built in nor there.
    #[error(
        "module {0} is neither built into the kernel nor in modules.dep; \
         run `depmod -b ROOT RELEASE` on an unpacked kernel package first"
    )]
    NoModule(String),
    /// The agent given cannot be a guest's first process.
    #[error("{path} cannot be a guest's first process: {why}")]
    NotAnAgent {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A directory that is no bundle, or is damaged.
    #[error("{directory} is not a usable boot bundle: {why}; pack it again with `vk guest pack`")]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}
