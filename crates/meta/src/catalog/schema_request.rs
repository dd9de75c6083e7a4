//! What is asked about the classes and indexes of a space from outside, as one type that travels as JSON.

use serde::{Deserialize, Serialize};

use super::class::{Class, ClassDefinition};
use super::error::CatalogError;
use super::evolution::EvolutionStep;
use super::index::Index;
use super::schema::Schema;
use super::{CatalogEditor, Edited};
use crate::Revision;

/// What somebody wants to know of the classes and indexes of a space, or to have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaRequest {
    /// All of them.
    Show,
    /// All versions of a class, the newest last.
    History {
        /// Its name.
        class: String,
    },
    /// Make these classes.
    Define {
        /// The classes. They may refer to each other.
        classes: Vec<ClassDefinition>,
    },
    /// Change a class.
    Evolve {
        /// Its name.
        class: String,
        /// How.
        steps: Vec<EvolutionStep>,
    },
    /// Make an index. It is not ready then.
    CreateIndex {
        /// Its name.
        name: String,
        /// The class whose objects it has.
        class: String,
        /// The fields that it is ordered by.
        fields: Vec<String>,
        /// Whether no two objects may have the same values.
        unique: bool,
    },
    /// Remove an index.
    RemoveIndex {
        /// Its name.
        name: String,
    },
}

impl SchemaRequest {
    /// Whether it changes nothing.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Show | Self::History { .. })
    }
}

impl SchemaAnswer {
    /// All classes and indexes of a schema.
    #[must_use]
    pub fn of(schema: &Schema) -> Self {
        let classes = schema.classes().map(|shape| shape.class().as_ref().clone()).collect();
        let indexes = schema.indexes().map(|index| index.as_ref().clone()).collect();
        Self { classes, indexes }
    }
}

/// The classes and indexes that were asked for, or that were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaAnswer {
    /// Classes.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// Indexes.
    #[serde(default)]
    pub indexes: Vec<Index>,
}

impl CatalogEditor {
    /// Does what is asked for. If something was changed, the answer says as of which revision.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn handle_schema_request(
        &self,
        space: &str,
        request: SchemaRequest,
    ) -> Result<(SchemaAnswer, Option<Revision>), CatalogError> {
        let classes = |classes| SchemaAnswer { classes, indexes: Vec::new() };
        let index = |Edited { value, revision }: Edited<Index>| {
            (SchemaAnswer { classes: Vec::new(), indexes: vec![value] }, Some(revision))
        };
        Ok(match request {
            SchemaRequest::Show => (SchemaAnswer::of(&self.schema(space).await?), None),
            SchemaRequest::History { class } => (classes(self.history(space, &class).await?), None),
            SchemaRequest::Define { classes: wanted } => {
                let made = self.define(space, &wanted).await?;
                (classes(made.value), Some(made.revision))
            }
            SchemaRequest::Evolve { class, steps } => {
                let evolved = self.evolve(space, &class, &steps).await?;
                (classes(vec![evolved.value]), Some(evolved.revision))
            }
            SchemaRequest::CreateIndex { name, class, fields, unique } => {
                let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
                index(self.create_index(space, &name, &class, &fields, unique).await?)
            }
            SchemaRequest::RemoveIndex { name } => index(self.remove_index(space, &name).await?),
        })
    }
}
