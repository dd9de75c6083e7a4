//! A leaf that is merged with changes from page to page.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::changes::{Change, ChangedValue, LeafSize, merge_page};
use super::super::page::{Entry, NewValue, Node, PAGE, PageRef, ROOM, encode};
use crate::rows::key::Key;

const SIZE: LeafSize = LeafSize { least: ROOM / 4, room: ROOM };

/// A row of a leaf: a value in it, or the first page of a value outside.
#[derive(Clone, Debug, PartialEq)]
enum Row {
    Inline(Vec<u8>),
    Outside(PageRef, usize),
}

type Rows = BTreeMap<Vec<u8>, Row>;

fn value_of(row: &Row) -> NewValue<'_> {
    match row {
        Row::Inline(bytes) => NewValue::Inline(bytes),
        Row::Outside(run, len) => NewValue::Outside(*run, *len),
    }
}

fn size_of(rows: &Rows) -> usize {
    rows.iter().map(|(key, row)| value_of(row).size_with(key)).sum()
}

fn page_of(rows: &Rows) -> [u8; PAGE] {
    let entries: Vec<_> = rows.iter().map(|(key, row)| Entry { key: key.into(), value: value_of(row) }).collect();
    let mut bytes = [0xaa; PAGE];
    encode(0, false, &entries, &mut bytes);
    bytes
}

fn random_row(random: &mut StdRng) -> Row {
    let page = random.random_range(20..1000);
    match random.random_range(0..8) {
        0 => Row::Outside(PageRef { page, crc: random.random() }, random.random_range(5000..9000)),
        1 => Row::Inline(vec![random.random(); random.random_range(0..1500)]),
        _ => Row::Inline(vec![random.random(); random.random_range(0..200)]),
    }
}

fn random_key(random: &mut StdRng) -> Vec<u8> {
    let len = random.random_range(1..4);
    (0..len).map(|_| random.random_range(b'a'..b'h')).collect()
}

/// A leaf that is full to some part.
fn random_leaf(random: &mut StdRng) -> Rows {
    let (mut rows, wanted) = (Rows::new(), random.random_range(0..ROOM));
    loop {
        let (key, row) = (random_key(random), random_row(random));
        if size_of(&rows) + value_of(&row).size_with(&key) > wanted {
            return rows;
        }
        rows.insert(key, row);
    }
}

#[test]
fn a_leaf_merged_from_page_to_page_has_the_rows_of_the_leaf_and_the_changes() {
    let mut random = StdRng::seed_from_u64(1);
    let (mut merged, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let before = random_leaf(&mut random);
        let mut changes = BTreeMap::new();
        for _ in 0..random.random_range(1..8) {
            let known = before.keys().nth(random.random_range(0..before.len().max(1))).filter(|_| random.random());
            let key = known.cloned().unwrap_or_else(|| random_key(&mut random));
            changes.insert(key, random.random_bool(0.6).then(|| random_row(&mut random)));
        }
        let (mut after, mut replaced) = (before.clone(), Vec::new());
        for (key, row) in &changes {
            let old = match row {
                Some(row) => after.insert(key.clone(), row.clone()),
                None => after.remove(key),
            };
            replaced.extend(old.filter(|old| matches!(old, Row::Outside(..))));
        }
        let changes: Vec<_> = changes
            .into_iter()
            .map(|(key, row)| {
                let value = match row {
                    None => ChangedValue::Absent,
                    Some(Row::Inline(bytes)) => ChangedValue::Inline(bytes.into()),
                    Some(Row::Outside(run, len)) => ChangedValue::Outside(run, len),
                };
                Change { key: Key::from(&key[..]), value }
            })
            .collect();
        let bytes = page_of(&before);
        let node = Node::parse(&bytes, 17, 0).unwrap();
        let mut out = [0x55; PAGE];
        let Some(found) = merge_page(&node, &changes, SIZE, &mut out) else {
            assert!(!(SIZE.least..=SIZE.room).contains(&size_of(&after)), "the page has a size that is allowed");
            refused += 1;
            continue;
        };
        assert!((SIZE.least..=SIZE.room).contains(&size_of(&after)), "{} bytes", size_of(&after));
        assert_eq!(out, page_of(&after), "every byte is that of an encoded page");
        let found: Vec<_> = found
            .into_iter()
            .map(|value| match value {
                NewValue::Outside(run, len) => Row::Outside(run, len),
                other => panic!("{other:?} has no pages"),
            })
            .collect();
        assert_eq!(found, replaced);
        merged += 1;
    }
    assert!(merged > 1000 && refused > 1000, "{merged} and {refused}");
}

#[test]
fn a_leaf_with_rows_out_of_order_or_beyond_the_page_is_not_merged() {
    let rows: Rows = (b'a'..=b'z').map(|key| (vec![key], Row::Inline(vec![key; 60]))).collect();
    let whole = page_of(&rows);
    let change = || vec![Change { key: Key::from(&b"c"[..]), value: ChangedValue::Inline(vec![0; 60].into()) }];
    let is_merged = |bytes: &[u8; PAGE]| {
        let node = Node::parse(bytes, 17, 0).unwrap();
        merge_page(&node, &change(), SIZE, &mut [0; PAGE]).is_some()
    };
    assert!(is_merged(&whole));
    let place = |index: usize| 8 + 2 * index;
    for index in 0..rows.len() - 1 {
        let mut swapped = whole;
        let (one, other) = (place(index), place(index + 1));
        swapped.copy_within(other..other + 2, one);
        swapped[other..other + 2].copy_from_slice(&whole[one..one + 2]);
        assert!(!is_merged(&swapped), "rows {index} and {} are swapped", index + 1);
        let mut beyond = whole;
        beyond[one..one + 2].copy_from_slice(&(PAGE as u16 - 8).to_le_bytes());
        assert!(!is_merged(&beyond), "row {index} ends behind the page");
        let mut doubled = whole;
        doubled.copy_within(one..one + 2, other);
        assert!(!is_merged(&doubled), "row {index} is there twice");
    }
}
