//! Clusters whose catalogue is in etcd: members and meta-servers that are killed, catalogues that are moved, and the example of the
//! documentation.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod example;
mod losses;
mod moves;
mod small_cluster;
