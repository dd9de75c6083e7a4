//! Chooses an index.
//!
//! An index is useful if the condition requires a prefix of its fields to equal known values, and at most one more field to be in a
//! range; or if it provides the wanted order and the query has a limit. The index with the highest score is chosen. There are no
//! statistics of values: equality scores more than a range, and a range more than a half-open range.
//!
//! A record that lacks a field has a null key component, even if the field has a default. If the default satisfies the test, the
//! null entries are read too.

use model::{Comparison, FieldNumber, Value};

use super::push::mirror;
use super::{Index, IndexRanges};
use crate::check::{CheckedQuery, Cond, Elements, OrderBy, Output, TextTest};
use crate::eval::holds_by_default;
use crate::key::{KeyPrefix, KeyRange};
use crate::plant::{Bug, planted};
use crate::{Schema, limits};

/// More operands than this are read as one range.
const MAX_POINT_RANGES: usize = 64;
/// An index is used only for its order if at most this number of objects is wanted.
const MAX_ORDERED_LIMIT: u64 = 10_000;

/// A test of a field that restricts the position in an index.
struct FieldTest<'c> {
    field: FieldNumber,
    kind: TestKind<'c>,
    /// Whether records that lack the field satisfy it.
    by_default: bool,
    cond: &'c Cond,
}

enum TestKind<'c> {
    Null,
    NotNull,
    Compare(Comparison, &'c Value),
    OneOf(Vec<&'c Value>),
    StartsWith(&'c str),
}

/// The score of an index: equality and ranges, whether it is unique and all of its fields are equal, its order.
type Score = (u32, bool, bool);

/// The best index, and the ranges to read.
pub(super) fn choose(
    checked: &CheckedQuery,
    parts: &[&Cond],
    schema: &Schema,
    indexes: &[Index],
) -> Option<IndexRanges> {
    let tests: Vec<FieldTest<'_>> = parts.iter().filter_map(|part| field_test(part)).collect();
    let usable = |index: &&Index| {
        (index.ready || planted(Bug::UnreadyIndexUsed))
            && (1..=limits::KEY_FIELDS).contains(&index.fields.len())
            && schema.family(index.class).contains(&checked.class)
    };
    let mut best: Option<(Score, IndexRanges)> = None;
    for index in indexes.iter().filter(usable) {
        if let Some((score, ranges)) = score_index(checked, &tests, index)
            && best.as_ref().is_none_or(|(least, _)| score > *least)
        {
            best = Some((score, ranges));
        }
    }
    best.map(|(_, ranges)| ranges)
}

fn score_index(checked: &CheckedQuery, tests: &[FieldTest<'_>], index: &Index) -> Option<(Score, IndexRanges)> {
    let mut prefix = KeyPrefix::new(index.fields.len());
    let (mut words, mut points, mut equal) = (Vec::new(), 0, 0);
    for field in &index.fields {
        let Some((test, value)) = tests.iter().find_map(|test| equal_value(test, *field)) else { break };
        prefix.push(value.as_scalar()?);
        words.push(test.cond.to_string());
        points += 4;
        equal += 1;
    }
    let mut ranges = vec![prefix.range()];
    if let Some(field) = index.fields.get(equal) {
        let (mut above, mut below) = (0, 0);
        for test in tests.iter().filter(|test| test.field == *field) {
            let of_test = test_ranges(test, &prefix);
            ranges = intersect(&ranges, &of_test);
            words.push(test.cond.to_string());
            match &test.kind {
                TestKind::Compare(Comparison::Less | Comparison::LessOrEqual, _) => below = 1,
                TestKind::Compare(Comparison::Greater | Comparison::GreaterOrEqual, _) => above = 1,
                TestKind::NotNull | TestKind::Compare(Comparison::NotEqual, _) => {}
                _ => (above, below) = (1, 2),
            }
        }
        points += above + below;
    }
    let order = index_order(checked, index, equal);
    let ordered = order.is_some() && checked.limit.is_some();
    let first = checked.limit.is_some_and(|limit| limit.saturating_add(checked.skip) <= MAX_ORDERED_LIMIT);
    if points == 0 && !(ordered && first) {
        return None;
    }
    let all = index.unique && equal == index.fields.len();
    let words = if words.is_empty() { "everything".into() } else { words.join(" && ") };
    let ranges = IndexRanges {
        index: index.id,
        name: index.name.clone(),
        fields: index.fields.clone(),
        ranges,
        reverse: ordered && order == Some(true),
        ordered,
        leading: equal + 1,
        words,
    };
    Some(((points, all, ordered), ranges))
}

fn field_test(part: &Cond) -> Option<FieldTest<'_>> {
    let (term, kind) = match part {
        Cond::IsNull(term) => (term, TestKind::Null),
        Cond::Not(not) => match &**not {
            Cond::IsNull(term) => (term, TestKind::NotNull),
            _ => return None,
        },
        Cond::Compare(comparison, a, b) => match (a.as_literal(), b.as_literal()) {
            (None, Some(value)) => (a, TestKind::Compare(*comparison, value)),
            (Some(value), None) => (b, TestKind::Compare(mirror(*comparison), value)),
            _ => return None,
        },
        Cond::In(element, Elements::Choice(choice)) => {
            (element, TestKind::OneOf(choice.as_slice().iter().map(|operand| operand.value()).collect()))
        }
        Cond::Text(TextTest::StartsWith, of, with) => match with.as_literal() {
            Some(Value::String(text)) => (of, TestKind::StartsWith(text)),
            _ => return None,
        },
        _ => return None,
    };
    let (field, default) = term.own_field()?;
    let by_default = default.is_some() && holds_by_default(part);
    Some(FieldTest { field, kind, by_default, cond: part })
}

/// The value that the field must equal, if records that lack the field do not satisfy the test.
fn equal_value<'t, 'c>(test: &'t FieldTest<'c>, field: FieldNumber) -> Option<(&'t FieldTest<'c>, &'c Value)> {
    match test.kind {
        TestKind::Compare(Comparison::Equal, value) if test.field == field && !test.by_default => Some((test, value)),
        _ => None,
    }
}

/// The disjoint ranges of keys that can satisfy a test, in order.
fn test_ranges(test: &FieldTest<'_>, prefix: &KeyPrefix) -> Vec<KeyRange> {
    let compare = |comparison, value: &Value| value.as_scalar().map(|value| prefix.compare(comparison, value));
    let mut ranges: Vec<KeyRange> = match &test.kind {
        TestKind::Null => vec![prefix.null()],
        // Records that lack the field can have a default, and their key is null.
        TestKind::NotNull if test.by_default => vec![prefix.range()],
        TestKind::NotNull => vec![prefix.not_null()],
        TestKind::Compare(comparison, value) => compare(*comparison, value).into_iter().collect(),
        TestKind::OneOf(values) if values.len() > MAX_POINT_RANGES => {
            let ends = values.first().zip(values.last());
            let ends =
                ends.and_then(|(first, last)| compare(Comparison::Equal, first).zip(compare(Comparison::Equal, last)));
            ends.map(|(first, last)| KeyRange { from: first.from, to: last.to }).into_iter().collect()
        }
        TestKind::OneOf(values) => values.iter().filter_map(|value| compare(Comparison::Equal, value)).collect(),
        TestKind::StartsWith(text) => vec![prefix.starts_with(text)],
    };
    if test.by_default && !planted(Bug::DefaultMissingInIndex) {
        ranges.push(prefix.null());
    }
    merge_overlapping(ranges)
}

/// The intersections of ranges.
fn intersect(a: &[KeyRange], b: &[KeyRange]) -> Vec<KeyRange> {
    merge_overlapping(a.iter().flat_map(|one| b.iter().map(|other| one.clone().intersection(other.clone()))).collect())
}

/// The same keys in disjoint, non-empty ranges in order.
fn merge_overlapping(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| a.from.cmp(&b.from));
    let mut merged: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.from <= last.to => last.to = range.to.max(std::mem::take(&mut last.to)),
            _ => merged.push(range),
        }
    }
    merged
}

/// Whether the index must be read in reverse to provide the order; `None` if it cannot provide it.
///
/// The first order key by which objects differ must be the field after those that are equal. Nulls come first in an index, and
/// so do records whose field has a default.
fn index_order(checked: &CheckedQuery, index: &Index, equal: usize) -> Option<bool> {
    if matches!(checked.output, Output::Groups(_)) {
        return None;
    }
    let fixed = &index.fields[..equal];
    let key = checked.order.iter().find(|key| !own_field(&key.by).is_some_and(|(field, _)| fixed.contains(&field)))?;
    let (field, default) = own_field(&key.by)?;
    let fits = index.fields.get(equal) == Some(&field) && default.is_none() && key.nulls_first != key.descending;
    fits.then_some(key.descending)
}

fn own_field(by: &OrderBy) -> Option<(FieldNumber, Option<&Value>)> {
    match by {
        OrderBy::Term(term) => term.own_field(),
        OrderBy::Group(_) => None,
    }
}
