//! How classes change while their objects stay unchanged.
//!
//! Every allowed change keeps all existing records readable through the new version:
//!
//! 1. The number of a field is never reused. The value that an old record has at a number belongs to that field or to none.
//! 2. Adding a field fixes the value that older records have for it: its default at that time, or null.
//! 3. The type of a field changes only to one that includes all values of the old type.
//! 4. A field that an index uses keeps its type.

use model::{Class, Field, FieldDefinition, FieldNumber, FieldType, Value};
use thiserror::Error;

use super::class;
use super::error::CatalogError;
use super::schema::{ResolvedClass, Schema};
use crate::plant::{Bug, planted};

/// One change of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvolutionStep {
    /// Adds a field, which is optional or has a default for existing objects.
    Add(FieldDefinition),
    /// Removes a field. Its values in records are no longer read.
    Remove {
        /// Its name.
        field: String,
    },
    /// Renames a field.
    Rename {
        /// Its current name.
        field: String,
        /// Its new name.
        to: String,
    },
    /// Changes the type of a field to one that includes all values of the old type.
    Widen {
        /// Its name.
        field: String,
        /// Its new type.
        to: FieldType,
    },
    /// Sets or removes the default for new objects.
    SetDefault {
        /// The field's name.
        field: String,
        /// The new default.
        default: Option<Value>,
    },
    /// Allows null in a field.
    MakeOptional {
        /// Its name.
        field: String,
    },
    /// Forbids null in a field. Existing nulls are read as its default.
    MakeRequired {
        /// Its name.
        field: String,
    },
}

/// Why a class cannot change in this way.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvolutionError {
    /// It has no such field.
    #[error("it has no field {0:?}")]
    NoField(String),
    /// The field is inherited.
    #[error("its field {field:?} belongs to its parent {class:?}: change that class")]
    Inherited {
        /// The field.
        field: String,
        /// The class that it belongs to.
        class: String,
    },
    /// The name is taken.
    #[error("class {class:?} has a field {field:?} already: choose another name")]
    FieldExists {
        /// The name.
        field: String,
        /// The class that has it: this one, an ancestor or a descendant.
        class: String,
    },
    /// Older records would have no value.
    #[error("old objects have no value for field {0:?}: make it optional, or give it a default")]
    NoValue(String),
    /// The new type does not include all values of the old one.
    #[error("field {field:?} is {from} and cannot become {to}: {why}")]
    Type {
        /// The field.
        field: String,
        /// Its type.
        from: Box<FieldType>,
        /// The requested type.
        to: Box<FieldType>,
        /// The reason.
        why: &'static str,
    },
    /// An index uses the field.
    #[error("index {index:?} uses field {field:?}: remove the index, and create it again afterwards")]
    Indexed {
        /// The field.
        field: String,
        /// The index.
        index: String,
    },
    /// A referenced class does not exist.
    #[error("its field {field:?} refers to class {class:?}, which does not exist in the space: create it first")]
    NoClass {
        /// The field.
        field: String,
        /// The missing class.
        class: String,
    },
    /// A name, a type or a default is not allowed, or there are too many fields.
    #[error("{0}")]
    Definition(Box<CatalogError>),
    /// No numbers are left.
    #[error("all numbers of fields or versions are used: create a new class")]
    Exhausted,
}

impl From<CatalogError> for EvolutionError {
    fn from(error: CatalogError) -> Self {
        Self::Definition(Box::new(error))
    }
}

/// The result of an evolution.
#[derive(Debug)]
pub(super) struct Evolved {
    /// The new version of the class.
    pub(super) class: Class,
    /// The topmost ancestor, if it is another class and its counter of field numbers has changed.
    pub(super) root: Option<Class>,
}

impl Schema {
    /// The classes that these steps write anew: the class that they change and, if it counts the numbers of fields elsewhere, its topmost
    /// ancestor. None if they change nothing.
    ///
    /// # Errors
    /// [`EvolutionError`] if a step is not allowed.
    pub fn evolved(&self, class: &ResolvedClass, steps: &[EvolutionStep]) -> Result<Vec<Class>, EvolutionError> {
        let evolved = evolve(self, class, steps)?;
        Ok(evolved.into_iter().flat_map(|Evolved { class, root }| root.into_iter().chain([class])).collect())
    }
}

/// Computes the next version of a class; `None` if the steps change nothing.
pub(super) fn evolve(
    schema: &Schema,
    shape: &ResolvedClass,
    steps: &[EvolutionStep],
) -> Result<Option<Evolved>, EvolutionError> {
    let mut root = schema.root(shape).as_ref().clone();
    let mut change =
        ClassEvolution { schema, shape, class: shape.class().as_ref().clone(), last_number: root.last_number };
    steps.iter().try_for_each(|step| change.apply_step(step))?;
    let ClassEvolution { mut class, last_number, .. } = change;
    if class == **shape.class() {
        return Ok(None);
    }
    let inherited = shape.fields().len() - shape.class().fields.len();
    class::check_count(&class.name, inherited + class.fields.len())?;
    for below in schema.family(class.id).filter(|below| below.class().id != class.id) {
        class::check_count(
            &below.class().name,
            below.fields().len() + class.fields.len() - shape.class().fields.len(),
        )?;
    }
    class.version = class.version.checked_add(1).ok_or(EvolutionError::Exhausted)?;
    let is_counted_here = root.id == class.id;
    if is_counted_here {
        class.last_number = last_number;
    }
    let is_counted_there = !is_counted_here && root.last_number != last_number;
    root.last_number = last_number;
    Ok(Some(Evolved { class, root: is_counted_there.then_some(root) }))
}

struct ClassEvolution<'a> {
    schema: &'a Schema,
    shape: &'a ResolvedClass,
    class: Class,
    last_number: u32,
}

impl ClassEvolution<'_> {
    fn apply_step(&mut self, step: &EvolutionStep) -> Result<(), EvolutionError> {
        match step {
            EvolutionStep::Add(definition) => self.add(definition),
            EvolutionStep::Remove { field } => {
                let at = self.own_field_index(field)?;
                self.check_not_indexed(at)?;
                self.class.fields.remove(at);
                Ok(())
            }
            EvolutionStep::Rename { field, to } => {
                let at = self.own_field_index(field)?;
                if field != to {
                    super::names::check_field(to)?;
                    self.check_name_free(to)?;
                    self.class.fields[at].name.clone_from(to);
                    if planted(Bug::RenamedFieldRenumbered) {
                        let field = self.class.fields.remove(at);
                        self.last_number += 1;
                        self.class.fields.push(Field { number: FieldNumber(self.last_number), ..field });
                    }
                }
                Ok(())
            }
            EvolutionStep::Widen { field, to } => self.widen(field, to),
            EvolutionStep::SetDefault { field, default } => {
                let at = self.own_field_index(field)?;
                let field = &mut self.class.fields[at];
                class::check_default(&field.field_type, field.optional, default.as_ref())?;
                field.default.clone_from(default);
                Ok(())
            }
            EvolutionStep::MakeOptional { field } => {
                let at = self.own_field_index(field)?;
                self.class.fields[at].optional = true;
                Ok(())
            }
            EvolutionStep::MakeRequired { field } => self.require(field),
        }
    }

    fn add(&mut self, definition: &FieldDefinition) -> Result<(), EvolutionError> {
        class::check_field(definition)?;
        self.check_name_free(&definition.name)?;
        self.check_references(&definition.name, &definition.field_type)?;
        if !definition.optional && definition.default.is_none() {
            return Err(EvolutionError::NoValue(definition.name.clone()));
        }
        if planted(Bug::FieldNumberReused) {
            self.last_number = self.class.fields.last().map_or(0, |field| field.number.0);
        }
        self.last_number = self.last_number.checked_add(1).ok_or(EvolutionError::Exhausted)?;
        self.class.fields.push(numbered_field(definition.clone(), self.last_number, true));
        Ok(())
    }

    fn widen(&mut self, field: &str, to: &FieldType) -> Result<(), EvolutionError> {
        let at = self.own_field_index(field)?;
        self.check_not_indexed(at)?;
        self.check_references(field, to)?;
        let is_below = |class: &String, of: &String| self.schema.is_below(class, of);
        let from = &self.class.fields[at].field_type;
        from.check_widening(to, &is_below).map_err(|why| EvolutionError::Type {
            field: field.to_owned(),
            from: Box::new(from.clone()),
            to: Box::new(to.clone()),
            why,
        })?;
        let field = &mut self.class.fields[at];
        field.field_type = to.clone();
        field.default = field.default.take().map(|value| to.convert(value));
        field.missing = field.missing.take().map(|value| to.convert(value));
        Ok(class::check_field(&field.definition())?)
    }

    fn require(&mut self, field: &str) -> Result<(), EvolutionError> {
        let at = self.own_field_index(field)?;
        let field = &mut self.class.fields[at];
        let no_null = |value: &Option<Value>| value.clone().filter(|value| *value != Value::Null);
        let Some(value) = no_null(&field.missing).or_else(|| no_null(&field.default)) else {
            return Err(EvolutionError::NoValue(field.name.clone()));
        };
        field.default = no_null(&field.default);
        field.missing = Some(value);
        field.optional = false;
        Ok(())
    }

    /// The index of the class's own field with this name.
    fn own_field_index(&self, name: &str) -> Result<usize, EvolutionError> {
        if let Some(at) = self.class.fields.iter().position(|field| field.name == name) {
            return Ok(at);
        }
        match self.ancestor_with_field(name) {
            Some(class) => Err(EvolutionError::Inherited { field: name.to_owned(), class: class.to_owned() }),
            None => Err(EvolutionError::NoField(name.to_owned())),
        }
    }

    /// The ancestor that has a field with this name.
    fn ancestor_with_field(&self, name: &str) -> Option<&str> {
        let parents = self.shape.lineage().iter().skip(1).filter_map(|id| self.schema.class(*id));
        parents
            .map(ResolvedClass::class)
            .find(|class| class.fields.iter().any(|field| field.name == name))
            .map(|class| &*class.name)
    }

    /// Checks that neither the class nor an ancestor or descendant has a field with this name.
    fn check_name_free(&self, name: &str) -> Result<(), EvolutionError> {
        let own = self.class.fields.iter().any(|field| field.name == name).then_some(&*self.class.name);
        let below = || {
            let below =
                self.schema.family(self.class.id).map(ResolvedClass::class).filter(|class| class.id != self.class.id);
            below
                .into_iter()
                .find(|class| class.fields.iter().any(|field| field.name == name))
                .map(|class| &*class.name)
        };
        match own.or_else(|| self.ancestor_with_field(name)).or_else(below) {
            Some(class) => Err(EvolutionError::FieldExists { field: name.to_owned(), class: class.to_owned() }),
            None => Ok(()),
        }
    }

    /// Checks that the classes referenced by a type exist.
    fn check_references(&self, field: &str, field_type: &FieldType) -> Result<(), EvolutionError> {
        match field_type.classes().into_iter().find(|class| self.schema.class_named(class).is_none()) {
            Some(class) => Err(EvolutionError::NoClass { field: field.to_owned(), class: class.to_owned() }),
            None => Ok(()),
        }
    }

    fn check_not_indexed(&self, at: usize) -> Result<(), EvolutionError> {
        let field = &self.class.fields[at];
        match self
            .schema
            .indexes()
            .find(|index| index.fields.contains(&field.number) && self.is_in_same_tree(index.class))
            .filter(|_| !planted(Bug::IndexedFieldChanged))
        {
            Some(index) => Err(EvolutionError::Indexed { field: field.name.clone(), index: index.name.clone() }),
            None => Ok(()),
        }
    }

    /// Whether a class has the same topmost ancestor; field numbers are unique below one.
    fn is_in_same_tree(&self, class: model::ClassId) -> bool {
        self.schema.class(class).is_some_and(|other| other.lineage().last() == self.shape.lineage().last())
    }
}

/// A field with this number. `is_late` if there may be records without it.
pub(super) fn numbered_field(definition: FieldDefinition, number: u32, is_late: bool) -> Field {
    let FieldDefinition { name, field_type, optional, default } = definition;
    let missing = default.clone().filter(|_| is_late && !planted(Bug::MissingNotFixed));
    Field { number: FieldNumber(number), name, field_type, optional, default, missing }
}
