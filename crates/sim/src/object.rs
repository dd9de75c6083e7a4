//! The objects of a run: lists, to which transactions append, and numbers, which they replace.
//!
//! A cluster stores them as [`Object`]s, as a real one does: every machine and every driver of a run works on the type that
//! ships. Their bytes are text (`[3,17,`, `-5`), so that a transcript shows them as they are, and a list becomes longer by an append.

use std::fmt::Write;

use model::{ClassId, ContentOp, ContentPatch, FieldNumber, Kind, Object, RecordBuilder, RecordRef, ValueRef};
use wire::cluster::IndexRange;

/// The field of a member of a set that has its number.
pub const NUMBER_FIELD: FieldNumber = FieldNumber(1);
/// The field of an object with a unique value.
pub const VALUE_FIELD: FieldNumber = FieldNumber(2);

/// The first field of a set's member that has a list as text, which every version of its class has.
pub const LOG_FIELD: FieldNumber = FieldNumber(3);

/// What an object of a run contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A list, to which elements are appended.
    List(Vec<i64>),
    /// A number, which is replaced.
    Number(i64),
}

impl Content {
    /// The object that contains this.
    #[must_use]
    pub fn encode(&self) -> Object {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let written = match self {
            Self::Number(number) => write!(text, "{number}"),
            Self::List(list) => {
                text.push('[');
                list.iter().try_for_each(|element| write!(text, "{element},"))
            }
        };
        assert!(written.is_ok(), "a string takes all that is written to it");
        Object::blob(text.into_bytes().into())
    }

    /// The member of a set with this class: a record with a number.
    #[must_use]
    pub fn encode_member(number: i64, class: ClassId) -> Object {
        let mut record = RecordBuilder::new();
        let data = record.set(NUMBER_FIELD, number).map(drop).and_then(|()| record.build());
        assert!(data.is_ok(), "a record takes a number: {data:?}");
        Object::record(class, data.unwrap_or_default())
    }

    /// An object of this class with a number and a unique value.
    #[must_use]
    pub fn encode_claim(number: i64, value: i64, class: ClassId) -> Object {
        let mut record = RecordBuilder::new();
        let set = record.set(NUMBER_FIELD, number).and_then(|record| record.set(VALUE_FIELD, value)).map(drop);
        let data = set.and_then(|()| record.build());
        assert!(data.is_ok(), "a record takes two numbers: {data:?}");
        Object::record(class, data.unwrap_or_default())
    }

    /// The unique value of an object, if it has one.
    #[must_use]
    pub fn unique_value(object: &Object) -> Option<i64> {
        if object.kind != Kind::Record {
            return None;
        }
        match RecordRef::new(&object.data).ok()?.field(VALUE_FIELD).ok()? {
            Some(ValueRef::Int64(value)) => Some(value),
            _ => None,
        }
    }

    /// What an object contains; `None` if it is not an object of a run.
    #[must_use]
    pub fn decode(object: &Object) -> Option<Self> {
        if object.kind == Kind::Record {
            return match RecordRef::new(&object.data).ok()?.field(NUMBER_FIELD).ok()? {
                Some(ValueRef::Int64(number)) => Some(Self::Number(number)),
                _ => None,
            };
        }
        let text = std::str::from_utf8(&object.data).ok()?;
        match text.strip_prefix('[') {
            None => text.parse().ok().map(Self::Number),
            Some("") => Some(Self::List(Vec::new())),
            Some(elements) => {
                let elements = elements.strip_suffix(',')?.split(',').map(str::parse);
                elements.collect::<Result<_, _>>().ok().map(Self::List)
            }
        }
    }

    /// The change that appends an element to a list, at the end of these bytes or wherever the list ends then.
    #[must_use]
    pub fn append_patch(list: Option<&[u8]>, element: i64) -> ContentPatch {
        let data = format!("{element},").into();
        let op = match list {
            Some(list) => ContentOp::Write { offset: list.len() as u64, data },
            None => ContentOp::Append { data },
        };
        ContentPatch::new(vec![op])
    }

    /// The offset of an element in the bytes of a list, if it is there.
    #[must_use]
    pub fn offset_in_list(list: &[i64], element: i64) -> Option<u64> {
        let at = list.iter().position(|one| *one == element)?;
        Some(Self::List(list[..at].to_vec()).encode().data.len() as u64)
    }

    /// The number that an object contains, if it contains one.
    #[must_use]
    pub fn number(object: &Object) -> Option<i64> {
        match Self::decode(object) {
            Some(Self::Number(number)) => Some(number),
            Some(Self::List(_)) | None => None,
        }
    }

    /// The list that an object contains, if it contains one.
    #[must_use]
    pub fn list(object: &Object) -> Option<Vec<i64>> {
        match Self::decode(object) {
            Some(Self::List(list)) => Some(list),
            Some(Self::Number(_)) | None => None,
        }
    }
}

/// All entries of an index.
#[must_use]
pub fn whole_index(index: u32, reverse: bool) -> IndexRange {
    IndexRange { index, from: Vec::new().into(), to: vec![0xff].into(), reverse }
}
