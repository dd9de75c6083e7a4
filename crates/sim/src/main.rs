//! `mortar-sim`: runs whole clusters from seeds and scenarios, and checks what their clients observed.

mod campaign;
mod commands;
mod interrupt;
mod screen;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An error ends a command with its text; its kind is irrelevant.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Runs whole Mortar clusters, each in one thread from one seed, and checks what their clients observed.
///
/// The exit code is 0 if nothing is wrong, 1 if a check failed, 2 if the arguments or a file are invalid. Ctrl-C stops
/// after the seeds that are running, prints the results so far, and exits with 130; a second one stops at once.
#[derive(Parser)]
#[command(name = "mortar-sim", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  mortar-sim run --seeds 0..1000                        all kinds of runs by turns
  mortar-sim run --seeds 0..500 --topology group --workload bank --faults crashes
  mortar-sim run --seeds 0..500 --bug NoDoom            is this mistake noticed, and how?
  mortar-sim run --seeds 7 --history seven.jsonl        what the clients of one run saw
  mortar-sim check seven.jsonl                          judge a history, whoever wrote it
  mortar-sim scenario sim-failures/seed-7.txt --trace   run a schedule, show every message
  mortar-sim cost --bricks 1,2,4,8                      how throughput grows, in a model of costs
  mortar-sim nightly                                    20,000 seeds, and all scenarios";

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Arguments),
    Scenario(commands::scenario::Arguments),
    Check(commands::check::Arguments),
    Bugs(commands::bugs::Arguments),
    Cost(commands::cost::Arguments),
    Nightly(commands::nightly::Arguments),
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandResult {
    Clean,
    Failed,
}

fn main() -> ExitCode {
    interrupt::listen();
    let found = match Arguments::parse().command {
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Scenario(arguments) => commands::scenario::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Bugs(arguments) => commands::bugs::run(&arguments),
        Command::Cost(arguments) => commands::cost::run(&arguments),
        Command::Nightly(arguments) => commands::nightly::run(&arguments),
    };
    match found {
        // What was not run was not found right.
        Ok(CommandResult::Clean) if interrupt::is_requested() => ExitCode::from(130),
        Ok(CommandResult::Clean) => ExitCode::SUCCESS,
        Ok(CommandResult::Failed) => ExitCode::from(1),
        Err(error) => {
            screen::status(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
