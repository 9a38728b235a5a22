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

/// Which of a core's two enums a variant belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What is kept.
    Record,
    /// What is done.
    Effect,
}

/// One moment to die at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The core, where one is named.
    pub core: Option<String>,
    /// The enum, where one is named.
    pub kind: Option<Kind>,
    /// The record's or effect's variant.
    pub variant: String,
    /// Where.
    pub boundary: Boundary,
    /// The how-many-th time, from 1.
    pub nth: u64,
    /// The program holds still there instead of dying.
    pub holds: bool,
}

/// A text that names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "VK_KILL_AT={0:?} must look like [<core>.][Record.|Effect.]<Variant>:<before|synced|after>:<n>, \
     n from 1, or be @ and a file that may say so, with :hold behind it where it is not to die"
)]
pub struct AtError(pub String);

impl At {
    /// Whether this is the variant meant.
    #[must_use]
    pub fn names(&self, core: &str, kind: Kind, variant: &str) -> bool {
        self.variant == variant
            && self.kind.is_none_or(|named| named == kind)
            && self.core.as_deref().is_none_or(|named| named == core)
    }
}

impl FromStr for At {
    type Err = AtError;

    fn from_str(text: &str) -> Result<At, AtError> {
        let refuse = || AtError(text.to_owned());
        let mut parts = text.trim_end().split(':');
        let (Some(name), Some(boundary), Some(nth)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        let holds = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some("hold"), None) => true,
            _ => return Err(refuse()),
        };
        let boundary = match boundary {
            "before" => Boundary::Before,
            "synced" => Boundary::Synced,
            "after" => Boundary::After,
            _ => return Err(refuse()),
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(refuse)?;
        let (mut core, mut kind) = (None, None);
        let (before, variant) = name.rsplit_once('.').unwrap_or(("", name));
        for word in before.split('.').filter(|word| !word.is_empty()) {
            match word {
                "Record" => kind = Some(Kind::Record),
                "Effect" => kind = Some(Kind::Effect),
                _ => core = Some(word.to_owned()),
            }
        }
        if variant.is_empty() {
            return Err(refuse());
        }
        Ok(At {
            core,
            kind,
            variant: variant.to_owned(),
            boundary,
            nth,
            holds,
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
            core: None,
            kind: None,
            variant: "JobStarting".into(),
            boundary: Boundary::Synced,
            nth: 2,
            holds: false,
        };
        assert_eq!(at, expected);
        let holding = At {
            holds: true,
            ..expected
        };
        assert_eq!("JobStarting:synced:2:hold".parse(), Ok(holding));
        for bad in [
            "",
            "X",
            "X:synced",
            "X:synced:0",
            "X:soon:1",
            ":before:1",
            "Effect.:before:1",
            "X:after:1:2",
            "X:after:1:hold:1",
        ] {
            assert!(bad.parse::<At>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_in_several_enums_is_told_apart_where_it_is_asked() {
        let any: At = "Removed:after:1".parse().unwrap();
        assert!(any.names("job", Kind::Record, "Removed"));
        assert!(any.names("acquire", Kind::Effect, "Removed"));
        assert!(!any.names("job", Kind::Record, "Taken"));
        let one: At = "job.Effect.Removed:after:1".parse().unwrap();
        assert!(one.names("job", Kind::Effect, "Removed"));
        assert!(!one.names("job", Kind::Record, "Removed"));
        assert!(!one.names("acquire", Kind::Effect, "Removed"));
    }
}
