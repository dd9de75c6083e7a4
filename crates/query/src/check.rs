//! Checks a query against a schema: resolves names to numbers, types every part, and replaces parameters by their values.
//!
//! Errors show the query with carets under the wrong part ([`crate::text`]). A checked query can be planned and
//! evaluated without the schema. Records can still contain values of a wrong type; these compare with nothing.
//!
//! A decimal literal that is compared with a float64 becomes the nearest float64, so that `0.1` equals a field that was
//! set to `0.1`. A string literal that is compared with a date or a time stamp is parsed as one. Parameters are not
//! converted.

mod output;
mod typed;

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ClassId, Comparison, Operand, Result, Value, nearest_double};

pub(crate) use typed::{
    Any, Cond, Elements, GroupColumn, Groups, Order, OrderBy, Output, Path, PathRoot, PathStep, Term, TextTest,
};

use crate::plant::{Bug, planted};
use crate::text::{error_at, locate};
use crate::{Expr, Function, Query, Schema, Type, number};

/// A query that was checked against a schema.
#[derive(Clone, Debug)]
pub struct CheckedQuery {
    pub(crate) class: ClassId,
    pub(crate) class_name: String,
    /// The class, and its subclasses unless the query has `only`.
    pub(crate) classes: Arc<BTreeSet<ClassId>>,
    pub(crate) condition: Option<Cond>,
    pub(crate) output: Output,
    pub(crate) order: Vec<Order>,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
    columns: Vec<Column>,
}

/// A column of a projection.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name that the query gives it, or its text.
    pub name: String,
    /// Its type, unless it is always null.
    pub ty: Option<Type>,
}

impl Query {
    /// Checks the query against a schema.
    ///
    /// # Errors
    /// [`Invalid`](model::ErrorKind::Invalid) with the wrong part, [`NotFound`](model::ErrorKind::NotFound)
    /// if there is no such class, [`TooLarge`](model::ErrorKind::TooLarge) past one of [`limits`](crate::limits).
    pub fn check(&self, schema: &Schema) -> Result<CheckedQuery> {
        // A tree that a program has built can have any depth.
        self.encode()?;
        let class = schema.class_named(&self.class)?;
        let mut checker = Checker { query: self, schema, class: class.id, variables: vec![] };
        let checked = checker.query();
        checked.map_err(|wrong| {
            let (text, place) = locate(self, wrong.at);
            error_at(&text, place, wrong.message)
        })
    }
}

impl CheckedQuery {
    /// The class of the query.
    #[must_use]
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The classes of the objects that the query returns.
    #[must_use]
    pub fn classes(&self) -> &BTreeSet<ClassId> {
        &self.classes
    }

    /// The columns of the rows; empty if the query returns whole objects.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
}

/// An error, and the part of the query that causes it.
struct CheckError<'q> {
    at: &'q Expr,
    message: String,
}

type CheckResult<'q, T> = Result<T, CheckError<'q>>;

/// A value and its type; no type if it is always null.
type TypedTerm = (Term, Option<Type>);

fn check_error<'q, T>(at: &'q Expr, message: impl Into<String>) -> CheckResult<'q, T> {
    Err(CheckError { at, message: message.into() })
}

struct Checker<'q, 's> {
    query: &'q Query,
    schema: &'s Schema,
    class: ClassId,
    /// The variables in scope, outermost first, and the types of their values.
    variables: Vec<(&'q str, Type)>,
}

impl<'q> Checker<'q, '_> {
    fn cond(&mut self, expr: &'q Expr) -> CheckResult<'q, Cond> {
        Ok(match expr {
            Expr::And(parts) => Cond::And(parts.iter().map(|part| self.cond(part)).collect::<CheckResult<'q, _>>()?),
            Expr::Or(parts) => Cond::Or(parts.iter().map(|part| self.cond(part)).collect::<CheckResult<'q, _>>()?),
            Expr::Not(part) => Cond::Not(Box::new(self.cond(part)?)),
            Expr::Compare(comparison, a, b) => self.compare(expr, *comparison, a, b)?,
            Expr::Call(Function::StartsWith, of, arguments) => self.text(expr, TextTest::StartsWith, of, arguments)?,
            Expr::Call(Function::EndsWith, of, arguments) => self.text(expr, TextTest::EndsWith, of, arguments)?,
            Expr::Call(Function::Contains, of, arguments) => self.contains(expr, of, arguments)?,
            Expr::Any { collection, variable, condition } => self.any(collection, variable, condition)?,
            Expr::Literal(_) | Expr::Parameter(_) | Expr::Path(_) => match self.term(expr)? {
                (Term::Literal(value), _) if matches!(*value, Value::Bool(_)) => {
                    Cond::Constant(*value == Value::Bool(true))
                }
                (term, Some(Type::Bool)) => Cond::Compare(Comparison::Equal, term, Term::literal(true)),
                (_, ty) => {
                    return check_error(
                        expr,
                        format!("{} is found where a condition should be", self.describe_type(ty.as_ref())),
                    );
                }
            },
            Expr::List(_) | Expr::Arithmetic(..) | Expr::Negate(_) | Expr::Call(..) => {
                return check_error(
                    expr,
                    "a value is found where a condition should be: compare it with another value",
                );
            }
            Expr::Aggregate(aggregate, _) => return check_error(expr, misplaced_aggregate_message(aggregate.name())),
        })
    }

    fn compare(&mut self, at: &'q Expr, comparison: Comparison, a: &'q Expr, b: &'q Expr) -> CheckResult<'q, Cond> {
        let (left, right) = (self.term(a)?, self.term(b)?);
        for (term, other) in [(&left, &right), (&right, &left)] {
            if term.1.is_none() {
                let is_null = match other.0.as_literal() {
                    Some(value) => Cond::Constant(*value == Value::Null),
                    None => Cond::IsNull(other.0.clone()),
                };
                return match comparison {
                    Comparison::Equal => Ok(is_null),
                    Comparison::NotEqual => Ok(Cond::Not(Box::new(is_null))),
                    _ => check_error(at, "null has no order: use == null or != null"),
                };
            }
        }
        let (left, right) = self.unify(at, (a, left), (b, right), "be compared with")?;
        if let Some((a, b)) =
            left.as_literal().and_then(Value::as_scalar).zip(right.as_literal().and_then(Value::as_scalar))
        {
            return Ok(Cond::Constant(a.compare_as_filters(b).is_some_and(|order| comparison.holds(order))));
        }
        Ok(Cond::Compare(comparison, left, right))
    }

    /// Converts literals so that two values compare; an error if they do not.
    fn unify(
        &self,
        at: &'q Expr,
        (a, (left, left_type)): (&'q Expr, TypedTerm),
        (b, (right, right_type)): (&'q Expr, TypedTerm),
        verb: &str,
    ) -> CheckResult<'q, (Term, Term)> {
        let (Some(left_type), Some(right_type)) = (left_type, right_type) else { return Ok((left, right)) };
        let (left, left_type) = coerce_literal(a, left, left_type, &right_type)?;
        let (right, right_type) = coerce_literal(b, right, right_type, &left_type)?;
        if left_type.compares_with(&right_type) {
            return Ok((left, right));
        }
        let (left, right) = (self.describe_type(Some(&left_type)), self.describe_type(Some(&right_type)));
        check_error(at, format!("{left} cannot {verb} {right}"))
    }

    fn text(&mut self, at: &'q Expr, test: TextTest, of: &'q Expr, arguments: &'q [Expr]) -> CheckResult<'q, Cond> {
        let (of, with) = (self.string(of)?, self.string(one_argument(at, arguments)?)?);
        Ok(Cond::Text(test, of, with))
    }

    fn contains(&mut self, at: &'q Expr, of: &'q Expr, arguments: &'q [Expr]) -> CheckResult<'q, Cond> {
        let argument = one_argument(at, arguments)?;
        if let Expr::List(parts) = of {
            return self.choice(argument, parts);
        }
        let (collection, ty) = self.collection(of)?;
        if ty == Some(Type::String) {
            return Ok(Cond::Text(TextTest::Contains, collection, self.string(argument)?));
        }
        let element = self.term(argument)?;
        if let Some(Value::List(values)) = collection.as_literal() {
            return self.known_choice(at, element, values);
        }
        let Some(ty) = ty else { return Ok(Cond::Constant(false)) };
        let Some(of_type) = ty.element() else {
            return check_error(
                of,
                format!("{} has no elements: lists, sets, maps and texts have", self.describe_type(Some(&ty))),
            );
        };
        let (element, _) =
            self.unify(at, (argument, element), (of, (Term::literal(Value::Null), Some(of_type.clone()))), "equal")?;
        Ok(Cond::In(element, Elements::Of(collection)))
    }

    /// Membership in a list that the query contains.
    fn choice(&mut self, element: &'q Expr, parts: &'q [Expr]) -> CheckResult<'q, Cond> {
        let typed = self.term(element)?;
        if is_literal(element) {
            // The element is converted to the type of each of them.
            let equal = |part| self.compare(part, Comparison::Equal, element, part);
            return parts
                .iter()
                .filter(|part| **part != Expr::Literal(Value::Null))
                .map(equal)
                .collect::<CheckResult<'q, _>>()
                .map(Cond::Or);
        }
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts {
            let one = self.term(part)?;
            // Nothing equals null.
            if one.1.is_some() {
                terms.push(self.unify(part, (element, typed.clone()), (part, one), "equal")?.1);
            }
        }
        if typed.1.is_none() {
            return Ok(Cond::Constant(false));
        }
        let known: Option<Vec<Operand>> =
            terms.iter().map(|term| term.as_literal().and_then(|value| Operand::new(value.clone()).ok())).collect();
        let elements = match known {
            Some(operands) => Elements::Choice(Arc::new(operands.into_iter().collect())),
            None => Elements::Terms(terms),
        };
        Ok(Cond::In(typed.0, elements))
    }

    /// Membership in the list of a parameter.
    fn known_choice(&self, at: &'q Expr, typed: TypedTerm, values: &[Value]) -> CheckResult<'q, Cond> {
        let Some(ty) = &typed.1 else { return Ok(Cond::Constant(false)) };
        let mut operands = Vec::with_capacity(values.len());
        for value in values.iter().filter(|value| **value != Value::Null) {
            let other = type_of(value);
            match Operand::new(value.clone()) {
                Ok(operand) if other.as_ref().is_some_and(|other| ty.compares_with(other)) => operands.push(operand),
                _ => {
                    let (one, other) = (self.describe_type(Some(ty)), self.describe_type(other.as_ref()));
                    return check_error(
                        at,
                        format!("{one} cannot equal {other}, which is among the values of the list"),
                    );
                }
            }
        }
        Ok(Cond::In(typed.0, Elements::Choice(Arc::new(operands.into_iter().collect()))))
    }

    fn any(&mut self, collection: &'q Expr, variable: &'q str, condition: &'q Expr) -> CheckResult<'q, Cond> {
        let (term, ty) = self.term(collection)?;
        let Some(ty) = ty else { return Ok(Cond::Constant(false)) };
        let Some(element) = ty.element() else {
            return check_error(
                collection,
                format!("{} has no elements: lists, sets and maps have", self.describe_type(Some(&ty))),
            );
        };
        let number = self.variables.len();
        self.variables.push((variable, element.clone()));
        let condition = self.cond(condition);
        self.variables.pop();
        Ok(Cond::Any(Box::new(Any { variable: number, collection: term, condition: condition? })))
    }

    fn term(&mut self, expr: &'q Expr) -> CheckResult<'q, TypedTerm> {
        let (term, ty) = self.collection(expr)?;
        match (&term, &ty) {
            (Term::Literal(_), Some(Type::List(_) | Type::Set(_) | Type::Map(..))) => {
                check_error(expr, "a whole list can only be used after `in`")
            }
            _ => Ok((term, ty)),
        }
    }

    /// A value, or a known list.
    fn collection(&mut self, expr: &'q Expr) -> CheckResult<'q, TypedTerm> {
        match expr {
            Expr::Literal(value) => Ok((Term::literal(value.clone()), type_of(value))),
            Expr::Parameter(name) => match self.query.parameters.get(name) {
                Some(value) => Ok((Term::literal(value.clone()), type_of(value))),
                None => check_error(expr, format!("the parameter :{name} has no value")),
            },
            Expr::Path(names) => self.path(expr, names),
            Expr::Negate(of) => self.numeric(of, Term::Negate, number::negate),
            Expr::Arithmetic(operation, a, b) => {
                let ((left, left_type), (right, right_type)) = (self.number(a)?, self.number(b)?);
                let (Some(left_type), Some(right_type)) = (left_type, right_type) else {
                    return Ok((Term::literal(Value::Null), None));
                };
                let (left, left_type) = coerce_literal(a, left, left_type, &right_type)?;
                let (right, right_type) = coerce_literal(b, right, right_type, &left_type)?;
                let ty = match (left_type, right_type) {
                    (Type::Int64, Type::Int64) => Type::Int64,
                    (Type::Float64, _) | (_, Type::Float64) => Type::Float64,
                    _ => Type::Decimal,
                };
                let term = match (left.as_literal(), right.as_literal()) {
                    (Some(a), Some(b)) => match number::apply(*operation, a, b) {
                        Ok(value) => Term::literal(value),
                        Err(error) => return check_error(expr, error.message()),
                    },
                    _ => Term::Arithmetic(*operation, Box::new(left), Box::new(right)),
                };
                Ok((term, Some(ty)))
            }
            Expr::Call(Function::Lower, of, arguments) => {
                no_arguments(expr, Function::Lower, arguments)?;
                Ok((Term::Lower(Box::new(self.string(of)?)), Some(Type::String)))
            }
            Expr::Call(Function::Upper, of, arguments) => {
                no_arguments(expr, Function::Upper, arguments)?;
                Ok((Term::Upper(Box::new(self.string(of)?)), Some(Type::String)))
            }
            Expr::Call(Function::Length, of, arguments) => {
                no_arguments(expr, Function::Length, arguments)?;
                let (term, ty) = self.term(of)?;
                match &ty {
                    Some(Type::String | Type::Bytes | Type::List(_) | Type::Set(_) | Type::Map(..)) | None => {
                        Ok((Term::Length(Box::new(term)), Some(Type::Int64)))
                    }
                    ty => check_error(
                        of,
                        format!("{} has no length: texts and collections have", self.describe_type(ty.as_ref())),
                    ),
                }
            }
            Expr::Call(Function::Abs, of, arguments) => {
                no_arguments(expr, Function::Abs, arguments)?;
                self.numeric(of, Term::Abs, number::abs)
            }
            Expr::Aggregate(aggregate, _) => check_error(expr, misplaced_aggregate_message(aggregate.name())),
            Expr::List(_) => check_error(expr, "a whole list can only be used after `in`"),
            Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::Compare(..) | Expr::Call(..) | Expr::Any { .. } => {
                check_error(expr, "a condition is found where a value should be")
            }
        }
    }

    /// A function of a number.
    fn numeric(
        &mut self,
        of: &'q Expr,
        term: impl Fn(Box<Term>) -> Term,
        fold: impl Fn(&Value) -> Result<Value>,
    ) -> CheckResult<'q, TypedTerm> {
        let (operand, ty) = self.number(of)?;
        match operand.as_literal() {
            Some(value) => match fold(value) {
                Ok(value) => Ok((Term::literal(value), ty)),
                Err(error) => check_error(of, error.message()),
            },
            None => Ok((term(Box::new(operand)), ty)),
        }
    }

    /// A number, converted to the type of its field.
    fn number(&mut self, expr: &'q Expr) -> CheckResult<'q, TypedTerm> {
        match self.term(expr)? {
            (term, None) => Ok((term, None)),
            (term, Some(ty)) if ty.is_number() => Ok((as_type(term, &ty), Some(ty))),
            (_, ty) => check_error(expr, format!("{} is not a number", self.describe_type(ty.as_ref()))),
        }
    }

    fn string(&mut self, expr: &'q Expr) -> CheckResult<'q, Term> {
        match self.term(expr)? {
            (term, Some(Type::String) | None) => Ok(term),
            (_, ty) => check_error(expr, format!("{} is not a text", self.describe_type(ty.as_ref()))),
        }
    }

    fn path(&self, at: &'q Expr, names: &'q [String]) -> CheckResult<'q, TypedTerm> {
        let variable = names.first().and_then(|name| self.variables.iter().rposition(|(known, _)| known == name));
        let (root, mut ty, rest) = match variable {
            Some(number) => (PathRoot::Variable(number), self.variables[number].1.clone(), &names[1..]),
            None => (PathRoot::This, Type::Reference(Some(self.class)), names),
        };
        let mut steps = Vec::with_capacity(rest.len());
        for (index, name) in rest.iter().enumerate() {
            let before = || names[..names.len() - rest.len() + index].join(".");
            let class = match ty {
                Type::Reference(Some(class)) => class,
                Type::Reference(None) => {
                    return check_error(
                        at,
                        format!("{} may be an object of any class: its fields are unknown", before()),
                    );
                }
                other => {
                    return check_error(
                        at,
                        format!("{} is {}, which has no fields", before(), self.describe_type(Some(&other))),
                    );
                }
            };
            let Some(field) = self.schema.field_named(class, name) else {
                return check_error(at, self.no_field(class, name));
            };
            let default = field.missing.clone().filter(|value| *value != Value::Null).map(Arc::new);
            let (classes, required) = (self.schema.family(class), !field.optional);
            steps.push(PathStep { classes, field: field.number, default, required });
            ty = field.field_type.clone();
        }
        let text = at.to_string().into();
        Ok((Term::Path(Path { root, steps, text }), Some(ty)))
    }

    fn no_field(&self, class: ClassId, name: &str) -> String {
        const NAMED: usize = 20;
        let of = self.schema.class(class).map_or("", |class| &class.name);
        let family = self.schema.family(class);
        let below = family.iter().find(|id| self.schema.field_named(**id, name).is_some());
        if let Some(below) = below.and_then(|id| self.schema.class(*id)) {
            return format!("{of} has no field {name}; {} has, which extends it: query that class", below.name);
        }
        let fields = self.schema.fields(class);
        let mut names: Vec<&str> = fields.iter().take(NAMED).map(|field| field.name.as_str()).collect();
        if fields.len() > NAMED {
            names.push("…");
        }
        match names.as_slice() {
            [] => format!("{of} has no field {name}; it has none"),
            names => format!("{of} has no field {name}; it has {}", names.join(", ")),
        }
    }

    fn describe_type(&self, ty: Option<&Type>) -> String {
        match ty {
            Some(ty @ Type::Int64) => format!("an {}", self.schema.type_name(ty)),
            Some(ty) => format!("a {}", self.schema.type_name(ty)),
            None => "null".into(),
        }
    }
}

/// Converts a literal to the type of the value that it is compared with.
fn coerce_literal<'q>(expr: &'q Expr, term: Term, ty: Type, other: &Type) -> CheckResult<'q, (Term, Type)> {
    if !is_literal(expr) {
        return Ok((term, ty));
    }
    let met = match (term.as_literal(), other) {
        (Some(Value::Decimal(number)), Type::Float64) if !planted(Bug::LiteralKeepsType) => {
            Value::Float64(nearest_double(number))
        }
        (Some(Value::String(text)), Type::Date) => match text.parse() {
            Ok(date) => Value::Date(date),
            Err(error) => return check_error(expr, error.message()),
        },
        (Some(Value::String(text)), Type::Timestamp) => match text.parse() {
            Ok(moment) => Value::Timestamp(moment),
            Err(error) => return check_error(expr, error.message()),
        },
        _ => return Ok((term, ty)),
    };
    Ok((Term::literal(met), other.clone()))
}

/// Whether an expression is made of literals, without parameters.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_) => true,
        Expr::Negate(of) => is_literal(of),
        Expr::Arithmetic(_, a, b) => is_literal(a) && is_literal(b),
        _ => false,
    }
}

/// A value, converted to the type of its field if it can be stored with another type.
fn as_type(term: Term, ty: &Type) -> Term {
    fn may_differ(ty: &Type) -> bool {
        match ty {
            Type::Float64 | Type::Decimal | Type::List(_) => true,
            Type::Set(element) => may_differ(element),
            Type::Map(key, value) => may_differ(key) || may_differ(value),
            _ => false,
        }
    }
    if matches!(term, Term::Path(_)) && may_differ(ty) { Term::Convert(Box::new(term), ty.clone()) } else { term }
}

/// The type of a value; `None` for null. For a list, set or map the type of the first element is used.
fn type_of(value: &Value) -> Option<Type> {
    let first = |element: Option<&Value>| Box::new(element.and_then(type_of).unwrap_or(Type::Reference(None)));
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => Type::Bool,
        Value::Int64(_) => Type::Int64,
        Value::Float64(_) => Type::Float64,
        Value::Decimal(_) => Type::Decimal,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        Value::Date(_) => Type::Date,
        Value::Timestamp(_) => Type::Timestamp,
        Value::Reference(_) => Type::Reference(None),
        Value::List(values) => Type::List(first(values.first())),
        Value::Set(values) => Type::Set(first(values.first())),
        Value::Map(entries) => Type::Map(first(entries.keys().next()), first(entries.values().next())),
    })
}

fn one_argument<'q>(at: &'q Expr, arguments: &'q [Expr]) -> CheckResult<'q, &'q Expr> {
    match arguments {
        [one] => Ok(one),
        _ => check_error(at, format!("this function takes one argument, and has {}", arguments.len())),
    }
}

fn no_arguments<'q>(at: &'q Expr, function: Function, arguments: &'q [Expr]) -> CheckResult<'q, ()> {
    match arguments {
        [] => Ok(()),
        _ => check_error(at, format!("{} takes no argument", function.name())),
    }
}

fn misplaced_aggregate_message(aggregate: &str) -> String {
    format!("{aggregate} is an aggregate: it can only be a whole column, or a whole key to order by")
}

#[cfg(test)]
pub(crate) mod tests;
