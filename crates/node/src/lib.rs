//! The roles that a Mortar process can play.
//!
//! ```text
//!   server: listeners ── accepted connections, to the thread with the fewest
//!       I/O thread (a runtime of its own; two unless configured)
//!         connection ── one task: read a batch, answer, write once
//!       /metrics, /health ── HTTP
//!             │ requests
//!   role: brick ─ a store
//! ```
//!
//! [`Brick::start`] is the way in.

mod brick;
mod server;

pub use brick::Brick;
pub use server::Config;
