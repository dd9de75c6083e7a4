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
//!         meta-server ─ the catalogue, for all of them
//! ```
//!
//! [`Brick::start`], [`PeerServer::start`] and [`meta::MetaServer::start`] are the ways in.

mod brick;
pub mod doors;
pub mod member;
pub mod meta;
mod peer;
pub mod placement;
pub mod purpose;
pub mod realm;
mod server;
mod uplink;

pub use brick::Brick;
pub use peer::PeerServer;
pub use server::Config;
