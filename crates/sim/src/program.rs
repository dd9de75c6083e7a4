//! The programs of clients that read and write the members of a set as structs, and the changes of the classes of sets: each program knows the
//! fields that the class had when the program was built.
//!
//! The class of the sets of a page goes through the versions of a script ([`ClassChange`]). A field has a *text*, which stays the same if the
//! field is renamed or widened: a list as text, `d2:17,31,`, or a number, from which follows who has written it last. Each begins with the
//! field's default, which is all that an object has which is older than the field.

use std::sync::Arc;

use client::driver::{KnownClasses, StructMapping};
use client::persistent::{ClassDescription, Classes, FieldDescription, FieldReader, FieldWriter, Persistent};
use meta::catalog::EvolutionStep;
use model::{Error, ErrorKind, FieldDefinition, FieldType, Object, RecordRef, Result, Value};

use crate::plan::{Key, MAX_ADDED_FIELDS};

/// The name of the field with the operation that has inserted a member.
pub const NUMBER: &str = "number";
/// The name of the first text, which every version of a class has.
pub const LOG: &str = "log";
/// The number of texts. Text 0 is the one that every version of a class has.
pub const TEXTS: usize = 7;
/// The text that is a number.
const COUNT: usize = 4;
/// The first names and the defaults of the texts. The last two have the same name, one after the other.
const NAMES: [&str; TEXTS] = [LOG, "first", "second", "third", "count", "mark", "mark"];
const DEFAULTS: [&str; TEXTS] = ["", "d1:", "d2:", "d3:", "", "d5:", "d6:"];
/// The default of the number, by page: a number that is rounded if it becomes a floating-point number on the way to a decimal number, and one
/// that fits neither 32 bits nor a short floating-point number.
const FIRST_COUNTS: [i64; 3] = [0, 1 << 60, 1 << 40];
/// The names of the classes of sets, by the numbers of their pages.
const CLASSES: [&str; 3] = ["C0", "C1", "C2"];

/// A change of the class of a set. The numbers are those of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassChange {
    /// A field is added.
    Add(usize),
    /// A field gets another name.
    Rename(usize, &'static str),
    /// The field with the number gets a type that includes the one before.
    Widen(usize),
    /// A field is removed.
    Remove(usize),
}

/// The last version of a class: so many changes it goes through, the first of which add fields.
pub const LAST_VERSION: usize = MAX_ADDED_FIELDS + 8;
/// The changes of the classes of sets, by page. A field that is removed is the last one in one of them, and another one has come since in the
/// other.
const SCRIPTS: [[ClassChange; LAST_VERSION]; 2] = {
    use ClassChange::{Add, Remove, Rename, Widen};
    [
        [
            Add(1),
            Add(2),
            Add(3),
            Add(COUNT),
            Rename(1, "prime"),
            Add(5),
            Widen(COUNT),
            Remove(5),
            Add(6),
            Rename(COUNT, "total"),
            Remove(2),
        ],
        [
            Add(1),
            Add(2),
            Add(3),
            Add(COUNT),
            Widen(COUNT),
            Remove(3),
            Rename(2, "prime"),
            Add(5),
            Rename(1, "early"),
            Remove(5),
            Add(6),
        ],
    ]
};

/// A field of members in a version of their class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextField {
    /// The text.
    pub text: usize,
    /// Its name in this version.
    pub name: &'static str,
    /// Its type in this version.
    pub ty: FieldType<&'static str>,
}

impl ClassChange {
    /// The change that a class of a page goes through after so many others.
    #[must_use]
    pub fn of(page: u64, version: usize) -> Option<Self> {
        SCRIPTS[page as usize - 1].get(version).copied()
    }

    /// The text.
    #[must_use]
    pub fn text(self) -> usize {
        let (Self::Add(text) | Self::Rename(text, _) | Self::Widen(text) | Self::Remove(text)) = self;
        text
    }

    /// The change, as it is made to the class of a page in this version.
    #[must_use]
    pub fn step(self, page: u64, version: usize) -> EvolutionStep {
        let field = || name_in(page, version, self.text()).unwrap_or_default().to_owned();
        match self {
            Self::Add(text) => EvolutionStep::Add(definition(page, text)),
            Self::Rename(_, to) => EvolutionStep::Rename { field: field(), to: to.to_owned() },
            Self::Widen(_) => EvolutionStep::Widen { field: field(), to: wide_type(page) },
            Self::Remove(_) => EvolutionStep::Remove { field: field() },
        }
    }
}

/// The fields of the class of a page in a version, beside the number, in the order of their texts.
#[must_use]
pub fn fields(page: u64, version: usize) -> Vec<TextField> {
    let mut fields = vec![TextField { text: 0, name: LOG, ty: FieldType::String }];
    for change in &SCRIPTS[page as usize - 1][..version] {
        let at = fields.iter().position(|field| field.text == change.text());
        match (*change, at) {
            (ClassChange::Add(text), _) => {
                let ty = if text == COUNT { FieldType::Int64 } else { FieldType::String };
                fields.push(TextField { text, name: NAMES[text], ty });
            }
            (ClassChange::Rename(_, to), Some(at)) => fields[at].name = to,
            (ClassChange::Widen(_), Some(at)) => fields[at].ty = wide_type(page),
            (ClassChange::Remove(_), Some(at)) => drop(fields.remove(at)),
            (change, None) => panic!("{change:?} is about a field that the class of page {page} has"),
        }
    }
    fields
}

/// The texts that the class of a page has had and lost in a version.
pub fn removed_texts(page: u64, version: usize) -> impl Iterator<Item = usize> {
    let removed = |change: &ClassChange| match change {
        ClassChange::Remove(text) => Some(*text),
        _ => None,
    };
    SCRIPTS[page as usize - 1][..version].iter().filter_map(removed)
}

/// The name of a text in a version of the class of a page, if it has it.
#[must_use]
pub fn name_in(page: u64, version: usize, text: usize) -> Option<&'static str> {
    fields(page, version).iter().find(|field| field.text == text).map(|field| field.name)
}

/// Whether a program of one version of a class can read and write objects by another version.
#[must_use]
pub fn fits(page: u64, program: usize, class: usize) -> bool {
    let has = fields(page, class);
    fields(page, program).iter().all(|field| has.contains(field))
}

/// Whether a version of a class has the fields of a program by their names and types. One of them may be another field, of the same name.
#[must_use]
pub fn maps(page: u64, program: usize, class: usize) -> bool {
    let has = fields(page, class);
    let is_mapped = |field: &TextField| has.iter().any(|one| one.name == field.name && one.ty == field.ty);
    fields(page, program).iter().all(is_mapped)
}

/// Whether a field that a program of one version of a class knows is of another type in a later version.
#[must_use]
pub fn is_widened(page: u64, program: usize, class: usize) -> bool {
    let has = fields(page, class);
    let is_wider = |field: &TextField| has.iter().any(|one| one.text == field.text && one.ty != field.ty);
    fields(page, program).iter().any(is_wider)
}

/// The definition of a text, as it is added to a class.
fn definition(page: u64, text: usize) -> FieldDefinition {
    let ty = if text == COUNT { FieldType::Int64 } else { FieldType::String };
    FieldDefinition::required(NAMES[text], ty).with_default(default(page, text))
}

/// The type that the number gets when it is widened.
fn wide_type<C>(page: u64) -> FieldType<C> {
    if page == 1 { FieldType::Decimal } else { FieldType::Float64 }
}

/// What a text is in objects that lack it.
#[must_use]
pub fn default(page: u64, text: usize) -> Value {
    match text {
        0 => Value::Null,
        COUNT => Value::Int64(FIRST_COUNTS[page as usize]),
        _ => Value::from(DEFAULTS[text]),
    }
}

/// The same as it is written in conditions.
#[must_use]
pub fn default_literal(page: u64, text: usize) -> String {
    if text == COUNT { FIRST_COUNTS[page as usize].to_string() } else { format!("{:?}", DEFAULTS[text]) }
}

/// What a text says about the operations that have appended to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elements {
    /// All of them, in order.
    All(Vec<i64>),
    /// The last one, if there is one.
    Last(Option<i64>),
}

impl Elements {
    /// Reads a text of a member of a set of a page.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it does not begin with its default, or is neither a list nor a number.
    pub fn of(page: u64, text: usize, value: &Value) -> Result<Self> {
        let wrong = || {
            let (name, default) = (NAMES[text], default_literal(page, text));
            Error::new(ErrorKind::Invalid, format!("{name} is {value}, and begins with {default} in every object"))
        };
        match value {
            Value::Null if text == 0 => Ok(Self::All(Vec::new())),
            Value::String(list) if text != COUNT => {
                let list = list.strip_prefix(DEFAULTS[text]).ok_or_else(wrong)?;
                let elements = list.split_terminator(',').map(|element| element.parse().map_err(|_| wrong()));
                elements.collect::<Result<_>>().map(Self::All)
            }
            number if text == COUNT => {
                let number = integer(number).and_then(|number| number.checked_sub(FIRST_COUNTS[page as usize]));
                match number.ok_or_else(wrong)? {
                    0 => Ok(Self::Last(None)),
                    last if last > 0 => Ok(Self::Last(Some(last))),
                    _ => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
    }
}

/// A text to which an operation has appended its number.
#[must_use]
pub fn appended(page: u64, field: &TextField, before: &Value, element: i64) -> Value {
    match (&field.ty, before) {
        (FieldType::String, Value::String(list)) => Value::from(format!("{list}{element},")),
        (FieldType::Int64, _) => Value::Int64(FIRST_COUNTS[page as usize] + element),
        (FieldType::Decimal, _) => Value::Decimal((FIRST_COUNTS[page as usize] + element).into()),
        (FieldType::Float64, _) => Value::Float64((FIRST_COUNTS[page as usize] + element) as f64),
        _ => Value::from(format!("{element},")),
    }
}

/// A number of any type as an integer, if it is one.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int64(number) => Some(*number),
        Value::Decimal(number) => number.to_string().parse().ok(),
        Value::Float64(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

/// A program that knows the members of the sets of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The page.
    pub page: u64,
    /// The version of the class that it knows.
    pub version: usize,
}

/// What a program reads of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The operation that has inserted it.
    pub number: i64,
    /// The texts that the program knows, in the order of [`Program::fields`].
    pub texts: Vec<Value>,
}

/// Calls a function with the struct of a program.
macro_rules! with_struct {
    ($program:expr, $function:ident $arguments:tt) => {
        match $program.page {
            1 => with_struct!(@versions $program, 1, $function $arguments, 0 1 2 3 4 5 6 7 8 9 10 11),
            2 => with_struct!(@versions $program, 2, $function $arguments, 0 1 2 3 4 5 6 7 8 9 10 11),
            page => panic!("programs know pages 1 and 2, and this is {page}"),
        }
    };
    (@versions $program:expr, $page:literal, $function:ident $arguments:tt, $($version:literal)*) => {
        match $program.version {
            $($version => $function::<MemberStruct<$page, $version>> $arguments,)*
            version => panic!("programs know versions up to {LAST_VERSION}, and this is {version}"),
        }
    };
}

impl Program {
    /// The program for the sets of a page that knows a version of their class.
    #[must_use]
    pub fn of(guard: Key, version: usize) -> Self {
        Self { page: guard.page, version }
    }

    /// The texts that it knows.
    #[must_use]
    pub fn fields(self) -> Vec<TextField> {
        fields(self.page, self.version)
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
        let value = |field: TextField| field.ty.convert(default(self.page, field.text));
        Member { number, texts: self.fields().into_iter().map(value).collect() }
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

/// The struct of a program that knows a version of the class of a page.
struct MemberStruct<const PAGE: usize, const VERSION: usize>(Member);

impl<const PAGE: usize, const VERSION: usize> Persistent for MemberStruct<PAGE, VERSION> {
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
        let texts = fields(PAGE as u64, VERSION).into_iter().map(|TextField { text, name, ty }| {
            let default = (text > 0).then(|| ty.convert(default(PAGE as u64, text)));
            field(name, ty, text == 0, default)
        });
        let fields = [field(NUMBER, FieldType::Int64, true, None)].into_iter().chain(texts).collect();
        ClassDescription { name: Self::CLASS, parent: None, fields, indexes: Vec::new() }
    }

    fn add_related(_: &mut Classes) {}

    fn write(&self, record: &mut FieldWriter<'_>) -> Result<()> {
        record.put(&self.0.number)?;
        self.0.texts.iter().try_for_each(|text| match text {
            Value::Int64(number) => record.put(number),
            Value::Float64(number) => record.put(number),
            Value::Decimal(number) => record.put(number),
            Value::String(list) if !list.is_empty() => record.put(list),
            _ => record.put(&None::<String>),
        })
    }

    fn read(record: &mut FieldReader<'_>) -> Result<Self> {
        let number = record.take()?;
        let texts = fields(PAGE as u64, VERSION).into_iter().map(|TextField { text, ty, .. }| {
            Ok(match ty {
                FieldType::Int64 => record.take::<i64>()?.into(),
                FieldType::Float64 => record.take::<f64>()?.into(),
                FieldType::Decimal => Value::Decimal(record.take()?),
                _ if text == 0 => record.take::<Option<String>>()?.map_or(Value::Null, Value::from),
                _ => record.take::<String>()?.into(),
            })
        });
        Ok(Self(Member { number, texts: texts.collect::<Result<_>>()? }))
    }
}

impl<const PAGE: usize, const VERSION: usize> MemberFields for MemberStruct<PAGE, VERSION> {
    fn of_member(member: &Member) -> Self {
        Self(member.clone())
    }

    fn into_member(self) -> Member {
        self.0
    }
}
