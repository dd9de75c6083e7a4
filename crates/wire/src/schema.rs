//! Types of fields as messages: what of a message each kind of type fills.

use crate::proto::schema::FieldType;
use crate::proto::schema::field_type::Kind;

impl FieldType {
    /// A type without parts.
    #[must_use]
    pub fn plain(kind: Kind) -> Self {
        Self { kind: kind as i32, class: None, element: None, value: None }
    }

    /// A reference to objects of a class, or to any.
    #[must_use]
    pub fn reference(class: Option<String>) -> Self {
        Self { class, ..Self::plain(Kind::Reference) }
    }

    /// A list or a set of this.
    #[must_use]
    pub fn of(kind: Kind, element: Self) -> Self {
        Self { element: Some(Box::new(element)), ..Self::plain(kind) }
    }

    /// A map from this to that.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self { value: Some(Box::new(value)), ..Self::of(Kind::Map, key) }
    }
}
