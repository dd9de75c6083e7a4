//! Openings of bricks and of the catalogue: the rules of [`meta::opening`] over the catalogue, the store and connections. Rule K3.
//!
//! | module | contents |
//! | --- | --- |
//! | `witness_table` | what this process saw of the logs of others |
//! | `kept_rows` | what a brick's store keeps about openings |
//! | `local_opening` | the opening of this process's brick: whether it still serves, and what must be noted while it does |
//! | `opening_brick` | how a brick opens: claim, announce, force, confirm |
//! | `loss` | how an operator accepts that a brick lost changes |
//! | `lost_rows` | what a logical node needs after a repair gave up rows of it |
//! | `catalogue` | how a meta-server compares its catalogue with what others saw of it |
//! | `asking` | asks other processes what they saw |
//! | `partners` | which transactions a brick with a loss and its partners know differently |

mod asking;
mod catalogue;
mod kept_rows;
mod local_opening;
mod loss;
mod lost_rows;
mod opening_brick;
mod partners;
mod witness_table;

pub(crate) use catalogue::{check_catalogue, check_own_position};
pub use local_opening::LocalOpening;
pub use loss::{BrickLoss, WitnessReport};
pub use opening_brick::open_brick;
pub use partners::Partners;
pub(crate) use partners::answer as answer_transactions;
pub use witness_table::WitnessTable;
pub(crate) use witness_table::{opening_of, witnessed_from_proto, witnessed_to_proto};
