//! Each test drives the machine by hand, and is run again with the mistakes planted that it has to notice.

use std::sync::LazyLock;
use std::time::Duration;

use meta::catalog::{
    CatalogEditor, ClassDefinition, EvolutionStep, FieldDefinition, FieldType, Grantee, Parameters, SpaceChange,
    SpaceOptions, Storage,
};
use meta::{Embedded, MetaStore};
use model::{ClassId, Entry, EntryKey, FailurePolicy, PageId, limits};
use protocol::commit::{Part, Writes};
use protocol::ident::{HlcTimestamp, Version};
use protocol::locks::LockMode;
use protocol::page_cache::{FetchId, FetchReply, ObjectState, PageImage};
use protocol::read_list::ReadList;
use protocol::redirect::Helpers;
use protocol::validate::{NO_STATE, Read, ReadVersion};
use tokio::runtime::Builder;

use super::*;
use crate::auth::Principal;
use crate::cluster_view::{ClusterView, SpaceView};
use model::planted_bug::assert_noticed;

mod fixture;

use fixture::*;

const NOW: Ms = 1_000_000;
const PROCESS: u64 = 9;
const BITS: u32 = 20;

impl CachedContent for u64 {
    fn is_of_class(&self, _: ClassId) -> bool {
        true
    }
}

#[test]
fn what_a_client_may_do_depends_on_its_permission() {
    let bugs = [Bug::WriteUnchecked, Bug::CommitNeedsReadOnly, Bug::TouchNeedsReadOnly, Bug::EntryNeedsReadOnly];
    assert_noticed(&bugs, || {
        let touching = || Part { touches: [oid()].into(), ..Part::default() };
        let messages = [write(7), commit(7, writing()), commit(7, touching()), commit(7, naming(oid(), oid()))];
        for message in messages {
            for (user, expected) in [("reader", Some(ErrorKind::Denied)), ("writer", None)] {
                let mut client = client(1, user);
                let mut driver = driver_with_client(&mut client, 7);
                let outputs = send(&mut driver, &mut client, message.clone());
                assert_eq!(deferral_kind(&outputs), expected, "{user}: {message:?}");
            }
        }
        let mut reader = client(1, "reader");
        let outputs = send(&mut driver(), &mut reader, commit(7, Part::default()));
        assert_eq!(deferral_kind(&outputs), None, "it has only read");
    });
}

#[test]
fn transaction_without_participants_that_is_denied_has_not_committed() {
    assert_noticed(&[Bug::EmptyRefusalUnknown], || {
        let (mut driver, mut client) = (driver(), client(1, "reader"));
        driver.set_catalog(&FIXTURE.revoked);
        let call = Call::Commit { parts: BTreeMap::new(), creates: false };
        let outputs = send(&mut driver, &mut client, ClientMessage::Call { txn: txn(7), call });
        assert_eq!(deferral_kind(&outputs), Some(ErrorKind::Denied));
        let replies = outputs.iter().filter_map(|output| match output {
            Output::Reply { reply, .. } => Some(reply.clone()),
            _ => None,
        });
        assert_eq!(replies.collect::<Vec<_>>(), [Reply::Ended(CommitReply::Refused(Refusal::Aborted))]);
    });
}

#[test]
fn permission_is_that_of_the_newest_catalogue() {
    assert_noticed(&[Bug::PermissionNotRefreshed], || {
        let (mut driver, mut writer) = (driver(), client(1, "writer"));
        assert_eq!(deferral_kind(&send(&mut driver, &mut writer, commit(7, writing()))), None);
        driver.set_catalog(&FIXTURE.revoked);
        assert_eq!(deferral_kind(&send(&mut driver, &mut writer, commit(7, writing()))), Some(ErrorKind::Denied));
    });
}

#[test]
fn read_only_space_is_read_and_not_written_even_by_those_who_may_write() {
    assert_noticed(&[Bug::ReadOnlySpaceWritten], || {
        let mut writer = client(1, "writer");
        let mut driver = driver_with_client(&mut writer, 7);
        driver.set_catalog(&FIXTURE.read_only);
        let reads = Part { reads: [Read { oid: oid(), seen: NO_STATE }].into_iter().collect(), ..Part::default() };
        assert_eq!(deferral_kind(&send(&mut driver, &mut writer, commit(7, reads))), None);
        for message in [commit(7, writing()), write(7)] {
            assert_eq!(deferral_kind(&send(&mut driver, &mut writer, message)), Some(ErrorKind::Denied));
        }
        driver.set_catalog(&FIXTURE.catalog);
        assert_eq!(deferral_kind(&send(&mut driver, &mut writer, commit(7, writing()))), None);
    });
}

#[test]
fn client_reaches_its_own_space_only() {
    assert_noticed(&[Bug::ForeignPage, Bug::ForeignNode], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        let elsewhere = PageId { space: FIXTURE.other.id, ..page() };
        assert_eq!(refusal_kind(&mut driver, &mut client, fetch(7, node(), elsewhere)), ErrorKind::Denied);
        let node = FIXTURE.other.nodes[0];
        assert_eq!(
            refusal_kind(&mut driver, &mut client, fetch(7, node, PageId { node, ..page() })),
            ErrorKind::NotFound
        );
        let read = Part { touches: [Oid::new(ClassId::NONE, elsewhere, 1)].into(), ..Part::default() };
        assert_eq!(refusal_kind(&mut driver, &mut client, commit(7, read)), ErrorKind::Denied);
        let foreign = Oid::new(ClassId::NONE, elsewhere, 1);
        for part in [naming(foreign, oid()), naming(oid(), foreign)] {
            assert_eq!(refusal_kind(&mut driver, &mut client, commit(7, part)), ErrorKind::Denied);
        }
    });
}

#[test]
fn client_uses_its_own_sessions_and_transactions_only() {
    assert_noticed(&[Bug::ForeignSession, Bug::ForeignTransaction, Bug::ForeignReplacement], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        for message in [renew(8, None), renew(7, Some(holder(8))), commit(8, writing())] {
            assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::Denied);
        }
        driver.check_invariants().unwrap();
    });
}

#[test]
fn client_opens_a_bounded_number_of_sessions() {
    assert_noticed(&[Bug::SessionsUnbounded], || {
        let mut client = client(1, "reader");
        let mut driver = driver_with_client(&mut client, 7);
        let renew_session = |number| {
            let ClientMessage::Up { node, message, .. } = renew(7, None) else { panic!("no session is opened") };
            ClientMessage::Up { node, holder: HolderId(holder(7).0 + number), message }
        };
        for session in 1..1024 {
            send(&mut driver, &mut client, renew_session(session));
        }
        assert_eq!(refusal_kind(&mut driver, &mut client, renew_session(1024)), ErrorKind::TooLarge);
        send(&mut driver, &mut client, renew_session(5));
        driver.client_disconnected(&client, NOW);
        assert_eq!(driver.holder_count(), 0);
    });
}

#[test]
fn client_keeps_a_bounded_number_of_pages_that_do_not_exist() {
    assert_noticed(&[Bug::MissingPagesUnbounded], || {
        let mut client = client(1, "reader");
        let mut driver = driver_with_client(&mut client, 7);
        let numbered = |number| fetch(7, node(), PageId { number, ..page() });
        let fetch_missing = |driver: &mut Driver, client: &mut PeerClient<u8>, number| {
            driver.client_message(client, numbered(number), NOW)?;
            let fetches: Outputs = driver.outputs().collect();
            for fetched in fetches {
                let Output::Up { to, node, holder, message: Up::Fetch { page, fetch, .. } } = fetched else { continue };
                let image =
                    PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: Default::default() };
                let message = Down::Fetched { page, fetch, reply: FetchReply::Page(image) };
                driver.brick_message(to.brick, BrickMessage::Down { node, holder, message }, NOW).unwrap();
            }
            driver.outputs().for_each(drop);
            Ok::<(), Error>(())
        };
        let evict = |number| ClientMessage::Up {
            node: node(),
            holder: holder(7),
            message: Up::Evict { page: PageId { number, ..page() }, fetch: FetchId(1) },
        };
        // One that evicts what it has fetched may go on.
        for number in 0..40_000 {
            fetch_missing(&mut driver, &mut client, number).unwrap();
            send(&mut driver, &mut client, evict(number));
        }
        let refused = (0..40_000).find_map(|number| {
            fetch_missing(&mut driver, &mut client, number).err().map(|error| (number, error.kind()))
        });
        let (fetched, kind) = refused.expect("the number of pages has no bound");
        assert!(kind == ErrorKind::TooLarge && (16_384..=17_408).contains(&fetched), "{kind:?} after {fetched}");
        driver.check_invariants().unwrap();
    });
}

#[test]
fn client_has_a_bounded_number_of_fetches_under_way() {
    assert_noticed(&[Bug::MissingPagesUnbounded], || {
        let mut client = client(1, "reader");
        let mut driver = driver_with_client(&mut client, 7);
        let mut fetch_unanswered = |number| {
            let page = PageId { number, ..page() };
            let fetched = driver.client_message(&mut client, fetch(7, node(), page), NOW);
            // A copy that it does not have yet cannot be evicted.
            let evict = Up::Evict { page, fetch: FetchId(1) };
            let evict = ClientMessage::Up { node: node(), holder: holder(7), message: evict };
            let evicted = driver.client_message(&mut client, evict, NOW);
            driver.outputs().for_each(drop);
            fetched.and(evicted).err().map(|error| (number, error.kind()))
        };
        let (fetched, kind) = (0..40_000).find_map(&mut fetch_unanswered).expect("the number of fetches has no bound");
        assert!(kind == ErrorKind::TooLarge && (16_384..=17_408).contains(&fetched), "{kind:?} after {fetched}");
    });
}

#[test]
fn client_has_no_holders_below_it() {
    assert_noticed(&[Bug::AnyHeight], || {
        let mut client = client(1, "reader");
        let mut driver = driver_with_client(&mut client, 7);
        let ClientMessage::Up {
            node,
            holder,
            message: Up::Renew { asked, wanted_ms, open, sync, subscribe, replaces, .. },
        } = renew(7, None)
        else {
            panic!("no session is opened")
        };
        let message = Up::Renew { asked, wanted_ms, open, sync, subscribe, replaces, height: 1 };
        let claimed = ClientMessage::Up { node, holder, message };
        assert_eq!(refusal_kind(&mut driver, &mut client, claimed.clone()), ErrorKind::Invalid);
        send(&mut driver, &mut client.as_redirector(), claimed);
    });
}

#[test]
fn client_uses_no_number_that_it_was_not_given() {
    assert_noticed(&[Bug::NumberOfAnother], || {
        let mut driver = driver_with_client(&mut client(1, "writer"), 7);
        let resolve = |client| ClientMessage::Call {
            txn: txn(client),
            call: Call::Resolve { participants: vec![], patched: vec![] },
        };
        assert_eq!(refusal_kind(&mut driver, &mut client_with_number(2, "reader", 8), resolve(7)), ErrorKind::Denied);
        let mut unnumbered = client_in(3, &FIXTURE.main, "writer", None);
        for message in [resolve(7), resolve(9), renew(PROCESS, None)] {
            assert_eq!(refusal_kind(&mut driver, &mut unnumbered, message), ErrorKind::Denied);
        }
        assert!(driver.outputs().all(|output| !matches!(output, Output::Disconnect(1))));
    });
}

#[test]
fn client_that_connects_again_takes_the_place_of_its_earlier_connection() {
    assert_noticed(&[Bug::OlderConnectionKept, Bug::LaterConnectionForgotten], || {
        let (mut before, mut after) = (client(1, "writer"), client(2, "writer"));
        let mut driver = driver_with_client(&mut before, 7);
        let outputs = send(&mut driver, &mut after, renew(7, Some(holder(7))));
        assert!(outputs.iter().any(|output| matches!(output, Output::Disconnect(1))), "{outputs:?}");
        driver.client_disconnected(&before, NOW);
        let (txn, kind, why) = (txn(7), ErrorKind::Full, "no room".to_owned());
        driver.brick_message(brick_of(node()), BrickMessage::Deferred { node: node(), txn, kind, why }, NOW).unwrap();
        let told: Outputs = driver.outputs().collect();
        assert!(told.iter().any(|output| matches!(output, Output::Deferred { to: 2, .. })), "{told:?}");
    });
}

#[test]
fn reason_for_a_delay_goes_to_the_client_of_the_transaction() {
    assert_noticed(&[Bug::DeferredToAnyone], || {
        let mut driver = driver_with_client(&mut client(1, "writer"), 7);
        send(&mut driver, &mut client_with_number(2, "writer", 8), commit(8, writing()));
        let (txn, kind, why) = (txn(8), ErrorKind::Full, "no room".to_owned());
        driver.brick_message(brick_of(node()), BrickMessage::Deferred { node: node(), txn, kind, why }, NOW).unwrap();
        let told: Outputs = driver.outputs().collect();
        assert!(told.iter().all(|output| matches!(output, Output::Deferred { to: 2, .. })) && told.len() == 1);
    });
}

#[test]
fn holder_is_forgotten_when_its_connection_ends() {
    assert_noticed(&[Bug::HolderNotForgotten], || {
        let mut client = client(1, "reader");
        let mut driver = driver_with_client(&mut client, 7);
        let outputs = send(&mut driver, &mut client, fetch(7, node(), page()));
        let answered = answer_as_bricks(&mut driver, outputs, NOW);
        assert!(matches!(answered[..], [Output::Down { to: 1, message: Down::Fetched { .. }, .. }]), "{answered:?}");
        driver.client_disconnected(&client, NOW);
        assert_eq!(driver.holder_count(), 0);
    });
}

#[test]
fn times_in_the_future_and_large_commits_end_the_connection() {
    assert_noticed(&[Bug::FutureTime, Bug::FutureCheck, Bug::OversizedCommit], || {
        let (mut driver, mut client) = (driver(), client(1, "writer"));
        let future = HlcTimestamp::at(NOW + SKEW_MS);
        let call = Call::Release { participants: vec![node()] };
        let message = ClientMessage::Call { txn: TxnId { start: future, ..txn(7) }, call };
        assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::Invalid);
        let call = Call::Check { reads: [(node(), ReadList::default())].into(), seen: future };
        assert_eq!(
            refusal_kind(&mut driver, &mut client, ClientMessage::Call { txn: txn(7), call }),
            ErrorKind::Invalid
        );
        let in_page = |number: u64| PageId { number: 100 + number / 1_000, ..page() };
        let objects = 0..=limits::OBJECTS as u64;
        let oid = |number| Oid::new(ClassId::NONE, in_page(number), (number % 1_000) as u16);
        let writes = objects.map(|number| (oid(number), ObjectState::Value(1))).collect();
        let message = commit(7, Part { writes, ..Part::default() });
        assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::TooLarge);
    });
}

#[test]
fn commit_whose_requests_would_be_too_long_for_a_message_is_refused() {
    assert_noticed(&[Bug::OversizedCommit], || {
        let (mut driver, mut client) = (driver(), client(1, "writer"));
        let in_page = |number: u64| PageId { number: 100 + number, ..page() };
        let oid = |number| Oid::new(ClassId::NONE, in_page(number), 1);
        let seen = |position| ReadVersion::At(Version { moves: 0, position });
        let mut part = Part {
            reads: (1..=limits::READS as u64).map(|n| Read { oid: oid(n), seen: seen(n) }).collect(),
            ..Part::default()
        };
        part.writes.insert(oid(1), ObjectState::Value(1));
        let call = |part: &Part<u64>| match commit(7, part.clone()) {
            ClientMessage::Call { txn, call } => check_call(txn, &call, NOW).map_err(|error| error.kind()),
            _ => unreachable!("it is a call"),
        };
        assert_eq!(call(&part), Ok(()), "all that may be read, and a write");
        let collection = Oid::new(ClassId::NONE, page(), 2);
        part.entries = (0..60_000_u32)
            .map(|number| {
                let key = EntryKey::new([&number.to_be_bytes()[..], &[b'k'; 90]].concat()).unwrap();
                (Entry { collection, key }, None)
            })
            .collect();
        assert_eq!(refusal_kind(&mut driver, &mut client, commit(7, part)), ErrorKind::TooLarge);
    });
}

#[test]
fn age_of_another_transaction_ends_the_connection() {
    assert_noticed(&[Bug::ForeignAge], || {
        let (mut driver, mut client) = (driver(), client(1, "writer"));
        let later = TxnId { start: HlcTimestamp(txn(7).start.0 + 1), ..txn(7) };
        for first in [TxnId { client: ClientId(8), ..txn(7) }, later] {
            let call = Call::Lock { first, oid: Oid::new(ClassId::NONE, page(), 1), mode: LockMode::Shared };
            let message = ClientMessage::Call { txn: txn(7), call };
            assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::Invalid);
        }
    });
}

#[test]
fn large_write_outside_of_transactions_ends_the_connection() {
    let mut client = client(1, "writer");
    let mut driver = driver_with_client(&mut client, 7);
    let in_page = |number: u64| PageId { number: 100 + number / 1_000, ..page() };
    let oid = |number| Oid::new(ClassId::NONE, in_page(number), (number % 1_000) as u16);
    let writes = (0..=limits::OBJECTS as u64).map(|number| (oid(number), ObjectState::Value(1))).collect();
    let message = Up::Write { write: txn(7), writes };
    let message = ClientMessage::Up { node: node(), holder: holder(7), message };
    assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::TooLarge);
}

#[test]
fn outcome_of_a_refused_commit_is_found_out() {
    assert_noticed(&[Bug::RefusedNotResolved], || {
        let outputs = send(&mut driver(), &mut client(1, "reader"), commit(7, writing()));
        assert_eq!(deferral_kind(&outputs), Some(ErrorKind::Denied));
        assert_eq!(asks(&outputs), [brick_of(node())], "an earlier call may have been taken");
    });
}

#[test]
fn stopped_space_takes_no_new_work_and_finishes_what_was_begun() {
    assert_noticed(&[Bug::StoppedSpaceServed, Bug::StoppedSpaceDropsWrites], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        driver.update_statuses(|brick| brick != brick_of(node()), NOW);
        assert!(driver.stopped_spaces().contains_key(&FIXTURE.main.id));
        assert_eq!(deferral_kind(&send(&mut driver, &mut client, write(7))), None, "it may be a repeated one");
        assert_eq!(deferral_kind(&send(&mut driver, &mut client, commit(7, writing()))), Some(ErrorKind::Stopped));
        driver.update_statuses(|_| true, NOW);
        assert_eq!(deferral_kind(&send(&mut driver, &mut client, commit(7, writing()))), None);
    });
}

#[test]
fn tree_of_a_node_that_has_moved_begins_anew_at_its_new_brick() {
    assert_noticed(&[Bug::StaleMap, Bug::TreeNotClosed], || {
        let mut client = client(1, "writer");
        let mut driver = driver();
        let outputs = send(&mut driver, &mut client, renew(7, None));
        let (_, before) = opened_sessions(&outputs)[0];
        answer_as_bricks(&mut driver, outputs, NOW);
        let map = moved_placement();
        let new = map.nodes[&node()].brick;
        driver.map(map, NOW);
        let closed: Outputs = driver.outputs().collect();
        assert!(matches!(closed[..], [Output::Down { to: 1, message: Down::Closed, .. }]), "{closed:?}");
        let outputs = send(&mut driver, &mut client, reopen(7, 1));
        let [(brick, session)] = opened_sessions(&outputs)[..] else { panic!("{outputs:?}") };
        assert!(brick == new && session != before, "{session:?} at {brick:?}");
        assert_eq!(asks(&send(&mut driver, &mut client, commit(7, writing()))), [new]);
    });
}

#[test]
fn tree_of_a_node_that_has_moved_to_an_unreachable_brick_begins_when_there_is_a_connection() {
    let mut client = client(1, "writer");
    let mut driver = driver_with_client(&mut client, 7);
    let map = moved_placement();
    let new = map.nodes[&node()].brick;
    driver.brick_disconnected(new, NOW);
    driver.map(map, NOW);
    driver.outputs().for_each(drop);
    let mut opened = opened_sessions(&send(&mut driver, &mut client, reopen(7, 1)));
    for now in (NOW..NOW + 10_000).step_by(100) {
        driver.poll(now);
        opened.extend(opened_sessions(&driver.outputs().collect()));
    }
    assert_eq!(opened, [], "there is no connection");
    driver.brick_connected(new, NOW + 10_000);
    let opened = opened_sessions(&driver.outputs().collect());
    assert_eq!(opened.iter().map(|(brick, _)| *brick).collect::<Vec<_>>(), [new]);
}

#[test]
fn node_of_a_removed_space_is_asked_nothing_more() {
    assert_noticed(&[Bug::RemovedNodeKept], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        assert_eq!(asks(&send(&mut driver, &mut client, commit(7, writing()))).len(), 1, "which is not answered");
        driver.read(oid(), 5, NOW);
        let mut map = FIXTURE.placement.clone();
        for node in &FIXTURE.main.nodes {
            map.nodes.remove(node);
            map.removed.insert(*node, 1);
        }
        driver.map(Arc::new(map), NOW);
        assert!(driver.cache_node().tree(node()).is_none());
        for message in [reopen(7, 1), commit(7, writing())] {
            assert_eq!(refusal_kind(&mut driver, &mut client, message), ErrorKind::NotFound);
        }
        driver.client_disconnected(&client, NOW);
        driver.outputs().for_each(drop);
        for now in (NOW..NOW + 60_000).step_by(100) {
            driver.poll(now);
            let is_end = |output: &Output<u8, u64, u32>| matches!(output, Output::ReadEnded { .. });
            let outputs: Outputs = driver.outputs().filter(|output| !is_end(output)).collect();
            assert!(outputs.is_empty(), "{outputs:?}");
            driver.check_invariants().unwrap();
        }
    });
}

#[test]
fn tree_that_its_brick_does_not_serve_is_tried_again() {
    assert_noticed(&[Bug::TreeNotRetried], || {
        let mut client = client(1, "writer");
        let (mut driver, mut now) = (driver_with_client(&mut client, 7), NOW);
        for (number, pause) in (1..).zip([20, 40, 80, 160, 200, 200]) {
            driver
                .brick_message(brick_of(node()), BrickMessage::NotServedHere { node: node(), damage: None }, now)
                .unwrap();
            driver.client_message(&mut client, reopen(7, number), now).unwrap();
            driver.poll(now + pause - 1);
            assert_eq!(opened_sessions(&driver.outputs().collect()), [], "after {pause} ms");
            now += pause;
            driver.poll(now);
            assert_eq!(opened_sessions(&driver.outputs().collect()).len(), 1, "after {pause} ms");
            driver.check_invariants().unwrap();
        }
    });
}

#[test]
fn brick_that_served_a_node_before_does_not_close_its_tree() {
    assert_noticed(&[Bug::FormerBrickBelieved], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        driver.map(moved_placement(), NOW);
        driver.outputs().for_each(drop);
        let outputs = send(&mut driver, &mut client, reopen(7, 1));
        answer_as_bricks(&mut driver, outputs, NOW);
        driver
            .brick_message(brick_of(node()), BrickMessage::NotServedHere { node: node(), damage: None }, NOW)
            .unwrap();
        let outputs: Outputs = driver.outputs().collect();
        assert!(outputs.is_empty(), "{outputs:?}");
    });
}

#[test]
fn cached_object_is_served_within_its_lease_only() {
    assert_noticed(&[Bug::CachedBeyondLease], || {
        let mut driver = driver();
        driver.read(oid(), 3, NOW);
        let outputs = driver.outputs().collect();
        let ended = answer_as_bricks(&mut driver, outputs, NOW);
        let [Output::ReadEnded { reader: 3, result: Ok(CachedObject { object: Some(5), .. }) }] = ended[..] else {
            panic!("{ended:?}")
        };
        assert_eq!(driver.cache_counts(), (0, 1, driver.cache_counts().2), "a read that waits is one miss and no hit");
        assert!(driver.read_cached(oid(), NOW + 100).is_some());
        assert_eq!(driver.cache_counts().0, 1);
        assert!(driver.read_cached(oid(), NOW + 60_000).is_none(), "its lease has ended");
    });
}

#[test]
fn read_of_a_damaged_page_ends_with_the_reason() {
    assert_noticed(&[Bug::DamagedReadRepeated], || {
        let mut driver = driver();
        driver.read(oid(), 3, NOW);
        let (outputs, mut is_first) = (driver.outputs().collect(), true);
        let ended = answer_fetches(&mut driver, outputs, NOW, || {
            assert!(std::mem::take(&mut is_first), "it is fetched once");
            FetchReply::Damaged("its row is damaged".to_owned())
        });
        let kind = ended.iter().find_map(|output| match output {
            Output::ReadEnded { reader: 3, result } => Some(result.as_ref().map_err(Error::kind)),
            _ => None,
        });
        assert!(matches!(kind, Some(Err(ErrorKind::Corrupt))), "{ended:?}");
    });
}

#[test]
fn full_object_cache_evicts_pages() {
    let mut driver = driver();
    let pages = 1..8_000;
    let object = |number: u64| Oid::new(ClassId::NONE, PageId { number, ..page() }, 1);
    for number in pages.clone() {
        driver.read(object(number), 3, NOW);
        let outputs = driver.outputs().collect();
        answer_as_bricks(&mut driver, outputs, NOW);
    }
    let cached = pages.filter(|number| driver.read_cached(object(*number), NOW).is_some()).count();
    assert!((1_000..6_000).contains(&cached), "{cached} pages in a mebibyte");
    assert!(driver.cache_counts().2 <= 1 << 20);
}

#[test]
fn read_of_a_brick_that_does_not_answer_ends_and_names_it() {
    assert_noticed(&[Bug::ReadWaitsForever], || {
        let mut driver = driver();
        driver.read(oid(), 3, NOW);
        driver.outputs().for_each(drop);
        driver.poll(NOW + 10_000);
        let late = driver.outputs().find_map(|output| match output {
            Output::ReadEnded { reader: 3, result: Err(error) } => Some(error),
            _ => None,
        });
        let late = late.expect("it has ended");
        assert_eq!(late.kind(), ErrorKind::Unavailable);
        assert!(late.message().ends_with(&format!("brick {}", brick_of(node()).0)), "{late}");
    });
}

/// The machine is polled at its deadlines only.
#[test]
fn each_read_of_a_brick_that_does_not_answer_ends_in_time() {
    let mut driver = driver();
    let reads = [(3, NOW), (4, NOW + 137), (5, NOW + 731)];
    let (mut now, mut ended) = (NOW, Vec::new());
    for (reader, at) in reads {
        driver.read(Oid::new(ClassId::NONE, PageId { number: u64::from(reader), ..page() }, 1), reader, at);
    }
    while ended.len() < reads.len() {
        for output in driver.outputs() {
            if let Output::ReadEnded { reader, result: Err(_) } = output {
                ended.push((reader, now - 10_000));
            }
        }
        now = driver.deadline().unwrap().max(now + 1);
        driver.poll(now);
    }
    assert_eq!(ended, reads);
}

#[test]
fn watchers_get_each_status_of_their_space() {
    assert_noticed(&[Bug::StatusToAll, Bug::StatusNotRepeated], || {
        let mut driver = driver();
        send(&mut driver, &mut client(1, "reader"), ClientMessage::Watch);
        send(&mut driver, &mut client_in(2, &FIXTURE.other, "writer", None), ClientMessage::Watch);
        driver.update_statuses(|brick| brick != brick_of(node()), NOW);
        let told: Vec<(u8, String, bool)> = driver
            .outputs()
            .filter_map(|output| match output {
                Output::Status { to, status } => Some((to, status.space.clone(), status.is_stopped())),
                _ => None,
            })
            .collect();
        assert_eq!(told, [(1, "main".to_owned(), true), (2, "other".to_owned(), true)]);
    });
}

#[test]
fn clients_learn_which_logical_node_cannot_be_served_and_what_is_damaged() {
    assert_noticed(&[Bug::DamageNotPassedOn], || {
        let mut client = client(1, "writer");
        let mut driver = driver_with_client(&mut client, 7);
        send(&mut driver, &mut client, ClientMessage::Watch);
        let mut damage = |message, now| {
            driver.brick_message(brick_of(node()), message, now).unwrap();
            driver.update_statuses(|_| true, now);
            let status = driver.outputs().filter_map(|output| match output {
                Output::Status { status, .. } => Some(status.damage_of(node()).map(str::to_owned)),
                _ => None,
            });
            status.last()
        };
        let refused =
            |damage: Option<&str>| BrickMessage::NotServedHere { node: node(), damage: damage.map(Arc::from) };
        assert_eq!(damage(refused(None), NOW), None, "the status was sent already");
        assert_eq!(damage(refused(Some("a row")), NOW + 1), Some(Some("a row".to_owned())));
        assert_eq!(damage(refused(Some("a row")), NOW + 2), None, "nothing has changed");
        assert_eq!(damage(refused(None), NOW + 3), Some(None));
        assert_eq!(damage(refused(Some("a row")), NOW + 4), Some(Some("a row".to_owned())));
        let opened = BrickMessage::Down { node: node(), holder: HolderId(9), message: Down::Closed };
        assert_eq!(damage(opened, NOW + 5), Some(None), "its brick serves it");
        assert_eq!(damage(refused(Some("a row")), NOW + 6), Some(Some("a row".to_owned())));
        let told = |driver: &mut PeerDriver<_, _, _>, now| {
            driver.update_statuses(|_| true, now);
            let status = driver.outputs().filter_map(|output| match output {
                Output::Status { status, .. } => Some(status.damage_of(node()).map(str::to_owned)),
                _ => None,
            });
            status.last()
        };
        driver.brick_disconnected(brick_of(node()), NOW + 7);
        driver.brick_connected(brick_of(node()), NOW + 8);
        assert_eq!(told(&mut driver, NOW + 9), None, "until the brick has told what is damaged now");
        assert_eq!(told(&mut driver, NOW + 8 + RETELL_MS), Some(None), "it has told nothing");
    });
}

#[test]
fn clients_learn_when_the_time_of_the_cluster_changes_otherwise_than_by_their_steady_clocks() {
    assert_noticed(&[Bug::TimeNotTold], || {
        let mut driver = driver();
        let gone = client(3, "reader");
        for client in [&client(1, "reader"), &client(2, "writer"), &gone] {
            driver.client_connected(client);
        }
        driver.client_disconnected(&gone, NOW);
        let mut told = |offset_ms, is_trusted, now| {
            driver.set_time(ClusterTime { offset_ms, is_trusted }, now);
            let told = driver.outputs().map(|output| match output {
                Output::Time { to, time_ms } => (to, time_ms),
                output => panic!("only the time has changed: {output:?}"),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(0, true, NOW + 1), [], "nothing has changed");
        assert_eq!(told(-200, true, NOW + 10), [(1, NOW - 190), (2, NOW - 190)]);
        assert_eq!(told(-200, true, NOW + 20), []);
        assert_eq!(told(-300, false, NOW + 30), [], "a process that is refused says nothing of the time");
        let later = NOW + 40 + TELL_TIME_MS;
        assert_eq!(told(-300, true, NOW + 40).len(), 2);
        assert_eq!(told(-300, true, later - 1), []);
        assert_eq!(
            told(-300, true, later),
            [(1, later - 300), (2, later - 300)],
            "steady clocks differ in their rates"
        );
    });
}

#[test]
fn client_that_has_left_gets_no_status() {
    let (mut driver, watching) = (driver(), &mut client(1, "reader"));
    send(&mut driver, watching, ClientMessage::Watch);
    driver.client_disconnected(watching, NOW);
    driver.update_statuses(|brick| brick != brick_of(node()), NOW);
    let told: Outputs = driver.outputs().filter(|output| matches!(output, Output::Status { .. })).collect();
    assert!(told.is_empty(), "{told:?}");
}

/// By that a client learns that it has to read them again.
#[test]
fn status_changes_with_the_classes_of_its_space() {
    let mut driver = driver();
    let told = send(&mut driver, &mut client(1, "reader"), ClientMessage::Watch);
    for catalog in [&FIXTURE.extended, &FIXTURE.widened] {
        driver.set_catalog(catalog);
        driver.update_statuses(|_| true, NOW);
    }
    let schema = |output: &Output<u8, u64, u32>| match output {
        Output::Status { status, .. } => Some(status.schema),
        _ => None,
    };
    let told: Vec<u32> = told.iter().chain(&driver.outputs().collect::<Vec<_>>()).filter_map(schema).collect();
    assert!(told.len() == 3 && told[0] != told[1] && told[1] != told[2], "{told:?}");
}

#[test]
fn bytes_of_a_transaction_are_those_of_all_its_values() {
    let contents = [ObjectState::Value(5_u64), ObjectState::Absent, ObjectState::Value(6)];
    assert_eq!(crate::peer::peer_client::bytes_of(contents.iter()), 2 * size_of::<u64>());
}
