//! From an error number to a [`Failure`] that says what was tried.

use rustix::io::Errno;
use vk_guest_proto::{Failure, FailureCode};

/// The code that the host decides on.
pub(crate) fn code_of(errno: Errno) -> FailureCode {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO => FailureCode::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => FailureCode::Denied,
        Errno::NOSPC | Errno::DQUOT => FailureCode::NoSpace,
        Errno::TOOBIG | Errno::FBIG | Errno::NAMETOOLONG => FailureCode::TooLarge,
        Errno::XDEV | Errno::LOOP => FailureCode::Escapes,
        Errno::NOSYS | Errno::OPNOTSUPP => FailureCode::Unsupported,
        Errno::NOEXEC => FailureCode::NotExecutable,
        Errno::INVAL => FailureCode::Invalid,
        _ => FailureCode::Io,
    }
}

/// Adds to an error what was tried.
pub(crate) trait OrFail<T> {
    /// The value, or a failure whose message is `tried`, a colon and the reason.
    fn or_fail(self, tried: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> OrFail<T> for Result<T, Errno> {
    fn or_fail(self, tried: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|errno| {
            let reason = std::io::Error::from(errno);
            Failure::new(code_of(errno), format!("{}: {reason}", tried()))
        })
    }
}

impl<T> OrFail<T> for std::io::Result<T> {
    fn or_fail(self, tried: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            let code = error.raw_os_error().map_or(FailureCode::Io, |raw| {
                code_of(Errno::from_raw_os_error(raw))
            });
            Failure::new(code, format!("{}: {error}", tried()))
        })
    }
}

/// Bytes of a path or a name as text for a message.
pub(crate) fn shown(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A failure of a code.
pub(crate) fn fail<T>(code: FailureCode, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(code, message))
}
