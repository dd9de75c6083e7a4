//! All bugs that a run can plant: in the rules, in the drivers of clients, redirectors, peer servers and bricks, in queries and in the
//! catalogue.

use std::fmt;

use model::planted_bug::{self, Planted, PlantedBug};
use node::drivers::{brick, peer, redirector};

/// A bug that a run can plant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// In the machines of the protocol.
    Protocol(protocol::plant::Bug),
    /// In the driver of a logical node.
    Brick(brick::plant::Bug),
    /// In the driver of a peer server.
    Peer(peer::plant::Bug),
    /// In the driver of a redirector.
    Redirector(redirector::plant::Bug),
    /// In the driver of a client.
    Client(client::plant::Bug),
    /// In queries.
    Query(query::plant::Bug),
    /// In the catalogue.
    Meta(meta::plant::Bug),
}

impl Bug {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let protocol = protocol::plant::Bug::ALL.iter().map(|bug| Self::Protocol(*bug));
        let brick = brick::plant::Bug::ALL.iter().map(|bug| Self::Brick(*bug));
        let peer = peer::plant::Bug::ALL.iter().map(|bug| Self::Peer(*bug));
        let redirector = redirector::plant::Bug::ALL.iter().map(|bug| Self::Redirector(*bug));
        let client = client::plant::Bug::ALL.iter().map(|bug| Self::Client(*bug));
        let query = query::plant::Bug::ALL.iter().map(|bug| Self::Query(*bug));
        let meta = meta::plant::Bug::ALL.iter().map(|bug| Self::Meta(*bug));
        protocol.chain(brick).chain(peer).chain(redirector).chain(client).chain(query).chain(meta)
    }

    /// The bug with a name, as `mortar-sim bugs` lists it.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|bug| format!("{bug:?}") == name)
    }

    /// The rule that it breaks; empty if its list names none.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::Protocol(bug) => bug.rule(),
            Self::Brick(bug) => bug.rule(),
            Self::Peer(bug) => bug.rule(),
            Self::Redirector(bug) => bug.rule(),
            Self::Client(bug) => bug.rule(),
            Self::Query(bug) => bug.rule(),
            Self::Meta(bug) => bug.rule(),
        }
    }

    /// What goes wrong.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Protocol(bug) => bug.what(),
            Self::Brick(bug) => bug.what(),
            Self::Peer(bug) => bug.what(),
            Self::Redirector(bug) => bug.what(),
            Self::Client(bug) => bug.what(),
            Self::Query(bug) => bug.what(),
            Self::Meta(bug) => bug.what(),
        }
    }

    /// Plants it in what this thread does.
    pub fn plant(self) -> Planted {
        match self {
            Self::Protocol(bug) => planted_bug::plant(bug),
            Self::Brick(bug) => planted_bug::plant(bug),
            Self::Peer(bug) => planted_bug::plant(bug),
            Self::Redirector(bug) => planted_bug::plant(bug),
            Self::Client(bug) => planted_bug::plant(bug),
            Self::Query(bug) => planted_bug::plant(bug),
            Self::Meta(bug) => planted_bug::plant(bug),
        }
    }
}

impl fmt::Debug for Bug {
    /// The name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(bug) => bug.fmt(f),
            Self::Brick(bug) => bug.fmt(f),
            Self::Peer(bug) => bug.fmt(f),
            Self::Redirector(bug) => bug.fmt(f),
            Self::Client(bug) => bug.fmt(f),
            Self::Query(bug) => bug.fmt(f),
            Self::Meta(bug) => bug.fmt(f),
        }
    }
}

impl From<protocol::plant::Bug> for Bug {
    fn from(bug: protocol::plant::Bug) -> Self {
        Self::Protocol(bug)
    }
}

impl From<peer::plant::Bug> for Bug {
    fn from(bug: peer::plant::Bug) -> Self {
        Self::Peer(bug)
    }
}
