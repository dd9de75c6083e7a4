//! The guarantees of a simulated store.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::ErrorKind;

use super::*;
use crate::commit::row_changes::RowChanges;

type Reply = (u32, std::result::Result<u64, ErrorKind>);
type Replies = Arc<Mutex<Vec<Reply>>>;

fn options() -> Options {
    Options { mob_bytes: 32 << 10, segment_bytes: 16 << 10, ..Options::default() }
}

fn value(number: u32) -> Bytes {
    let len = 100 + number as usize * 37 % 3000;
    (0..len).map(|i| (i as u32 ^ number) as u8).collect::<Vec<_>>().into()
}

/// Submits a change that writes a row of its own and a row that all changes write.
fn submit(store: &Store, number: u32, replies: &Replies) {
    let mut changes = RowChanges::new();
    changes.put(&number.to_be_bytes(), value(number));
    changes.put(b"newest", value(number));
    let replies = Arc::clone(replies);
    store.submit_rows(changes, move |reply| replies.lock().push((number, reply.map_err(|e| e.kind()))));
}

fn rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let visit = |key: &[u8], value: &[u8]| {
        rows.insert(key.to_vec(), value.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    store.rows(&[], &[0xff; 8], visit).unwrap();
    rows
}

/// The number of changes in a store. Panics unless they are the first ones and complete.
fn count_changes(store: &Store) -> u32 {
    let mut rows = rows(store);
    let newest = rows.remove(&b"newest"[..]);
    let many = rows.len() as u32;
    let expected = (0..many).map(|number| (number.to_be_bytes().to_vec(), value(number).to_vec()));
    assert!(rows.into_iter().eq(expected), "changes are missing or incomplete");
    assert_eq!(newest, many.checked_sub(1).map(|last| value(last).to_vec()));
    many
}

#[test]
fn a_crash_keeps_what_was_acknowledged_and_loses_or_tears_the_rest() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let machine = SimStore::open(DiskImage::default(), options()).unwrap();
        let replies = Replies::default();
        for number in 0..6 {
            submit(&machine.store(), number, &replies);
            if number < 3 {
                assert!(machine.is_force_wanted());
                machine.force().unwrap();
                assert!(!machine.is_force_wanted());
            }
        }
        // The machine stops during the force of the last three changes.
        machine.stop_after(seed as usize % 4);
        let forced = machine.force().is_ok();
        let acknowledged = replies.lock().iter().filter(|(_, reply)| reply.is_ok()).count();
        assert_eq!((replies.lock().len(), acknowledged), (6, if forced { 6 } else { 3 }));
        let machine = SimStore::open(machine.crash(seed), options()).unwrap();
        let found = count_changes(&machine.store());
        assert!((acknowledged..=6).contains(&(found as usize)), "{acknowledged} acknowledged, {found} found");
        outcomes.insert((forced, found));
    }
    // Nothing, some, or all of the unforced changes; and the forced ones.
    assert!(outcomes.is_superset(&[(false, 3), (false, 4), (false, 6), (true, 6)].into()), "{outcomes:?}");
}

#[test]
fn callbacks_run_inside_force_in_the_order_of_the_log() {
    let machine = SimStore::open(DiskImage::default(), options()).unwrap();
    let replies = Replies::default();
    (0..3).for_each(|number| submit(&machine.store(), number, &replies));
    let too_large = Bytes::from(vec![0; model::limits::ROW_VALUE + 1]);
    let mut changes = RowChanges::new();
    changes.put(b"x", too_large);
    let refused = Arc::clone(&replies);
    machine.store().submit_rows(changes, move |reply| refused.lock().push((3, reply.map_err(|e| e.kind()))));
    submit(&machine.store(), 4, &replies);
    machine.install().unwrap();
    assert!(replies.lock().is_empty() && rows(&machine.store()).is_empty());
    machine.force().unwrap();
    let at = machine.store().status().version;
    let expected = [(0, Ok(at - 3)), (1, Ok(at - 2)), (2, Ok(at - 1)), (3, Err(ErrorKind::TooLarge)), (4, Ok(at))];
    assert_eq!(*replies.lock(), expected);
}

#[test]
fn hook_follows_the_replies_of_each_force() {
    let machine = SimStore::open(DiskImage::default(), options()).unwrap();
    let (replies, calls) = (Replies::default(), Arc::new(Mutex::new(Vec::new())));
    let (seen, called) = (Arc::clone(&replies), Arc::clone(&calls));
    machine.store().set_reply_hook(move |count| called.lock().push((count, seen.lock().len())));
    submit(&machine.store(), 0, &replies);
    machine.force().unwrap();
    assert_eq!(*calls.lock(), [(1, 1)]);
    (1..4).for_each(|number| submit(&machine.store(), number, &replies));
    machine.force().unwrap();
    assert_eq!(calls.lock().last(), Some(&(3, 4)));
    submit(&machine.store(), 4, &replies);
    machine.stop_after(0);
    assert!(machine.force().is_err());
    assert_eq!(calls.lock().last(), Some(&(1, 5)), "the hook follows the replies of a force that failed, too");
}

/// A run with installations, a full disk and a crash; returns the disk and the replies.
fn eventful_run(seed: u64) -> (DiskImage, Vec<Reply>) {
    let mut machine = SimStore::open(DiskImage::default(), options()).unwrap();
    let replies = Replies::default();
    for number in 0..80 {
        submit(&machine.store(), number, &replies);
        match number {
            30 => machine.set_room(Some(1000)),
            50 => machine.set_room(None),
            60 => machine = SimStore::open(machine.crash(seed), options()).unwrap(),
            _ => {}
        }
        // The replies show refusals for lack of room.
        if number % 3 == 0 {
            let _ = machine.force();
        }
        if number % 7 == 0 || machine.is_install_wanted() {
            let _ = machine.install();
        }
        if number % 20 == 0 {
            let _ = machine.force_marker();
        }
    }
    let image = machine.crash(seed);
    let replies = std::mem::take(&mut *replies.lock());
    (image, replies)
}

#[test]
fn equal_calls_give_equal_replies_and_equal_bytes() {
    for seed in 0..8 {
        let (first, second) = (eventful_run(seed), eventful_run(seed));
        assert_eq!(first.1, second.1);
        assert_eq!(first.0.digest(), second.0.digest());
        assert!(first.1.iter().any(|(_, reply)| *reply == Err(ErrorKind::Full)), "the disk was never full");
    }
}

#[test]
fn an_installed_store_needs_no_log_and_copies_of_an_image_are_independent() {
    let machine = SimStore::open(DiskImage::default(), options()).unwrap();
    let replies = Replies::default();
    for number in 0..40 {
        submit(&machine.store(), number, &replies);
        machine.force().unwrap();
        if machine.is_install_wanted() {
            machine.install().unwrap();
        }
    }
    machine.install().unwrap();
    assert!(machine.store().status().installed_rows > 0);
    let (image, steps) = (machine.crash(1), machine.steps());
    submit(&machine.store(), 40, &replies);
    assert!(machine.force().is_err(), "the machine has stopped");
    assert_eq!(machine.steps(), steps);
    let before = image.digest();
    let machine = SimStore::open(image.clone(), options()).unwrap();
    submit(&machine.store(), 40, &replies);
    machine.force().unwrap();
    assert_eq!((count_changes(&machine.store()), image.digest()), (41, before));
    let machine = SimStore::open(image, options()).unwrap();
    assert_eq!(count_changes(&machine.store()), 40);
}
