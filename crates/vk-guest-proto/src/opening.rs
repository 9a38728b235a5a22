use crate::error::DecodeError;
use crate::secret::{SECRET_LEN, Secret};
use crate::wire::{Reader, unknown};

/// The first bytes of every connection.
pub const MAGIC: [u8; 4] = *b"vkag";
/// The lowest protocol version spoken here.
pub const LOWEST_VERSION: u8 = 3;
/// The highest protocol version spoken here.
pub const HIGHEST_VERSION: u8 = 3;
/// The host's answer to an opening whose stream it did not ask for, or with no version in common.
/// No version has this number.
pub const REFUSED: u8 = 0;
/// The number of the control stream, one a VM. The host numbers the others, from 1 on, and uses no
/// number twice.
pub const CONTROL_STREAM: u32 = 0;
/// Bytes of an opening.
pub const OPENING_LEN: usize = MAGIC.len() + 2 + SECRET_LEN + 1 + 4;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Requests and answers; number [`CONTROL_STREAM`].
    Control,
    /// A command: stdin in, stdout and stderr out, an exit status at the end.
    Exec,
    /// A tar from the host, extracted in the guest.
    TarIn,
    /// A tar of files in the guest, to the host.
    TarOut,
    /// The content of one file, to be written in the guest.
    FileIn,
    /// The content of one file of the guest, to the host.
    FileOut,
}

impl Purpose {
    /// Every purpose, in the order of its byte.
    pub const ALL: [Purpose; 6] = [
        Purpose::Control,
        Purpose::Exec,
        Purpose::TarIn,
        Purpose::TarOut,
        Purpose::FileIn,
        Purpose::FileOut,
    ];

    pub(crate) const fn byte(self) -> u8 {
        match self {
            Purpose::Control => 0,
            Purpose::Exec => 1,
            Purpose::TarIn => 2,
            Purpose::TarOut => 3,
            Purpose::FileIn => 4,
            Purpose::FileOut => 5,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|purpose| purpose.byte() == byte)
            .ok_or_else(|| unknown("Purpose", byte))
    }
}

/// What the agent says first on each connection. Always [`OPENING_LEN`] bytes, in every version:
/// magic, lowest version, highest version, secret, purpose, stream number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The lowest version the agent speaks.
    pub lowest: u8,
    /// The highest version the agent speaks.
    pub highest: u8,
    /// The proof that it is this VM's agent.
    pub secret: Secret,
    /// What the stream is for.
    pub purpose: Purpose,
    /// The number the host gave it in [`crate::Op::Open`], or [`CONTROL_STREAM`].
    pub stream: u32,
}

impl Opening {
    /// The opening of an agent of this build.
    #[must_use]
    pub fn new(secret: Secret, purpose: Purpose, stream: u32) -> Self {
        Self {
            lowest: LOWEST_VERSION,
            highest: HIGHEST_VERSION,
            secret,
            purpose,
            stream,
        }
    }

    /// Its bytes. They hold the secret: they go onto the connection and nowhere else.
    #[must_use]
    pub fn encode(&self) -> [u8; OPENING_LEN] {
        let mut out = [0; OPENING_LEN];
        let head = [&MAGIC[..], &[self.lowest, self.highest]];
        let tail = [
            &self.secret.expose()[..],
            &[self.purpose.byte()],
            &self.stream.to_le_bytes(),
        ];
        let all = head.into_iter().chain(tail).flatten();
        out.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        out
    }

    /// Reads an opening.
    ///
    /// # Errors
    /// [`DecodeError::NotAnAgent`] where the magic is missing, [`DecodeError::Unknown`] for a
    /// purpose not known here.
    pub fn decode(bytes: &[u8; OPENING_LEN]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        if from.array("Opening.magic")? != MAGIC {
            return Err(DecodeError::NotAnAgent);
        }
        let [lowest, highest] = from.array("Opening.versions")?;
        let secret = Secret::take(&mut from.array("Opening.secret")?);
        let purpose = Purpose::from_byte(from.byte("Opening.purpose")?)?;
        let stream = u32::from_le_bytes(from.array("Opening.stream")?);
        Ok(Self {
            lowest,
            highest,
            secret,
            purpose,
            stream,
        })
    }

    /// The byte the host answers: the highest version both speak, or [`REFUSED`].
    #[must_use]
    pub fn choose(&self) -> u8 {
        let version = self.highest.min(HIGHEST_VERSION);
        if version >= self.lowest.max(LOWEST_VERSION) {
            version
        } else {
            REFUSED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(lowest: u8, highest: u8) -> Opening {
        let secret = Secret::take(&mut [1; SECRET_LEN]);
        Opening {
            lowest,
            highest,
            ..Opening::new(secret, Purpose::Exec, 9)
        }
    }

    #[test]
    fn the_highest_common_version_is_chosen_and_none_is_refused() {
        assert_eq!(opening(1, LOWEST_VERSION).choose(), LOWEST_VERSION);
        assert_eq!(opening(1, 9).choose(), HIGHEST_VERSION);
        assert_eq!(opening(1, LOWEST_VERSION - 1).choose(), REFUSED);
        assert_eq!(opening(HIGHEST_VERSION + 1, 9).choose(), REFUSED);
        assert_eq!(opening(0, 0).choose(), REFUSED);
        assert_eq!(opening(3, 1).choose(), REFUSED);
    }

    #[test]
    fn every_purpose_comes_back() {
        for purpose in Purpose::ALL {
            let sent = Opening {
                purpose,
                stream: 0xdead_beef,
                ..opening(1, 2)
            };
            assert_eq!(Opening::decode(&sent.encode()), Ok(sent));
        }
    }

    #[test]
    fn a_stranger_is_not_an_agent() {
        let mut bytes = opening(1, 1).encode();
        bytes[3] ^= 1;
        assert_eq!(Opening::decode(&bytes), Err(DecodeError::NotAnAgent));
        let mut bytes = opening(1, 1).encode();
        bytes[OPENING_LEN - 5] = 6;
        assert!(matches!(
            Opening::decode(&bytes),
            Err(DecodeError::Unknown { value: 6, .. })
        ));
    }
}
