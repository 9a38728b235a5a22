use std::fs::OpenOptions;
use std::path::PathBuf;

use crate::error::NetError;

/// The device that taps are made with.
pub const TUN: &str = "/dev/net/tun";

/// The programs that a network is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// `ip`, of iproute2.
    pub ip: PathBuf,
    /// `nft`, of nftables.
    pub nft: PathBuf,
    /// `pasta`, of passt.
    pub pasta: PathBuf,
}

impl Needs {
    /// Looks for them with `find`, and whether taps can be made.
    ///
    /// # Errors
    /// [`NetError::NoProgram`], [`NetError::NoTun`].
    pub fn check(find: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, NetError> {
        let program =
            |program, package| find(program).ok_or(NetError::NoProgram { program, package });
        let needs = Self {
            ip: program("ip", "iproute2")?,
            nft: program("nft", "nftables")?,
            pasta: program("pasta", "passt")?,
        };
        let tun = OpenOptions::new().read(true).write(true).open(TUN);
        tun.map_err(|source| NetError::NoTun {
            device: TUN,
            source,
        })?;
        Ok(needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        for (missing, package) in [("nft", "nftables"), ("pasta", "passt"), ("ip", "iproute2")] {
            let find = |name: &str| (name != missing).then(|| PathBuf::from("/usr/bin").join(name));
            let error = Needs::check(find).unwrap_err().to_string();
            assert!(
                error.contains(missing) && error.contains(package),
                "{error}"
            );
        }
    }
}
