//! `mortar-sim cost`.

use serde::Serialize;
use sim::cost::{Costs, Load, Measurement, Setting, measure};

use crate::screen::result;
use crate::{CommandResult, Result};

/// Model how throughput grows with the number of bricks and peer servers, each with its own processor.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The number of bricks, and of peer servers.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,2,4,8",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    bricks: Vec<u16>,
    /// Clients for each brick.
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// The duration, in milliseconds of the model.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    length: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// A line of the result.
#[derive(Serialize)]
struct Row {
    load: &'static str,
    bricks: u16,
    rate: f64,
    /// Beside the first number of bricks: 1 is linear.
    linear: f64,
    bricks_busy: f64,
    peers_busy: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let costs = Costs::default();
    if !arguments.json {
        result(format_args!("{costs:?}"));
        result(format_args!(
            "{:12} {:>6} {:>12} {:>8} {:>7} {:>7}",
            "load", "bricks", "a second", "linear", "bricks", "peers"
        ));
    }
    for load in Load::ALL {
        let mut first = None;
        // A distributed transaction needs two.
        for bricks in arguments.bricks.iter().copied().filter(|bricks| load != Load::Distributed || *bricks > 1) {
            let clients = arguments.clients.into();
            let setting = Setting { bricks: bricks.into(), clients, load, length_ms: arguments.length, costs };
            let Measurement { rate, bricks_busy, peers_busy } = measure(setting)?;
            let of_one = *first.get_or_insert(rate / f64::from(bricks));
            let linear = rate / f64::from(bricks) / of_one;
            let row = Row { load: load.name(), bricks, rate, linear, bricks_busy, peers_busy };
            if arguments.json {
                result(format_args!("{}", serde_json::to_string(&row)?));
            } else {
                let (bricks_busy, peers_busy) = (bricks_busy * 100.0, peers_busy * 100.0);
                let load = load.name();
                result(format_args!(
                    "{load:12} {bricks:>6} {rate:>12.0} {linear:>8.3} {bricks_busy:>6.0}% {peers_busy:>6.0}%"
                ));
            }
        }
    }
    Ok(CommandResult::Clean)
}
