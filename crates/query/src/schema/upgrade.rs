//! Rewrites old records as the current class would write them.

use bytes::Bytes;
use model::{ClassId, RecordBuilder, RecordRef, Result};

use super::Schema;
use crate::plant::{Bug, planted};

impl Schema {
    /// The record as the current class would write it; `None` if the record is current.
    ///
    /// Missing fields get their defaults, widened values are converted, and removed fields are omitted. A field whose
    /// number is larger than the last one that this schema knows in the tree of the class ([`Schema::last_number`]) is
    /// newer than the schema, and is kept.
    ///
    /// # Errors
    /// [`NotFound`](model::ErrorKind::NotFound) if there is no such class, [`Corrupt`](model::ErrorKind::Corrupt) if
    /// the record is damaged, [`TooLarge`](model::ErrorKind::TooLarge) if it would be too large for a record.
    pub fn upgrade_record(&self, record: &RecordRef<'_>, class: ClassId) -> Result<Option<Bytes>> {
        let last = self.last_number(class);
        let mut builder = RecordBuilder::new();
        for (field, value) in self.read(record, class)? {
            if planted(Bug::DefaultNotRewritten) && record.field(field.number)?.is_none() {
                continue;
            }
            builder.set_value(field.number, &value)?;
        }
        for field in record.fields() {
            let (number, value) = field?;
            let is_newer = number > last && !planted(Bug::NewerFieldDropped);
            let is_lost = number <= last && self.field(class, number).is_none();
            if is_newer || is_lost && planted(Bug::RemovedFieldRewritten) {
                builder.set(number, value)?;
            }
        }
        let renewed = builder.build()?;
        // Compared by fields, so that a record is not rewritten only because its bytes differ.
        let same = RecordRef::new(&renewed)?.to_fields()? == record.to_fields()?;
        Ok((!same).then_some(renewed))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use model::{FieldNumber, Value};

    use super::*;
    use crate::{Class, Type};

    const PERSON: ClassId = ClassId(1);
    const STUDENT: ClassId = ClassId(2);

    /// Field 2 was removed, 1 was widened from int64, 4 was added.
    fn schema() -> Schema {
        let person = Class::new(PERSON, "Person")
            .field(0, "name", Type::String)
            .field(1, "height", Type::Float64)
            .required(4, "visits", Type::Int64, 7);
        Schema::new([person, Class::new(STUDENT, "Student").extends(PERSON).field(3, "year", Type::Int64)]).unwrap()
    }

    fn record(fields: &[(u32, Value)]) -> Bytes {
        let mut builder = RecordBuilder::new();
        for (number, value) in fields {
            builder.set_value(FieldNumber(*number), value).unwrap();
        }
        builder.build().unwrap()
    }

    fn upgrade(class: ClassId, fields: &[(u32, Value)]) -> Option<BTreeMap<FieldNumber, Value>> {
        let bytes = record(fields);
        let renewed = schema().upgrade_record(&RecordRef::new(&bytes).unwrap(), class).unwrap()?;
        Some(RecordRef::new(&renewed).unwrap().to_fields().unwrap())
    }

    #[test]
    pub(crate) fn old_record_gets_new_fields_and_loses_removed_ones() {
        let old = [(0, "Ann".into()), (1, Value::Int64(2)), (2, "gone".into())];
        let expected = [(0, "Ann".into()), (1, Value::Float64(2.0)), (4, Value::Int64(7))];
        let expected = expected.map(|(number, value)| (FieldNumber(number), value)).into();
        assert_eq!(upgrade(PERSON, &old), Some(expected));
    }

    #[test]
    fn current_record_is_not_changed() {
        assert_eq!(upgrade(PERSON, &[(0, "Ann".into()), (1, Value::Float64(1.5)), (4, Value::Int64(0))]), None);
        let student = [(0, "Bob".into()), (1, Value::Null), (3, Value::Int64(2)), (4, Value::Int64(0))];
        assert_eq!(upgrade(STUDENT, &student), None);
    }

    #[test]
    pub(crate) fn a_field_that_is_younger_than_the_schema_is_kept() {
        let young = [(0, "Ann".into()), (1, Value::Int64(2)), (5, "new".into())];
        assert_eq!(upgrade(PERSON, &young).unwrap()[&FieldNumber(5)], Value::from("new"));
    }

    #[test]
    pub(crate) fn the_last_field_of_a_class_is_omitted_when_it_was_removed() {
        let mut class = Class::new(PERSON, "Person").field(0, "name", Type::String);
        class.last_number = 1;
        let record = record(&[(0, "Ann".into()), (1, "gone".into()), (2, "newer".into())]);
        let schema = Schema::new([class, Class::new(STUDENT, "Student").extends(PERSON)]).unwrap();
        for class in [PERSON, STUDENT] {
            assert_eq!(schema.last_number(class), FieldNumber(1));
            let renewed = schema.upgrade_record(&RecordRef::new(&record).unwrap(), class).unwrap().unwrap();
            let fields = RecordRef::new(&renewed).unwrap().to_fields().unwrap();
            let expected = [(FieldNumber(0), "Ann".into()), (FieldNumber(2), "newer".into())];
            assert_eq!(fields, expected.into());
        }
    }

    #[test]
    fn upgraded_record_is_current() {
        let renewed = upgrade(PERSON, &[(2, Value::Int64(1))]).unwrap();
        let fields: Vec<(u32, Value)> = renewed.into_iter().map(|(number, value)| (number.0, value)).collect();
        assert_eq!(upgrade(PERSON, &fields), None);
    }
}
