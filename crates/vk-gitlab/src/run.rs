//! From arguments to what they ask for.

use anyhow::Context as _;

use crate::cli::{Cli, Command, ConfigCommand};
use crate::config::Config;
use crate::{enrol, jobs, log, operator, start};

/// Does what the command line asks for.
///
/// # Errors
/// It could not be done; the message says why and what to do.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let (config, warnings) = Config::read(&cli.config)?;
    let runtime = || tokio::runtime::Runtime::new().context("the runtime cannot be started");
    match cli.command {
        Command::Run => {
            log::start(&cli.log_level, cli.log_format)?;
            warnings
                .iter()
                .for_each(|warning| tracing::warn!("{warning}"));
            runtime()?.block_on(start::run(config, &cli.config))
        }
        Command::Verify => runtime()?.block_on(start::verify(config)),
        Command::Config {
            command: ConfigCommand::Check,
        } => {
            warnings
                .iter()
                .for_each(|warning| eprintln!("warning: {warning}"));
            operator::check(&config)?;
            println!(
                "{}: {} runner(s), no fault found",
                cli.config.display(),
                config.runners.len()
            );
            Ok(())
        }
        Command::Jobs { json } => jobs::show(&config, json),
        Command::Join {
            hub,
            token,
            ca,
            replace,
        } => {
            enrol::refuse_argument(&token)?;
            let join = enrol::join(&config, &hub, std::io::stdin(), ca.as_deref(), replace);
            runtime()?.block_on(join)
        }
        Command::Leave => enrol::leave(&config),
    }
}
