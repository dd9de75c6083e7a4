//! Mortar's wire: schema, framing, transports and two-way calls.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`proto`] | the messages of `proto/mortar.proto`, generated |
//! | [`convert`] | converts between those messages and the types of `model` |
//! | [`cluster`] | converts between those messages and the machines of `protocol`; also the records of transactions on disk |
//! | [`driving`] | what the drivers of the machines share: clock, timer, handles of connections |
//! | [`connector`] | reconnecting: addresses in turn, a time limit for each attempt, pauses between rounds |
//! | [`frame`] | `header \| message \| raw`: the unit of transfer, its limits and checksums |
//! | [`decoded_size`] | what a message takes in memory, before it is decoded |
//! | [`inbox`], [`outbox`] | bytes to frames, frames to bytes; no I/O |
//! | [`handshake`] | magic, version, features, authentication, space |
//! | [`transport`] | addresses, listeners and streams: TCP, TLS, Unix sockets |
//! | [`link`] | a connection after its handshake: calls both ways, pipelined, coalesced, bounded |
//! | [`tasks`] | starts tasks without generating code for each of them |
//!
//! docs/wire.md describes the bytes.

pub mod cluster;
pub mod connector;
pub mod convert;
pub mod decoded_size;
mod direct;
pub mod driving;
pub mod frame;
pub mod handshake;
pub mod inbox;
pub mod link;
pub mod outbox;
mod pool;
pub mod schema;
pub mod tasks;
pub mod transport;

/// The messages of `proto/mortar.proto`, generated at build time; the schema's comments describe them.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/mortar.v1.rs"));

    /// The messages of `proto/cluster.proto`.
    pub mod cluster {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.cluster.rs"));
    }

    /// The messages of `proto/entries.proto`.
    pub mod entries {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.entries.rs"));
    }

    /// The messages of `proto/account.proto`.
    pub mod account {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.account.rs"));
    }

    /// The messages of `proto/contents.proto`.
    pub mod contents {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.contents.rs"));
    }

    /// The messages of `proto/meta.proto`.
    pub mod meta {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.meta.rs"));
    }

    /// The messages of `proto/jobs.proto`.
    pub mod jobs {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.jobs.rs"));
    }
    /// The messages of `proto/members.proto`.
    pub mod members {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.members.rs"));
    }

    /// The messages of `proto/groups.proto`.
    pub mod groups {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.groups.rs"));
    }

    /// The messages of `proto/usage.proto`.
    pub mod usage {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.usage.rs"));
    }

    /// The messages of `proto/moves.proto`.
    pub mod moves {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.moves.rs"));
    }

    /// The messages of `proto/query.proto`.
    pub mod query {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.query.rs"));
    }

    /// The messages of `proto/schema.proto`.
    pub mod schema {
        include!(concat!(env!("OUT_DIR"), "/mortar.v1.schema.rs"));
    }
}
