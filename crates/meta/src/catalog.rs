//! What the catalogue of a cluster says, and how it is changed.
//!
//! | module | has |
//! | --- | --- |
//! | `parameters`, `member`, `space`, `account`, `placement` | the entries: cluster, bricks and peer servers, spaces, users, where things are |
//! | `class`, `field_type`, `evolution`, `adoption`, `index`, `schema` | classes: what records have, and how that changes |
//! | `path`, `entry`, `names`, `limits` | keys, JSON, and what is allowed |
//! | `schema_request`, `move_request`, `member_request` | what is asked from outside about classes and indexes, where things are, and who takes part |
//! | [`Editor`] | all operations, each a compare-and-set loop over a `draft` |
//! | [`Catalog`] | all of it at one revision, in memory, quick to look things up in |
//! | [`Follower`] | keeps a [`Catalog`] current |
//! | [`Presence`] | says that a process lives |
//!
//! `docs/catalogue.md` has the keys and values with examples.

mod account;
mod adoption;
mod class;
mod draft;
mod editor;
mod entry;
mod error;
mod evolution;
mod field_type;
mod follower;
mod ident;
mod index;
pub mod limits;
mod literal;
mod member;
mod member_request;
mod move_request;
mod names;
mod parameters;
mod password;
mod path;
mod placement;
mod presence;
mod schema;
mod schema_request;
mod snapshot;
mod space;

pub use account::{ADMINISTRATORS, Group, MEMBER, User};
pub use adoption::{WantedClass, WantedIndex};
pub use class::{Class, ClassDefinition, Field, FieldDefinition};
pub use editor::{Edited, Editor, hash_password};
pub use error::CatalogError;
pub use evolution::{EvolutionError, Step};
pub use field_type::FieldType;
pub use follower::Follower;
pub use ident::{BrickId, Epoch, IndexId, PeerId, StartNumber};
pub use index::{Index, IndexState};
pub use literal::Literal;
pub use member::{Alive, Brick, Peer, Storage};
pub use member_request::{BrickEntry, MemberAnswer, MemberRequest, PeerEntry};
pub use move_request::{ArrivalState, BrickState, MoveAnswer, MoveRequest, NodeState};
pub use parameters::{FORMAT, Parameters};
pub use password::{Verifier, check_password};
pub use placement::{Move, MovePhase, Moving, Placed, PlacementMap, Sheet, default_nodes, spread};
pub use presence::{Life, Presence, Who};
pub use schema::{Schema, Shape};
pub use schema_request::{SchemaAnswer, SchemaRequest};
pub use snapshot::{Catalog, Member};
pub use space::{Grantee, Permission, Permissions, Space, SpaceOptions};
