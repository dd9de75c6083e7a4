use model::planted_bug::assert_noticed;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

#[derive(Default)]
struct TestLink {
    reads: AtomicU64,
    holds_state: AtomicBool,
    is_hung_up: AtomicBool,
}

impl TestLink {
    fn receive(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn is_hung_up(&self) -> bool {
        self.is_hung_up.load(Ordering::Relaxed)
    }
}

impl AdmittedLink for TestLink {
    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn holds_state(&self) -> bool {
        self.holds_state.load(Ordering::Relaxed)
    }

    fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::Relaxed);
    }
}

fn address(last: u8) -> ConnectionSource {
    ConnectionSource::Network(IpAddr::from([192, 0, 2, last]))
}

fn owner(user: &str) -> ConnectionOwner {
    ConnectionOwner { user: Some(user.into()), is_privileged: user == "root" }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        total: 8,
        administrator_reserve: 1,
        per_address: 4,
        per_user: 3,
        half_open: 4,
        idle_s: 2,
        idle_with_state_s: 5,
    }
}

/// Connects as a user from an address.
fn connect(
    table: &Arc<ConnectionTable>,
    source: ConnectionSource,
    user: &str,
) -> Result<(ConnectionSlot, Arc<TestLink>)> {
    let slot = table.accept(source);
    slot.begin_authentication();
    slot.admit(owner(user))?;
    let link = Arc::new(TestLink::default());
    slot.attach(&link);
    Ok((slot, link))
}

fn refusal<T>(result: Result<T>) -> String {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    error.message().to_owned()
}

fn tick(table: &ConnectionTable, count: u32) {
    (0..count).for_each(|_| table.tick());
}

async fn is_evicted(slot: &ConnectionSlot) -> bool {
    tokio::time::timeout(std::time::Duration::from_millis(1), slot.wait_until_evicted()).await.is_ok()
}

#[test]
fn one_user_has_no_more_connections_than_its_limit() {
    let table = ConnectionTable::new(limits());
    let mut held: Vec<_> = (0..3).map(|at| connect(&table, address(at), "ann").unwrap()).collect();
    assert!(refusal(connect(&table, address(9), "ann")).contains("user ann has its 3 connections"));
    assert!(connect(&table, address(9), "bob").is_ok());
    held.pop();
    assert!(connect(&table, address(9), "ann").is_ok());
}

fn one_address_has_no_more_connections_than_its_limit() {
    let table = ConnectionTable::new(limits());
    let users = ["a", "b", "c", "d"];
    let mut held: Vec<_> = users.iter().map(|user| connect(&table, address(1), user).unwrap()).collect();
    assert!(refusal(connect(&table, address(1), "e")).contains("address 192.0.2.1 has its 4 connections"));
    held.push(connect(&table, address(1), "root").expect("an administrator is not bound by it"));
    held.push(connect(&table, address(2), "e").unwrap());
    held.push(connect(&table, ConnectionSource::Uid(7), "f").unwrap());
}

#[test]
fn loopback_is_not_one_address() {
    let table = ConnectionTable::new(limits());
    let held: Vec<_> =
        (0..8).map(|n| connect(&table, ConnectionSource::Loopback, &format!("user{n}")).unwrap()).collect();
    assert_eq!(table.count(), (0, held.len()));
}

fn administrators_have_places_that_others_cannot_take() {
    let table = ConnectionTable::new(limits());
    let _held: Vec<_> = (0..8).map(|n| connect(&table, address(n), &format!("user{n}")).unwrap()).collect();
    assert!(refusal(connect(&table, address(9), "ann")).contains("the server has its 8 connections"));
    let _root = connect(&table, address(9), "root").unwrap();
    refusal(connect(&table, address(9), "root"));
}

fn a_place_is_returned_when_its_connection_ends() {
    let table = ConnectionTable::new(limits());
    for _ in 0..100 {
        let held: Vec<_> = (0..8).map(|n| connect(&table, address(n), &format!("user{n}")).unwrap()).collect();
        drop(held);
        drop(table.accept(address(1)));
    }
    assert_eq!(table.count(), (0, 0));
}

fn a_user_that_is_no_administrator_any_more_frees_the_reserve() {
    let table = ConnectionTable::new(limits());
    let (demoted, _link) = connect(&table, address(9), "root").unwrap();
    let _held: Vec<_> = (0..7).map(|n| connect(&table, address(n), &format!("user{n}")).unwrap()).collect();
    table.set_privileged(demoted.id(), false);
    refusal(connect(&table, address(8), "ann"));
    connect(&table, address(8), "root").expect("the reserve is free");
}

#[test]
fn a_full_server_evicts_the_connection_that_is_idle_longest() {
    let table = ConnectionTable::new(limits());
    let held: Vec<_> = (0..8).map(|n| connect(&table, address(n), &format!("user{n}")).unwrap()).collect();
    tick(&table, 1);
    held.iter().skip(1).for_each(|(_, link)| link.receive());
    refusal(connect(&table, address(9), "ann"));
    tick(&table, 1);
    let _ann = connect(&table, address(9), "ann").expect("one has been idle for two seconds");
    let hung_up: Vec<bool> = held.iter().map(|(_, link)| link.is_hung_up()).collect();
    assert_eq!(hung_up, [true, false, false, false, false, false, false, false]);
    assert_eq!(table.evicted_count(), 1);
}

#[test]
fn connection_that_has_just_received_bytes_is_kept() {
    let table = ConnectionTable::new(ConnectionLimits { total: 1, administrator_reserve: 0, ..limits() });
    let (_slot, link) = connect(&table, address(1), "ann").unwrap();
    tick(&table, 10);
    link.receive();
    refusal(connect(&table, address(2), "bob"));
}

#[test]
fn only_connections_that_count_towards_the_limit_are_evicted() {
    let table = ConnectionTable::new(limits());
    let (_bob, bob) = connect(&table, address(9), "bob").unwrap();
    tick(&table, 10);
    let ann: Vec<_> = (0..3).map(|n| connect(&table, address(n), "ann").unwrap()).collect();
    refusal(connect(&table, address(4), "ann"));
    tick(&table, 2);
    connect(&table, address(4), "ann").unwrap();
    assert!(!bob.is_hung_up(), "bob is idle, and has nothing to do with it");
    assert_eq!(ann.iter().filter(|(_, link)| link.is_hung_up()).count(), 1);
}

fn connections_with_state_are_evicted_last() {
    let table = ConnectionTable::new(ConnectionLimits { total: 2, administrator_reserve: 0, ..limits() });
    let (_with, with) = connect(&table, address(1), "with").unwrap();
    with.holds_state.store(true, Ordering::Relaxed);
    tick(&table, 2);
    let (_without, without) = connect(&table, address(2), "without").unwrap();
    refusal(connect(&table, address(3), "ann"));
    tick(&table, 10);
    let _ann = connect(&table, address(3), "ann").unwrap();
    assert!(without.is_hung_up() && !with.is_hung_up());
    let _bob = connect(&table, address(4), "bob").unwrap();
    assert!(with.is_hung_up(), "in the end it is given up, too");
}

#[tokio::test]
async fn half_open_connections_take_no_places_and_the_oldest_silent_one_of_the_busiest_source_goes_first() {
    let table = ConnectionTable::new(limits());
    let other = table.accept(address(1));
    let authenticating = table.accept(address(2));
    authenticating.begin_authentication();
    let attackers = [table.accept(address(2)), table.accept(address(2))];
    let next = table.accept(address(2));
    assert!(is_evicted(&attackers[0]).await);
    for kept in [&other, &authenticating, &attackers[1], &next] {
        assert!(!is_evicted(kept).await);
    }
    assert_eq!(
        refusal(attackers[0].admit(owner("ann"))),
        "the server is full and has closed this connection: try again later"
    );
    // A client that has begun to authenticate can finish, however many connections arrive.
    for _ in 0..1_000 {
        drop(table.accept(address(2)));
        std::mem::forget(table.accept(address(2)));
    }
    authenticating.admit(owner("ann")).unwrap();
    assert_eq!(table.count(), (3, 1));
}

#[tokio::test]
async fn without_file_descriptors_half_open_connections_go_before_idle_ones() {
    let table = ConnectionTable::new(limits());
    assert!(!table.evict_one(), "there is none");
    let (_ann, ann) = connect(&table, address(1), "ann").unwrap();
    let half_open = table.accept(address(2));
    tick(&table, 2);
    assert!(table.evict_one() && is_evicted(&half_open).await && !ann.is_hung_up());
    assert!(table.evict_one() && ann.is_hung_up());
}

/// Tests, each with the planted bug that it notices.
const DIRECTED: [(Bug, fn()); 5] = [
    (Bug::AddressNotCounted, one_address_has_no_more_connections_than_its_limit),
    (Bug::NoReserve, administrators_have_places_that_others_cannot_take),
    (Bug::StaysPrivileged, a_user_that_is_no_administrator_any_more_frees_the_reserve),
    (Bug::PlaceNotReturned, a_place_is_returned_when_its_connection_ends),
    (Bug::StateEvictedFirst, connections_with_state_are_evicted_last),
];

#[test]
fn planted_bugs_are_noticed() {
    for (bug, test) in DIRECTED {
        assert_noticed(&[bug], test);
    }
}
