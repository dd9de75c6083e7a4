//! Structs that are stored as records.
//!
//! A [`Persistent`] struct describes its class; `#[derive(Persistent)]` (crates/client-derive) implements the trait. The catalogue
//! assigns the numbers of fields, so a [`Layout`] finds the fields of a struct by name in the schema, once. Records are then
//! written and read by number.
//!
//! 1. Fields that the struct does not know are kept: [`Persistent::to_record`] takes the previous record and replaces the fields of
//!    the struct. So a program that is older than the class, or that uses a superclass of the object's class, loses nothing.
//!    Fields that the class no longer has are dropped. Fields that are newer than the schema are kept, so a schema may be old.
//! 2. No value is converted silently: a value that does not fit the struct's field is an error that names field and class.
//!
//! # The derive macro
//!
//! ```
//! use client::persistent::Layout;
//! use client::{Persistent, Ref};
//!
//! #[derive(Persistent, Debug, PartialEq)]
//! struct Person {
//!     #[persistent(index)]
//!     name: String,
//!     age: Option<i64>,
//!     boss: Option<Ref<Person>>,
//! }
//!
//! let layout = Layout::from_declaration::<Person>(model::ClassId(1));
//! let ann = Person { name: "Ann".into(), age: Some(30), boss: None };
//! let record = ann.to_record(&layout, None)?;
//! assert_eq!(Person::from_record(&model::RecordRef::new(&record)?, &layout)?, ann);
//! assert_eq!(Person::class().indexes[0].name, "Person.name");
//! # Ok::<(), model::Error>(())
//! ```
//!
//! Attributes of a struct:
//!
//! | attribute | means |
//! | --- | --- |
//! | `class = "com.example.Person"` | the name of the class; by default that of the struct |
//! | `index(name, age)`, `unique(name, age)` | an index of several fields |
//! | `crate = "path"` | the crate that has the module `persistent`; by default `client` |
//!
//! Attributes of a field:
//!
//! | attribute | means |
//! | --- | --- |
//! | `rename = "full_name"` | the field's name in the class |
//! | `number = 3` | the field's number in the class: the field is found by it, and not by its name |
//! | `default`, `default = 3` | its value in new objects and in records that lack it |
//! | `index`, `unique` | an index of this field |
//! | `parent` | the fields of another persistent struct, whose class this class extends; on the first field only |
//! | `skip` | the field is not stored; it is `Default` when read |
//!
//! A struct that cannot be stored does not compile, and the message says why:
//!
//! ```compile_fail,E0277
//! #[derive(client::Persistent)]
//! struct Thing {
//!     content: Vec<u8>, // bytes are `Bytes`
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! enum Colour {
//!     Red,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! struct Pair(i64, i64);
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! struct Generic<T> {
//!     value: T,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! struct Misspelt {
//!     #[persistent(indexed)]
//!     value: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! struct Twice {
//!     a: i64,
//!     #[persistent(rename = "a")]
//!     b: i64,
//! }
//! ```
//!
//! ```compile_fail
//! #[derive(client::Persistent)]
//! #[persistent(index(colour))]
//! struct NoSuchField {
//!     a: i64,
//! }
//! ```

mod classes;
mod layout;
mod values;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, FieldNumber, Oid, RecordBuilder, RecordRef, Result, Value};

pub use classes::Classes;
pub use layout::Layout;
pub use values::FieldValue;

// For derived code.
#[doc(hidden)]
pub use model::{FieldNumber as Number, Result as DerivedResult};

/// A struct that is stored as a record of a class.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a persistent struct",
    note = "write #[derive(Persistent)] above it; it must own its fields, and be Send and Sync"
)]
pub trait Persistent: Sized + Send + Sync + 'static {
    /// The name of the class.
    const CLASS: &'static str;

    /// Whether the struct has fields that are not stored. Each transaction decodes such structs for itself: what it keeps in those fields
    /// must not be seen by others.
    const HAS_SKIPPED_FIELDS: bool = false;

    /// The description of the class; inherited fields come first.
    fn class() -> ClassDescription;

    /// Adds the classes that this one extends or refers to.
    fn add_related(classes: &mut Classes);

    /// Writes the fields, in the order of [`ClassDescription::fields`].
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if a value is too large for a record.
    fn write(&self, record: &mut FieldWriter<'_>) -> Result<()>;

    /// Reads the fields, in the same order.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a value does not fit its field, [`ErrorKind::Corrupt`] if the record is damaged.
    fn read(record: &mut FieldReader<'_>) -> Result<Self>;

    /// Encodes the struct as a record. Fields that the struct does not know are those of the previous record; in a new record they
    /// have the defaults of the class.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if it is too large for a record, [`ErrorKind::Corrupt`] if the previous record is damaged.
    fn to_record(&self, layout: &Layout, before: Option<&RecordRef<'_>>) -> Result<Bytes> {
        let mut builder = RecordBuilder::new();
        let initial = if before.is_none() { layout.initial() } else { &[] };
        for (number, value) in initial {
            builder.set_value(*number, value)?;
        }
        for field in before.into_iter().flat_map(RecordRef::fields) {
            let (number, value) = field?;
            if layout.keeps(number) {
                builder.set(number, value)?;
            }
        }
        let mut writer = FieldWriter { layout, builder, next: 0 };
        self.write(&mut writer)?;
        writer.builder.build()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// As of [`Persistent::read`].
    fn from_record(record: &RecordRef<'_>, layout: &Layout) -> Result<Self> {
        Self::read(&mut FieldReader { layout, record, next: 0 })
    }
}

/// A class as a program sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassDescription {
    /// Its name.
    pub name: &'static str,
    /// The name of the class that it extends.
    pub parent: Option<&'static str>,
    /// Its fields, after those of the classes that it extends.
    pub fields: Vec<FieldDescription>,
    /// Its own indexes.
    pub indexes: Vec<IndexDescription>,
}

/// A field as a program sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDescription {
    /// The class that has it: the struct's own, or one that it extends.
    pub class: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its number, if the program knows it. The field is then found by its number and not by its name.
    pub number: Option<FieldNumber>,
    /// What it holds.
    pub ty: FieldType,
    /// Whether it may be null.
    pub optional: bool,
    /// The default, for new objects and for records that lack the field.
    pub default: Option<Value>,
}

/// An index as a program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// Its name, unique in the space.
    pub name: String,
    /// The names of its fields.
    pub fields: Vec<&'static str>,
    /// Whether no two objects may have the same values.
    pub unique: bool,
}

/// The type of a field, with classes by name.
pub type FieldType = model::FieldType<&'static str>;

/// Collects the fields of a struct for a record, in order.
#[derive(Debug)]
pub struct FieldWriter<'l> {
    layout: &'l Layout,
    builder: RecordBuilder,
    next: usize,
}

/// Returns the fields of a record for a struct, in order.
#[derive(Debug)]
pub struct FieldReader<'l> {
    layout: &'l Layout,
    record: &'l RecordRef<'l>,
    next: usize,
}

impl FieldWriter<'_> {
    /// Writes the next field.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the value is too large for a record, [`ErrorKind::Internal`] if there is no such field.
    pub fn put(&mut self, value: &impl FieldValue) -> Result<()> {
        let field = self.layout.field(self.next)?;
        self.next += 1;
        self.builder.set_value(field.number, &value.to_value())?;
        Ok(())
    }
}

impl FieldReader<'_> {
    /// Reads the next field.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the value does not fit, [`ErrorKind::Corrupt`] if the record is damaged,
    /// [`ErrorKind::Internal`] if there is no such field.
    pub fn take<T: FieldValue>(&mut self) -> Result<T> {
        if let Some(value) = self.take_encoded()? {
            return Ok(value);
        }
        let value = self.value()?;
        self.convert(value)
    }

    /// Reads the next field; its default if the record lacks it.
    ///
    /// # Errors
    /// As of [`FieldReader::take`].
    pub fn take_or<T: FieldValue>(&mut self, default: impl FnOnce() -> T) -> Result<T> {
        if let Some(value) = self.take_encoded()? {
            return Ok(value);
        }
        match self.value()? {
            Value::Null if !T::OPTIONAL => Ok(default()),
            value => self.convert(value),
        }
    }

    /// Takes the next field if the record has it as the struct has it, which is the usual case.
    fn take_encoded<T: FieldValue>(&mut self) -> Result<Option<T>> {
        let Some(encoded) = self.record.field(self.layout.field(self.next)?.number)? else { return Ok(None) };
        let value = T::from_encoded(encoded)?;
        self.next += usize::from(value.is_some());
        Ok(value)
    }

    fn value(&mut self) -> Result<Value> {
        let field = self.layout.field(self.next)?;
        self.next += 1;
        self.layout.value(field, self.record)
    }

    fn convert<T: FieldValue>(&self, value: Value) -> Result<T> {
        T::from_value(value).map_err(|why| self.layout.does_not_fit(self.next - 1, &why))
    }
}

/// A reference to an object that is stored as a `T`.
///
/// It consists of the identifier only; the client fetches the object when it is loaded. It is `Copy` for every `T`.
pub struct Ref<T> {
    oid: Oid,
    class: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// A reference to the object with this identifier, which should be of the class of `T` or a subclass.
    #[must_use]
    pub const fn new(oid: Oid) -> Self {
        Self { oid, class: PhantomData }
    }

    /// The object's identifier.
    #[must_use]
    pub const fn oid(self) -> Oid {
        self.oid
    }
}

impl<T> From<Ref<T>> for Oid {
    fn from(reference: Ref<T>) -> Self {
        reference.oid
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.oid == other.oid
    }
}

impl<T> Eq for Ref<T> {}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.oid.cmp(&other.oid)
    }
}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.oid.hash(state);
    }
}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({})", self.oid)
    }
}

impl<T> fmt::Display for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.oid.fmt(f)
    }
}
