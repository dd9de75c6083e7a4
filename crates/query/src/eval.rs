//! Evaluates conditions and values for one object.
//!
//! If a referenced object is not available, its identifier is recorded and the evaluation stops with [`Stop::Missing`]; the caller
//! repeats it when the object is available. A reference to an object that does not exist, or whose class the path excludes, is
//! treated as null.
//!
//! 1. A test with a null operand, or with operands that do not compare, is false, as in [`model::Filter`].
//! 2. `&&` and `||` are evaluated from left to right and stop early. A test on the left therefore protects the tests behind it from
//!    division by zero, and from fetching objects.
//! 3. Values of records are used as they are stored; only [`Term::Convert`] converts them to the current type.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Error, ErrorKind, Oid, RecordRef, Value, ValueRef};

use crate::check::{Any, Cond, Elements, Path, PathRoot, PathStep, Term, TextTest};
use crate::plant::{Bug, planted};
use crate::run::value_size;
use crate::{limits, number};

/// Known referenced objects; `None` for an object that does not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Referenced {
    objects: BTreeMap<Oid, Option<Bytes>>,
    bytes: usize,
}

/// Why an evaluation has stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A referenced object is not available; its identifier was recorded.
    Missing,
    /// It takes more than the work that was allowed.
    Exhausted,
    /// The value cannot be computed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type EvalResult<T> = Result<T, Stop>;

/// A value during an evaluation.
#[derive(Clone, Debug)]
pub(crate) enum EvalValue<'a> {
    /// A value in a record, or a scalar of the query.
    Borrowed(ValueRef<'a>),
    /// A value of the query.
    Literal(&'a Value),
    /// A computed value.
    Owned(Value),
}

impl Referenced {
    pub(crate) fn insert(&mut self, oid: Oid, record: Option<Bytes>) {
        let size = |record: &Option<Bytes>| 64 + record.as_ref().map_or(0, Bytes::len);
        self.bytes += size(&record);
        if let Some(before) = self.objects.insert(oid, record) {
            self.bytes -= size(&before);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<'a> EvalValue<'a> {
    const NULL: Self = Self::Borrowed(ValueRef::Null);

    /// The value, unless it is null, a list, a set or a map.
    pub(crate) fn scalar(&self) -> Option<ValueRef<'_>> {
        let scalar = match self {
            Self::Borrowed(value) => Some(*value),
            Self::Literal(value) => value.as_scalar(),
            Self::Owned(value) => value.as_scalar(),
        };
        scalar.filter(|scalar| {
            !matches!(scalar, ValueRef::Null | ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_))
        })
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Borrowed(ValueRef::Null) | Self::Literal(Value::Null) | Self::Owned(Value::Null))
    }

    pub(crate) fn to_value(&self) -> Result<Value, Error> {
        match self {
            Self::Borrowed(value) => value.to_value(),
            Self::Literal(value) => Ok((*value).clone()),
            Self::Owned(value) => Ok(value.clone()),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Borrowed(ValueRef::String(text)) => Some(text),
            Self::Literal(Value::String(text)) | Self::Owned(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list or set, the keys of a map.
    fn elements(self) -> Result<Vec<EvalValue<'a>>, Error> {
        match self {
            Self::Borrowed(ValueRef::List(elements) | ValueRef::Set(elements)) => {
                elements.iter().map(|element| element.map(EvalValue::Borrowed)).collect()
            }
            Self::Borrowed(ValueRef::Map(entries)) => {
                entries.iter().map(|entry| Ok(EvalValue::Borrowed(entry?.0))).collect()
            }
            Self::Literal(Value::List(values)) => Ok(values.iter().map(EvalValue::Literal).collect()),
            Self::Literal(Value::Set(values)) => Ok(values.iter().map(EvalValue::Literal).collect()),
            Self::Literal(Value::Map(entries)) => Ok(entries.keys().map(EvalValue::Literal).collect()),
            Self::Owned(Value::List(values)) => Ok(values.into_iter().map(EvalValue::Owned).collect()),
            Self::Owned(Value::Set(values)) => Ok(values.into_iter().map(EvalValue::Owned).collect()),
            Self::Owned(Value::Map(entries)) => Ok(entries.into_keys().map(EvalValue::Owned).collect()),
            _ => Ok(vec![]),
        }
    }

    /// About how many bytes a function or comparison reads of the value.
    fn size(&self) -> usize {
        match self {
            Self::Borrowed(value) => match value {
                ValueRef::String(text) => text.len(),
                ValueRef::Bytes(bytes) => bytes.len(),
                ValueRef::Decimal(number) => number.unscaled_value().len(),
                ValueRef::List(elements) | ValueRef::Set(elements) => elements.encoded_len(),
                ValueRef::Map(entries) => entries.encoded_len(),
                _ => 0,
            },
            Self::Literal(value) => value_size(value),
            Self::Owned(value) => value_size(value),
        }
    }

    fn len(&self) -> Option<usize> {
        Some(match self {
            Self::Borrowed(ValueRef::List(elements) | ValueRef::Set(elements)) => elements.len(),
            Self::Borrowed(ValueRef::Map(entries)) => entries.len(),
            Self::Borrowed(ValueRef::Bytes(bytes)) => bytes.len(),
            Self::Literal(value) => match value {
                Value::List(values) => values.len(),
                Value::Set(values) => values.len(),
                Value::Map(entries) => entries.len(),
                Value::Bytes(bytes) => bytes.len(),
                Value::String(text) => text.chars().count(),
                _ => return None,
            },
            other => other.text()?.chars().count(),
        })
    }
}

/// Evaluates terms and conditions for one object.
pub(crate) struct Evaluator<'a> {
    this: Oid,
    record: RecordRef<'a>,
    referenced: &'a Referenced,
    /// The values of variables, outermost first.
    variables: Vec<EvalValue<'a>>,
    /// Objects that are needed and not available.
    missing: Vec<Oid>,
    /// The number of elements of collections that can still be visited.
    elements: usize,
    /// The work that may still be done: see [`limits::WORK`].
    work: u64,
}

impl<'a> Evaluator<'a> {
    /// An evaluation that may do this much [work](limits::WORK).
    pub(crate) fn new(this: Oid, record: &'a [u8], referenced: &'a Referenced, work: u64) -> Result<Self, Error> {
        let record = read(this, record)?;
        Ok(Self { this, record, referenced, variables: vec![], missing: vec![], elements: limits::ELEMENTS, work })
    }

    /// The work that may still be done.
    pub(crate) fn work_left(&self) -> u64 {
        self.work
    }

    /// Counts a node that reads so many bytes.
    fn spend(&mut self, bytes: usize) -> EvalResult<()> {
        self.work = self.work.checked_sub(1 + bytes as u64 / 16).ok_or(Stop::Exhausted)?;
        Ok(())
    }

    /// The value of a term, as its own.
    pub(crate) fn own_value(&mut self, term: &'a Term) -> EvalResult<Value> {
        let value = self.term(term)?;
        self.spend(value.size())?;
        Ok(value.to_value()?)
    }

    /// The objects that are needed and not available.
    pub(crate) fn into_missing(self) -> Vec<Oid> {
        self.missing
    }

    pub(crate) fn cond(&mut self, cond: &'a Cond) -> EvalResult<bool> {
        self.spend(0)?;
        match cond {
            Cond::Constant(value) => Ok(*value),
            Cond::And(parts) => {
                for part in parts {
                    if !self.cond(part)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Cond::Or(parts) => {
                for part in parts {
                    if self.cond(part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Cond::Not(part) => Ok(!self.cond(part)?),
            Cond::IsNull(term) => Ok(self.term(term)?.is_null()),
            Cond::Compare(comparison, a, b) => {
                let (a, b) = (self.term(a)?, self.term(b)?);
                self.spend(a.size().min(b.size()))?;
                let (Some(a), Some(b)) = (a.scalar(), b.scalar()) else { return Ok(planted(Bug::NullComparesTrue)) };
                Ok(a.compare_as_filters(b).is_some_and(|order| comparison.holds(order)))
            }
            Cond::Text(test, of, with) => {
                let (of, with) = (self.term(of)?, self.term(with)?);
                self.spend(of.size() + with.size())?;
                let (Some(of), Some(with)) = (of.text(), with.text()) else { return Ok(false) };
                Ok(match test {
                    TextTest::StartsWith => of.starts_with(with),
                    TextTest::EndsWith => of.ends_with(with),
                    TextTest::Contains => of.contains(with),
                })
            }
            Cond::In(element, elements) => self.is_in(element, elements),
            Cond::Any(any) => self.any(any),
        }
    }

    fn is_in(&mut self, element: &'a Term, elements: &'a Elements) -> EvalResult<bool> {
        let element = self.term(element)?;
        let size = element.size();
        self.spend(size)?;
        let Some(element) = element.scalar() else { return Ok(false) };
        let equals = |other: &EvalValue<'_>| {
            other.scalar().is_some_and(|other| other.compare_as_filters(element).is_some_and(std::cmp::Ordering::is_eq))
        };
        match elements {
            Elements::Choice(choice) => Ok(choice.contains(element)),
            Elements::Terms(terms) => {
                for term in terms {
                    let other = self.term(term)?;
                    self.spend(other.size().min(size))?;
                    if equals(&other) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Elements::Of(collection) => {
                let collection = self.term(collection)?;
                self.spend(collection.size())?;
                match collection {
                    EvalValue::Borrowed(collection) => Ok(collection.contains(element)?),
                    other => Ok(other.elements()?.iter().any(equals)),
                }
            }
        }
    }

    /// Evaluates the condition for all elements even if an object is missing for one, so that all missing objects are fetched
    /// together.
    fn any(&mut self, any: &'a Any) -> EvalResult<bool> {
        let mut stopped = None;
        let collection = self.term(&any.collection)?;
        self.spend(collection.size())?;
        for element in collection.elements()? {
            self.elements = self.elements.checked_sub(1).ok_or_else(|| {
                let message =
                    format!("one object leads to more than {} elements, one within the other", limits::ELEMENTS);
                with_oid(self.this, Error::new(ErrorKind::TooLarge, message))
            })?;
            // Removes the values of inner variables of another condition.
            self.variables.truncate(any.variable);
            self.variables.push(element);
            match self.cond(&any.condition) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(Stop::Missing) if self.missing.len() < limits::NEEDED => stopped = Some(Stop::Missing),
                Err(stop) if stopped.is_none() => return Err(stop),
                // The result can change when the missing objects are available.
                Err(_) => break,
            }
        }
        stopped.map_or(Ok(false), Err)
    }

    pub(crate) fn term(&mut self, term: &'a Term) -> EvalResult<EvalValue<'a>> {
        self.spend(0)?;
        Ok(match term {
            Term::Literal(value) => EvalValue::Literal(value),
            Term::Path(path) => self.path(path)?,
            Term::Convert(of, ty) => EvalValue::Owned(ty.convert(self.own_value(of)?)),
            Term::Negate(of) => EvalValue::Owned(number::negate(&self.own_value(of)?)?),
            Term::Abs(of) => EvalValue::Owned(number::abs(&self.own_value(of)?)?),
            Term::Arithmetic(operation, a, b) => {
                let (a, b) = (self.own_value(a)?, self.own_value(b)?);
                // Products and quotients of decimals take time by the product of their lengths.
                self.spend(value_size(&a) * value_size(&b) / 16)?;
                EvalValue::Owned(number::apply(*operation, &a, &b)?)
            }
            Term::Lower(of) => {
                let of = self.text_term(of)?;
                of.text().map_or(EvalValue::NULL, |text| EvalValue::Owned(text.to_lowercase().into()))
            }
            Term::Upper(of) => {
                let of = self.text_term(of)?;
                of.text().map_or(EvalValue::NULL, |text| EvalValue::Owned(text.to_uppercase().into()))
            }
            Term::Length(of) => {
                self.text_term(of)?.len().map_or(EvalValue::NULL, |len| EvalValue::Owned((len as i64).into()))
            }
        })
    }

    /// The value of a term, all of which is read.
    fn text_term(&mut self, of: &'a Term) -> EvalResult<EvalValue<'a>> {
        let of = self.term(of)?;
        self.spend(of.size())?;
        Ok(of)
    }

    fn path(&mut self, path: &'a Path) -> EvalResult<EvalValue<'a>> {
        let mut steps = path.steps.iter();
        let mut at = match path.root {
            PathRoot::This => match steps.next() {
                Some(step) => self.field(self.this, self.record, step)?,
                None => EvalValue::Borrowed(ValueRef::Reference(self.this)),
            },
            PathRoot::Variable(number) => {
                let size = self.variables.get(number).map_or(0, EvalValue::size);
                self.spend(size)?;
                self.variables.get(number).cloned().unwrap_or(EvalValue::NULL)
            }
        };
        for step in steps {
            let oid = match at.scalar() {
                Some(ValueRef::Reference(oid)) if step.classes.contains(&oid.class()) => oid,
                _ => return Ok(EvalValue::NULL),
            };
            let record = if oid == self.this {
                self.record
            } else {
                match self.referenced.objects.get(&oid) {
                    Some(Some(record)) => read(oid, record)?,
                    Some(None) => return Ok(EvalValue::NULL),
                    None => {
                        self.missing.push(oid);
                        return Err(Stop::Missing);
                    }
                }
            };
            at = self.field(oid, record, step)?;
        }
        Ok(at)
    }

    fn field(&mut self, oid: Oid, record: RecordRef<'a>, step: &'a PathStep) -> EvalResult<EvalValue<'a>> {
        let value = match record.field(step.field).map_err(|error| with_oid(oid, error))? {
            Some(value) if !(step.required && matches!(value, ValueRef::Null)) => EvalValue::Borrowed(value),
            _ => step.default.as_deref().map_or(EvalValue::NULL, EvalValue::Literal),
        };
        // Reading a field checks its encoding.
        self.spend(value.size())?;
        Ok(value)
    }
}

/// Whether a record without any field satisfies a condition on own fields; `true` if that cannot be evaluated.
pub(crate) fn holds_by_default(cond: &Cond) -> bool {
    /// A record without fields: only its version.
    const EMPTY: [u8; 1] = [1];
    let referenced = Referenced::default();
    let evaluated =
        Evaluator::new(Oid::MIN, &EMPTY, &referenced, limits::WORK).map(|mut evaluator| evaluator.cond(cond));
    !matches!(evaluated, Ok(Ok(false)))
}

fn read(oid: Oid, record: &[u8]) -> Result<RecordRef<'_>, Error> {
    RecordRef::new(record).map_err(|error| with_oid(oid, error))
}

/// The error with the identifier of its object.
#[cold]
fn with_oid(oid: Oid, error: Error) -> Error {
    let kind: ErrorKind = error.kind();
    Error::new(kind, format!("object {oid}: {}", error.message())).with_source(error)
}
