//! What the drivers of the machines of [`protocol`] share: a clock, a timer, and handles of connections.

mod deadline_timer;
mod monotonic_clock;
mod peer_handle;

pub use crate::direct::DeliveryScope;
pub use deadline_timer::DeadlineTimer;
pub use monotonic_clock::MonotonicClock;
pub use peer_handle::{PeerHandle, PositionSource};
