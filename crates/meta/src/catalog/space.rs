//! Object spaces: what belongs together, who may use it, and what happens when a part of it is away.

use std::collections::BTreeMap;

use model::{FailurePolicy, NodeId, SpaceId};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::member::Storage;
use super::{ident, limits, names};

/// An object space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Its number; part of the identifiers of its objects.
    #[serde(with = "ident::space")]
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// The first of its logical nodes.
    #[serde(with = "ident::node")]
    pub first_node: NodeId,
    /// How many logical nodes it has; their numbers follow each other.
    pub nodes: u32,
    /// Where its objects are kept.
    pub storage: Storage,
    /// What happens when a brick is away.
    #[serde(with = "PolicyText")]
    pub policy: FailurePolicy,
    /// Who may do what. Nobody else may do anything, but for members of [`ADMINISTRATORS`](super::ADMINISTRATORS).
    #[serde(default)]
    pub permissions: Permissions,
}

/// How a policy is written in the catalogue.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FailurePolicy", rename_all = "snake_case")]
enum PolicyText {
    FailStop,
    Continue,
}

/// Who may do what in a space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// By name of a user.
    #[serde(default)]
    pub users: BTreeMap<String, Permission>,
    /// By name of a group.
    #[serde(default)]
    pub groups: BTreeMap<String, Permission>,
}

/// What somebody may do in a space. Each includes the ones before it.
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

/// Who is given a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantee<'a> {
    /// A user.
    User(&'a str),
    /// All members of a group.
    Group(&'a str),
}

/// How a space is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceOptions {
    /// Where its objects are to be kept; by default durably if a durable brick lives, else in memory.
    pub storage: Option<Storage>,
    /// How many logical nodes it gets; by default enough to spread it over many more bricks than there are.
    pub nodes: Option<u32>,
    /// What happens when a brick is away.
    pub policy: FailurePolicy,
}

impl Space {
    /// Its logical nodes.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        let first = self.first_node.0;
        (0..self.nodes).map(move |index| NodeId(first + index))
    }

    /// Whether a logical node is one of its.
    #[must_use]
    pub fn has_node(&self, node: NodeId) -> bool {
        node.0.checked_sub(self.first_node.0).is_some_and(|index| index < self.nodes)
    }
}

impl Record for Space {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_space(&self.name)?;
        let fits = self.nodes.checked_add(self.first_node.0).is_some_and(|end| end <= NodeId::MAX.0);
        if self.nodes == 0 || self.nodes > limits::NODES || !fits || self.id == SpaceId(0) {
            let why = format!("a space has a number from 1 on, and 1 to {} logical nodes", limits::NODES);
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
