//! PAX extended headers: records of `length key=value\n`, binary values included.

use std::collections::BTreeMap;

use crate::data::Segments;
use crate::error::Fault;
use crate::metadata::Timestamp;

/// What an extended header says that images keep. A record with an empty value takes back an
/// earlier one of the same key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) sparse: PaxSparse,
}

/// GNU tar's three ways to write a sparse file into PAX records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    /// 1 for the way whose map stands before the data.
    pub(super) major: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// Of the two ways whose map stands in records.
    pub(super) segments: Option<Segments>,
    offset: Option<u64>,
}

impl PaxSparse {
    /// Whether the entry is a sparse file at all.
    pub(super) fn is_present(&self) -> bool {
        self.segments.is_some() || self.major == Some(1)
    }
}

/// Bounds of one header's content.
pub(super) struct PaxLimits {
    pub(super) xattrs: usize,
    pub(super) segments: usize,
}

impl Pax {
    pub(super) fn parse(mut bytes: &[u8], limits: &PaxLimits) -> Result<Self, Fault> {
        let mut pax = Self::default();
        while !bytes.is_empty() {
            // Some writers fill the header up with zeros.
            if bytes.iter().all(|byte| *byte == 0) {
                break;
            }
            let (record, rest) = split_record(bytes).ok_or(Fault::Pax)?;
            let equals = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or(Fault::Pax)?;
            let (key, value) = record.split_at(equals);
            pax.set(key, value.get(1..).unwrap_or_default(), limits)?;
            bytes = rest;
        }
        Ok(pax)
    }

    fn set(&mut self, key: &[u8], value: &[u8], limits: &PaxLimits) -> Result<(), Fault> {
        match key {
            b"path" => self.path = text(value)?,
            b"linkpath" => self.link = text(value)?,
            b"size" => self.size = optional(value, Fault::Size)?,
            b"uid" => self.uid = optional(value, Fault::Owner)?,
            b"gid" => self.gid = optional(value, Fault::Owner)?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(timestamp(value).ok_or(Fault::Time)?),
            b"GNU.sparse.major" => self.sparse.major = optional(value, Fault::SparseMap)?,
            b"GNU.sparse.name" => self.sparse.name = text(value)?,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                self.sparse.real_size = optional(value, Fault::SparseMap)?;
            }
            b"GNU.sparse.offset" => self.sparse.offset = optional(value, Fault::SparseMap)?,
            b"GNU.sparse.numbytes" => self.add_segment(value, limits)?,
            b"GNU.sparse.map" => self.sparse.segments = Some(map(value, limits)?),
            _ => self.set_xattr(key, value, limits)?,
        }
        Ok(())
    }

    fn set_xattr(&mut self, key: &[u8], value: &[u8], limits: &PaxLimits) -> Result<(), Fault> {
        let Some(name) = key.strip_prefix(b"SCHILY.xattr.") else {
            return Ok(());
        };
        if name.is_empty() || name.contains(&0) || self.xattrs.len() >= limits.xattrs {
            return Err(Fault::Xattr);
        }
        self.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn add_segment(&mut self, value: &[u8], limits: &PaxLimits) -> Result<(), Fault> {
        let offset = self.sparse.offset.take().ok_or(Fault::SparseMap)?;
        let length = number(value).ok_or(Fault::SparseMap)?;
        let segments = self.sparse.segments.get_or_insert_default();
        if segments.len() >= limits.segments {
            return Err(Fault::SparseMap);
        }
        segments.push((offset, length));
        Ok(())
    }
}

/// The first record's `key=value` and what follows the record.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(bytes.get(..space)?)?).ok()?;
    let body = bytes.get(space + 1..length)?;
    Some((body.strip_suffix(b"\n")?, bytes.get(length..)?))
}

fn map(value: &[u8], limits: &PaxLimits) -> Result<Segments, Fault> {
    let mut numbers = value.split(|byte| *byte == b',');
    let mut segments = Vec::new();
    while let Some(offset) = numbers.next().filter(|text| !text.is_empty()) {
        let offset = number(offset).ok_or(Fault::SparseMap)?;
        let length = numbers.next().and_then(number).ok_or(Fault::SparseMap)?;
        if segments.len() >= limits.segments {
            return Err(Fault::SparseMap);
        }
        segments.push((offset, length));
    }
    Ok(segments)
}

fn text(value: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    match value {
        b"" => Ok(None),
        value if value.contains(&0) => Err(Fault::Name),
        value => Ok(Some(value.to_vec())),
    }
}

fn optional<N: TryFrom<u64>>(value: &[u8], fault: Fault) -> Result<Option<N>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let value = number(value).and_then(|value| N::try_from(value).ok());
    value.map(Some).ok_or(fault)
}

/// A decimal number, digits only.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Seconds with an optional sign and fraction; digits after the ninth are cut off.
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let secs = i64::try_from(number(parts.next()?)?).ok()?;
    let nanos = match parts.next() {
        None | Some(b"") => 0,
        Some(fraction) => nanoseconds(fraction)?,
    };
    Some(match (negative, nanos) {
        (false, nanos) => Timestamp { secs, nanos },
        (true, 0) => Timestamp {
            secs: -secs,
            nanos: 0,
        },
        (true, nanos) => Timestamp {
            secs: -secs - 1,
            nanos: 1_000_000_000 - nanos,
        },
    })
}

fn nanoseconds(fraction: &[u8]) -> Option<u32> {
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(9);
    Some(digits.fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PaxLimits = PaxLimits {
        xattrs: 2,
        segments: 3,
    };

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        let mut length = body + 1;
        while body + length.to_string().len() != length {
            length += 1;
        }
        let mut out = format!("{length} {key}=").into_bytes();
        out.extend_from_slice(value);
        out.push(b'\n');
        out
    }

    fn parse(records: &[(&str, &[u8])]) -> Result<Pax, Fault> {
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|(key, value)| record(key, value))
            .collect();
        Pax::parse(&bytes, &LIMITS)
    }

    #[test]
    fn binary_values_with_newlines_and_equals_are_kept() {
        let value = b"a\nb=c\0d";
        let pax = parse(&[("SCHILY.xattr.user.x", value), ("path", b"p=q\nr")]).unwrap();
        assert_eq!(pax.xattrs[&b"user.x"[..]], value);
        assert_eq!(pax.path.unwrap(), b"p=q\nr");
    }

    #[test]
    fn times_keep_their_nanoseconds_on_both_sides_of_1970() {
        let time = |text: &str| timestamp(text.as_bytes()).map(|time| (time.secs, time.nanos));
        assert_eq!(
            time("1350244992.023960108"),
            Some((1_350_244_992, 23_960_108))
        );
        assert_eq!(time("12.5"), Some((12, 500_000_000)));
        assert_eq!(time("-1.5"), Some((-2, 500_000_000)));
        assert_eq!(time("-3"), Some((-3, 0)));
        assert_eq!(time("1.0000000019"), Some((1, 1)));
        assert_eq!(time("1.x"), None);
        assert_eq!(time("--1"), None);
        assert_eq!(time(""), None);
    }

    #[test]
    fn a_lying_record_length_is_refused() {
        for bytes in [
            &b"99 path=x\n"[..],
            b"5 path=x\n",
            b"x path=x\n",
            b"10 path=xx",
            b"0 \n",
        ] {
            assert_eq!(Pax::parse(bytes, &LIMITS), Err(Fault::Pax), "{bytes:?}");
        }
        assert_eq!(
            Pax::parse(b"99999999999999999999 path=x\n", &LIMITS),
            Err(Fault::Pax)
        );
    }

    #[test]
    fn attributes_and_segments_are_bounded() {
        let three = [
            ("SCHILY.xattr.user.a", &b"1"[..]),
            ("SCHILY.xattr.user.b", b"1"),
            ("SCHILY.xattr.user.c", b"1"),
        ];
        assert_eq!(parse(&three), Err(Fault::Xattr));
        assert_eq!(
            parse(&[("GNU.sparse.map", b"0,1,2,1,4,1,6,1")]),
            Err(Fault::SparseMap)
        );
        assert_eq!(parse(&[("uid", b"4294967296")]), Err(Fault::Owner));
        assert_eq!(parse(&[("path", b"a\0b")]), Err(Fault::Name));
    }

    #[test]
    fn an_empty_value_takes_a_record_back() {
        let pax = parse(&[("path", b"a"), ("path", b""), ("uid", b"7"), ("uid", b"")]).unwrap();
        assert_eq!(pax, Pax::default());
    }
}
