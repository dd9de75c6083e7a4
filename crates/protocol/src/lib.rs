//! The rules of Mortar's transactions and caches, as pure state machines.
//!
//! Nothing here does I/O, reads a clock, draws a random number or depends on the order of a hash table: equal inputs in
//! equal order give equal outputs. So a whole cluster of these machines runs in one thread, from one seed, in the simulator.
//!
//! | module | decides | rules |
//! | --- | --- | --- |
//! | [`clock`] | when something happens | L1 |
//! | [`validate`] | whether a finished transaction may commit | V1, V2, V3 |
//! | [`commit`] | how a transaction commits at all its participants | L1, V4, C1 to C4, G1 |
//! | [`directory`] | who holds which pages, and has still to hear of a change | D1, D2, D4 |
//! | [`lease`] | how long copies may be used without hearing from above | D4 |
//! | [`locks`] | who holds which objects, and who waits for them | V2, W1 |
//! | [`placement`] | which bricks serve a logical node, and from when on | M1 |
//! | [`replica`] | what all members of a group hold, so that it counts | M1 |
//! | [`page_cache`] | what a client may use of the copies that it has | P1 to P4, D3 |

pub mod clock;
pub mod commit;
pub mod directory;
pub mod ident;
pub mod lease;
pub mod locks;
pub mod page_cache;
pub mod placement;
pub mod replica;
pub mod validate;
