//! The rules of Mortar's transactions and caches as pure state machines.
//!
//! No machine does I/O, reads a clock, draws random numbers or depends on the order of a hash table: equal inputs in
//! equal order give equal outputs. So the simulator runs a whole cluster of them in one thread, from one seed.
//!
//! | module | decides | rules |
//! | --- | --- | --- |
//! | [`clock`] | when something happens | L1 |
//! | [`validate`] | whether a finished transaction may commit | V1, V2, V3 |
//! | [`locks`] | who holds which objects, and who waits for them | V2, W1 |
//! | [`commit`] | how a transaction commits at all its participants | L1, V4, C1 to C4, G1, W1 |
//! | [`directory`] | who holds which pages, and has still to hear of a change | D1, D2, D4 |
//! | [`lease`], [`upstream`] | how long copies may be used without hearing from above | D4 |
//! | [`page_cache`] | what a client may use of the copies that it has | P1 to P4, D3, G2, G3 |
//! | [`pram`] | the order of writes outside of transactions | N1 |
//! | [`redirect`] | how a group helps itself | R1 to R4, D1 to D4 |
//! | [`placement`] | which bricks serve a logical node, and from when on | M1 |
//! | [`eviction`] | which copies stay when there is not room for all | |
//! | [`replica`] | what all members of a group hold, so that it counts | M1 |
//!
//! These machines are composed of the ones above; a process runs one or more of them:
//!
//! | module | is |
//! | --- | --- |
//! | [`brick`] | one logical node of a brick: participant and directory |
//! | [`cache_node`] | a redirector or a peer server; the latter has a [`gateway`] for commits |
//! | [`session`] | a client |
//! | [`tree`] | what they say to each other about pages |
//! | [`memory_size`] | how much memory objects take that are kept for others |
//!
//! [`plant`] lists the bugs that the simulator plants to test its checkers.

pub mod brick;
pub mod cache_node;
pub mod clock;
pub mod commit;
pub mod directory;
pub mod eviction;
pub mod gateway;
pub mod ident;
pub mod lease;
pub mod locks;
pub mod memory_size;
pub mod page_cache;
pub mod placement;
pub mod plant;
pub mod pram;
pub mod redirect;
pub mod replica;
mod schedule;
pub mod session;
pub mod tree;
pub mod upstream;
pub mod validate;
