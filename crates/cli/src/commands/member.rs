//! `mortar brick` and `mortar peer`: the members of a cluster.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use client::AdminClient;
use meta::catalog::{BrickEntry, BrickId, MemberAnswer, MemberRequest, PeerEntry, PeerId};
use node::catalog_messages::{member_answer_from_proto, member_request_to_proto};
use serde::Serialize;

use super::accept_loss::{self, LOSS_EXAMPLES};
use crate::connection::CommandContext;
use crate::failure::Result;
use crate::output::{Printable, Report, pluralize};

const BRICK_EXAMPLES: &str = "\
Examples:
  mortar brick list                    which there are, whether they live, and how much they serve
  mortar remap --drain 2               before brick 2 goes for good: empty it, then end its process
  mortar brick remove 2                and take it out of the cluster

A brick that serves logical nodes, or is to, or lives, is not removed. Started again, one that was removed is refused: with an
empty data directory it is a new brick. --server names a peer server or a meta-server.";

/// List the bricks of a cluster, and remove those that have ended permanently
#[derive(Args)]
#[command(after_help = BRICK_EXAMPLES)]
pub(crate) struct Brick {
    #[command(subcommand)]
    action: BrickAction,
}

#[derive(Subcommand)]
enum BrickAction {
    /// List the bricks
    #[command(alias = "ls", after_help = BRICK_EXAMPLES)]
    List,
    /// Remove a brick that is drained and has ended
    #[command(after_help = BRICK_EXAMPLES)]
    Remove {
        /// Its number
        brick: u32,
    },
    /// Go on with a brick whose directory went back in time, and lose what is missing
    #[command(after_help = LOSS_EXAMPLES)]
    AcceptLoss(accept_loss::AcceptBrickLoss),
}

const PEER_EXAMPLES: &str = "\
Examples:
  mortar peer list                     which there are, and whether they live
  mortar peer remove 3                 take one out that has ended for good

Nothing is kept at peer servers. Started again, one that was removed is a new one. --server names a peer server or a meta-server.";

/// List the peer servers of a cluster, and remove those that have ended permanently
#[derive(Args)]
#[command(after_help = PEER_EXAMPLES)]
pub(crate) struct Peer {
    #[command(subcommand)]
    action: PeerAction,
}

#[derive(Subcommand)]
enum PeerAction {
    /// List the peer servers
    #[command(alias = "ls", after_help = PEER_EXAMPLES)]
    List,
    /// Remove a peer server that has ended
    #[command(after_help = PEER_EXAMPLES)]
    Remove {
        /// Its number
        peer: u32,
    },
}

// ---------------------------------------------------------------------------------------------- output

/// The state of a brick in a word or two.
pub(crate) fn state_text(alive: bool, leaving: bool, nodes: u64) -> &'static str {
    match (alive, leaving, nodes) {
        (true, false, _) => "alive",
        (true, true, 0) => "drained",
        (true, true, _) => "draining",
        (false, true, 0) => "down, drained",
        (false, _, _) => "down",
    }
}

fn first_address(addresses: &[String]) -> String {
    addresses.first().map(|address| Printable(address).to_string()).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(transparent)]
struct BrickLine(BrickEntry);

impl Report for BrickLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let BrickEntry { brick, addresses, storage, alive, leaving, nodes, coming, refused } = &self.0;
        let (address, state) = (first_address(addresses), state_text(*alive, *leaving, *nodes));
        let nodes = pluralize(*nodes, "node", "nodes");
        write!(out, "brick {brick:<4} {address:<24} {state:<17} {nodes}, kept {}", storage.adverb())?;
        if *coming > 0 {
            write!(out, ", {coming} coming")?;
        }
        if let Some(why) = refused {
            write!(out, "\n           refused to serve: {}", Printable(why))?;
        }
        writeln!(out)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct PeerLine(PeerEntry);

impl Report for PeerLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let PeerEntry { peer, addresses, alive } = &self.0;
        writeln!(out, "peer {peer:<4} {:<24} {}", first_address(addresses), state_text(*alive, false, 0))
    }
}

/// The removed member.
#[derive(Serialize)]
#[serde(tag = "removed", content = "number", rename_all = "snake_case")]
enum RemovedMember {
    Brick(BrickId),
    Peer(PeerId),
}

impl Report for RemovedMember {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Brick(brick) => writeln!(out, "removed brick {brick}: its data directory can be deleted"),
            Self::Peer(peer) => writeln!(out, "removed peer server {peer}"),
        }
    }
}

// ---------------------------------------------------------------------------------------------- requests

/// Sends a request about bricks and peer servers.
pub(crate) async fn ask(client: &AdminClient, request: &MemberRequest) -> Result<MemberAnswer> {
    let answer = client.cluster_members(member_request_to_proto(request)).await?;
    Ok(member_answer_from_proto(answer)?)
}

pub(crate) async fn run_brick(args: Brick, session: &mut CommandContext) -> Result {
    if let BrickAction::AcceptLoss(args) = args.action {
        return accept_loss::accept_brick_loss(args, &mut session.output).await;
    }
    let client = session.connect_to_cluster().await?;
    match args.action {
        BrickAction::AcceptLoss(_) => Ok(()),
        BrickAction::List => {
            let bricks = ask(&client, &MemberRequest::List).await?.bricks;
            bricks.into_iter().try_for_each(|brick| session.output.print(&BrickLine(brick)))
        }
        BrickAction::Remove { brick } => {
            let removed = remove_brick(&client, BrickId(brick)).await?;
            removed.into_iter().try_for_each(|one| session.output.print(&RemovedMember::Brick(one.brick)))
        }
    }
}

/// Removes a brick. The failure has a hint if the brick serves logical nodes.
async fn remove_brick(client: &AdminClient, id: BrickId) -> Result<Vec<BrickEntry>> {
    let failure = match ask(client, &MemberRequest::RemoveBrick { brick: id }).await {
        Ok(removed) => return Ok(removed.bricks),
        Err(failure) => failure,
    };
    let bricks = ask(client, &MemberRequest::List).await.map(|members| members.bricks).unwrap_or_default();
    Err(match bricks.iter().find(|brick| brick.brick == id && brick.nodes > 0) {
        Some(BrickEntry { alive: true, .. }) => failure.hint(format!(
            "`mortar remap --drain {id}` moves them to other bricks. Then end its process, and remove it."
        )),
        Some(_) => {
            failure.hint(format!("Start it, so that `mortar remap --drain {id}` can move them to other bricks."))
        }
        None => failure,
    })
}

pub(crate) async fn run_peer(args: Peer, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    match args.action {
        PeerAction::List => {
            let peers = ask(&client, &MemberRequest::List).await?.peers;
            peers.into_iter().try_for_each(|peer| session.output.print(&PeerLine(peer)))
        }
        PeerAction::Remove { peer } => {
            let removed = ask(&client, &MemberRequest::RemovePeer { peer: PeerId(peer) }).await?.peers;
            removed.into_iter().try_for_each(|one| session.output.print(&RemovedMember::Peer(one.peer)))
        }
    }
}
