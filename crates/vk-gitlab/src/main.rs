//! `vk-gitlab`: arguments and start-up only; the daemon itself is the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match vk_gitlab::run(vk_gitlab::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vk-gitlab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
