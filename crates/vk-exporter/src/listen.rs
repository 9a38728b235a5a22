//! Where metrics are served.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes of a Unix socket's path at most.
pub const SOCKET_PATH_BYTES: usize = 107;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket, mode 0660.
    Unix(PathBuf),
}

/// An address that is none, or one that others reach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Neither form.
    #[error("{0:?} is neither an address like 127.0.0.1:9252 nor unix: with an absolute path")]
    Nonsense(String),
    /// Not loopback.
    #[error("{0} can be reached from elsewhere: use a loopback address, or unix: with a path")]
    Open(SocketAddr),
    /// A path that no socket can have.
    #[error("a Unix socket's path has at most {SOCKET_PATH_BYTES} bytes")]
    Long,
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        if let Some(path) = text
            .strip_prefix("unix:")
            .filter(|path| path.starts_with('/'))
        {
            return match path.len() {
                ..=SOCKET_PATH_BYTES => Ok(Listen::Unix(PathBuf::from(path))),
                _ => Err(ListenError::Long),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Listen::Tcp(address)),
            Ok(address) => Err(ListenError::Open(address)),
            Err(_) => Err(ListenError::Nonsense(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_on_this_host_is_listened_on() {
        let listen = |text: &str| text.parse::<Listen>();
        assert_eq!(
            listen("127.0.0.1:9252"),
            Ok(Listen::Tcp(([127, 0, 0, 1], 9252).into()))
        );
        assert!(listen("[::1]:9252").is_ok());
        assert_eq!(
            listen("unix:/run/vk/m"),
            Ok(Listen::Unix("/run/vk/m".into()))
        );
        for open in ["0.0.0.0:9252", "192.0.2.1:9252", "[::]:9252"] {
            assert!(matches!(listen(open), Err(ListenError::Open(_))), "{open}");
        }
        for nonsense in ["", "localhost", "unix:m", "9252"] {
            assert!(
                matches!(listen(nonsense), Err(ListenError::Nonsense(_))),
                "{nonsense}"
            );
        }
        let path = |bytes: usize| format!("unix:/{}", "m".repeat(bytes - 1));
        assert!(listen(&path(SOCKET_PATH_BYTES)).is_ok());
        assert_eq!(listen(&path(SOCKET_PATH_BYTES + 1)), Err(ListenError::Long));
    }
}
