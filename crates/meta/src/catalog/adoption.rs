//! Compares the classes of a program with those of the catalogue.
//!
//! Several versions of a program can define the same class. One version must not remove what another one needs:
//!
//! 1. Fields, defaults and indexes that the program does not know stay.
//! 2. Fields are added, widened and made optional, and never removed, narrowed or made required. The result therefore does not
//!    depend on the order in which programs start: it is the class that the newest program defines.
//! 3. A program whose field is narrower than the class's is refused, because it could not read what newer programs write.

use std::collections::BTreeMap;

use model::{Class, ClassDefinition, Field, FieldDefinition, FieldNumber, FieldType};

use super::error::CatalogError;
use super::evolution::EvolutionStep;
use super::index::Index;
use super::schema::{ResolvedClass, Schema};
use crate::plant::{Bug, planted};

/// A class as a program has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedClass {
    /// The class.
    pub class: ClassDefinition,
    /// The numbers of fields that the program knows, by the fields' names in the program. Such fields are found by number.
    pub numbers: BTreeMap<String, FieldNumber>,
    /// Its indexes.
    pub indexes: Vec<WantedIndex>,
}

/// An index that a program requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedIndex {
    /// Its name, unique in the space.
    pub name: String,
    /// The names of its fields in the program, in order.
    pub fields: Vec<String>,
    /// Whether no two objects may have the same values.
    pub unique: bool,
}

/// The steps that extend a class to match a program.
pub(super) fn steps(
    schema: &Schema,
    shape: &ResolvedClass,
    wanted: &WantedClass,
) -> Result<Vec<EvolutionStep>, CatalogError> {
    let class = shape.class();
    let parent = class.parent.and_then(|id| schema.class(id)).map(|shape| &*shape.class().name);
    if parent != wanted.class.parent.as_deref() {
        return Err(unfit_error(class, format!("its parent is {}, and never changes", parent.unwrap_or("none"))));
    }
    let mut steps = Vec::new();
    for want in &wanted.class.fields {
        let Some(field) = field_of(class, wanted, want)? else {
            steps.push(EvolutionStep::Add(want.clone()));
            continue;
        };
        if !can_read(schema, &want.field_type, &field.field_type) {
            let is_below = |class: &String, of: &String| schema.is_below(class, of);
            if want.field_type.check_widening(&field.field_type, &is_below).is_ok() {
                if planted(Bug::OldProgramAdopted) {
                    continue;
                }
                let (name, has, wants) = (&field.name, &field.field_type, &want.field_type);
                let what = format!(
                    "its field {name:?} is {has} in the catalogue, and {wants} in the program, which is too old"
                );
                return Err(unfit_error(class, what));
            }
            steps.push(EvolutionStep::Widen { field: field.name.clone(), to: want.field_type.clone() });
        }
        if want.optional && !field.optional {
            steps.push(EvolutionStep::MakeOptional { field: field.name.clone() });
        }
    }
    Ok(steps)
}

/// The numbers of the fields of a program's index, with their types checked; `None` if the index exists.
pub(super) fn index(
    schema: &Schema,
    shape: &ResolvedClass,
    wanted: &WantedClass,
    index: &WantedIndex,
) -> Result<Option<Vec<FieldNumber>>, CatalogError> {
    let mut numbers = Vec::new();
    for name in &index.fields {
        let by_number = wanted.numbers.get(name).and_then(|number| shape.field_by_number(*number));
        let field = by_number.or_else(|| shape.field(name)).ok_or_else(|| CatalogError::missing("field", name))?;
        if !field.field_type.is_scalar() {
            let why = format!("it is {}, which has no order", field.field_type);
            return Err(CatalogError::invalid("a field of an index", &field.name, why));
        }
        numbers.push(field.number);
    }
    let Some(known) = schema.index(&index.name) else { return Ok(Some(numbers)) };
    let Index { class, fields, unique, .. } = &**known;
    if (*class, fields, *unique) == (shape.class().id, &numbers, index.unique) {
        return Ok(None);
    }
    let what =
        format!("its index {:?} has another class or other fields, or is unique in one of the two only", index.name);
    Err(unfit_error(shape.class(), what))
}

/// The class's own field that a field of a program corresponds to.
fn field_of<'a>(
    class: &'a Class,
    wanted: &WantedClass,
    want: &FieldDefinition,
) -> Result<Option<&'a Field>, CatalogError> {
    match wanted.numbers.get(&want.name) {
        None => Ok(class.fields.iter().find(|field| field.name == want.name)),
        Some(number) => match class.fields.iter().find(|field| field.number == *number) {
            Some(field) => Ok(Some(field)),
            None => Err(unknown_number_error(class, want, *number)),
        },
    }
}

/// The error if a program gives numbers to fields of a class that does not exist.
pub(super) fn preset_number_error(wanted: &WantedClass) -> Option<CatalogError> {
    let (field, number) = wanted.numbers.iter().next()?;
    let why = format!("the program gives it the number {number}: a new class gets its numbers from the catalogue");
    Some(CatalogError::invalid("a field of a new class", field, why))
}

fn unknown_number_error(class: &Class, want: &FieldDefinition, number: FieldNumber) -> CatalogError {
    unfit_error(class, format!("it has no field with the number {number}, which the program gives to {:?}", want.name))
}

/// Whether a program with one type can read values of the other without conversion: the types are equal, except that references
/// may name an ancestor.
fn can_read(schema: &Schema, program: &FieldType, class: &FieldType) -> bool {
    match (program, class) {
        (FieldType::Reference(_), FieldType::Reference(None)) => true,
        (FieldType::Reference(Some(program)), FieldType::Reference(Some(class))) => {
            program == class || schema.is_below(program, class)
        }
        (FieldType::List(program), FieldType::List(class)) | (FieldType::Set(program), FieldType::Set(class)) => {
            can_read(schema, program, class)
        }
        (FieldType::Map(key, program), FieldType::Map(of, class)) => {
            can_read(schema, key, of) && can_read(schema, program, class)
        }
        (program, class) => program == class,
    }
}

fn unfit_error(class: &Class, difference: String) -> CatalogError {
    CatalogError::Incompatible { class: class.name.clone(), difference }
}
