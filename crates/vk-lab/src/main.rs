//! `vk-lab`: arguments and start-up only; the stand-in itself is the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    vk_lab::run(vk_lab::Cli::parse())
}
