//! The programs of clients that read and write the members of a set as structs: each knows the fields that the class had when the program
//! was built.
//!
//! A field is a list as text: `d2:17,31,`. The text begins with the field's default, which is all that an object has which is older than the field.

use std::sync::Arc;

use client::driver::{KnownClasses, StructMapping};
use client::persistent::{ClassDescription, Classes, FieldDescription, FieldReader, FieldWriter, Persistent};
use model::{Error, ErrorKind, FieldDefinition, FieldType, Object, RecordRef, Result, Value};

use crate::plan::{Key, MAX_ADDED_FIELDS};

/// The name of the field with the operation that has inserted a member.
pub const NUMBER: &str = "number";
/// The name of the first text, which every version of a class has.
pub const LOG: &str = "log";
/// The names and defaults of the fields that are added to a class, in this order.
const ADDED: [(&str, &str); MAX_ADDED_FIELDS] = [("first", "d1:"), ("second", "d2:"), ("third", "d3:")];
/// The names of the classes of sets, by the numbers of their pages.
const CLASSES: [&str; 3] = ["C0", "C1", "C2"];

/// The definition of the text with this number, as it is added to a class.
#[must_use]
pub fn added_field(text: usize) -> FieldDefinition {
    FieldDefinition::required(text_name(text), FieldType::String).with_default(text_default(text))
}

/// The name of a text: 0 is the one that every version of a class has, and the others are added.
#[must_use]
pub fn text_name(text: usize) -> &'static str {
    if text == 0 { LOG } else { ADDED[text - 1].0 }
}

/// What a text is in objects that lack it.
#[must_use]
pub fn text_default(text: usize) -> &'static str {
    if text == 0 { "" } else { ADDED[text - 1].1 }
}

/// The elements of a text.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it does not begin with its default, or is no list.
pub fn elements(number: usize, text: &str) -> Result<Vec<i64>> {
    let wrong = || {
        let (name, default) = (text_name(number), text_default(number));
        Error::new(ErrorKind::Invalid, format!("{name} is {text:?}, and begins with {default:?} in every object"))
    };
    let list = text.strip_prefix(text_default(number)).ok_or_else(wrong)?;
    list.split_terminator(',').map(|element| element.parse().map_err(|_| wrong())).collect()
}

/// A program that knows the members of the sets of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The page.
    pub page: u64,
    /// The number of added fields that it knows.
    pub added: usize,
}

/// What a program reads of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The operation that has inserted it.
    pub number: i64,
    /// The texts that the program knows.
    pub texts: Vec<String>,
}

/// Calls a function with the struct of a program.
macro_rules! with_struct {
    ($program:expr, $function:ident($($argument:expr),*)) => {
        match ($program.page, $program.added) {
            (1, 0) => $function::<MemberStruct<1, 0>>($($argument),*),
            (1, 1) => $function::<MemberStruct<1, 1>>($($argument),*),
            (1, 2) => $function::<MemberStruct<1, 2>>($($argument),*),
            (1, 3) => $function::<MemberStruct<1, 3>>($($argument),*),
            (2, 0) => $function::<MemberStruct<2, 0>>($($argument),*),
            (2, 1) => $function::<MemberStruct<2, 1>>($($argument),*),
            (2, 2) => $function::<MemberStruct<2, 2>>($($argument),*),
            (2, 3) => $function::<MemberStruct<2, 3>>($($argument),*),
            _ => panic!("programs know pages 1 and 2 and {MAX_ADDED_FIELDS} added fields, and this is {:?}", $program),
        }
    };
}

impl Program {
    /// The program for the sets of a page.
    #[must_use]
    pub fn of(guard: Key, added: usize) -> Self {
        Self { page: guard.page, added }
    }

    /// The number of texts that it knows.
    #[must_use]
    pub fn texts(self) -> usize {
        self.added + 1
    }

    /// The mapping of its struct to the classes that its client knows.
    ///
    /// # Errors
    /// If the client does not know the class, or lacks a field of the struct.
    pub fn mapping(self, classes: &KnownClasses) -> Result<Arc<StructMapping>> {
        with_struct!(self, mapping_of(classes))
    }

    /// Reads a member.
    ///
    /// # Errors
    /// If a value does not fit.
    pub fn read(self, mapping: &StructMapping, object: &Object) -> Result<Member> {
        with_struct!(self, read(mapping, object))
    }

    /// Writes a member in place of an object, or as a new one.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn write(self, mapping: &StructMapping, member: &Member, before: Option<&Object>) -> Result<bytes::Bytes> {
        with_struct!(self, write(mapping, member, before))
    }

    /// A new member.
    #[must_use]
    pub fn new_member(self, number: i64) -> Member {
        Member { number, texts: (0..self.texts()).map(|text| text_default(text).to_owned()).collect() }
    }
}

fn mapping_of<T: MemberFields>(classes: &KnownClasses) -> Result<Arc<StructMapping>> {
    classes.mapping::<T>()
}

fn read<T: MemberFields>(mapping: &StructMapping, object: &Object) -> Result<Member> {
    T::from_record(&RecordRef::new(&object.data)?, mapping.layout()).map(T::into_member)
}

fn write<T: MemberFields>(mapping: &StructMapping, member: &Member, before: Option<&Object>) -> Result<bytes::Bytes> {
    if before.is_none() {
        mapping.layout().check_complete()?;
    }
    let before = before.map(|object| RecordRef::new(&object.data)).transpose()?;
    T::of_member(member).to_record(mapping.layout(), before.as_ref())
}

/// A member as a struct of a program.
trait MemberFields: Persistent {
    fn of_member(member: &Member) -> Self;
    fn into_member(self) -> Member;
}

/// The struct of a program that knows some added fields.
struct MemberStruct<const PAGE: usize, const ADDED_FIELDS: usize> {
    number: i64,
    log: Option<String>,
    added: [String; ADDED_FIELDS],
}

impl<const PAGE: usize, const ADDED_FIELDS: usize> Persistent for MemberStruct<PAGE, ADDED_FIELDS> {
    const CLASS: &'static str = CLASSES[PAGE];

    fn class() -> ClassDescription {
        let field = |name, ty, optional, default| FieldDescription {
            class: Self::CLASS,
            name,
            number: None,
            ty,
            optional,
            default,
        };
        let own = [field(NUMBER, FieldType::Int64, true, None), field(LOG, FieldType::String, true, None)];
        let added = ADDED.iter().take(ADDED_FIELDS);
        let added = added.map(|(name, default)| field(name, FieldType::String, false, Some(Value::from(*default))));
        let fields = own.into_iter().chain(added).collect();
        ClassDescription { name: Self::CLASS, parent: None, fields, indexes: Vec::new() }
    }

    fn add_related(_: &mut Classes) {}

    fn write(&self, record: &mut FieldWriter<'_>) -> Result<()> {
        record.put(&self.number)?;
        record.put(&self.log)?;
        self.added.iter().try_for_each(|text| record.put(text))
    }

    fn read(record: &mut FieldReader<'_>) -> Result<Self> {
        let (number, log) = (record.take()?, record.take()?);
        let mut added = [const { String::new() }; ADDED_FIELDS];
        for text in &mut added {
            *text = record.take()?;
        }
        Ok(Self { number, log, added })
    }
}

impl<const PAGE: usize, const ADDED_FIELDS: usize> MemberFields for MemberStruct<PAGE, ADDED_FIELDS> {
    fn of_member(member: &Member) -> Self {
        let log = member.texts.first().cloned().filter(|log| !log.is_empty());
        let added = std::array::from_fn(|at| member.texts[at + 1].clone());
        Self { number: member.number, log, added }
    }

    fn into_member(self) -> Member {
        let texts = [self.log.unwrap_or_default()].into_iter().chain(self.added).collect();
        Member { number: self.number, texts }
    }
}
