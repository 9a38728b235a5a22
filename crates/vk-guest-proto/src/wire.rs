//! How a field lies in a body: little-endian integers, strings and lists behind a `u32` count,
//! options and flags as one byte. A coding is a type without values that names form and bound.

use std::marker::PhantomData;

use crate::error::{DecodeError, EncodeError};
use crate::opaque::Opaque;
use crate::opening::HIGHEST_VERSION;

/// What is left of a body.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(n) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(DecodeError::Truncated {
                what,
                missing: n - self.rest.len(),
            }),
        }
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let [b] = self.array(what)?;
        Ok(b)
    }

    /// A count that is within its bound.
    fn count(&mut self, what: &'static str, max: usize) -> Result<usize, DecodeError> {
        let said = u32::from_le_bytes(self.array(what)?);
        let len = usize::try_from(said).unwrap_or(usize::MAX);
        if len > max {
            return Err(DecodeError::TooLong { what, len, max });
        }
        Ok(len)
    }

    /// Says that nothing may be left.
    pub(crate) fn done(self, what: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { what, count }),
        }
    }
}

/// What `value` of `what` is when nobody knows it.
pub(crate) fn unknown(what: &'static str, value: u8) -> DecodeError {
    DecodeError::Unknown {
        what,
        value,
        version: HIGHEST_VERSION,
    }
}

fn put_count(
    what: &'static str,
    len: usize,
    max: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let too_long = EncodeError::TooLong { what, len, max };
    if len > max {
        return Err(too_long);
    }
    let count = u32::try_from(len).map_err(|_| too_long)?;
    out.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

/// A value with a form of its own on the wire.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// How a field of type `T` is written; `what` names the field in errors.
pub(crate) trait Coding<T> {
    fn put(what: &'static str, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<T, DecodeError>;
}

/// The value's own [`Wire`] form.
pub(crate) struct Own;

impl<T: Wire> Coding<T> for Own {
    fn put(_: &'static str, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        value.put(out)
    }
    fn get(_: &'static str, from: &mut Reader<'_>) -> Result<T, DecodeError> {
        T::get(from)
    }
}

/// An integer, little-endian.
pub(crate) struct Int;

macro_rules! int {
    ($($t:ty),*) => {$(
        impl Coding<$t> for Int {
            fn put(_: &'static str, value: &$t, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            fn get(what: &'static str, from: &mut Reader<'_>) -> Result<$t, DecodeError> {
                Ok(<$t>::from_le_bytes(from.array(what)?))
            }
        }
    )*};
}
int!(u8, u32, u64, i32, i64);

/// A flag: one byte, 0 or 1.
pub(crate) struct Flag;

impl Coding<bool> for Flag {
    fn put(_: &'static str, value: &bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(*value));
        Ok(())
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<bool, DecodeError> {
        match from.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(unknown(what, other)),
        }
    }
}

/// Any bytes, at most `MAX` of them.
pub(crate) struct Bytes<const MAX: usize>;

impl<const MAX: usize> Coding<Vec<u8>> for Bytes<MAX> {
    fn put(what: &'static str, value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_count(what, value.len(), MAX, out)?;
        out.extend_from_slice(value);
        Ok(())
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
        let len = from.count(what, MAX)?;
        Ok(from.take(len, what)?.to_vec())
    }
}

impl<const MAX: usize> Coding<Opaque> for Bytes<MAX> {
    fn put(what: &'static str, value: &Opaque, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_count(what, value.len(), MAX, out)?;
        out.extend_from_slice(value);
        Ok(())
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<Opaque, DecodeError> {
        <Self as Coding<Vec<u8>>>::get(what, from).map(Opaque::from)
    }
}

/// UTF-8, at most `MAX` bytes of it.
pub(crate) struct Text<const MAX: usize>;

impl<const MAX: usize> Coding<String> for Text<MAX> {
    fn put(what: &'static str, value: &String, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_count(what, value.len(), MAX, out)?;
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<String, DecodeError> {
        let bytes = <Bytes<MAX> as Coding<Vec<u8>>>::get(what, from)?;
        String::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8 { what })
    }
}

/// A list of at most `MAX` values, each coded as `C` says.
pub(crate) struct List<C, const MAX: usize>(PhantomData<C>);

impl<T, C: Coding<T>, const MAX: usize> Coding<Vec<T>> for List<C, MAX> {
    fn put(what: &'static str, value: &Vec<T>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_count(what, value.len(), MAX, out)?;
        value.iter().try_for_each(|one| C::put(what, one, out))
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<Vec<T>, DecodeError> {
        // Grows as items are really there: a count alone allocates nothing.
        let mut list = Vec::new();
        for _ in 0..from.count(what, MAX)? {
            list.push(C::get(what, from)?);
        }
        Ok(list)
    }
}

/// A value that may be absent: a flag, then the value.
pub(crate) struct Opt<C>(PhantomData<C>);

impl<T, C: Coding<T>> Coding<Option<T>> for Opt<C> {
    fn put(what: &'static str, value: &Option<T>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Flag::put(what, &value.is_some(), out)?;
        value.iter().try_for_each(|one| C::put(what, one, out))
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<Option<T>, DecodeError> {
        Flag::get(what, from)?
            .then(|| C::get(what, from))
            .transpose()
    }
}
