//! Emulation of a wide-area link: a relay that forwards the bytes of TCP and Unix connections as a slow link would.
//!
//! [`Relay::start`] listens at an address and connects each client to a target. The bytes of each direction cross an emulated link with
//! a delay, jitter, a bandwidth, losses and cuts ([`LinkConfig`]). The relay has threads of its own, so it serves asynchronous and
//! blocking callers alike, and a busy runtime of the caller does not add to the delay.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use relay::{Config, LinkConfig, Relay};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let link = LinkConfig { delay: Duration::from_millis(20), ..LinkConfig::default() };
//! let relay = Relay::start(Config { link, ..Config::new("127.0.0.1:0".parse()?, "127.0.0.1:6678".parse()?) })?;
//! println!("clients connect to {}", relay.address());
//! relay.set_cut(true); // the link is silent
//! relay.set_cut(false);
//! let counters = relay.shutdown();
//! println!("{} bytes crossed the link upstream", counters.upstream.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! # How the emulation works
//!
//! The schedule is computed by machines without I/O and clock: `link` decides when a chunk arrives, `delay_queue` keeps what is under
//! way, `outages` says when the link is cut. `connection` reads, waits and writes as they say, and `timer` wakes it with a precision
//! far below a millisecond.
//!
//! 1. A chunk is what one read returns. It arrives exactly one delay after it was read, however many chunks are under way.
//! 2. Bytes of a connection arrive in order. Jitter and losses vary when they arrive, not in which order.
//! 3. All connections share the bandwidth of a direction.
//! 4. A connection has at most 64 MiB under way in a direction. Further bytes stay with their sender.
//! 5. While the link is cut, no bytes enter or leave it, and new connections are not accepted.
//! 6. The end of a direction and a reset cross the link as bytes do. A new connection carries its first bytes after a round trip, as a
//!    TCP handshake takes one.
//!
//! `cargo run --release -p mortar-relay --example round_trips` measures the precision and the throughput.
//!
//! The emulation does not reproduce congestion control: a loss delays a chunk, but does not reduce the throughput of its connection. The
//! kernel acknowledges what the relay has not read yet, so TCP's own timeouts never notice a cut.

mod config;
mod connection;
mod counters;
mod delay_queue;
mod emulation;
mod link;
mod outages;
mod relay;
mod socket;
mod timer;

pub use config::{Address, Config, CutSchedule, InvalidAddress, LinkConfig, StartError};
pub use counters::{Counters, Traffic};
pub use relay::Relay;
