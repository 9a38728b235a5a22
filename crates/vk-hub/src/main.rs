//! `vk-hub`: arguments and start-up only; the hub itself is the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match vk_hub::run(vk_hub::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vk-hub: {error:#}");
            ExitCode::FAILURE
        }
    }
}
