use std::fmt;

use zeroize::Zeroize;

/// Bytes of a VM's secret.
pub const SECRET_LEN: usize = 32;

/// What a VM's agent proves itself with: drawn by the host at the VM's start, handed over in its
/// initramfs, good for this VM alone. It is wiped when dropped, cannot be printed, and two are
/// compared in a time that does not depend on where they differ.
#[derive(Clone)]
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    /// Takes the secret from `bytes` and wipes them.
    #[must_use]
    pub fn take(bytes: &mut [u8; SECRET_LEN]) -> Self {
        let secret = Self(*bytes);
        bytes.zeroize();
        secret
    }

    /// The bytes, to be written into an initramfs or an opening and nowhere else.
    #[must_use]
    pub fn expose(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let differing = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |acc, (a, b)| acc | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_compared_whole_and_never_printed() {
        let mut raw = [7; SECRET_LEN];
        let one = Secret::take(&mut raw);
        assert_eq!(raw, [0; SECRET_LEN]);
        assert_eq!(one, Secret::take(&mut [7; SECRET_LEN]));
        for at in 0..SECRET_LEN {
            let mut other = [7; SECRET_LEN];
            other[at] ^= 0x80;
            assert_ne!(one, Secret::take(&mut other), "byte {at}");
        }
        assert_eq!(format!("{one:?}"), "Secret(..)");
    }
}
