//! What the catalogue of a cluster says, and how it is changed.
//!
//! | module | has |
//! | --- | --- |
//! | `parameters`, `member`, `space`, `account`, `placement` | the entries: cluster, bricks and peer servers, spaces, users, where things are |
//! | `class`, `evolution`, `adoption`, `index`, `schema` | classes: what records have, and how that changes |
//! | `path`, `entry`, `names`, `limits` | keys, JSON, and what is allowed |
//! | `schema_request`, `move_request`, `member_request` | what is asked from outside about classes and indexes, where things are, and who takes part |
//! | [`CatalogEditor`] | all operations, each a compare-and-set loop over a `catalog_draft` |
//! | [`Catalog`] | all of it at one revision, in memory, quick to look things up in |
//! | [`Follower`] | keeps a [`Catalog`] current |
//! | [`Presence`] | says that a process lives |
//!
//! `docs/catalogue.md` has the keys and values with examples.

mod account;
mod adoption;
mod catalog_draft;
mod catalog_editor;
mod class;
mod entry;
mod error;
mod evolution;
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

pub use account::{ADMINISTRATORS, Group, NODE_CERTIFICATE_NAME, User};
pub use adoption::{WantedClass, WantedIndex};
pub use catalog_editor::{CatalogEditor, Edited, hash_password};
pub use class::{Class, ClassDefinition, Field, FieldDefinition};
pub use error::CatalogError;
pub use evolution::{EvolutionError, EvolutionStep};
pub use follower::Follower;
pub use ident::{BrickId, Epoch, IndexId, PeerId, StartNumber};
pub use index::{Index, IndexState};
pub use literal::Literal;
pub use member::{BrickRecord, Liveness, PeerRecord, Storage};
pub use member_request::{BrickEntry, MemberAnswer, MemberRequest, PeerEntry};
pub use model::FieldType;
pub use move_request::{BrickState, MoveAnswer, MoveInState, MoveRequest, NodeState};
pub use parameters::{FORMAT, Parameters};
pub use password::{PasswordChecker, check_password};
pub use placement::{
    ActiveMove, MovePhase, NodePlacement, PlacementMap, PlacementRange, PlannedMove, default_nodes, spread,
};
pub use presence::{Presence, PresenceState, ServerId};
pub use schema::{ResolvedClass, Schema};
pub use schema_request::{SchemaAnswer, SchemaRequest};
pub use snapshot::{Catalog, CatalogMember};
pub use space::{Grantee, Permission, Permissions, Space, SpaceOptions};
