//! Indexes of a space.

use model::{ClassId, FieldNumber};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{self, IndexId, JobId};
use super::names;
use crate::limits;

/// An index of the objects of a class and its descendants, ordered by fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its number in the space, which is never reused.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// The class.
    #[serde(with = "ident::class")]
    pub class: ClassId,
    /// The fields that it is ordered by.
    #[serde(with = "ident::fields")]
    pub fields: Vec<FieldNumber>,
    /// Whether no two objects may have the same values. Null values are never equal.
    #[serde(default)]
    pub unique: bool,
    /// Whether queries can use it.
    pub state: IndexState,
    /// Why it cannot become ready, if so: two objects with the same values in a unique index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
    /// The job that builds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// The state of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// Transactions maintain it, and earlier objects are being entered. Queries cannot use it yet.
    Building,
    /// It contains all objects. Queries can use it.
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
