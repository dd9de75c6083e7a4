//! The command line as a whole: options that every command takes, and the commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use client::MAX_TIMEOUT;

use crate::commands::{
    attr, backup, cert, class, cluster, collection, dev, events, evolve, exercise, get, index, job, ls, member, mv,
    name, node, object, put, query, redirector, relay, remap, repair, rm, scrub, shell, space, stat, status, tree,
    user,
};
use crate::help;

const AFTER: &str = "\
Objects are named by identifier (1.0.1.2a.3) or by name (/path).

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 no server, 6 damaged data, 7 full or over a \
limit, 8 a commit's outcome is unknown, 9 not allowed, 130 stopped by Ctrl-C.

Start here:
  mortar dev                          a server on ./mortar-data
  mortar put cat.jpg /photos/cat.jpg  in another terminal, same directory
  mortar get /photos/cat.jpg -o copy.jpg

A cluster of real processes on this machine: mortar cluster up --bricks 2 --peers 2";

/// A transactional object store: one binary for server, tools and upkeep
#[derive(Parser)]
#[command(name = "mortar", version, after_help = AFTER, disable_help_subcommand = true, args_override_self = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The definition of the command line, with its help.
    pub(crate) fn definition() -> clap::Command {
        help::lay_out(Self::command())
    }

    /// The command of the words of a command line, of which the first is the name of the program.
    ///
    /// # Errors
    /// What is wrong with it, or the help that it asks for.
    pub(crate) fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut definition = Self::definition();
        let mut matches =
            definition.try_get_matches_from_mut(words).map_err(|error| without_variables(error, words))?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))
    }
}

/// An error about these words. Clap shows options that variables of the environment set (`MORTAR_URL`) as if the command line needed them, so
/// the error is that of a command line without these, if that is of the same kind.
fn without_variables(error: clap::Error, words: &[OsString]) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let definition = Cli::definition().mut_args(|arg| arg.env(Resettable::Reset));
    match definition.try_get_matches_from(words) {
        Err(other) if other.kind() == error.kind() => other,
        _ => error,
    }
}

/// Options of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// The server: mortar://HOST:PORT/SPACE, over TLS mortars://USER@HOST:PORT/SPACE, or mortar+unix:///PATH/SPACE
    /// [default: the socket in ./mortar-data if a server answers there, else mortar://127.0.0.1:6678/main]
    #[arg(short, long, global = true, value_name = "URL", env = "MORTAR_URL", help_heading = "Common options")]
    pub(crate) server: Option<String>,
    /// The object space, in place of the URL's
    #[arg(long, global = true, value_name = "NAME", value_parser = space_name, help_heading = "Common options")]
    pub(crate) space: Option<String>,
    #[command(flatten)]
    pub(crate) identity: Identity,
    /// Print results as JSON, one object on a line, and failures as JSON on the error stream
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// How long to wait for a connection, and in a cluster for a brick or the meta-server
    #[arg(long, global = true, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    #[arg(help_heading = "Common options")]
    pub(crate) timeout: Duration,
}

/// Credentials of the user, and the authorities that the command trusts.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The user, in place of the URL's. The password is asked for, or in MORTAR_PASSWORD, or in a file
    #[arg(id = "own_name", long = "user", global = true, value_name = "NAME", env = "MORTAR_USER")]
    #[arg(help_heading = "Who you are")]
    pub(crate) user: Option<String>,
    /// The file with the password on its first line, for its owner alone to read
    #[arg(long, global = true, value_name = "FILE", env = "MORTAR_PASSWORD_FILE", help_heading = "Who you are")]
    pub(crate) password_file: Option<PathBuf>,
    /// The authorities that are trusted for servers, in PEM: for mortars://
    #[arg(long, global = true, value_name = "FILE", env = "MORTAR_CA", help_heading = "Who you are")]
    pub(crate) ca: Option<PathBuf>,
    /// Your certificate, in place of a password
    #[arg(
        id = "own_cert",
        long = "cert",
        global = true,
        value_name = "FILE",
        env = "MORTAR_CERT",
        requires = "own_key"
    )]
    #[arg(help_heading = "Who you are")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(id = "own_key", long = "key", global = true, value_name = "FILE", env = "MORTAR_KEY", requires = "own_cert")]
    #[arg(help_heading = "Who you are")]
    pub(crate) key: Option<PathBuf>,
    /// Send the password over an unencrypted connection
    #[arg(long, global = true, help_heading = "Who you are")]
    pub(crate) plaintext: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "a number of seconds, such as 10 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    match duration {
        Duration::ZERO => Err("it must be above 0 seconds".to_owned()),
        duration if duration > MAX_TIMEOUT => Err(format!("it may be at most {} seconds", MAX_TIMEOUT.as_secs())),
        duration => Ok(duration),
    }
}

/// The name of a space. An empty one would mean the space of the URL to those who take it from there.
pub(crate) fn space_name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the name of a space is not empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// The commands, in the order in which a new user needs them.
#[derive(Subcommand)]
pub(crate) enum Command {
    Dev(dev::Dev),
    Put(put::Put),
    Get(get::Get),
    #[command(alias = "list")]
    Ls(ls::Ls),
    Stat(stat::Stat),
    Mv(mv::Mv),
    Rm(rm::Rm),
    Attr(attr::Attr),
    Collection(collection::Collection),
    Name(name::Name),
    Space(space::Space),
    Exercise(exercise::Exercise),
    Object(object::ObjectCommand),
    Class(class::ClassCommand),
    Evolve(evolve::Evolve),
    Index(index::IndexCommand),
    Job(job::JobCommand),
    Query(query::QueryCommand),
    Events(events::Events),
    Node(Box<node::Node>),
    Cluster(cluster::Cluster),
    Remap(remap::Remap),
    Brick(member::Brick),
    Peer(member::Peer),
    Redirector(redirector::Redirector),
    User(user::User),
    Group(user::Group),
    Cert(cert::Cert),
    Import(tree::Import),
    Export(tree::Export),
    Verify(tree::Verify),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Scrub(scrub::Scrub),
    Repair(repair::Repair),
    Status(status::Status),
    Relay(relay::RelayCommand),
    Completions(shell::Completions),
    Man(shell::Man),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_above_zero_and_at_most_a_year() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("31622400").unwrap(), MAX_TIMEOUT);
        for text in ["0", "-1", "31622401", "3e18", "1e19", "1e30", "inf", "NaN", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::definition().debug_assert();
    }

    #[test]
    fn every_list_command_exists_as_ls_and_as_list() {
        fn check(command: &clap::Command) -> usize {
            let mut lists = 0;
            for one in command.get_subcommands() {
                let aliases: Vec<&str> = one.get_all_aliases().collect();
                match one.get_name() {
                    "ls" => assert!(aliases.contains(&"list"), "{} ls", command.get_name()),
                    "list" => assert!(aliases.contains(&"ls"), "{} list", command.get_name()),
                    _ => continue,
                }
                lists += 1;
            }
            lists + command.get_subcommands().map(check).sum::<usize>()
        }
        assert_eq!(check(&Cli::definition()), 12);
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        for command in Cli::definition().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("mortar {}", command.get_name())), "{}", command.get_name());
        }
    }
}
