//! Object spaces: their logical nodes, permissions and failure policy.

use std::collections::BTreeMap;

use model::{FailurePolicy, NodeId, SpaceId};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::member::Storage;
use super::{ident, names};
use crate::limits;

/// An object space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Its number, which is part of the identifiers of its objects.
    #[serde(with = "ident::space")]
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Its first logical node.
    #[serde(with = "ident::node")]
    pub first_node: NodeId,
    /// The number of its logical nodes, which are consecutive.
    pub nodes: u32,
    /// The storage of its objects.
    pub storage: Storage,
    /// What happens when a brick is unreachable.
    #[serde(with = "PolicyText")]
    pub policy: FailurePolicy,
    /// What its objects may take.
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
    /// What of it is being removed, if it has no objects.
    #[serde(default, skip_serializing_if = "Removals::is_none")]
    pub removals: Removals,
    /// Whether it accepts no changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What it is a clone of, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_of: Option<CloneSource>,
    /// The permissions of users and groups. No other user has access, except for members of
    /// [`ADMINISTRATORS`](super::ADMINISTRATORS).
    #[serde(default)]
    pub permissions: Permissions,
}

/// What a clone is a clone of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneSource {
    /// The name that the space had then.
    pub space: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A space that was removed. It is never forgotten: a brick that was away removes its objects when it is back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSpace {
    /// The name that it had.
    pub name: String,
    /// Its first logical node.
    #[serde(with = "ident::node")]
    pub first_node: NodeId,
    /// The number of its logical nodes, which are consecutive.
    pub nodes: u32,
}

/// What the objects of a space, and uploads for it, may take. Bricks refuse what grows beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes of objects and of their attributes; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The number of objects; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_objects: Option<u64>,
}

/// What is being removed. Bricks accept nothing new for it until it is removed, or the removal is taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removals {
    /// The number of the removal of the space itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<u64>,
    /// Those of classes, by the number of the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<u32, u64>,
}

/// A change of a space. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceChange {
    /// What happens when a brick is unreachable.
    pub policy: Option<FailurePolicy>,
    /// [`Quota::max_bytes`].
    pub max_bytes: Option<Option<u64>>,
    /// [`Quota::max_objects`].
    pub max_objects: Option<Option<u64>>,
    /// [`Space::read_only`].
    pub read_only: Option<bool>,
}

/// The JSON form of a policy.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FailurePolicy", rename_all = "snake_case")]
enum PolicyText {
    FailStop,
    Continue,
}

/// The permissions in a space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// By name of a user.
    #[serde(default)]
    pub users: BTreeMap<String, Permission>,
    /// By name of a group.
    #[serde(default)]
    pub groups: BTreeMap<String, Permission>,
}

/// A permission in a space. Each one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Read objects, and query.
    Read,
    /// Create, change and delete objects.
    Write,
    /// Change classes, indexes, permissions and the space itself.
    Admin,
}

/// A user or a group that is granted a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantee<'a> {
    /// A user.
    User(&'a str),
    /// All members of a group.
    Group(&'a str),
}

/// Options of a new space.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceOptions {
    /// The storage of its objects; by default durable if a durable brick is alive, else memory.
    pub storage: Option<Storage>,
    /// The number of its logical nodes; by default enough for several times the current number of bricks.
    pub nodes: Option<u32>,
    /// What happens when a brick is unreachable.
    pub policy: FailurePolicy,
}

impl Removals {
    /// Whether nothing is being removed.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Quota {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Space {
    /// Its logical nodes.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        let first = self.first_node.0;
        (0..self.nodes).map(move |index| NodeId(first + index))
    }
}

/// Whether a space can have these logical nodes.
fn can_have(first: NodeId, nodes: u32) -> bool {
    let fits = nodes.checked_add(first.0).is_some_and(|end| end <= NodeId::MAX.0);
    (1..=limits::NODES).contains(&nodes) && fits
}

impl Record for RemovedSpace {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_space(&self.name)?;
        if can_have(self.first_node, self.nodes) {
            return Ok(());
        }
        let why = format!("it must have had 1 to {} logical nodes", limits::NODES);
        Err(CatalogError::invalid("a removed space", &self.name, why))
    }
}

impl Record for Space {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_space(&self.name)?;
        if !can_have(self.first_node, self.nodes) || self.id == SpaceId(0) {
            let why = format!("its number must be at least 1, and it must have 1 to {} logical nodes", limits::NODES);
            return Err(CatalogError::invalid("a space", &self.name, why));
        }
        let Permissions { users, groups } = &self.permissions;
        if users.len() + groups.len() > limits::PERMISSIONS {
            return Err(CatalogError::TooMany { what: "permissions in a space", limit: limits::PERMISSIONS as u64 });
        }
        users.keys().try_for_each(|name| names::check_user(name))?;
        groups.keys().try_for_each(|name| names::check_group(name))
    }
}
