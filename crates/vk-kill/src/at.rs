use std::str::FromStr;

/// Where between a step's records and effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Before the step's records are written.
    Before,
    /// After the sync, before the step's first effect.
    Synced,
    /// After the effect; of a record, after its step's first effect.
    After,
}

/// One moment to die at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The record's or effect's variant.
    pub variant: String,
    /// Where.
    pub boundary: Boundary,
    /// The how-many-th time, from 1.
    pub nth: u64,
}

/// A text that names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VK_KILL_AT={0:?} must look like <Variant>:<before|synced|after>:<n>, n from 1")]
pub struct AtError(pub String);

impl FromStr for At {
    type Err = AtError;

    fn from_str(text: &str) -> Result<At, AtError> {
        let refuse = || AtError(text.to_owned());
        let mut parts = text.split(':');
        let (Some(variant), Some(boundary), Some(nth), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        let boundary = match boundary {
            "before" => Boundary::Before,
            "synced" => Boundary::Synced,
            "after" => Boundary::After,
            _ => return Err(refuse()),
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(refuse)?;
        if variant.is_empty() {
            return Err(refuse());
        }
        Ok(At {
            variant: variant.to_owned(),
            boundary,
            nth,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_a_variant_a_boundary_and_a_count() {
        let at: At = "JobStarting:synced:2".parse().unwrap();
        let expected = At {
            variant: "JobStarting".into(),
            boundary: Boundary::Synced,
            nth: 2,
        };
        assert_eq!(at, expected);
        for bad in [
            "",
            "X",
            "X:synced",
            "X:synced:0",
            "X:soon:1",
            ":before:1",
            "X:after:1:2",
        ] {
            assert!(bad.parse::<At>().is_err(), "{bad}");
        }
    }
}
