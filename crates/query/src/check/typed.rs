//! The checked form of a query: names are resolved, and types are known to be correct.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use model::{ClassId, Comparison, FieldNumber, Operands, Value};

use crate::{Aggregate, Arithmetic, Type};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cond {
    Constant(bool),
    And(Vec<Cond>),
    Or(Vec<Cond>),
    Not(Box<Cond>),
    IsNull(Term),
    Compare(Comparison, Term, Term),
    Text(TextTest, Term, Term),
    /// Whether the first is an element of the second.
    In(Term, Elements),
    /// Whether at least one element satisfies the condition.
    Any(Box<Any>),
}

/// A condition on the elements of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Any {
    /// The number of the variable, which is the number of enclosing variables.
    pub(crate) variable: usize,
    pub(crate) collection: Term,
    pub(crate) condition: Cond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
}

/// The values among which an element is searched.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    /// Known values.
    Choice(Arc<Operands>),
    /// Values to be evaluated.
    Terms(Vec<Term>),
    /// The elements of a collection.
    Of(Term),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    /// Shared, because a parameter can occur in many places.
    Literal(Arc<Value>),
    Path(Path),
    /// A number, converted to the type of its field.
    Convert(Box<Term>, Type),
    Negate(Box<Term>),
    Arithmetic(Arithmetic, Box<Term>, Box<Term>),
    Lower(Box<Term>),
    Upper(Box<Term>),
    Length(Box<Term>),
    Abs(Box<Term>),
}

/// A field of an object, possibly through references.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) root: PathRoot,
    pub(crate) steps: Vec<PathStep>,
    /// The text of the path.
    pub(crate) text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathRoot {
    This,
    Variable(usize),
}

/// A step from an object to one of its fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathStep {
    /// The allowed classes of the object; an object of another class is treated as missing.
    pub(crate) classes: Arc<BTreeSet<ClassId>>,
    pub(crate) field: FieldNumber,
    /// The value in records that lack the field; `None` for null.
    pub(crate) default: Option<Arc<Value>>,
    /// Whether that value also replaces a null.
    pub(crate) required: bool,
}

/// What the query returns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Whole objects.
    Objects,
    /// Values of each object.
    Columns(Vec<Term>),
    /// Values of groups of objects.
    Groups(Groups),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Groups {
    pub(crate) keys: Vec<Term>,
    /// Each of a value, or of the objects.
    pub(crate) aggregates: Vec<(Aggregate, Option<Term>)>,
    pub(crate) columns: Vec<GroupColumn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupColumn {
    Key(usize),
    Aggregate(usize),
}

/// A key to order by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) by: OrderBy,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OrderBy {
    Term(Term),
    Group(GroupColumn),
}

impl Term {
    pub(crate) fn literal(value: impl Into<Value>) -> Self {
        Self::Literal(Arc::new(value.into()))
    }

    /// The value, if it does not depend on an object.
    pub(crate) fn as_literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The number and the default of a field, if the term is a field of the object itself, without conversion.
    pub(crate) fn own_field(&self) -> Option<(FieldNumber, Option<&Value>)> {
        match self {
            Self::Path(Path { root: PathRoot::This, steps, .. }) => match steps.as_slice() {
                [step] => Some((step.field, step.default.as_deref())),
                _ => None,
            },
            _ => None,
        }
    }

    /// Calls `visit` with each path in it.
    pub(crate) fn paths<'t>(&'t self, visit: &mut dyn FnMut(&'t Path)) {
        match self {
            Self::Literal(_) => {}
            Self::Path(path) => visit(path),
            Self::Convert(of, _)
            | Self::Negate(of)
            | Self::Lower(of)
            | Self::Upper(of)
            | Self::Length(of)
            | Self::Abs(of) => of.paths(visit),
            Self::Arithmetic(_, a, b) => {
                a.paths(visit);
                b.paths(visit);
            }
        }
    }
}

impl Cond {
    /// Calls `visit` with each path in it.
    pub(crate) fn paths<'t>(&'t self, visit: &mut dyn FnMut(&'t Path)) {
        match self {
            Self::Constant(_) => {}
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.paths(visit)),
            Self::Not(part) => part.paths(visit),
            Self::IsNull(term) => term.paths(visit),
            Self::Compare(_, a, b) | Self::Text(_, a, b) => {
                a.paths(visit);
                b.paths(visit);
            }
            Self::In(element, elements) => {
                element.paths(visit);
                match elements {
                    Elements::Choice(_) => {}
                    Elements::Terms(terms) => terms.iter().for_each(|term| term.paths(visit)),
                    Elements::Of(term) => term.paths(visit),
                }
            }
            Self::Any(any) => {
                any.collection.paths(visit);
                any.condition.paths(visit);
            }
        }
    }
}

/// For explanations; long values and choices are truncated.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => short(&value.to_string(), f),
            Self::Path(path) => f.write_str(&path.text),
            Self::Convert(of, _) => of.fmt(f),
            Self::Negate(of) => write!(f, "-{of}"),
            Self::Arithmetic(operation, a, b) => write!(f, "({a} {} {b})", operation.sign()),
            Self::Lower(of) => write!(f, "{of}.lower()"),
            Self::Upper(of) => write!(f, "{of}.upper()"),
            Self::Length(of) => write!(f, "{of}.length()"),
            Self::Abs(of) => write!(f, "{of}.abs()"),
        }
    }
}

/// For explanations; long values and choices are truncated.
impl fmt::Display for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |parts: &[Cond], sign: &str, f: &mut fmt::Formatter<'_>| {
            for (index, part) in parts.iter().enumerate() {
                let sign = if index > 0 { sign } else { "" };
                match part {
                    Self::And(_) | Self::Or(_) => write!(f, "{sign}({part})")?,
                    _ => write!(f, "{sign}{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::Constant(value) => value.fmt(f),
            Self::And(parts) => joined(parts, " && ", f),
            Self::Or(parts) => joined(parts, " || ", f),
            Self::Not(part) => match &**part {
                Self::IsNull(term) => write!(f, "{term} != null"),
                part => write!(f, "!({part})"),
            },
            Self::IsNull(term) => write!(f, "{term} == null"),
            Self::Compare(Comparison::Equal, a, b) => write!(f, "{a} == {b}"),
            Self::Compare(comparison, a, b) => write!(f, "{a} {comparison} {b}"),
            Self::Text(TextTest::StartsWith, of, with) => write!(f, "{of}.startsWith({with})"),
            Self::Text(TextTest::EndsWith, of, with) => write!(f, "{of}.endsWith({with})"),
            Self::Text(TextTest::Contains, of, part) => write!(f, "{of}.contains({part})"),
            Self::In(element, Elements::Choice(choice)) => {
                let values: Vec<String> = choice.as_slice().iter().take(8).map(|one| one.value().to_string()).collect();
                let more = if choice.as_slice().len() > 8 { ", …" } else { "" };
                write!(f, "{element} in [")?;
                short(&values.join(", "), f)?;
                write!(f, "{more}]")
            }
            Self::In(element, Elements::Terms(terms)) => {
                let terms: Vec<String> = terms.iter().take(8).map(Term::to_string).collect();
                write!(f, "{element} in [{}]", terms.join(", "))
            }
            Self::In(element, Elements::Of(collection)) => write!(f, "{element} in {collection}"),
            Self::Any(any) => write!(f, "{}.any({})", any.collection, any.condition),
        }
    }
}

fn short(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => write!(f, "{}…", &text[..end]),
        None => f.write_str(text),
    }
}
