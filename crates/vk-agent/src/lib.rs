//! The guest's init, and the host's hands in the guest.
//!
//! One program with two lives: process 1 of a virtual machine, and an ordinary process in namespaces
//! (`vk-agent process`). In both it dials the host, never listens, and does what the frames of
//! `vk-guest-proto` ask: runs commands, mounts disks, makes and extracts archives. It stays outside
//! the job's root.
//!
//! # Building
//!
//! ```text
//! RUSTFLAGS="-C target-feature=+crt-static" \
//!     cargo build --profile agent --package vk-agent --target x86_64-unknown-linux-gnu
//! ```
//!
//! gives `x86_64-unknown-linux-gnu/agent/vk-agent` in the target directory: static, about 1.6 MB,
//! no other file needed. It uses no name service and no locale, so it runs in any image.
//!
//! # As a machine's init
//!
//! What the initramfs must hold (archives may follow one another, each aligned to four bytes: the
//! bundle's own first, one with the secret behind it):
//!
//! | path | what |
//! |---|---|
//! | `/init` | this program, mode 0755 |
//! | `/dev/console` | character device 5:1; the agent's words go there |
//! | `/dev/null` | character device 1:3; needed where the kernel has no console |
//! | `/vk/modules.list` | module files in load order, one a line, relative to `/vk`, `#` begins a comment; may be missing where all is built in |
//! | `/vk/network.list` | the same, of modules that only a machine with `vk.net` loads |
//! | `/vk/modules/*.ko` | the modules, not compressed |
//! | `/vk/secret` | the VM's secret, 32 bytes; removed once read |
//!
//! Words of the kernel's command line that are the agent's:
//!
//! | word | what |
//! |---|---|
//! | `vk.dial=vsock:CID:PORT` | where the host listens; without it `vsock:2:1024` |
//! | `vk.net=ADDRESS/LENGTH,GATEWAY` | `eth0` has this IPv4 address; the gateway is the resolver too, and the job's `/etc/resolv.conf` says so |
//! | `vk.action=poweroff` | to power off at once, before any module: a bare boot, a probe |
//!
//! It mounts `/proc`, `/sys`, `/dev` and `/run` of its own, loads the modules, reads the secret,
//! brings the loopback interface up, dials, says hello. Disks are found by their serial when a mount
//! asks for one (virtio-blk and SCSI), and waited for up to 5 s. The kernel must have devtmpfs,
//! tmpfs, overlayfs, openat2 (5.6), `close_range` (5.9) and, for what it mounts, erofs and ext4;
//! cgroup v2 makes killing a command's processes atomic, with the `cpu` and `pids` controllers the
//! agent stays able to act under a fork bomb.
//!
//! A command runs in a mount namespace of the job's whose root is the overlay, not under `chroot`,
//! so that containers work in it; in the agent's PID namespace; in a session and a cgroup
//! (`/vk/<stream>`) of its own. Nothing of `/vk` or of the agent's mounts has a path there.
//!
//! The machine is powered off when the host asks, when the control connection ends, and when the
//! agent fails, which it says on the console (`vk-agent: …`) and with a `Fault` frame. Nothing is
//! synced then: the disk does not outlive the job, and who wants to keep it sends `Sync` first.
//!
//! # As a process
//!
//! `vk-agent process --dial unix:PATH --secret FILE|- --state DIR`, best as process 1 of user, mount
//! and PID namespaces (it then mounts their `/proc` itself and makes all mounts private). The socket
//! is a path that it dials once a stream, as it dials a port from a machine, so that the host's side
//! is the same. Volumes are directories or memory, joined by overlay with `userxattr`; the writable
//! directory must not be on an overlay itself, nor below the image. Clock and host name are refused
//! with `Unsupported`, usage has no figures but the disk's. Without `MountRoot` commands run in the
//! agent's own root. An agent that is no root runs commands as itself when they ask for root.
//!
//! It must not know anything else of the workspace.

#![deny(unsafe_code)]

mod agent;
mod archive;
mod beneath;
pub mod boot;
pub mod command;
mod conn;
mod context;
mod control;
mod dial;
mod exec;
pub mod fault;
mod files;
mod git;
mod glob;
mod mounts;
mod process;
mod reaper;
mod root;
mod stream;
mod sys;
mod usage;
