//! What drivers of the machines of [`protocol`] have in common: a time, a task that wakes, and the way to others.

mod alarm;
mod post;
mod time;

pub use alarm::Alarm;
pub use post::Post;
pub use time::Time;
