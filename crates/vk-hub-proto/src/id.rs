//! Identifiers: 16 bytes, written as 32 lowercase hexadecimal digits and in no other way (API-55).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hex;

/// An identifier in another spelling than 32 lowercase hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 32 lowercase hexadecimal digits")]
pub struct IdError {
    /// Which identifier was expected.
    pub what: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The identifier made of these bytes; the caller draws them.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(bytes)
            }

            /// The identifier's bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex::write(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                hex::read(text).map($name).ok_or(IdError { what: $what })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A node, as the hub enrolled it.
    NodeId,
    "a node ID"
);
id!(
    /// A relay: one enrolled `vk-gitlab`.
    RelayId,
    "a relay ID"
);
id!(
    /// A job on the hub, not GitLab's number for it.
    JobId,
    "a job ID"
);
id!(
    /// An envelope held on a node.
    ReservationId,
    "a reservation ID"
);
id!(
    /// Makes a create idempotent (API-45).
    RequestId,
    "a request ID"
);
id!(
    /// A steering command to a node.
    CommandId,
    "a command ID"
);
id!(
    /// One life of a process that holds a session.
    Incarnation,
    "an incarnation"
);
