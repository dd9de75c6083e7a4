//! The command line of Mortar: servers, tools and operators' commands. The package `mortar` makes the binary of it.
//!
//! `args` defines the command line, `commands` has one module for each command, and `tree` converts between files and
//! objects. Every command ends with a `failure::Failure` or prints `output::Report`s; all output to the user goes
//! through these.

mod args;
mod commands;
mod connection;
mod distinct_json;
mod etag;
mod failure;
mod help;
mod link_values;
mod output;
mod password;
mod progress;
mod quota_limit;
mod record_json;
mod record_reader;
mod serving;
mod settings;
mod stream;
mod target;
mod time;
mod tree;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::commands::{
    attr, backup, cert, class, cluster, collection, dev, events, evolve, exercise, get, index, job, ls, member, mv,
    name, node, object, put, query, redirector, relay, remap, repair, rm, scrub, shell, space, stat, status,
    tree as trees, user,
};
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::serving::Signals;

#[global_allocator]
static ALLOCATOR: allocator::SwitchingAllocator = allocator::SwitchingAllocator;

/// Runs the command of the process's arguments, and returns its exit code.
#[must_use]
pub fn run_command_line() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::parse_words(&words) {
        Ok(cli) => cli,
        Err(error) => return report_clap_error(&error, &words),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it: `mortar ls | head`.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure, json),
    }
}

/// Prints a failure on the error stream.
fn print_failure(failure: &Failure, json: bool) -> ExitCode {
    let mut stderr = io::stderr().lock();
    // An error of the error stream itself cannot be reported.
    let _ = if json { writeln!(stderr, "{}", failure.to_json()) } else { writeln!(stderr, "{failure}") };
    ExitCode::from(failure.exit() as u8)
}

/// Handles a wrong command line, or a request for help.
fn report_clap_error(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let asks = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if !asks && words.iter().any(|word| word == "--json") {
        let text = error.to_string();
        // The first part is the problem with its arguments; usage and hints follow.
        let what = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        let message = what.split_whitespace().collect::<Vec<_>>().join(" ");
        return print_failure(&Failure::usage(message).hint("See --help."), true);
    }
    // To the standard output or the error stream, depending on the kind; a closed one is ignored.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::Exit::Usage as u8))
}

fn run(cli: Cli) -> Result {
    let output = Output::new(cli.global.json, cli.global.quiet);
    let mut session = CommandContext::new(output, &cli.global);
    match cli.command {
        Command::Dev(args) => dev::run(&args, &mut session.output)?,
        Command::Node(args) => node::run(*args, &mut session.output)?,
        Command::Restore(args) => backup::restore(&args, &mut session.output)?,
        Command::Repair(args) => repair::run(&args, &mut session.output)?,
        Command::Cert(args) => cert::run(&args, &mut session.output)?,
        Command::Relay(args) => relay::run(&args, &mut session.output)?,
        Command::Completions(args) => shell::completions(&args, &mut session.output)?,
        Command::Man(args) => shell::man(&args, &mut session.output)?,
        command => {
            // One thread drives the connection; files are read and written by others.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|e| Failure::file("cannot start", &e))?;
            let done = runtime.block_on(async {
                let done = run_interruptible(command, &mut session).await;
                session.close_clients().await;
                done
            });
            // Threads need a moment to clean up; one that waits for input gets no longer.
            runtime.shutdown_timeout(CLEANUP_TIMEOUT);
            // Output before a failure is shown before it. The failure takes precedence over errors of output.
            let printed = session.output.flush();
            done?;
            return printed;
        }
    }
    session.output.flush()
}

/// How long a command that has ended waits for its threads.
const CLEANUP_TIMEOUT: Duration = Duration::from_millis(200);

/// Runs a command that talks to a server, until it ends or Ctrl-C or SIGTERM stops it.
///
/// Commands that can be stopped at any time keep the default action of SIGINT, also while they wait for input.
async fn run_interruptible(command: Command, session: &mut CommandContext) -> Result {
    let (message, hint) = match &command {
        Command::Import(_) => {
            ("stopped; what was imported so far is complete and stays", "The same command continues from there.")
        }
        // It removes its clone first.
        Command::Export(args) if args.is_of_moment() => return run_with_server(command, session).await,
        Command::Export(_) => ("stopped; what was written so far stays", "--overwrite writes everything again."),
        Command::Backup(args) if args.follows() => return run_with_server(command, session).await,
        Command::Backup(_) => ("stopped; no archive was written", "The archive appears only when it is complete."),
        Command::Remap(_) => {
            ("stopped; moves continue", "`mortar remap` shows them, `mortar remap --cancel` cancels them.")
        }
        Command::Exercise(_) => ("stopped; the coins were not counted", "Run it again to count them."),
        Command::Get(args) if args.writes_file() => {
            ("stopped; no file was written", "The file appears only when it is complete.")
        }
        _ => return run_with_server(command, session).await,
    };
    let mut signals = Signals::listen()?;
    tokio::select! {
        done = run_with_server(command, session) => done,
        () = signals.next() => Err(Failure::interrupted(message).hint(hint)),
    }
}

/// Runs a command that uses a server.
async fn run_with_server(command: Command, session: &mut CommandContext) -> Result {
    match command {
        Command::Put(args) => put::run(args, session).await,
        Command::Get(args) => get::run(args, session).await,
        Command::Ls(args) => ls::run(args, session).await,
        Command::Stat(args) => stat::run(args, session).await,
        Command::Mv(args) => mv::run(args, session).await,
        Command::Rm(args) => rm::run(args, session).await,
        Command::Attr(args) => attr::run(args, session).await,
        Command::Collection(args) => collection::run(args, session).await,
        Command::Name(args) => name::run(args, session).await,
        Command::Space(args) => space::run(args, session).await,
        Command::Exercise(args) => exercise::run(args, session).await,
        Command::Events(args) => events::run(args, session).await,
        Command::Evolve(args) => evolve::run(args, session).await,
        Command::Object(args) => object::run(args, session).await,
        Command::Class(args) => class::run(args, session).await,
        Command::Index(args) => index::run(args, session).await,
        Command::Job(args) => job::run(args, session).await,
        Command::Query(args) => query::run(args, session).await,
        Command::Cluster(args) => cluster::run(args, session).await,
        Command::Remap(args) => remap::run(args, session).await,
        Command::Brick(args) => member::run_brick(args, session).await,
        Command::Peer(args) => member::run_peer(args, session).await,
        Command::Redirector(args) => redirector::run(args, session).await,
        Command::User(args) => user::run(args, session).await,
        Command::Group(args) => user::run_group(args, session).await,
        Command::Import(args) => trees::import(args, session).await,
        Command::Export(args) => trees::export(args, session).await,
        Command::Verify(args) => trees::verify(args, session).await,
        Command::Backup(args) => backup::backup(args, session).await,
        Command::Scrub(args) => scrub::run(args, session).await,
        Command::Status(args) => status::run(args, session).await,
        // These commands need no connection and were run before.
        Command::Dev(_) | Command::Node(_) | Command::Restore(_) | Command::Repair(_) => Ok(()),
        Command::Completions(_) | Command::Man(_) | Command::Cert(_) | Command::Relay(_) => Ok(()),
    }
}
