//! Positions of a struct's fields in records.

use std::collections::BTreeMap;

use super::{ClassId, Error, ErrorKind, FieldNumber, FieldType, Persistent, RecordRef, Result, Value};
use model::ValueRef;
use query::{Field, Schema, Type};

use crate::plant::{Bug, planted};

/// The mapping of a struct's fields to those of its class.
#[derive(Clone, Debug)]
pub struct Layout {
    class: ClassId,
    class_name: &'static str,
    /// In the order of the struct's description.
    fields: Vec<FieldSlot>,
    /// For each field of the class, whether the struct has it. Fields that the struct lacks are kept; other fields in a
    /// record belong to no class any more.
    numbers: BTreeMap<FieldNumber, bool>,
    /// The last field number that was given in the class hierarchy. Numbers increase, so a larger one is newer than the schema.
    last: FieldNumber,
    /// The values of new objects for fields that the struct does not know.
    initial: Vec<(FieldNumber, Value)>,
    /// A required field that the struct does not know.
    missing_required: Option<String>,
}

/// The position of a field, and how it is read.
#[derive(Clone, Debug)]
pub(super) struct FieldSlot {
    pub(super) number: FieldNumber,
    name: &'static str,
    /// The field of the current class; `None` if the layout was made without a schema.
    ty: Option<Type>,
    default: Value,
    required: bool,
}

impl Layout {
    /// The layout of a struct by the schema of its space.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such class or field, [`ErrorKind::Invalid`] if a field is of another type.
    pub fn of<T: Persistent>(schema: &Schema) -> Result<Self> {
        let description = T::class();
        let class = schema.class_named(description.name)?;
        let mut fields = Vec::with_capacity(description.fields.len());
        for wanted in &description.fields {
            let found = match wanted.number {
                Some(number) => schema.field(class.id, number),
                None => schema.field_named(class.id, wanted.name),
            };
            let Some(field) = found else {
                let message = format!("class {} has no field {}, which the program has", class.name, wanted.name);
                return Err(Error::new(ErrorKind::NotFound, format!("{message}: add it to the class first")));
            };
            if !matches_type(&wanted.ty, &field.field_type) {
                let (has, wants) = (schema.type_name(&field.field_type), &wanted.ty);
                let message = format!("field {} of class {} is of type {has}", wanted.name, class.name);
                return Err(Error::new(ErrorKind::Invalid, format!("{message}, and of type {wants} in the program")));
            }
            fields.push(FieldSlot {
                number: field.number,
                name: wanted.name,
                ty: Some(field.field_type.clone()),
                default: field.missing.clone().filter(|_| !planted(Bug::DefaultNotRead)).unwrap_or(Value::Null),
                required: !field.optional,
            });
        }
        let own = |number| fields.iter().any(|place| place.number == number);
        let unknown = || schema.fields(class.id).iter().filter(|field| !own(field.number));
        let not_null = |value: &Option<Value>| value.clone().filter(|value| *value != Value::Null);
        let initial = unknown().filter_map(|field| Some((field.number, not_null(&field.default)?))).collect();
        let has_value = |field: &Field| not_null(&field.missing).is_some() || not_null(&field.default).is_some();
        let is_needed = |field: &&Field| !field.optional && !has_value(field);
        let lacks = unknown().find(is_needed).map(|field| field.name.clone());
        // Of subclasses, too: the object may be of one.
        let family = schema.family(class.id);
        let all = family.iter().flat_map(|id| schema.fields(*id)).map(|field| field.number);
        let numbers = all.map(|number| (number, own(number))).collect();
        Ok(Self {
            class: class.id,
            class_name: description.name,
            fields,
            numbers,
            last: schema.last_number(class.id),
            initial: if planted(Bug::DefaultsNotInserted) { Vec::new() } else { initial },
            missing_required: lacks,
        })
    }

    /// The layout of a struct without a catalogue: fields have their declared numbers, or else are numbered from 0.
    #[must_use]
    pub fn from_declaration<T: Persistent>(class: ClassId) -> Self {
        let description = T::class();
        let place = |(index, field): (u32, super::FieldDescription)| FieldSlot {
            number: field.number.unwrap_or(FieldNumber(index)),
            name: field.name,
            ty: None,
            default: field.default.unwrap_or(Value::Null),
            required: !field.optional,
        };
        let fields: Vec<FieldSlot> = (0..).zip(description.fields).map(place).collect();
        let numbers = fields.iter().map(|place| (place.number, true)).collect();
        let last = FieldNumber(u32::MAX);
        Self { class, class_name: description.name, fields, numbers, last, initial: Vec::new(), missing_required: None }
    }

    /// The class.
    #[must_use]
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The numbers of the struct's fields, in the order of its description.
    pub fn numbers(&self) -> impl Iterator<Item = FieldNumber> {
        self.fields.iter().map(|place| place.number)
    }

    /// Checks that the struct has all required fields of the class.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with a required field that the struct does not know.
    pub fn check_complete(&self) -> Result<()> {
        let Some(field) = &self.missing_required else { return Ok(()) };
        let class = self.class_name;
        let message = format!("field {field} of class {class} has to have a value, and the program does not know it");
        Err(Error::new(ErrorKind::Invalid, message + ": add it to the struct, or give it a default in the class"))
    }

    /// The values of new objects for fields that the struct does not know.
    pub(super) fn initial(&self) -> &[(FieldNumber, Value)] {
        &self.initial
    }

    /// Whether this field of the previous record is kept when the struct is written.
    pub(super) fn keeps(&self, number: FieldNumber) -> bool {
        let is_unknown = self.numbers.get(&number) == Some(&false) && !planted(Bug::UnknownFieldsDropped);
        let is_newer = number > self.last && !planted(Bug::NewerFieldsDropped);
        let is_lost = number <= self.last && !self.numbers.contains_key(&number);
        is_unknown || is_newer || is_lost && planted(Bug::RemovedFieldsKept)
    }

    pub(super) fn field(&self, index: usize) -> Result<&FieldSlot> {
        self.fields.get(index).ok_or_else(|| {
            let message = format!("{} reads or writes more fields than it describes", self.class_name);
            Error::new(ErrorKind::Internal, message)
        })
    }

    /// The value of a field, upgraded to the current class.
    pub(super) fn value(&self, place: &FieldSlot, record: &RecordRef<'_>) -> Result<Value> {
        match record.field(place.number)? {
            None => Ok(place.default.clone()),
            Some(ValueRef::Null) if place.required => Ok(place.default.clone()),
            Some(value) => {
                let value = value.to_value()?;
                Ok(match &place.ty {
                    Some(ty) if planted(Bug::WidenedRounded) => ty.convert(Type::Float64.convert(value)),
                    Some(ty) => ty.convert(value),
                    None => value,
                })
            }
        }
    }

    pub(super) fn does_not_fit(&self, index: usize, why: &Error) -> Error {
        let name = self.fields.get(index).map_or("", |place| place.name);
        Error::new(why.kind(), format!("field {name} of class {}: {}", self.class_name, why.message()))
    }
}

/// Whether a field of the program has the type of the field in the class. The class of a reference is not compared.
fn matches_type(wanted: &FieldType, ty: &Type) -> bool {
    match (wanted, ty) {
        (FieldType::Bool, Type::Bool)
        | (FieldType::Int64, Type::Int64)
        | (FieldType::Float64, Type::Float64)
        | (FieldType::Decimal, Type::Decimal)
        | (FieldType::String, Type::String)
        | (FieldType::Bytes, Type::Bytes)
        | (FieldType::Date, Type::Date)
        | (FieldType::Timestamp, Type::Timestamp)
        | (FieldType::Reference(_), Type::Reference(_)) => true,
        (FieldType::List(wanted), Type::List(ty)) | (FieldType::Set(wanted), Type::Set(ty)) => matches_type(wanted, ty),
        (FieldType::Map(wanted_key, wanted), Type::Map(key, ty)) => {
            matches_type(wanted_key, key) && matches_type(wanted, ty)
        }
        _ => false,
    }
}
