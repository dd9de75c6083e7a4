//! What drivers of the machines of [`protocol`] have in common: a time, a task that wakes, and the way to others.

mod deadline_timer;
mod monotonic_clock;
mod peer_handle;

pub use deadline_timer::DeadlineTimer;
pub use monotonic_clock::MonotonicClock;
pub use peer_handle::PeerHandle;
