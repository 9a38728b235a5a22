//! The kernel's command line: `vk.dial=vsock:CID:PORT`, `vk.action=poweroff`,
//! `vk.net=ADDRESS/LENGTH,GATEWAY`.

use vk_guest_proto::{Failure, FailureCode};

use super::network::Network;
use crate::context::{fail, shown};
use crate::dial::Address;

/// What the agent is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// To serve the host.
    Serve,
    /// To power off at once: the bare boot that others are measured against, and the probe whether
    /// a hypervisor works.
    PowerOff,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) dial: Address,
    pub(super) action: Action,
    pub(super) network: Option<Network>,
}

impl CommandLine {
    /// Reads it; words that are not the agent's are the kernel's.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Failure> {
        // The well-known context of a host, and the port that vk uses by default.
        let mut dial = Address::Vsock { cid: 2, port: 1024 };
        let mut action = Action::Serve;
        let mut network = None;
        for word in line.split(u8::is_ascii_whitespace) {
            if let Some(address) = word.strip_prefix(b"vk.dial=") {
                let Some(address) = Address::parse(address) else {
                    let message = format!("{} on the command line cannot be read", shown(word));
                    return fail(FailureCode::Invalid, message);
                };
                dial = address;
            } else if let Some(value) = word.strip_prefix(b"vk.net=") {
                network = Network::parse(value);
                if network.is_none() {
                    let message = format!("{} on the command line cannot be read", shown(word));
                    return fail(FailureCode::Invalid, message);
                }
            } else if let Some(name) = word.strip_prefix(b"vk.action=") {
                action = match name {
                    b"serve" => Action::Serve,
                    b"poweroff" => Action::PowerOff,
                    _ => {
                        let message = format!("{} on the command line is not known", shown(word));
                        return fail(FailureCode::Invalid, message);
                    }
                };
            }
        }
        Ok(Self {
            dial,
            action,
            network,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_words_are_found_among_the_kernels() {
        let line = CommandLine::parse(b"console=ttyS0 vk.dial=vsock:2:77 panic=-1\n").unwrap();
        assert_eq!(line.dial, Address::Vsock { cid: 2, port: 77 });
        assert_eq!(line.action, Action::Serve);
        let line = CommandLine::parse(b"vk.action=poweroff").unwrap();
        assert_eq!(line.action, Action::PowerOff);
        assert_eq!(line.dial, Address::Vsock { cid: 2, port: 1024 });
    }

    #[test]
    fn a_word_of_the_agents_that_cannot_be_read_is_an_error() {
        for line in ["vk.dial=", "vk.dial=tcp:1", "vk.action=fly", "vk.net=eth0"] {
            assert!(CommandLine::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
