//! Values that were derived from objects are read in place of these until they change.

use super::*;

/// Reads an object in a new transaction by what was derived from it.
fn read_derived(harness: &mut Harness, oid: Oid) -> Option<String> {
    let txn = harness.driver.begin(Level::Optimistic, harness.now);
    let (level, mode) = (IsolationLevel::Optimistic, LockMode::Shared);
    let derived = harness.driver.read_derived(&ReadRequest { txn, level, oid, mode }, harness.now).unwrap();
    let reads = harness.driver.read_count(txn);
    harness.driver.abort(txn);
    let derived = derived?.downcast_ref::<String>().cloned();
    assert!(reads == 1, "a read by a derived value is a read");
    derived
}

/// Fetches an object and derives a value of so many bytes from it.
fn derive_value(harness: &mut Harness, oid: Oid, bytes: usize) {
    let call = harness.start(ClientCall::Get(oid));
    let object = harness.object(call).unwrap();
    let value = Arc::new(String::from_utf8(object.data.to_vec()).unwrap());
    harness.driver.attach(oid, |now| *now == object, DerivedValue { value, bytes }, harness.now);
    harness.pump();
}

#[test]
fn derived_value_is_read_until_its_object_changes() {
    let mut harness = Harness::new();
    derive_value(&mut harness, oid(1), 10);
    derive_value(&mut harness, oid(2), 20);
    assert_eq!(read_derived(&mut harness, oid(1)).as_deref(), Some("one"));
    change_first(&mut harness, "new", 5);
    assert_eq!(read_derived(&mut harness, oid(1)), None);
    assert_eq!(read_derived(&mut harness, oid(2)).as_deref(), Some("two"));
    // It is not derived from what is there now.
    let value = DerivedValue { value: Arc::new("one".to_owned()), bytes: 10 };
    harness.driver.attach(oid(2), |now| *now == blob("one"), value, harness.now);
    assert_eq!(read_derived(&mut harness, oid(2)).as_deref(), Some("two"));
}

#[test]
fn derived_value_is_of_the_class_that_is_read() {
    let mut harness = Harness::new();
    derive_value(&mut harness, oid(1), 10);
    let other = Oid::new(ClassId(9), page(7), 1);
    let txn = harness.driver.begin(Level::Optimistic, harness.now);
    let (level, mode) = (IsolationLevel::Optimistic, LockMode::Shared);
    let read = ReadRequest { txn, level, oid: other, mode };
    assert!(harness.driver.read_derived(&read, harness.now).unwrap().is_none());
}

#[test]
fn doomed_transaction_reads_no_derived_value() {
    let mut harness = Harness::new();
    derive_value(&mut harness, oid(1), 10);
    derive_value(&mut harness, oid(2), 10);
    let txn = harness.driver.begin(Level::Optimistic, harness.now);
    let (level, mode) = (IsolationLevel::Optimistic, LockMode::Shared);
    let read = |slot| ReadRequest { txn, level, oid: oid(slot), mode };
    assert!(harness.driver.read_derived(&read(1), harness.now).unwrap().is_some());
    change_first(&mut harness, "new", 5);
    let error = harness.driver.read_derived(&read(2), harness.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn derived_values_are_not_read_without_a_lease_and_end_with_their_copy() {
    let mut harness = Harness::new();
    derive_value(&mut harness, oid(1), 10);
    harness.disconnect();
    assert_eq!(read_derived_without_lease(&mut harness), None, "without a lease nothing is read");
    assert_eq!(harness.driver.derived_bytes(), 10);
    harness.now += 1;
    harness.connect();
    // The harness sends the page again, with another copy.
    assert_eq!(read_derived(&mut harness, oid(1)), None);
    assert_eq!(harness.driver.derived_bytes(), 0);
}

fn read_derived_without_lease(harness: &mut Harness) -> Option<()> {
    let txn = harness.driver.begin(Level::Optimistic, harness.now);
    let (level, mode) = (IsolationLevel::Optimistic, LockMode::Shared);
    harness.driver.read_derived(&ReadRequest { txn, level, oid: oid(1), mode }, harness.now).unwrap().map(|_| ())
}

pub(super) fn derived_values_count_in_the_limit_of_the_cache() {
    const LIMIT: usize = 10_000;
    let mut harness = Harness::with_cache(LIMIT);
    for number in 0..40 {
        let oid = Oid::new(ClassId::NONE, page(number), 1);
        derive_value(&mut harness, oid, 1_000);
        assert_eq!(read_derived(&mut harness, oid).as_deref(), Some("one"), "what is in use is kept");
        let (derived, cached) = (harness.driver.derived_bytes(), harness.driver.cached_bytes());
        assert!(derived <= LIMIT / 2 && derived < cached && cached <= LIMIT, "{derived} of {cached} bytes");
    }
    let copies: usize = harness.driver.session().cache().copies().count();
    assert!(copies > 6, "copies have half of the limit: {copies}");
}
