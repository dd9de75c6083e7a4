//! Requests about the classes and indexes of a space.

use model::{Class, ClassDefinition};

use super::error::CatalogError;
use super::evolution::EvolutionStep;
use super::index::Index;
use super::schema::Schema;
use super::{CatalogEditor, Edited};
use crate::Revision;

/// A request about the classes and indexes of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaRequest {
    /// Show all of them.
    Show,
    /// Show all versions of a class, in ascending order.
    History {
        /// Its name.
        class: String,
    },
    /// Create classes.
    Define {
        /// The classes, which may refer to each other.
        classes: Vec<ClassDefinition>,
    },
    /// Change a class.
    Evolve {
        /// Its name.
        class: String,
        /// The steps.
        steps: Vec<EvolutionStep>,
    },
    /// Create an index. It is built in the background.
    CreateIndex {
        /// Its name.
        name: String,
        /// The class whose objects it contains.
        class: String,
        /// The fields that it is ordered by.
        fields: Vec<String>,
        /// Whether no two objects may have the same values.
        unique: bool,
    },
    /// Remove a class that has no objects and that nothing needs. Only bricks know whether it has objects, so a catalogue alone refuses it.
    RemoveClass {
        /// Its name.
        name: String,
        /// Take back such a removal that was not ended, instead.
        cancel: bool,
    },
    /// Remove an index.
    RemoveIndex {
        /// Its name.
        name: String,
    },
}

impl SchemaRequest {
    /// Whether it does not change anything.
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

/// The requested or changed classes and indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaAnswer {
    /// Classes.
    pub classes: Vec<Class>,
    /// Indexes.
    pub indexes: Vec<Index>,
}

impl CatalogEditor {
    /// Executes a request. Returns the revision of the change, if there was one.
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
            SchemaRequest::RemoveClass { name, cancel: true } => {
                let class = self.cancel_class_removal(space, &name).await?;
                (classes(vec![class.value]), Some(class.revision))
            }
            SchemaRequest::RemoveClass { cancel: false, .. } => {
                let what = "this is a meta-server, which does not know whether a class has objects: ask a peer server";
                return Err(model::Error::new(model::ErrorKind::Unsupported, what).into());
            }
            SchemaRequest::RemoveIndex { name } => index(self.remove_index(space, &name).await?),
        })
    }
}
