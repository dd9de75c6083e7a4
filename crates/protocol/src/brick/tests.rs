use model::{ClassId, SpaceId};

use super::*;
use crate::ident::ClientId;
use crate::page_cache::ObjectState;
use crate::validate::WindowLimits;

const HERE: NodeId = NodeId(3);
const PAGE: PageId = PageId { space: SpaceId(1), node: HERE, number: 7 };
const SETTINGS: ParticipantSettings =
    ParticipantSettings { node: HERE, moves: 0, skew_ms: 50, windows: WindowLimits { page: 100, retained: 0 } };

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

/// A brick whose disk forces immediately.
struct World {
    brick: Brick<u8, u64>,
    log: Vec<Record<u64>>,
    dropped: Vec<TxnId>,
    stored: BTreeMap<PageId, Version>,
}

impl World {
    fn new() -> Self {
        Self { brick: Brick::new(SETTINGS), log: Vec::new(), dropped: Vec::new(), stored: BTreeMap::new() }
    }

    fn act(&mut self, now: Ms, act: impl FnOnce(&mut Brick<u8, u64>, &BTreeMap<PageId, Version>)) {
        act(&mut self.brick, &self.stored);
        loop {
            let outputs: Vec<Output<u8, u64>> = self.brick.outputs().collect();
            if outputs.is_empty() {
                return self.brick.check_invariants().unwrap();
            }
            for output in outputs {
                match output {
                    Output::Append(_, record) => self.log.push(record),
                    Output::RemoveRows(txns) => self.dropped.extend(txns),
                    Output::RemoveMarks(_) => {}
                    Output::Store(message, _) => drop(self.stored.insert(message.page, message.version)),
                    _ => {}
                }
            }
            self.brick.handle_forced(self.log.len() as u64, now, &self.stored);
        }
    }

    fn commit(&mut self, txn: TxnId, slot: u16, now: Ms) {
        let part = Part { writes: [(oid(slot), ObjectState::Value(now))].into(), ..Part::default() };
        self.act(now, |brick, stored| {
            brick.handle_request(1, Request::Commit { txn, part }, HlcTimestamp::ZERO, now, stored).unwrap();
        });
    }

    /// Advances the time and polls the brick at its deadlines.
    fn advance_time(&mut self, from: Ms, to: Ms) {
        let mut now = from;
        while now < to {
            self.act(now, |brick, _| brick.poll(now));
            assert!(self.brick.deadline() > now);
            now = self.brick.deadline();
        }
    }
}

#[test]
fn idle_brick_writes_nothing() {
    let mut world = World::new();
    world.advance_time(1_000, 400_000);
    assert!(world.log.is_empty(), "{:?}", world.log);
    world.commit(txn(400_000), 1, 400_000);
    world.advance_time(400_000, 600_000);
    assert_eq!(world.dropped, [txn(400_000)], "old outcomes are forgotten");
    let written = world.log.len();
    world.advance_time(600_000, 1_000_000);
    assert_eq!(world.log.len(), written, "{:?}", &world.log[written..]);
}

/// Found by comparing recovery from rows with recovery from a log.
#[test]
fn commits_after_a_restart_are_later_than_forgotten_ones() {
    let mut world = World::new();
    world.commit(txn(400_000), 1, 400_000);
    let before = world.brick.clock();
    world.advance_time(400_000, 600_000);
    // Only the rows of the bound and of the horizon remain.
    let mut again: Brick<u8, u64> = Brick::new(SETTINGS);
    for (position, record) in (1..).zip(world.log.drain(..)).filter(|(_, record)| record.txn().is_none()) {
        again.recover(Version { moves: 0, position }, record);
    }
    again.finish_recovery(10, 300_000);
    assert!(again.clock() > before, "its clock starts above that time although the machine's clock is lower");
}

#[test]
fn page_of_another_node_is_rejected() {
    let mut world = World::new();
    let page = PageId { node: NodeId(4), ..PAGE };
    world.act(1_000, |brick, _| {
        let (asked, wanted_ms, sync, height) = (1_000, 1_000, 1, u8::MAX);
        let renew = Up::Renew { asked, wanted_ms, open: true, sync, subscribe: false, height, replaces: None };
        brick.handle_up(HolderId(1), renew, 1_000).unwrap();
        for lie in [
            Up::Fetch { page, fetch: FetchId(1), have: None },
            Up::Acknowledge { page, version: Version::ZERO },
            Up::Evict { page, fetch: FetchId(1) },
        ] {
            assert_eq!(brick.handle_up(HolderId(1), lie, 1_000), Err(Rejected::Foreign(page)));
        }
        assert_eq!(brick.directory().pages(HolderId(1)).count(), 0);
    });
}

#[test]
fn write_outside_of_transactions_has_the_touches_of_the_driver() {
    let mut world = World::new();
    let part = Part { writes: [(oid(1), ObjectState::Value(7))].into(), touches: [oid(9)].into(), ..Part::default() };
    world.act(1_000, |brick, _| {
        brick.write(HolderId(1), txn(1_000), part.clone(), 1_000).unwrap();
        assert!(
            brick.outputs().all(|output| matches!(output, Output::Down(_, Down::Closed))),
            "the holder has no session"
        );
        let (asked, wanted_ms, sync, height) = (1_000, 1_000, 1, u8::MAX);
        let renew = Up::Renew { asked, wanted_ms, open: true, sync, subscribe: false, height, replaces: None };
        brick.handle_up(HolderId(1), renew, 1_000).unwrap();
        brick.write(HolderId(1), txn(1_000), part, 1_000).unwrap();
    });
    let touched = world.log.iter().filter_map(Record::change).map(|change| change.touches);
    assert_eq!(touched.collect::<Vec<_>>(), [BTreeSet::from([oid(9)])]);
}

/// The digests of the changes that a holder of this height is sent.
fn digests_sent(height: u8) -> Vec<Option<UpdateDigest>> {
    let mut world = World::new();
    let holder = HolderId(5);
    let renew =
        Up::Renew { asked: 1, wanted_ms: 10_000, open: true, sync: 1, subscribe: false, height, replaces: None };
    world.act(1, |brick, _| {
        brick.handle_up(holder, renew, 1).unwrap();
        brick.handle_up(holder, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None }, 1).unwrap();
    });
    let part = Part { writes: [(oid(1), ObjectState::Value(8))].into(), ..Part::default() };
    let (txn, clock) = (txn(2), HlcTimestamp::ZERO);
    world.brick.handle_request(1, Request::Commit { txn, part }, clock, 2, &world.stored).unwrap();
    let appended = world.brick.outputs().filter(|output| matches!(output, Output::Append(..))).count() as u64;
    world.brick.handle_forced(appended, 2, &world.stored);
    let sent = world.brick.outputs().filter_map(|output| match output {
        Output::Down(_, Down::Invalidate { message, .. }) => Some(message.digest),
        _ => None,
    });
    sent.collect()
}

#[test]
fn change_is_proven_to_redirectors_only() {
    let digest = UpdateDigest::of(&[(1, ObjectState::Value(8_u64))].into());
    assert_eq!(digests_sent(0), [None], "a client");
    assert_eq!(digests_sent(1), [None], "a peer server of clients");
    assert_eq!(digests_sent(2), [Some(digest)], "a peer server of a redirector");
    let _planted = model::planted_bug::plant(Bug::UpdateNotProven);
    assert_eq!(digests_sent(2), [None]);
}
