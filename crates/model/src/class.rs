//! Classes of records: their fields, and how records of older versions are read.
//!
//! Records contain field numbers and typed values. So a record of any older version is read through the newest version
//! of its class ([`Field::upgrade_value`]) without being rewritten.

use std::convert::Infallible;

use crate::{ClassId, FieldNumber, FieldType, Value};

/// A class of records in a space.
///
/// `C` is the name of a class in references, as in [`FieldType`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Class<C = String> {
    /// The number of the class in the space; part of the identifiers of its objects.
    #[cfg_attr(feature = "serde", serde(with = "json::class_id"))]
    pub id: ClassId,
    /// The class's name, which never changes: `Person`, or `com.example.Person`.
    pub name: String,
    /// The parent class, which never changes.
    #[cfg_attr(
        feature = "serde",
        serde(with = "json::class_id_option", default, skip_serializing_if = "Option::is_none")
    )]
    pub parent: Option<ClassId>,
    /// The number of this version; versions count from 1.
    pub version: u32,
    /// The class's own fields by ascending number, without those of its ancestors.
    pub fields: Vec<Field<C>>,
    /// In a class without a parent: the last field number assigned in its tree of subclasses, 0 if unknown. Numbers are
    /// never reused, and no two classes of a tree use one number for different fields.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "json::is_zero"))]
    pub last_number: u32,
}

/// A field of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Field<C = String> {
    /// The field's number in records, which never changes.
    #[cfg_attr(feature = "serde", serde(with = "json::field_number"))]
    pub number: FieldNumber,
    /// The field's name, in programs and queries.
    pub name: String,
    /// The type of its values.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub field_type: FieldType<C>,
    /// Whether it can be null.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "json::is_false"))]
    pub optional: bool,
    /// The default value for new objects; null if absent.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::value_json::option", default, skip_serializing_if = "Option::is_none")
    )]
    pub default: Option<Value>,
    /// The value for records without the field, or with null in a field that is no longer nullable; null if absent.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::value_json::option", default, skip_serializing_if = "Option::is_none")
    )]
    pub missing: Option<Value>,
}

/// The definition of a class that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassDefinition {
    /// The class's name.
    pub name: String,
    /// The name of the parent class.
    pub parent: Option<String>,
    /// The class's own fields, in any order.
    pub fields: Vec<FieldDefinition>,
}

/// The definition of a field that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDefinition {
    /// The field's name.
    pub name: String,
    /// The type of its values.
    pub field_type: FieldType,
    /// Whether it can be null.
    pub optional: bool,
    /// The default value for new objects.
    pub default: Option<Value>,
}

impl<C> Class<C> {
    /// A class without parent and fields, in its first version.
    pub fn new(id: ClassId, name: impl Into<String>) -> Self {
        Self { id, name: name.into(), parent: None, version: 1, fields: Vec::new(), last_number: 0 }
    }

    /// The same class with a parent.
    #[must_use]
    pub fn extends(mut self, parent: ClassId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// The same class in another version.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The same class with one more field, which is null in records without it.
    #[must_use]
    pub fn field(mut self, number: u32, name: impl Into<String>, field_type: FieldType<C>) -> Self {
        let (number, name) = (FieldNumber(number), name.into());
        self.fields.push(Field { number, name, field_type, optional: true, default: None, missing: None });
        self
    }

    /// The same class with one more field, which has this value in new objects and in records without it.
    #[must_use]
    pub fn field_with_default(
        self,
        number: u32,
        name: impl Into<String>,
        field_type: FieldType<C>,
        default: impl Into<Value>,
    ) -> Self {
        let mut class = self.field(number, name, field_type);
        if let Some(field) = class.fields.last_mut() {
            field.default = Some(default.into());
            field.missing.clone_from(&field.default);
        }
        class
    }

    /// The same class with one more field that is not nullable. The field has this value in records without it and in
    /// records in which it is null.
    #[must_use]
    pub fn required(
        self,
        number: u32,
        name: impl Into<String>,
        field_type: FieldType<C>,
        default: impl Into<Value>,
    ) -> Self {
        let mut class = self.field_with_default(number, name, field_type, default);
        if let Some(field) = class.fields.last_mut() {
            field.optional = false;
        }
        class
    }

    /// The class with references that name their classes in another way, as in [`FieldType::try_map_classes`].
    ///
    /// # Errors
    /// The first error of `class`.
    pub fn try_map_classes<D, E>(
        &self,
        class: &mut impl FnMut(&C) -> std::result::Result<Option<D>, E>,
    ) -> std::result::Result<Class<D>, E> {
        let fields = self.fields.iter().map(|field| {
            Ok(Field {
                number: field.number,
                name: field.name.clone(),
                field_type: field.field_type.try_map_classes(class)?,
                optional: field.optional,
                default: field.default.clone(),
                missing: field.missing.clone(),
            })
        });
        let fields = fields.collect::<std::result::Result<_, E>>()?;
        let Self { id, parent, version, last_number, .. } = *self;
        Ok(Class { id, name: self.name.clone(), parent, version, fields, last_number })
    }

    /// As [`Class::try_map_classes`], for a conversion that cannot fail.
    #[must_use]
    pub fn map_classes<D>(&self, class: &impl Fn(&C) -> Option<D>) -> Class<D> {
        let Ok(mapped) = self.try_map_classes(&mut |of| Ok::<_, Infallible>(class(of)));
        mapped
    }
}

impl<C> Field<C> {
    /// The value of the field in a record that may be older than the class. `stored` is the value under the field's
    /// number.
    #[must_use]
    pub fn upgrade_value(&self, stored: Option<Value>) -> Value {
        match stored {
            Some(Value::Null) if self.optional => Value::Null,
            None | Some(Value::Null) => self.missing.clone().unwrap_or(Value::Null),
            Some(value) => self.field_type.convert(value),
        }
    }
}

impl Field {
    /// The definition of the field.
    #[must_use]
    pub fn definition(&self) -> FieldDefinition {
        let Self { name, field_type, optional, default, .. } = self.clone();
        FieldDefinition { name, field_type, optional, default }
    }
}

impl FieldDefinition {
    /// A field that is not nullable.
    #[must_use]
    pub fn required(name: impl Into<String>, field_type: FieldType) -> Self {
        Self { name: name.into(), field_type, optional: false, default: None }
    }

    /// A nullable field.
    #[must_use]
    pub fn optional(name: impl Into<String>, field_type: FieldType) -> Self {
        Self { name: name.into(), field_type, optional: true, default: None }
    }

    /// The same field with a default.
    #[must_use]
    pub fn with_default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }
}

/// Identifiers as JSON numbers, checked against their bits.
#[cfg(feature = "serde")]
mod json {
    pub(super) mod class_id {
        use serde::de::Error;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use crate::ClassId;

        pub(in crate::class) fn serialize<S: Serializer>(id: &ClassId, serializer: S) -> Result<S::Ok, S::Error> {
            id.0.serialize(serializer)
        }

        pub(in crate::class) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ClassId, D::Error> {
            check_number(u32::deserialize(from)?)
        }

        pub(in crate::class) fn check_number<E: Error>(number: u32) -> Result<ClassId, E> {
            if number > ClassId::MAX.0 {
                let most = ClassId::MAX.0;
                return Err(E::custom(format_args!("{number} is not a class number: the largest is {most}")));
            }
            Ok(ClassId(number))
        }
    }

    pub(super) mod class_id_option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use crate::ClassId;

        pub(in crate::class) fn serialize<S: Serializer>(
            id: &Option<ClassId>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            id.map(|id| id.0).serialize(serializer)
        }

        pub(in crate::class) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ClassId>, D::Error> {
            Option::<u32>::deserialize(from)?.map(super::class_id::check_number).transpose()
        }
    }

    pub(super) mod field_number {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use crate::FieldNumber;

        pub(in crate::class) fn serialize<S: Serializer>(
            number: &FieldNumber,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            number.0.serialize(serializer)
        }

        pub(in crate::class) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FieldNumber, D::Error> {
            u32::deserialize(from).map(FieldNumber)
        }
    }

    pub(super) fn is_zero(number: &u32) -> bool {
        *number == 0
    }

    pub(super) fn is_false(flag: &bool) -> bool {
        !flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_records_have_the_default_values_of_new_fields() {
        let class: Class = Class::new(ClassId(1), "A")
            .field(1, "plain", FieldType::Int64)
            .field_with_default(2, "late", FieldType::Int64, 7)
            .required(3, "required", FieldType::Float64, 1.5);
        let [plain, late, required] = class.fields.as_slice() else { panic!("{class:?}") };
        assert_eq!((plain.upgrade_value(None), plain.upgrade_value(Some(3.into()))), (Value::Null, 3.into()));
        assert_eq!((late.upgrade_value(None), late.upgrade_value(Some(Value::Null))), (7.into(), Value::Null));
        assert_eq!(required.upgrade_value(None), 1.5.into());
        assert_eq!(required.upgrade_value(Some(Value::Null)), 1.5.into());
        assert_eq!(required.upgrade_value(Some(Value::Int64(2))), 2.0.into());
    }

    #[test]
    fn renaming_references_keeps_the_rest_of_a_class() {
        let boss = FieldType::list(FieldType::Reference(Some("A".to_owned())));
        let class = Class::new(ClassId(1), "A").version(3).required(4, "boss", boss, Value::List(Vec::new()));
        let by_number = class.try_map_classes(&mut |_| Ok::<_, ()>(Some(ClassId(1)))).unwrap();
        assert_eq!(by_number.fields[0].field_type, FieldType::list(FieldType::Reference(Some(ClassId(1)))));
        let back = by_number.try_map_classes(&mut |_| Ok::<_, ()>(Some("A".to_owned()))).unwrap();
        assert_eq!(back, class);
        assert_eq!(class.try_map_classes::<ClassId, _>(&mut |name| Err(name.clone())), Err("A".to_owned()));
    }
}
