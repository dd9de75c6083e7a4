//! `mortar cluster`: a cluster of real processes on this machine, for trying and testing.
//!
//! `layout` has the files of the processes, `process` finds and ends processes, `up` runs a cluster, and `overview`
//! shows and ends one from another process. `move_catalogue` is for clusters on any number of machines.

mod layout;
mod move_catalogue;
mod overview;
mod process;
mod up;

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};

use move_catalogue::MoveCatalogue;

use super::accept_loss::{AcceptLoss, CATALOGUE_LOSS_EXAMPLES, accept_catalogue_loss};
use crate::connection::CommandContext;
use crate::failure::Result;

/// The default directory of a cluster.
const DATA: &str = "mortar-cluster";

const EXAMPLES: &str = "\
Examples:
  mortar cluster up                                two bricks, one peer server and a meta-server in ./mortar-cluster
  mortar cluster up --bricks 4 --peers 2 --data /tmp/cluster
  mortar cluster up --memory --json                prints one object when all are healthy
  mortar cluster status                            in another terminal
  kill -9 PID; mortar node --config mortar-cluster/brick-1.toml     a process that ends is not restarted
  mortar cluster down

Ctrl-C or SIGTERM ends a cluster that is up in good order, and so does `mortar cluster down`.";

/// Run a cluster of real processes on this machine
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start all processes, and end them with this one
    #[command(after_help = EXAMPLES)]
    Up(Up),
    /// Show the processes and their health
    #[command(after_help = EXAMPLES)]
    Status {
        #[command(flatten)]
        at: DirectoryArgs,
    },
    /// End all processes
    #[command(after_help = EXAMPLES)]
    Down {
        #[command(flatten)]
        at: DirectoryArgs,
    },
    /// Go on with a catalogue whose directory went back in time, and lose what is missing
    #[command(after_help = CATALOGUE_LOSS_EXAMPLES)]
    AcceptLoss(AcceptLoss),
    /// Move the catalogue between a directory and etcd
    #[command(after_help = move_catalogue::EXAMPLES)]
    MoveCatalogue(MoveCatalogue),
}

#[derive(Args)]
struct DirectoryArgs {
    /// The cluster's directory
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
}

#[derive(Args)]
struct Up {
    /// How many bricks [default: those that the directory has, else 2]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=64))]
    bricks: Option<u16>,
    /// How many peer servers [default: those that the directory has, else 1]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=64))]
    peers: Option<u16>,
    #[command(flatten)]
    at: DirectoryArgs,
    /// Keep everything in memory: nothing survives the processes; only settings and logs are files
    #[arg(long)]
    memory: bool,
    /// Threads of each process that serve connections [default: as its settings say]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=256))]
    io_threads: Option<u16>,
}

pub(crate) async fn run(args: Cluster, session: &mut CommandContext) -> Result {
    match args.action {
        Action::Up(args) => up::run(&args, &mut session.output).await,
        Action::Status { at } => overview::status(&at.data, session).await,
        Action::Down { at } => overview::down(&at.data, session).await,
        Action::AcceptLoss(args) => accept_catalogue_loss(args, &mut session.output).await,
        Action::MoveCatalogue(args) => move_catalogue::run(args, &mut session.output).await,
    }
}
