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
use wire::tasks;
use wire::transport::Address;

use crate::auth::ClusterCredentials;

/// Time limit of asking one process.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// The same if it has to read what it knows of transactions.
const ASK_TRANSACTIONS_TIMEOUT: Duration = Duration::from_secs(10);

/// In place of a brick's number: the catalogue.
pub(super) const NO_BRICK: BrickId = BrickId(0);

/// A process that may have seen a brick's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name in messages: "peer server 2 at 127.0.0.1:6678".
    pub(super) name: String,
    pub(super) address: Address,
    /// The number of the brick that it is, if it is one.
    pub(super) brick: Option<BrickId>,
    /// The number of its cluster. At its address may be a process of the cluster from which this one was restored, which is not asked (K2).
    cluster: String,
}

/// What a process is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// What it saw of the log of this brick.
    pub(super) brick: BrickId,
    /// The opening that this brick has claimed, which the asked process records as a witness.
    pub(super) claimed: Option<cluster::Witnessed>,
    /// What it knows of transactions, if it is another brick.
    pub(super) transactions: Option<cluster::AskTransactions>,
}

impl Question {
    /// What a process saw of the log of a brick.
    pub(super) fn seen_of(brick: BrickId) -> Self {
        Self { brick, claimed: None, transactions: None }
    }
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
    question: Question,
) -> Vec<(Member, Asked)> {
    let mut asking = JoinSet::new();
    for member in members {
        let (credentials, question) = (credentials.clone(), question.clone());
        tasks::spawn_in(&mut asking, async move {
            let asked = member.ask(&credentials, question).await;
            (member, asked)
        });
    }
    asking.join_all().await
}

impl Member {
    /// Asks what it saw of a brick, and tells it what the brick has claimed.
    async fn ask(&self, credentials: &ClusterCredentials, question: Question) -> Asked {
        let limit = if question.transactions.is_some() { ASK_TRANSACTIONS_TIMEOUT } else { ASK_TIMEOUT };
        let asked = time::timeout(limit, self.try_ask(credentials, question)).await;
        let late = || Error::new(ErrorKind::Unknown, "it has not answered in time");
        match asked.unwrap_or_else(|_| Err(late())) {
            Ok(asked) => asked,
            Err(error) => {
                debug!(member = self.name, %error, "a process cannot be asked what it saw");
                if has_ended(&error) { Asked::Ended } else { Asked::Silent }
            }
        }
    }

    async fn try_ask(&self, credentials: &ClusterCredentials, question: Question) -> Result<Asked> {
        let Question { brick, claimed, transactions } = question;
        let (stream, terms) = credentials.dial(&self.address, Role::Brick, &self.cluster, Vec::new()).await?;
        if brick != NO_BRICK && terms.brick == brick.0 && claimed.is_none() {
            return Ok(Asked::IsTheBrick);
        }
        if self.brick.is_some_and(|expected| expected.0 != terms.brick) {
            // Another process was started at its address.
            return Ok(Asked::Ended);
        }
        let connection = CallConnection::open(stream, terms.max_frame);
        let request = Request::AskWitness(cluster::AskWitness { brick: brick.0, claimed, transactions });
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meta::catalog::{CatalogEditor, Parameters, Storage};
    use meta::opening::{ForcedPosition, Opening, Subject};
    use meta::{Embedded, MetaStore};

    use super::*;
    use crate::cluster_view::ClusterView;
    use crate::{Config, PeerServer};

    #[tokio::test]
    async fn processes_that_have_ended_are_asked_for_their_own_log_and_for_that_of_the_catalogue() {
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(catalogue.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let view = ClusterView::follow(catalogue.clone()).await.unwrap();
        let session = catalogue.open_session(Duration::from_secs(3600)).await.unwrap().id;
        let address = ["127.0.0.1:1".to_owned()];
        for is_alive in [false, true, false] {
            let brick = editor.add_brick(&address, Storage::Memory).await.unwrap().value.id;
            let peer = editor.add_peer(&address).await.unwrap().value.id;
            if is_alive {
                editor.announce_brick(brick, editor.start_number().await.unwrap(), session).await.unwrap();
                editor.announce_peer(peer, editor.start_number().await.unwrap(), session).await.unwrap();
            }
        }
        let last = editor.add_peer(&address).await.unwrap();
        view.wait_for_revision(last.revision).await.unwrap();
        let catalog = view.catalog().unwrap();
        let names = |brick| -> Vec<String> {
            let name = |member: Member| member.name.strip_suffix(" at 127.0.0.1:1").unwrap().to_owned();
            members(&catalog, brick).into_iter().map(name).collect()
        };
        assert_eq!(names(BrickId(1)), ["brick 1", "brick 2", "peer server 2"]);
        let bricks = ["brick 1", "brick 2", "brick 3"];
        let peers = ["peer server 1", "peer server 2", "peer server 3", "peer server 4"];
        assert_eq!(names(NO_BRICK), [&bricks[..], &peers].concat());
    }

    #[tokio::test]
    async fn process_says_what_it_saw_of_a_log() {
        let view = ClusterView::new(|_| Box::pin(async { Ok(1) }));
        let forced = ForcedPosition { opening: Opening { number: 3, nonce: 7 }, position: 50 };
        view.witnesses().note(Subject::Brick(1), forced);
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
        let peer = PeerServer::start(view, 1, config).await.unwrap();
        let (name, address) = ("a peer server".to_owned(), peer.addresses()[0].clone());
        let member = Member { name, address, brick: None, cluster: String::new() };
        let asked = member.try_ask(&ClusterCredentials::default(), Question::seen_of(BrickId(1))).await.unwrap();
        let Asked::Saw(seen) = asked else { panic!("{asked:?}") };
        let seen: Vec<_> = seen.seen.iter().map(|one| (one.brick, one.number, one.nonce, one.position)).collect();
        assert_eq!(seen, [(1, 3, 7, 50)]);
        peer.shutdown().await.unwrap();
    }
}
