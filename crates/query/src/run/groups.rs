//! Grouping and aggregates.

use std::collections::BTreeMap;

use bigdecimal::BigDecimal;
use model::{Decimal, Error, ErrorKind, Result, Value, ValueRef};

use super::sort::sort_key;
use super::{Row, size, too_large, value_size};
use crate::check::{GroupColumn, Groups, Order, OrderBy};
use crate::key::full_key;
use crate::number::{apply, quotient, to_big, to_double};
use crate::plant::{Bug, planted};
use crate::{Aggregate, Arithmetic, limits};

/// Groups by the bytes of their keys.
#[derive(Debug)]
pub(super) struct Grouping {
    keys: usize,
    aggregates: Vec<(Aggregate, bool)>,
    groups: BTreeMap<Vec<u8>, Group>,
    bytes: usize,
}

#[derive(Debug)]
struct Group {
    /// The least of equal values, such as 1 and 1.00.
    keys: Vec<Value>,
    aggregates: Vec<Accumulator>,
}

#[derive(Debug)]
enum Accumulator {
    Count(u64),
    Sum(Sum),
    Average(Sum, u64),
    Min(Option<Value>),
    Max(Option<Value>),
}

#[derive(Debug)]
enum Sum {
    None,
    Int(i128),
    /// The sum, and what was lost by rounding.
    Float(f64, f64),
    Decimal(Value),
}

impl Grouping {
    pub(super) fn new(groups: &Groups) -> Self {
        let aggregates = groups.aggregates.iter().map(|(aggregate, of)| (*aggregate, of.is_some())).collect();
        let mut grouping = Self { keys: groups.keys.len(), aggregates, groups: BTreeMap::new(), bytes: 0 };
        if grouping.keys == 0 {
            // There is always one group, even without objects.
            let group = grouping.group(vec![]);
            grouping.groups.insert(vec![], group);
        }
        grouping
    }

    fn group(&self, keys: Vec<Value>) -> Group {
        let aggregates = self.aggregates.iter().map(|(aggregate, _)| match aggregate {
            Aggregate::Count => Accumulator::Count(0),
            Aggregate::Sum => Accumulator::Sum(Sum::None),
            Aggregate::Average => Accumulator::Average(Sum::None, 0),
            Aggregate::Min => Accumulator::Min(None),
            Aggregate::Max => Accumulator::Max(None),
        });
        Group { keys, aggregates: aggregates.collect() }
    }

    /// Adds a number of objects.
    pub(super) fn count(&mut self, count: u64) {
        for group in self.groups.values_mut() {
            for accumulator in &mut group.aggregates {
                if let Accumulator::Count(counted) = accumulator {
                    *counted += count;
                }
            }
        }
    }

    /// Adds an object: the values of its keys, then the values to aggregate.
    pub(super) fn add(&mut self, mut values: Vec<Value>) -> Result<()> {
        let of = values.split_off(self.keys);
        let scalars: Vec<ValueRef<'_>> =
            values.iter().map(|value| value.as_scalar().unwrap_or(ValueRef::Null)).collect();
        let key = full_key(&scalars);
        if !self.groups.contains_key(&key) {
            self.bytes += key.len() + size(&values) + 64 * self.aggregates.len();
            let group = self.group(values.clone());
            self.groups.insert(key.clone(), group);
        }
        let Some(group) = self.groups.get_mut(&key) else { return Ok(()) };
        if values < group.keys {
            group.keys = values;
        }
        let mut of = of.into_iter();
        for ((_, has_operand), accumulator) in self.aggregates.iter().zip(&mut group.aggregates) {
            let value = if *has_operand { of.next().unwrap_or(Value::Null) } else { Value::Bool(true) };
            if value != Value::Null || planted(Bug::AggregatesCountNulls) {
                self.bytes = self.bytes.saturating_add_signed(accumulator.add(value)?);
            }
        }
        if self.bytes > limits::BUFFERED { Err(too_large("grouping")) } else { Ok(()) }
    }

    /// The rows of the groups, in order.
    pub(super) fn into_rows(self, groups: &Groups, order: &[Order]) -> Result<Vec<Row>> {
        let mut rows = Vec::with_capacity(self.groups.len());
        for (group_key, group) in self.groups {
            let results: Vec<Value> = group.aggregates.into_iter().map(Accumulator::result).collect::<Result<_>>()?;
            let value = |column: &GroupColumn| match column {
                GroupColumn::Key(index) => group.keys.get(*index).cloned().unwrap_or(Value::Null),
                GroupColumn::Aggregate(index) => results.get(*index).cloned().unwrap_or(Value::Null),
            };
            let mut key = Vec::new();
            for Order { by, descending, nulls_first } in order {
                if let OrderBy::Group(column) = by {
                    let value = value(column);
                    sort_key(value.as_scalar().unwrap_or(ValueRef::Null), *descending, *nulls_first, &mut key);
                }
            }
            key.extend_from_slice(&group_key);
            rows.push((key, Row::Values(groups.columns.iter().map(value).collect())));
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

impl Accumulator {
    /// Adds a value; returns by how many bytes its memory grows.
    fn add(&mut self, value: Value) -> Result<isize> {
        match self {
            Self::Count(count) => *count += 1,
            Self::Sum(sum) => sum.add(value)?,
            Self::Average(sum, count) => {
                *count += 1;
                sum.add(value)?;
            }
            Self::Min(least) => return Ok(replace_if_better(least, value, |new, old| new < old)),
            Self::Max(most) => return Ok(replace_if_better(most, value, |new, old| new > old)),
        }
        Ok(0)
    }

    fn result(self) -> Result<Value> {
        match self {
            Self::Count(count) => Ok(Value::Int64(i64::try_from(count).unwrap_or(i64::MAX))),
            Self::Sum(sum) => sum.result(),
            Self::Average(_, 0) => Ok(Value::Null),
            Self::Average(Sum::Int(sum), count) => Ok(Value::Float64(sum as f64 / count as f64)),
            Self::Average(sum, count) => match sum.result()? {
                Value::Decimal(sum) => {
                    let mean = quotient(&sum.to_big(), &BigDecimal::from(count));
                    Ok(Value::Decimal(Decimal::try_from(&mean)?))
                }
                sum => Ok(Value::Float64(to_double(&sum)? / count as f64)),
            },
            Self::Min(value) | Self::Max(value) => Ok(value.unwrap_or(Value::Null)),
        }
    }
}

fn replace_if_better(held: &mut Option<Value>, value: Value, better: impl Fn(&Value, &Value) -> bool) -> isize {
    if held.as_ref().is_some_and(|held| !better(&value, held)) {
        return 0;
    }
    let size = value_size(&value) as isize;
    size - held.replace(value).map_or(0, |before| value_size(&before) as isize)
}

impl Sum {
    fn add(&mut self, value: Value) -> Result<()> {
        *self = match (std::mem::replace(self, Self::None), value) {
            (Self::None, Value::Int64(number)) => Self::Int(i128::from(number)),
            (Self::None, Value::Float64(number)) => Self::Float(number, 0.0),
            (Self::None, number) => {
                to_big(&number)?;
                Self::Decimal(number)
            }
            // 2^64 int64 fit in an i128.
            (Self::Int(sum), Value::Int64(number)) => Self::Int(sum.wrapping_add(i128::from(number))),
            (Self::Float(sum, lost), number) => {
                let number = to_double(&number)?;
                let next = sum + number;
                let part = if sum.abs() >= number.abs() { (sum - next) + number } else { (number - next) + sum };
                // Infinities lose nothing.
                Self::Float(next, if part.is_finite() { lost + part } else { lost })
            }
            (Self::Decimal(sum), number) => match apply(Arithmetic::Add, &sum, &number)? {
                Value::Float64(number) => Self::Float(number, 0.0),
                sum => Self::Decimal(sum),
            },
            (Self::Int(sum), number) => {
                let sum = Value::Decimal(Decimal::new(sum, 0));
                return Self::Decimal(sum).add_into(self, number);
            }
        };
        Ok(())
    }

    /// Adds a number to a sum and stores it in `place`.
    fn add_into(self, place: &mut Self, number: Value) -> Result<()> {
        *place = self;
        place.add(number)
    }

    fn result(self) -> Result<Value> {
        match self {
            Self::None => Ok(Value::Null),
            Self::Int(sum) => i64::try_from(sum).map(Value::Int64).map_err(|_| {
                Error::new(
                    ErrorKind::Invalid,
                    format!("the sum {sum} does not fit an int64: sum a decimal, as in a * 1.0"),
                )
            }),
            Self::Float(sum, lost) => Ok(Value::Float64(if sum.is_finite() { sum + lost } else { sum })),
            Self::Decimal(sum) => Ok(sum),
        }
    }
}
