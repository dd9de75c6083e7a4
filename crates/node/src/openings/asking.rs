//! Asks other processes of the cluster what they saw of the log of a brick, or of the catalogue.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use meta::catalog::{BrickId, Catalog};
use model::{Error, ErrorKind, Result};
use tokio::task::JoinSet;
use tokio::time;
use tracing::debug;
use wire::handshake::Role;
use wire::link::CallConnection;
use wire::proto::cluster;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::Address;

use crate::auth::ClusterCredentials;

/// Time limit of asking one process.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// In place of a brick's number: the catalogue.
pub(super) const NO_BRICK: BrickId = BrickId(0);

/// A process that may have seen a brick's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name in messages: "peer server 2 at 127.0.0.1:6678".
    pub(super) name: String,
    pub(super) address: Address,
    /// The number of the brick that it is, if it is one.
    brick: Option<BrickId>,
    /// The number of its cluster. At its address may be a process of the cluster from which this one was restored, which is not asked (K2).
    cluster: String,
}

/// What a process answers.
#[derive(Debug)]
pub(super) enum Asked {
    /// What it saw.
    Saw(cluster::Witnesses),
    /// It is another process of the brick itself.
    IsTheBrick,
    /// Nothing listens there, or another server: the process has ended.
    Ended,
    /// It has not answered in time.
    Silent,
}

/// The processes of a catalogue that live, and the brick's own addresses, whether it counts as alive or not. All that are known if the
/// log is that of the catalogue, which may be wrong about who lives.
pub(super) fn members(catalog: &Catalog, brick: BrickId) -> Vec<Member> {
    let is_all = brick == NO_BRICK;
    let bricks = catalog.bricks().filter(|(one, alive)| is_all || alive.is_some() || one.id == brick);
    let bricks = bricks.map(|(one, _)| (format!("brick {}", one.id), &one.addresses, Some(one.id)));
    let peers = catalog.peers().filter(|(_, alive)| is_all || alive.is_some());
    let peers = peers.map(|(one, _)| (format!("peer server {}", one.id), &one.addresses, None));
    let member = |(name, addresses, brick): (String, &Vec<String>, Option<BrickId>)| {
        let address = addresses.iter().find_map(|address| address.parse::<Address>().ok())?;
        Some(Member { name: format!("{name} at {address}"), address, brick, cluster: catalog.cluster().to_owned() })
    };
    bricks.chain(peers).filter_map(member).collect()
}

/// Asks all of them at once, and returns the answers in no particular order.
pub(super) async fn ask_all(
    members: Vec<Member>,
    credentials: &ClusterCredentials,
    brick: BrickId,
    claimed: Option<cluster::Witnessed>,
) -> Vec<(Member, Asked)> {
    let mut asking = JoinSet::new();
    for member in members {
        let credentials = credentials.clone();
        asking.spawn(async move {
            let asked = member.ask(&credentials, brick, claimed).await;
            (member, asked)
        });
    }
    asking.join_all().await
}

impl Member {
    /// Asks what it saw of a brick, and tells it what the brick has claimed.
    pub(super) async fn ask(
        &self,
        credentials: &ClusterCredentials,
        brick: BrickId,
        claimed: Option<cluster::Witnessed>,
    ) -> Asked {
        let asked = time::timeout(ASK_TIMEOUT, self.try_ask(credentials, brick, claimed)).await;
        let late = || Error::new(ErrorKind::Unknown, "it has not answered in time");
        match asked.unwrap_or_else(|_| Err(late())) {
            Ok(asked) => asked,
            Err(error) => {
                debug!(member = self.name, %error, "a process cannot be asked what it saw");
                if has_ended(&error) { Asked::Ended } else { Asked::Silent }
            }
        }
    }

    async fn try_ask(
        &self,
        credentials: &ClusterCredentials,
        brick: BrickId,
        claimed: Option<cluster::Witnessed>,
    ) -> Result<Asked> {
        let (stream, terms) = credentials.dial(&self.address, Role::Brick, &self.cluster, Vec::new()).await?;
        if brick != NO_BRICK && terms.brick == brick.0 && claimed.is_none() {
            return Ok(Asked::IsTheBrick);
        }
        if self.brick.is_some_and(|expected| expected.0 != terms.brick) {
            // Another process was started at its address.
            return Ok(Asked::Ended);
        }
        let connection = CallConnection::open(stream, terms.max_frame);
        let request = Request::AskWitness(cluster::AskWitness { brick: brick.0, claimed });
        match connection.ask(request).await? {
            Response::Witnesses(seen) => Ok(Asked::Saw(seen)),
            other => Err(Error::new(ErrorKind::Unsupported, format!("an answer of another kind: {other:?}"))),
        }
    }
}

/// Whether an error shows that the process does not run any more: nothing listens at its address, or a server of another kind or cluster.
fn has_ended(error: &Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
        }
        source = cause.source();
    }
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Denied | ErrorKind::Invalid)
}
