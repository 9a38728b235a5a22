//! The guest's init, and the same program for hands: `vk-agent process`, `archive`, `extract`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use vk_agent::command::{Command, parse};
use vk_agent::{boot, command, fault};

fn main() -> ExitCode {
    boot::fill_standard_descriptors();
    let arguments: Vec<Vec<u8>> = std::env::args_os()
        .map(std::os::unix::ffi::OsStringExt::into_vec)
        .collect();
    let init = rustix::process::getpid().is_init();
    match parse(&arguments, init) {
        Ok(Command::Init) => {
            std::panic::set_hook(Box::new(|panic| {
                fault::last_words(&panic.to_string());
                boot::power_off();
            }));
            boot::run()
        }
        Ok(command) => {
            std::panic::set_hook(Box::new(|panic| {
                fault::last_words(&panic.to_string());
                std::process::abort();
            }));
            command::run(command)
        }
        Err(why) => {
            fault::log(&why);
            ExitCode::from(2)
        }
    }
}
