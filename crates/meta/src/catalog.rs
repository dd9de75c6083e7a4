//! The contents of the catalogue, and the operations that change it.
//!
//! | module | contents |
//! | --- | --- |
//! | `parameters`, `member`, `space`, `account`, `placement` | entries: the cluster, bricks and peer servers, spaces, users and groups, the placement map |
//! | `class`, `evolution`, `adoption`, `index`, `schema` | classes and indexes, and the rules for changing them |
//! | `entry`, `names` | keys, values as JSON, and allowed names |
//! | `space_clone` | what a clone takes over from a space at the moment of a cut |
//! | `job` | work that a cluster does in the background: its states, and which process works on it |
//! | `schema_request`, `move_request`, `member_request`, `job_request` | requests of clients and administrators |
//! | [`CatalogEditor`] | all operations, each a compare-and-set loop over a `catalog_draft` |
//! | [`Catalog`] | the whole catalogue at one revision, in memory |
//! | [`Follower`] | keeps a [`Catalog`] current |
//!
//! `docs/catalogue.md` shows the keys and values with examples.

pub(crate) mod account;
mod adoption;
mod catalog_draft;
pub(crate) mod catalog_editor;
mod class;
mod client_number_key;
pub(crate) mod entry;
mod error;
mod evolution;
pub(crate) mod follower;
mod ident;
mod index;
pub(crate) mod job;
mod job_request;
mod member;
mod member_request;
mod move_request;
mod names;
mod parameters;
mod password;
pub(crate) mod placement;
mod schema;
mod schema_request;
mod snapshot;
mod space;
mod space_clone;

pub use account::{ADMINISTRATORS, Group, NODE_CERTIFICATE_NAME, User};
pub use adoption::{WantedClass, WantedIndex};
pub use catalog_editor::{CatalogEditor, Edited, Removal, hash_password};
pub use client_number_key::ClientNumberKey;
pub use error::CatalogError;
pub use evolution::{EvolutionError, EvolutionStep};
pub use follower::{Follower, check_went_back};
pub use ident::{BrickId, Epoch, IndexId, JobId, PeerId, StartNumber};
pub use index::{Index, IndexState};
pub use job::{ClassCounts, Job, JobAccess, JobKind, JobPart, JobProgress, JobState, JobWorker, PartReport};
pub use job_request::{JobAnswer, JobPartView, JobRate, JobRequest, JobView};
pub use member::{BrickOpening, BrickRecord, Liveness, PeerRecord, ServerId, Storage};
pub use member_request::{BrickEntry, MemberAnswer, MemberRequest, PeerEntry};
pub use model::{Class, ClassDefinition, Field, FieldDefinition, FieldType};
pub use move_request::{BrickState, MoveAnswer, MoveInState, MoveRequest, NodeState};
pub use parameters::{FORMAT, Parameters};
pub use password::{PasswordChecker, check_password};
pub use placement::{
    ActiveMove, MovePhase, MoveStateError, NodePlacement, PlacementMap, PlacementRange, PlannedMove, default_nodes,
    spread,
};
pub use schema::{ResolvedClass, Schema};
pub use schema_request::{SchemaAnswer, SchemaRequest};
pub use snapshot::{Catalog, CatalogMember};
pub use space::{
    CloneSource, Grantee, Permission, Permissions, Quota, Removals, RemovedSpace, Space, SpaceChange, SpaceOptions,
};
pub use space_clone::{SpaceSnapshot, check_clonable};
