//! `mortar remap`: moves logical nodes of a cluster from brick to brick while they serve.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use clap::{ArgGroup, Args};
use client::AdminClient;
use meta::catalog::{BrickId, BrickState, MoveAnswer, MovePhase, MoveRequest, NodeState};
use model::NodeId;
use node::catalog_messages::{move_answer_from_proto, move_request_to_proto};
use serde::ser::Error;
use serde::{Serialize, Serializer};
use tokio::time::{self, Instant};

use super::member;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, HumanCount, Printable, Report, pluralize, warn};
use crate::progress::{HumanDuration, Progress};

const EXAMPLES: &str = "\
Examples:
  mortar remap                                  the bricks, and which logical nodes they serve
  mortar remap --spread                         give new bricks their part
  mortar remap --spread --space photos          of one space only
  mortar remap --drain 2                        empty brick 2, before it goes
  mortar remap --node 1a --node 1b --to 3       move these, as the third part of identifiers names them
  mortar remap --spread --dry-run               only show what would be moved
  mortar remap --cancel                         give up all moves that are under way
  mortar remap --cancel --drain 2               brick 2 stays after all

All nodes are served meanwhile; each pauses for some hundredths of a second at the end of its move. Ctrl-C stops the
waiting, not the moves. --server names a peer server, or a meta-server, which does not know how much is copied.";

/// How often the progress is checked, and how long servers may be unreachable meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Show the placement of logical nodes, or move them between bricks while they serve
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").args(["to", "spread", "cancel"]).multiple(false))]
pub(crate) struct Remap {
    /// A logical node to be moved, in hexadecimal digits as in identifiers; several with commas or repeated
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',', value_parser = node, requires = "what")]
    nodes: Vec<u32>,
    /// The brick that they move to
    #[arg(long, value_name = "BRICK", requires = "nodes")]
    to: Option<u32>,
    /// Spread each space evenly over the bricks that are alive
    #[arg(long, conflicts_with_all = ["nodes", "drain"])]
    spread: bool,
    /// Move all logical nodes away from this brick; it gets none until --cancel
    #[arg(long, value_name = "BRICK", conflicts_with_all = ["nodes", "to"])]
    drain: Option<u32>,
    /// Cancel moves: all, or those of --node, or those away from --drain, which can get logical nodes again
    #[arg(long, conflicts_with_all = ["dry_run", "no_wait"])]
    cancel: bool,
    /// Only show what would be moved
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until all has moved
    #[arg(long)]
    no_wait: bool,
}

fn node(text: &str) -> std::result::Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| "a number in hexadecimal digits, such as 1a".to_owned())
}

// ---------------------------------------------------------------------------------------------- output

/// A brick and its logical nodes.
#[derive(Serialize)]
struct BrickNodes {
    #[serde(flatten)]
    brick: BrickState,
    /// Logical nodes by their space.
    nodes: BTreeMap<String, Vec<String>>,
}

impl Report for BrickNodes {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { brick: BrickState { brick, address, alive, leaving }, nodes } = self;
        let count = nodes.values().map(Vec::len).sum::<usize>() as u64;
        let (address, state) = (Printable(address).to_string(), member::state_text(*alive, *leaving, count));
        write!(out, "brick {brick:<4} {address:<24} {state:<17} {}", pluralize(count, "node", "nodes"))?;
        for (space, nodes) in nodes {
            write!(out, "  {}: {}", Printable(space), nodes.join(" "))?;
        }
        writeln!(out)
    }
}

/// A logical node that moves.
struct NodeLine(NodeState);

/// The state as stored, but with the number of the node in hexadecimal.
impl Serialize for NodeLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut line = serde_json::to_value(&self.0).map_err(Error::custom)?;
        line["node"] = NodeId(self.0.node).to_string().into();
        line.serialize(serializer)
    }
}

impl Report for NodeLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let NodeState { node, space, brick, to, phase, arrival, .. } = &self.0;
        write!(out, "node {node:x} of {}: ", Printable(space))?;
        match to {
            Some(to) => write!(out, "brick {brick} -> brick {to}")?,
            None => write!(out, "stays at brick {brick}")?,
        }
        match phase {
            Some(MovePhase::Copying) => write!(out, ", copying")?,
            Some(MovePhase::Sealed) => write!(out, ", changing over")?,
            None => {}
        }
        if let Some(arrival) = arrival.as_ref().filter(|_| phase.is_some()) {
            write!(out, ", {} rows", HumanCount(arrival.rows))?;
            if let Some(trouble) = &arrival.trouble {
                write!(out, "; {}", Printable(trouble))?;
            }
        }
        writeln!(out)
    }
}

/// The cancelled moves.
#[derive(Serialize)]
struct CancelReport {
    /// Number of moves.
    cancelled: u64,
    /// The brick that may get logical nodes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    stays: Option<BrickId>,
}

impl Report for CancelReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.cancelled {
            0 => writeln!(out, "there were no moves to cancel")?,
            some => writeln!(out, "cancelled {}", pluralize(some, "move", "moves"))?,
        }
        match self.stays {
            Some(brick) => writeln!(out, "brick {brick} is no longer drained and can get logical nodes again"),
            None => Ok(()),
        }
    }
}

/// The result of moves.
#[derive(Default, Serialize)]
struct MoveReport {
    nodes: u64,
    rows: u64,
    bytes: u64,
    seconds: f64,
    /// The longest time that a node was not served, if known.
    longest_pause_ms: Option<f64>,
}

impl Report for MoveReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "moved {}", pluralize(self.nodes, "node", "nodes"))?;
        if let Some(pause) = self.longest_pause_ms {
            let (rows, bytes) = (pluralize(self.rows, "row", "rows"), HumanBytes(self.bytes));
            write!(out, ", {rows}, {bytes}, longest pause {pause:.0} ms")?;
        }
        writeln!(out, ", in {}", HumanDuration(Duration::from_secs_f64(self.seconds)))
    }
}

// ---------------------------------------------------------------------------------------------- requests

pub(crate) async fn run(args: Remap, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    let Remap { nodes, to, spread, drain, cancel, dry_run, no_wait } = args;
    let request = match (to, drain.map(BrickId)) {
        (_, drain) if cancel => MoveRequest::Cancel { nodes, drain },
        (Some(to), _) => MoveRequest::To { nodes, brick: BrickId(to), dry_run },
        (None, Some(brick)) => MoveRequest::Drain { brick, dry_run },
        (None, None) if spread => MoveRequest::Spread { space: session.space_named(), dry_run },
        (None, None) if dry_run || no_wait => {
            return Err(Failure::usage("name what to move: --spread, --drain or --node with --to"));
        }
        (None, None) => return show(&client, session).await,
    };
    let asked = ask(&client, &request).await?;
    if let MoveRequest::Cancel { drain: stays, .. } = request {
        let cancelled = asked.nodes.len() as u64;
        asked.nodes.into_iter().try_for_each(|state| session.output.print(&NodeLine(state)))?;
        session.output.print(&CancelReport { cancelled, stays })?;
        return warn_draining(&client, session).await;
    }
    if dry_run || no_wait {
        return asked.nodes.into_iter().try_for_each(|state| session.output.print(&NodeLine(state)));
    }
    wait(&client, session, asked.nodes).await
}

/// Warns about bricks that are being drained although no node moves away from them.
async fn warn_draining(client: &AdminClient, session: &CommandContext) -> Result {
    let MoveAnswer { nodes, bricks } = ask(client, &MoveRequest::Show { nodes: Vec::new() }).await?;
    for BrickState { brick, .. } in bricks.into_iter().filter(|brick| brick.leaving) {
        if nodes.iter().any(|state| state.brick == brick && state.to.is_none()) {
            let message = format!(
                "brick {brick} serves logical nodes and is being drained: `mortar remap --drain {brick}` \
                 continues the drain, `mortar remap --cancel --drain {brick}` cancels it"
            );
            warn(session.output.json(), "drained", &message);
        }
    }
    Ok(())
}

/// Shows the bricks, and what moves.
async fn show(client: &AdminClient, session: &mut CommandContext) -> Result {
    let MoveAnswer { nodes, bricks } = ask(client, &MoveRequest::Show { nodes: Vec::new() }).await?;
    for brick in bricks {
        let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for state in nodes.iter().filter(|state| state.brick == brick.brick) {
            served.entry(state.space.clone()).or_default().push(NodeId(state.node).to_string());
        }
        session.output.print(&BrickNodes { brick, nodes: served })?;
    }
    nodes.into_iter().filter(|state| state.to.is_some()).try_for_each(|state| session.output.print(&NodeLine(state)))
}

/// Waits until logical nodes have moved.
async fn wait(client: &AdminClient, session: &mut CommandContext, moving: Vec<NodeState>) -> Result {
    let wanted: BTreeMap<u32, Option<BrickId>> = moving.iter().map(|state| (state.node, state.to)).collect();
    let (began, json) = (Instant::now(), session.output.json());
    let (mut answered_at, mut reported) = (began, BTreeSet::new());
    let mut progressed = (began, 0, wanted.len());
    let progress = Progress::start_with_unit("moving", "nodes", &session.output);
    progress.set_total(0, wanted.len() as u64);
    let request = MoveRequest::Show { nodes: wanted.keys().copied().collect() };
    let mut states = Vec::new();
    // An empty list would request all nodes.
    while !wanted.is_empty() {
        match ask(client, &request).await {
            Ok(answer) => (states, answered_at) = (answer.nodes, Instant::now()),
            Err(failure) if failure.exit() == Exit::Unavailable && answered_at.elapsed() < UNAVAILABLE_TIMEOUT => {}
            Err(failure) => return Err(failure.hint("The moves continue; `mortar remap` shows them.")),
        }
        for state in &states {
            let trouble = state.arrival.as_ref().and_then(|arrival| arrival.trouble.clone());
            if let Some(trouble) = trouble.filter(|_| state.to.is_some())
                && reported.insert((state.node, trouble.clone()))
            {
                progress.suspend(|| warn(json, "move", &about_node(state.node, &trouble)));
            }
        }
        let left = states.iter().filter(|state| state.to.is_some()).count();
        let moved = sum_moves(&states);
        if (moved.bytes, left) != (progressed.1, progressed.2) {
            progressed = (Instant::now(), moved.bytes, left);
        }
        let arrivals = states.iter().filter(|state| state.to.is_some()).filter_map(|state| state.arrival.as_ref());
        if let Some(trouble) = arrivals.filter_map(|arrival| arrival.trouble.clone()).next()
            && progressed.0.elapsed() >= session.timeout()
        {
            return Err(Failure::with(
                Exit::Unavailable,
                "unavailable",
                format!("nothing has moved for some time: {trouble}"),
            )
            .hint(
                "The moves go on when that is over: `mortar remap` shows them, `mortar remap --cancel` cancels them.",
            ));
        }
        progress.set_done(moved.bytes, (wanted.len() - left) as u64);
        if left == 0 && !states.is_empty() {
            break;
        }
        time::sleep(POLL_INTERVAL).await;
    }
    progress.end();
    let elsewhere = states.iter().filter(|state| Some(state.brick) != wanted.get(&state.node).copied().flatten());
    let elsewhere = elsewhere.count() as u64;
    let moved = MoveReport {
        nodes: wanted.len() as u64 - elsewhere,
        seconds: began.elapsed().as_secs_f64(),
        ..sum_moves(&states)
    };
    session.output.print(&moved)?;
    match elsewhere {
        0 => Ok(()),
        some => {
            let what = pluralize(some, "logical node was", "logical nodes were");
            Err(Failure::conflict(format!("{what} not moved: the move was cancelled")))
        }
    }
}

/// The trouble of a logical node, with its number unless the brick has named it.
fn about_node(node: u32, trouble: &str) -> String {
    let name = format!("logical node {node:x}");
    let is_named = trouble.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', ':', ',']));
    if is_named { trouble.to_owned() } else { format!("{name}: {trouble}") }
}

/// Sums of the copied rows and bytes, as far as they are known.
fn sum_moves(states: &[NodeState]) -> MoveReport {
    let mut moved = MoveReport::default();
    for arrival in states.iter().filter_map(|state| state.arrival.as_ref()) {
        (moved.rows, moved.bytes) = (moved.rows + arrival.rows, moved.bytes + arrival.bytes);
        if let Some(pause) = arrival.pause_us {
            let pause = pause as f64 / 1e3;
            moved.longest_pause_ms = Some(moved.longest_pause_ms.unwrap_or(0.0).max(pause));
        }
    }
    moved
}

async fn ask(client: &AdminClient, request: &MoveRequest) -> Result<MoveAnswer> {
    let answer = client.move_nodes(move_request_to_proto(request)).await?;
    Ok(move_answer_from_proto(answer)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::about_node;
    use crate::args::Cli;

    #[test]
    fn a_logical_node_is_named_once() {
        assert_eq!(about_node(0x1a, "the brick is full"), "logical node 1a: the brick is full");
        assert_eq!(about_node(0x1a, "logical node 1a does not move"), "logical node 1a does not move");
        assert_eq!(about_node(1, "logical node 1a is needed first"), "logical node 1: logical node 1a is needed first");
    }

    #[test]
    fn exactly_one_kind_of_move_is_required() {
        let parses = |words: &str| Cli::try_parse_from(format!("mortar remap {words}").split_whitespace()).is_ok();
        for right in [
            "",
            "--spread",
            "--spread --space photos --dry-run",
            "--drain 2 --no-wait",
            "--node 1a,1b --to 3",
            "--node 1 --node 2 --to 3",
            "--cancel",
            "--cancel --node 1",
            "--cancel --drain 2",
        ] {
            assert!(parses(right), "{right}");
        }
        for wrong in [
            "--node 1",
            "--to 3",
            "--spread --drain 2",
            "--spread --node 1",
            "--node 1 --to 2 --drain 3",
            "--node x --to 2",
            "--cancel --dry-run",
        ] {
            assert!(!parses(wrong), "{wrong}");
        }
    }
}
