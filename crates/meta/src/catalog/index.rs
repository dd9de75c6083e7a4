//! Indexes of a space.

use model::{ClassId, FieldNumber};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{self, IndexId};
use super::names;
use crate::limits;

/// An index over the objects of a class and all below it, ordered by fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its number in the space; never used again.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// The class.
    #[serde(with = "ident::class")]
    pub class: ClassId,
    /// The fields that it is ordered by, the first one first.
    #[serde(with = "ident::fields")]
    pub fields: Vec<FieldNumber>,
    /// Whether no two objects may have the same values. Null is equal to nothing.
    #[serde(default)]
    pub unique: bool,
    /// What it can be used for.
    pub state: IndexState,
    /// Why it does not become ready, if something is in the way: of one that is unique, two objects with the same values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
}

/// What an index can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// Transactions keep it, and objects from before it are being entered: queries must not use it yet.
    Building,
    /// It has all objects.
    Ready,
}

impl Record for Index {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_index(&self.name)?;
        if self.fields.is_empty() || self.fields.len() > limits::INDEX_FIELDS {
            let why = format!("it is made of 1 to {} fields", limits::INDEX_FIELDS);
            return Err(CatalogError::invalid("an index", &self.name, why));
        }
        let mut sorted = self.fields.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != self.fields.len() {
            return Err(CatalogError::invalid("an index", &self.name, "it names a field twice"));
        }
        Ok(())
    }
}
