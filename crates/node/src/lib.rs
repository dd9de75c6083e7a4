//! The roles that a Mortar process can play.
//!
//! ```text
//!   server: listeners ── accepted connections, to the thread with the fewest
//!       I/O thread (a runtime of its own; two unless configured)
//!         connection ── one task: read a batch, answer, write once
//!       /metrics, /health ── HTTP
//!             │ requests
//!   role: brick ─ a store, and logical nodes of a cluster
//!         peer server ─ what clients connect to, above which are bricks
//!         redirector ─ between the clients of one site and a peer server
//!         meta-server ─ the catalogue, for all of them
//! ```
//!
//! [`Brick::start_in`], [`PeerServer::start`] and [`meta::MetaServer::start`] are the ways in.

pub mod auth;
mod blocking;
mod brick;
mod brick_links;
pub mod catalog_messages;
pub mod catalogue_archive;
pub mod cluster_archive;
pub mod cluster_view;
pub mod local_cluster;
pub mod member;
pub mod meta;
pub mod node_placement;
pub mod openings;
mod peer;
mod plant;
pub mod process;
pub mod process_clock;
pub mod purpose;
mod redirector;
pub mod restore;
mod server;

/// The machines that the servers are driven by, for the simulator: inputs and outputs, without I/O, clocks and threads.
pub mod drivers {
    /// A brick around the machines of its logical nodes.
    pub mod brick {
        pub use crate::brick::PageRead;
        pub use crate::brick::node_manager::{EditResult, JobId, PlacementEdit};
        pub use crate::brick::plant;
        #[cfg(feature = "sim")]
        pub use crate::brick::simulated::{
            BrickOutput, BrickSettings, CrashImage, RemoteWork, SimulatedBrick, SimulatedDisk,
        };
    }

    /// The machine of a redirector.
    pub mod redirector {
        pub use crate::redirector::driver::{Member, Output, RedirectorDriver};
        pub use crate::redirector::plant;
    }

    /// The machines of a peer server and of one of its queries.
    pub mod peer {
        pub use crate::peer::cache::{CachedContent, CachedObject};
        pub use crate::peer::classes::schema_to_proto;
        pub use crate::peer::driver::{BrickMessage, ClientMessage, Output, PeerDriver, PeerSettings};
        pub use crate::peer::peer_client::PeerClient;
        pub use crate::peer::plant;
        pub use crate::peer::query::machine::{Activity, Bricks, Event as QueryEvent, QueryMachine, Work as QueryWork};
        pub use crate::peer::query::streams::ScanLimits;
    }
}

pub use brick::{Brick, LocalBrick, ScrubSettings};
pub use peer::PeerServer;
pub use redirector::{Redirector, RedirectorSettings};
pub use server::{Config, ConnectionLimits, IoRuntimes, IoThreads, OwnClients, check_addresses};
