//! The roles that a Mortar process can play. So far: the brick, which serves a store.
//!
//! ```text
//!   listeners ── accepted connections, to the thread with the fewest
//!       I/O thread (a runtime of its own; two unless configured)
//!         connection ── one task: read a batch, answer, write once
//!            ├─ quick requests: answered from the store at once
//!            ├─ durable commits: submitted; the store's thread says when they are done
//!            └─ what may block: on threads that may
//!   /metrics, /health ── HTTP
//! ```
//!
//! [`Brick::start`] is the way in.

mod blocking;
mod brick;
mod completions;
mod config;
mod figures;
mod http;
mod io_thread;
mod listing;
mod long_job;
mod metrics;
mod resident;
mod service;
mod session;

pub use brick::Brick;
pub use config::Config;
