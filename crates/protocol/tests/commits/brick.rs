//! A brick for the simulated histories: a participant, its log, and the stored objects.

use std::collections::BTreeMap;

use model::{ClassId, NodeId, Oid, PageId, SpaceId};
use protocol::commit::participant::{Output, Participant, ParticipantSettings};
use protocol::commit::{Answer, Record};
use protocol::ident::Version;
use protocol::page_cache::{Invalidation, ObjectState, SlotStates};
use protocol::validate::WindowLimits;
use rand::RngExt;
use rand::rngs::StdRng;

/// The numbers of bricks, and of objects on the single page of each.
pub(crate) const NODES: u32 = 3;
pub(crate) const SLOTS: u16 = 3;

/// An object is the list of the transactions that have written it, so that it contains its own history.
pub(crate) type List = Vec<u64>;
/// The number of a coordinator, to which answers are sent.
pub(crate) type Address = usize;

pub(crate) fn oid(node: u32, slot: u16) -> Oid {
    Oid::new(ClassId::NONE, page(node), slot)
}

pub(crate) fn page(node: u32) -> PageId {
    PageId { space: SpaceId(1), node: NodeId(node), number: 1 }
}

/// A brick: a participant, its log, and the stored objects.
pub(crate) struct TestBrick {
    pub(crate) node: u32,
    pub(crate) participant: Participant<Address, List>,
    log: Vec<Record<List>>,
    forced: usize,
    pub(crate) version: Version,
    pub(crate) lists: BTreeMap<Oid, List>,
    /// The lists at each version.
    pub(crate) history: BTreeMap<Version, BTreeMap<Oid, List>>,
    /// Changes that are not reported to the holders yet.
    pub(crate) changed: Vec<(Invalidation, SlotStates<List>)>,
}

impl TestBrick {
    pub(crate) fn new(node: u32) -> Self {
        let settings = ParticipantSettings {
            node: NodeId(node),
            moves: 0,
            skew_ms: 1_000_000,
            windows: WindowLimits { page: 2, retained: 0 },
        };
        let participant = Participant::new(settings);
        Self {
            node,
            participant,
            log: Vec::new(),
            forced: 0,
            version: Version::ZERO,
            lists: BTreeMap::new(),
            history: BTreeMap::from([(Version::ZERO, BTreeMap::new())]),
            changed: Vec::new(),
        }
    }

    /// Carries out the outputs of the participant. Returns its answers.
    pub(crate) fn drain(&mut self) -> Vec<(Address, Answer)> {
        let (mut answers, mut again) = (Vec::new(), Vec::new());
        for output in self.participant.outputs() {
            match output {
                Output::Append(position, record) => {
                    self.log.push(record);
                    assert_eq!(position, self.log.len() as u64);
                }
                Output::RemoveRows(_) | Output::RemoveMarks(_) => {}
                Output::Answer(to, answer) => answers.push((to, answer)),
                Output::Again(from, request) => again.push((from, request)),
                Output::Changed(invalidation, contents) => {
                    assert_eq!(invalidation.previous, self.version, "P2: a message contains the previous version");
                    self.version = invalidation.version;
                    for (slot, content) in &contents {
                        let ObjectState::Value(list) = content else { panic!("no object is deleted in this test") };
                        self.lists.insert(oid(self.node, *slot), list.clone());
                    }
                    self.history.insert(self.version, self.lists.clone());
                    self.changed.push((invalidation, contents));
                }
            }
        }
        self.participant.check_invariants().unwrap();
        for (from, request) in again {
            let now_ms = self.participant.clock().ms();
            self.participant.handle(from, request, self.participant.clock(), now_ms, &self.version).unwrap();
            answers.extend(self.drain());
        }
        answers
    }

    pub(crate) fn force(&mut self) -> Vec<(Address, Answer)> {
        self.forced = self.log.len();
        let version = self.version;
        self.participant.handle_forced(self.forced as u64, &version);
        self.drain()
    }

    /// Restarts the brick without its memory, and without some of the records that were not forced.
    pub(crate) fn crash(&mut self, rng: &mut StdRng) {
        let kept = rng.random_range(self.forced..=self.log.len());
        let mut again = Self::new(self.node);
        for (position, record) in (1..).zip(self.log.drain(..kept)) {
            again.log.push(record.clone());
            for (oid, content) in again
                .participant
                .recover(Version { moves: 0, position }, record)
                .map(|change| change.writes)
                .unwrap_or_default()
            {
                let ObjectState::Value(list) = content else { panic!("no object is deleted in this test") };
                again.version = Version { moves: 0, position };
                again.lists.insert(oid, list);
                again.history.insert(again.version, again.lists.clone());
            }
        }
        again.forced = again.log.len();
        again.participant.finish_recovery(kept as u64);
        *self = again;
        self.participant.check_invariants().unwrap();
    }
}
