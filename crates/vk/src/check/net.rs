//! Can guests be given a network.

use vk_net::{Needs, NetError};
use vk_node::config::{Config, Network};
use vk_vm::programs::find;

use super::{Found, chain};

pub(super) fn network(config: &Config) -> Found {
    match config.vm.network {
        Network::None => return Found::skipped("guests have none: [net] mode = \"none\""),
        Network::Switch => {}
    }
    if config.vm.process_agent.is_some() || config.vm.unconfined {
        let (key, what) = if config.vm.unconfined {
            ("executor.vm.unconfined", "networks need confined VMs")
        } else {
            ("executor.vm.process_agent", "networks are for VMs")
        };
        let remedy = format!("leave {key} out, or [net] mode = \"switch\"");
        return Found::fail(what, remedy);
    }
    match Needs::check(find) {
        Ok(_) => Found::ok("pasta, nft, ip and /dev/net/tun; the boot's guest has one"),
        Err(error) => {
            let remedy = match &error {
                NetError::NoProgram { package, .. } => {
                    format!("on Debian: apt-get install {package}")
                }
                // It says what to do as well.
                _ => String::new(),
            };
            Found::fail(chain(error), remedy)
        }
    }
}
