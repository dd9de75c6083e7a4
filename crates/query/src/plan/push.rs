//! Derives the part of a condition that bricks can evaluate.
//!
//! Each condition has a filter above it (true for every object that satisfies the condition, possibly for more) and one
//! below it (true only for such objects). Both are equal if a filter expresses the condition exactly. The negation of a
//! filter below a condition is above the negated condition. A brick treats an absent field as null, so the two filters
//! differ if the field has a default.

use model::{Comparison, FieldNumber, Filter, Operand, Operands, Value, limits};

use crate::check::{Cond, Elements, Path, PathRoot, Term, TextTest};
use crate::eval::holds_by_default;
use crate::plant::{Bug, planted};

/// The filter for the parts of a conjunction, and the residual condition.
pub(super) fn split_condition(parts: &[&Cond]) -> (Filter, Option<Cond>) {
    let mut pusher = FilterBuilder { room: limits::FILTER };
    let (mut filters, mut residual) = (Vec::new(), Vec::new());
    for part in parts {
        let bound = pusher.bound(part, Side::Above);
        if !bound.exact {
            residual.push((*part).clone());
        }
        filters.extend(bound.filter);
    }
    let mut filter = Filter::And(filters);
    if filter.encode().is_err() {
        // The peer server evaluates all of it.
        filter = Filter::And(vec![]);
        residual = parts.iter().map(|part| (*part).clone()).collect();
    }
    let residual = match residual.len() {
        0 => None,
        1 => residual.pop(),
        _ => Some(Cond::And(residual)),
    };
    (filter, residual)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// True if the condition is.
    Above,
    /// True only if the condition is.
    Below,
}

/// A filter on one side of a condition.
struct Bound {
    /// `None` is always true above, and never true below.
    filter: Option<Filter>,
    /// Whether it is equivalent to the condition.
    exact: bool,
}

struct FilterBuilder {
    /// Bytes of operands that still fit in the filter.
    room: usize,
}

const NO_BOUND: Bound = Bound { filter: None, exact: false };

impl FilterBuilder {
    fn bound(&mut self, cond: &Cond, side: Side) -> Bound {
        match cond {
            Cond::Constant(true) => Bound { filter: Some(Filter::And(vec![])), exact: true },
            Cond::Constant(false) => Bound { filter: Some(Filter::Or(vec![])), exact: true },
            Cond::And(parts) => self.junction(parts, side, Side::Above, Filter::And),
            Cond::Or(parts) => self.junction(parts, side, Side::Below, Filter::Or),
            Cond::Not(part) => {
                let other = if side == Side::Above { Side::Below } else { Side::Above };
                let bound = self.bound(part, other);
                Bound { filter: bound.filter.map(Filter::negate), exact: bound.exact }
            }
            test => match self.exact_filter(test) {
                Some((field, default, filter)) => with_default(test, field, default, filter, side),
                None if side == Side::Above => self.approximate_filter(test),
                None => NO_BOUND,
            },
        }
    }

    /// A conjunction or disjunction. On the side `may_lack` parts without a bound are left out; on the other side one such part
    /// leaves the whole without a bound.
    fn junction(&mut self, parts: &[Cond], side: Side, may_lack: Side, junction: fn(Vec<Filter>) -> Filter) -> Bound {
        let (mut filters, mut exact) = (Vec::with_capacity(parts.len()), true);
        for part in parts {
            let bound = self.bound(part, side);
            exact &= bound.exact;
            match bound.filter {
                Some(filter) => filters.push(filter),
                None if side == may_lack => {}
                None => return NO_BOUND,
            }
        }
        match filters.len() {
            0 if !exact => NO_BOUND,
            1 => Bound { filter: filters.pop(), exact },
            _ => Bound { filter: Some(junction(filters)), exact },
        }
    }

    /// The filter that is equivalent to a test except for defaults: the field, its default, and the filter.
    fn exact_filter<'c>(&mut self, test: &'c Cond) -> Option<(FieldNumber, Option<&'c Value>, Filter)> {
        let (term, filter): (&Term, Box<dyn Fn(FieldNumber) -> Filter>) = match test {
            Cond::IsNull(term) => (term, Box::new(Filter::IsNull)),
            Cond::Compare(comparison, a, b) => {
                let (field, comparison, value) = match (a.own_field(), b.own_field()) {
                    (Some(_), None) => (a, *comparison, b.as_literal()?),
                    (None, Some(_)) => (b, mirror(*comparison), a.as_literal()?),
                    _ => return None,
                };
                let operand = self.operand(value)?;
                (field, Box::new(move |field| Filter::Compare(field, comparison, operand.clone())))
            }
            Cond::Text(test @ (TextTest::StartsWith | TextTest::Contains), of, with) => {
                let (test, text) = (*test, self.text(with)?);
                let filter = move |field| match test {
                    TextTest::StartsWith => Filter::StartsWith(field, text.clone()),
                    _ => Filter::ContainsText(field, text.clone()),
                };
                (of, Box::new(filter))
            }
            Cond::In(element, Elements::Choice(choice)) => {
                let choice = self.operands(choice)?;
                (element, Box::new(move |field| Filter::OneOf(field, choice.clone())))
            }
            Cond::In(element, Elements::Of(collection)) => {
                let operand = self.operand(element.as_literal()?)?;
                (collection, Box::new(move |field| Filter::Contains(field, operand.clone())))
            }
            _ => return None,
        };
        let (field, default) = term.own_field()?;
        Some((field, default, filter(field)))
    }

    /// A filter above a test that bricks cannot evaluate: the own fields that its paths begin with are not null.
    fn approximate_filter(&mut self, test: &Cond) -> Bound {
        let mut filters = Vec::new();
        let mut not_null = |path: &Path| {
            if let (PathRoot::This, Some(step)) = (path.root, path.steps.first())
                && step.default.is_none()
            {
                let filter = Filter::IsNull(step.field).negate();
                if !filters.contains(&filter) {
                    filters.push(filter);
                }
            }
        };
        match test {
            Cond::Compare(_, a, b) | Cond::Text(_, a, b) => {
                a.paths(&mut not_null);
                b.paths(&mut not_null);
            }
            Cond::In(element, Elements::Of(collection)) => {
                element.paths(&mut not_null);
                collection.paths(&mut not_null);
            }
            Cond::In(element, _) => element.paths(&mut not_null),
            Cond::Any(any) => any.collection.paths(&mut not_null),
            _ => {}
        }
        if let Cond::Text(TextTest::EndsWith, of, with) = test
            && let Some((field, None)) = of.own_field()
            && let Some(text) = self.text(with)
        {
            filters = vec![Filter::ContainsText(field, text)];
        }
        match filters.len() {
            0 => NO_BOUND,
            1 => Bound { filter: filters.pop(), exact: false },
            _ => Bound { filter: Some(Filter::And(filters)), exact: false },
        }
    }

    fn operand(&mut self, value: &Value) -> Option<Operand> {
        self.reserve(size(value))?;
        Operand::new(value.clone()).ok()
    }

    fn operands(&mut self, operands: &Operands) -> Option<Operands> {
        // A quick test first, so that a long list that does not fit is not measured repeatedly.
        if operands.as_slice().len() * 2 > self.room {
            return None;
        }
        self.reserve(operands.as_slice().iter().map(|operand| size(operand.value())).sum())?;
        Some(operands.clone())
    }

    fn text(&mut self, term: &Term) -> Option<String> {
        match term.as_literal()? {
            Value::String(text) => {
                self.reserve(text.len())?;
                Some(text.clone())
            }
            _ => None,
        }
    }

    fn reserve(&mut self, bytes: usize) -> Option<()> {
        self.room = self.room.checked_sub(bytes)?;
        Some(())
    }
}

/// The bound of a test of a field that can have a default.
fn with_default(test: &Cond, field: FieldNumber, default: Option<&Value>, filter: Filter, side: Side) -> Bound {
    let exact = Bound { filter: Some(filter.clone()), exact: true };
    if default.is_none() || planted(Bug::DefaultHiddenFromBricks) {
        return exact;
    }
    match test {
        // A brick takes the absent field for null, although it has its default.
        Cond::IsNull(_) => match side {
            Side::Above => Bound { filter: Some(filter), exact: false },
            Side::Below => NO_BOUND,
        },
        test if holds_by_default(test) => match side {
            Side::Above => Bound { filter: Some(Filter::Or(vec![filter, Filter::IsNull(field)])), exact: false },
            Side::Below => Bound { filter: Some(filter), exact: false },
        },
        _ => exact,
    }
}

/// The comparison that holds with its sides exchanged.
pub(super) fn mirror(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

/// The approximate size of a value in a filter.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 8 + text.len(),
        Value::Bytes(bytes) => 8 + bytes.len(),
        Value::Decimal(number) => 8 + number.as_ref().unscaled_value().len(),
        _ => 24,
    }
}
