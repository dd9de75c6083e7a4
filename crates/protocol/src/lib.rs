//! The rules of Mortar's transactions and caches as pure state machines.
//!
//! No machine does I/O, reads a clock, draws random numbers or depends on the order of a hash table: equal inputs in
//! equal order give equal outputs. So the simulator runs a whole cluster of them in one thread, from one seed.
//!
//! | module | decides | rules |
//! | --- | --- | --- |
//! | [`clock`] | when something happens | L1 |
//! | [`clock_agreement`] | what time it is, and whether the clock of a process is believed | L2 |
//! | [`validate`] | whether a finished transaction may commit | V1, V2, V3 |
//! | [`locks`] | which transactions hold objects, and which wait for them | V2, W1 |
//! | [`entries`] | which guards protect the entries of collections | V2 |
//! | [`commit`] | how a transaction commits at all its participants | L1, V4, C1 to C5, G1, W1 |
//! | [`cut`] | the states of several stores at one consistent moment | K1 |
//! | [`directory`] | which holders have which pages, and which changes they have not acknowledged | D1, D2, D4 |
//! | [`lease`], [`upstream`] | how long copies may be used without contact to the node above | D4 |
//! | [`page_cache`] | which objects of its copies a client may use | P1 to P4, D3, G2, G3 |
//! | [`pram`] | the order of writes outside of transactions | N1 |
//! | [`redirect`] | how the holders below a node help each other | R1 to R4, D1 to D4 |
//! | [`placement`] | which bricks serve a logical node, and from which epoch on | M1 |
//! | [`eviction`] | which copies a full cache evicts | |
//! | [`replica`] | which records all members of a group hold | M1 |
//!
//! These machines are composed of the ones above; a process runs one or more of them:
//!
//! | module | is |
//! | --- | --- |
//! | [`brick`] | one logical node of a brick: participant and directory |
//! | [`cache_node`] | a redirector or a peer server; the latter has a [`gateway`] for commits |
//! | [`session`] | a client |
//! | [`token_bucket`] | holds work to a rate |
//! | [`tree`] | the messages of cache trees |
//! | [`memory_size`] | the approximate memory of objects |
//! | [`read_list`] | lists of what transactions have read |
//!
//! [`plant`] lists the bugs that the simulator plants to test its checkers.

pub mod brick;
pub mod cache_node;
pub mod clock;
pub mod clock_agreement;
pub mod commit;
pub mod cut;
pub mod directory;
pub mod entries;
pub mod eviction;
pub mod gateway;
pub mod ident;
pub mod lease;
pub mod locks;
pub mod memory_size;
pub mod page_cache;
mod page_map;
pub mod placement;
pub mod plant;
pub mod pram;
pub mod read_list;
pub mod redirect;
pub mod replica;
pub mod schedule;
pub mod session;
mod small_map;
pub mod token_bucket;
mod transfer;
pub mod tree;
pub mod update_digest;
pub mod upstream;
pub mod validate;
