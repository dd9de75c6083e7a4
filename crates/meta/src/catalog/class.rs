//! Classes: what records have for fields.

use std::collections::BTreeSet;

use model::{ClassId, FieldNumber, FieldType, Result, Value};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::literal::{self, Literal};
use super::{ident, limits, names};

/// A class of records in a space, in its newest version.
///
/// Records say which fields they have by number, and with values that know their types. So a record of any older version
/// is read through the newest one ([`Field::upgrade_value`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its number in the space; part of the identifiers of its objects.
    #[serde(with = "ident::class")]
    pub id: ClassId,
    /// Its name, which never changes.
    pub name: String,
    /// The class whose fields it has too. That never changes.
    #[serde(with = "ident::class_option", default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ClassId>,
    /// Counts its changes, from 1.
    pub version: u32,
    /// Its own fields by ascending number, without those of its parents.
    pub fields: Vec<Field>,
    /// In a class without a parent: the last field number that it or a class below it has ever had. Numbers are never
    /// used again, and no two classes of such a tree use one for different fields.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_number: u32,
}

/// A field of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its number, in records.
    #[serde(with = "ident::field")]
    pub number: FieldNumber,
    /// Its name, in programs and queries.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub field_type: FieldType,
    /// Whether it may be null.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// What new objects have when their creator says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Literal>,
    /// What records have that were written before the field was added, or before it became required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Literal>,
}

/// A class that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassDefinition {
    /// Its name.
    pub name: String,
    /// The name of the class whose fields it has too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its own fields, in any order.
    pub fields: Vec<FieldDefinition>,
}

/// A field that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldDefinition {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub field_type: FieldType,
    /// Whether it may be null.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// What new objects have when their creator says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Literal>,
}

impl Field {
    /// The field's value in a record that may be older than the class; `value` is what the record has at its number.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](model::ErrorKind::Corrupt) if the record has what the field never had.
    pub fn upgrade_value(&self, value: Option<Value>) -> Result<Value> {
        match value {
            Some(Value::Null) if self.optional => Ok(Value::Null),
            None | Some(Value::Null) => match &self.missing {
                Some(missing) => Ok(missing.0.clone()),
                None if self.optional => Ok(Value::Null),
                None => {
                    let message = format!(
                        "a record has no value for field {}, {:?}, which has to have one",
                        self.number, self.name
                    );
                    Err(model::Error::new(model::ErrorKind::Corrupt, message))
                }
            },
            Some(value) => self.field_type.widen(value),
        }
    }

    /// The field as it was wanted.
    #[must_use]
    pub fn definition(&self) -> FieldDefinition {
        let Self { name, field_type, optional, default, .. } = self.clone();
        FieldDefinition { name, field_type, optional, default }
    }
}

impl FieldDefinition {
    /// A field that has to have a value.
    #[must_use]
    pub fn required(name: impl Into<String>, field_type: FieldType) -> Self {
        Self { name: name.into(), field_type, optional: false, default: None }
    }

    /// A field that may be null.
    #[must_use]
    pub fn optional(name: impl Into<String>, field_type: FieldType) -> Self {
        Self { name: name.into(), field_type, optional: true, default: None }
    }

    /// The same with a default value.
    #[must_use]
    pub fn with_default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(Literal(value.into()));
        self
    }

    /// Checks its name, its type and its default.
    pub(super) fn check(&self) -> Result<(), CatalogError> {
        names::check_field(&self.name)?;
        if !self.field_type.is_within_nesting_limit() {
            let why = format!("lists, sets and maps nest up to {} deep", model::limits::NESTING);
            return Err(CatalogError::invalid("the type of a field", &self.field_type, why));
        }
        self.field_type.classes().into_iter().try_for_each(|class| names::check_class(class))?;
        check_default(&self.field_type, self.optional, self.default.as_ref())
    }
}

/// Checks that a default fits its field.
pub(super) fn check_default(of: &FieldType, optional: bool, default: Option<&Literal>) -> Result<(), CatalogError> {
    let Some(default) = default else { return Ok(()) };
    let refuse = |why: String| Err(CatalogError::invalid("the default of a field", &default.0, why));
    let is_null = matches!(default.0, Value::Null);
    if literal::text_len(default) > limits::DEFAULT {
        return refuse(format!("it has up to {} bytes", limits::DEFAULT));
    }
    if is_null && !optional {
        return refuse("the field cannot be null".to_owned());
    }
    if !is_null && !of.accepts(&default.0) {
        return refuse(format!("the field holds {of}"));
    }
    Ok(())
}

impl Record for Class {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_class(&self.name)?;
        if self.id == ClassId::NONE || self.version == 0 {
            return Err(CatalogError::invalid("the number or version of a class", 0, "they count from 1"));
        }
        check_count(&self.name, self.fields.len())?;
        for field in &self.fields {
            field.definition().check()?;
            // A field that was optional keeps what older records have.
            check_default(&field.field_type, true, field.missing.as_ref())?;
        }
        check_names(self.fields.iter().map(|field| field.name.as_str()))?;
        if !self.fields.is_sorted_by(|a, b| a.number < b.number) {
            return Err(CatalogError::invalid("the fields of a class", &self.name, "their numbers ascend"));
        }
        Ok(())
    }
}

impl ClassDefinition {
    /// Checks what does not depend on other classes.
    pub(super) fn check(&self) -> Result<(), CatalogError> {
        names::check_class(&self.name)?;
        check_count(&self.name, self.fields.len())?;
        self.fields.iter().try_for_each(FieldDefinition::check)?;
        check_names(self.fields.iter().map(|field| field.name.as_str()))
    }
}

/// Checks the number of fields.
pub(super) fn check_count(class: &str, fields: usize) -> Result<(), CatalogError> {
    if fields > limits::FIELDS {
        let why =
            format!("it has up to {} fields with those of its parents; this one would have {fields}", limits::FIELDS);
        return Err(CatalogError::invalid("a class", class, why));
    }
    Ok(())
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), CatalogError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(CatalogError::invalid("the name of a field", name, "another field of the class has it"));
        }
    }
    Ok(())
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}
