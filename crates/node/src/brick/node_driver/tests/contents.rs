//! Contents beside pages: staged, taken by transactions, changed in part, freed.

use bytes::Bytes;
use model::planted_bug::assert_noticed;
use model::{ContentId, ContentOp, ContentPatch, ContentRef};

use super::*;
use crate::brick::node_driver::staging::STAGING_LEASE_MS;

fn blob(slot: u16) -> Oid {
    oid(ClassId::NONE, slot)
}

fn refers_to(id: ContentId, size: u64) -> ObjectState<Object> {
    ObjectState::Value(Object::blob_with_content(ContentRef { id, size, generation: 0 }))
}

fn changed_state(ops: Vec<ContentOp>) -> ObjectState<Object> {
    ObjectState::Changed(ContentPatch::new(ops).encode())
}

impl World {
    fn new() -> Self {
        Self::with_store(Store::in_memory(Options::default()).unwrap())
    }

    /// Uploads bytes and waits until they are staged.
    pub(super) fn stage(&mut self, bytes: &[u8]) -> ContentId {
        let upload = self.store.begin_upload().unwrap();
        let id = self.driver.begin_upload(SPACE, upload, self.now);
        for piece in bytes.chunks(10) {
            let upload = self.driver.receive_upload(id, self.now).unwrap();
            self.store.upload(upload, Bytes::copy_from_slice(piece)).unwrap();
        }
        let size = self.store.seal_upload(upload).unwrap();
        let rows = self.driver.finish_upload(id, size, self.now).unwrap();
        let is_durable = self.store.commit_rows(rows).is_ok();
        self.driver.complete_upload(id, is_durable, self.now);
        self.carry_out();
        id
    }

    /// The bytes of a blob, wherever they are.
    fn bytes(&self, oid: Oid) -> Option<Vec<u8>> {
        let object = rows::read_object(&self.store, oid.page(), oid.slot()).unwrap()?;
        let Some(content) = object.content() else { return Some(object.data.to_vec()) };
        assert_eq!(self.store.content_size(content.id).unwrap(), Some(content.size), "{oid}");
        Some(self.store.read_content(content.id, 0, content.size).unwrap().to_vec())
    }

    /// How many contents the store has, and how many are marked as staged.
    fn contents(&self) -> (usize, usize) {
        let (from, to) = ContentId::range_of(NODE);
        let all = self.store.contents(from, to, 100).unwrap().len();
        let (from, to) = rows::staged_range(NODE);
        let mut staged = 0;
        let count = |_: &[u8], _: &[u8]| {
            staged += 1;
            ControlFlow::Continue(())
        };
        self.store.rows(&from, &to, count).unwrap();
        (all, staged)
    }

    pub(super) fn is_committed(&mut self, oid: Oid, content: ObjectState<Object>) -> bool {
        let txn = self.begin(Vec::new(), [(oid, content)].into(), true);
        let answers = self.answer_all_but(txn);
        matches!(answers, Some(Answer::Ended { outcome: Outcome::Committed(_), .. }))
    }

    /// The answer to a transaction, which may be none: it is deferred.
    fn answer_all_but(&mut self, txn: TxnId) -> Option<Answer> {
        let answer = self.answers().into_iter().find(|answer| answer.txn() == txn);
        self.open.remove(&txn);
        answer
    }

    pub(super) fn prepare(&mut self, oid: Oid, content: ObjectState<Object>) {
        let txn = self.begin(Vec::new(), [(oid, content)].into(), false);
        let answer = self.answer_all_but(txn);
        assert!(matches!(answer, Some(Answer::Prepared { .. })), "{answer:?}");
    }

    /// Begins again with what is durable.
    fn restart(&mut self) {
        let (now, transactions, prepared) = (self.now, self.transactions, std::mem::take(&mut self.prepared));
        *self = Self::with_store(self.store.clone());
        (self.now, self.transactions, self.prepared) = (now, transactions, prepared);
    }
}

#[test]
fn staged_content_becomes_that_of_an_object() {
    let mut world = World::new();
    let id = world.stage(b"a content of more than ten bytes");
    assert_eq!(world.contents(), (1, 1));
    assert!(!world.is_committed(blob(1), refers_to(id, 9_999)), "it has another size");
    assert!(world.is_committed(blob(1), refers_to(id, 32)));
    assert_eq!(world.bytes(blob(1)).unwrap(), b"a content of more than ten bytes");
    assert_eq!(world.contents(), (1, 0));
    assert!(!world.is_committed(blob(2), refers_to(id, 32)), "it belongs to the first");
    assert!(world.is_committed(blob(1), ObjectState::Absent));
    assert_eq!(world.contents(), (0, 0));
}

/// The copy of a logical node begins again if more changes than are remembered. An upload of any size is little.
#[test]
fn uploads_during_a_copy_are_copied_or_have_the_copy_begin_again() {
    let mut world = World::new();
    let (attempt, mut number) = (1, 0);
    let mut changed = |world: &mut World| {
        number += 1;
        let got = number - 1;
        let changes = world.driver.changes_for_attempt(attempt, got)?;
        changes.begin_answer(attempt, number, got)?;
        changes.put_back((attempt, number), &[])
    };
    assert_eq!(changed(&mut world).unwrap(), 0);
    world.stage(b"a few bytes");
    let few = changed(&mut world).unwrap();
    assert!(few > 1, "the content and its mark");
    let pieces = vec![7; 1 << 20];
    let upload = world.store.begin_upload().unwrap();
    let id = world.driver.begin_upload(SPACE, upload, world.now);
    let received = world.driver.receive_upload(id, world.now).unwrap();
    for _ in 0..20 {
        world.store.upload(received, Bytes::from(pieces.clone())).unwrap();
    }
    let size = world.store.seal_upload(upload).unwrap();
    let rows = world.driver.finish_upload(id, size, world.now).unwrap();
    world.store.commit_rows(rows).unwrap();
    world.driver.complete_upload(id, true, world.now);
    assert_eq!(changed(&mut world).unwrap(), 2 * few - 1 + 320, "its chunks are counted");
    for _ in 0..100 {
        world.stage(b"a few bytes");
    }
    assert_eq!(changed(&mut world).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn content_is_taken_by_one_of_two_objects() {
    let mut world = World::new();
    let id = world.stage(b"bytes");
    let both = [(blob(1), refers_to(id, 5)), (blob(2), refers_to(id, 5))].into();
    let txn = world.begin(Vec::new(), both, true);
    assert!(!matches!(world.answer_all_but(txn), Some(Answer::Ended { outcome: Outcome::Committed(_), .. })));
    world.prepare(blob(1), refers_to(id, 5));
    assert!(!world.is_committed(blob(2), refers_to(id, 5)), "another transaction has prepared with it");
    world.decide(true);
    world.answers();
    assert_eq!((world.bytes(blob(1)).unwrap(), world.contents()), (b"bytes".to_vec(), (1, 0)));
}

#[test]
fn content_of_an_aborted_transaction_can_be_used_again_until_its_lease_ends() {
    let mut world = World::new();
    let id = world.stage(b"bytes");
    world.prepare(blob(1), refers_to(id, 5));
    world.now += 2 * STAGING_LEASE_MS;
    world.driver.poll(world.now);
    world.carry_out();
    assert_eq!(world.contents(), (1, 1), "a prepared transaction keeps it");
    world.decide(false);
    world.answers();
    assert!(world.is_committed(blob(2), refers_to(id, 5)));
    let other = world.stage(b"other");
    assert_eq!(world.contents(), (2, 1));
    world.now += STAGING_LEASE_MS;
    world.driver.poll(world.now);
    world.carry_out();
    assert_eq!(world.contents(), (1, 0));
    assert!(!world.is_committed(blob(3), refers_to(other, 5)));
}

#[test]
fn restart_keeps_what_is_prepared_and_frees_what_is_not() {
    for commits in [true, false] {
        let mut world = World::new();
        let (prepared, staged) = (world.stage(b"prepared"), world.stage(b"staged"));
        world.prepare(blob(1), refers_to(prepared, 8));
        world.restart();
        assert!(!world.is_committed(blob(2), refers_to(prepared, 8)), "it is prepared");
        assert!(world.is_committed(blob(3), refers_to(staged, 6)), "the lease goes on");
        world.decide(commits);
        world.answers();
        assert_eq!(world.bytes(blob(1)), commits.then(|| b"prepared".to_vec()));
        world.restart();
        world.now += STAGING_LEASE_MS;
        world.driver.poll(world.now);
        world.carry_out();
        assert_eq!(world.contents(), (1 + usize::from(commits), 0));
        assert_eq!(world.bytes(blob(3)).unwrap(), b"staged");
    }
}

#[test]
fn part_of_a_blob_changes_in_its_page_and_in_its_content() {
    let mut world = World::new();
    assert!(
        !world.is_committed(blob(1), changed_state(vec![ContentOp::Append { data: "x".into() }])),
        "there is no blob"
    );
    assert!(world.is_committed(blob(1), ObjectState::Value(Object::blob("hello".into()))));
    assert!(world.is_committed(blob(1), changed_state(vec![ContentOp::Write { offset: 1, data: "a".into() }])));
    assert_eq!((world.bytes(blob(1)).unwrap(), world.contents()), (b"hallo".to_vec(), (0, 0)));
    let mut expected = b"hallo".to_vec();
    for number in 0..20_u8 {
        let op = ContentOp::Append { data: vec![number; 10].into() };
        op.apply(&mut expected);
        assert!(world.is_committed(blob(1), changed_state(vec![op])));
        assert_eq!(world.bytes(blob(1)).unwrap(), expected);
    }
    assert_eq!(world.contents(), (1, 0), "the bytes have moved to a content");
    let ops = vec![
        ContentOp::Zero { offset: 3, len: 50 },
        ContentOp::Truncate { size: 100 },
        ContentOp::Write { offset: 120, data: "end".into() },
    ];
    ops.iter().for_each(|op| op.apply(&mut expected));
    assert!(world.is_committed(blob(1), changed_state(ops)));
    assert_eq!(world.bytes(blob(1)).unwrap(), expected);
    let object = rows::read_object(&world.store, page(1), 1).unwrap().unwrap();
    let content = object.content().unwrap();
    world.restart();
    // An attribute changes, and the content stays.
    let mut named = object;
    named.set_attribute("key".into(), Some("value".into()));
    assert!(world.is_committed(blob(1), ObjectState::Value(named)));
    let after = rows::read_object(&world.store, page(1), 1).unwrap().unwrap();
    assert_eq!((after.content(), after.attributes().len()), (Some(content), 1));
    assert_eq!(world.bytes(blob(1)).unwrap(), expected);
    assert!(world.is_committed(blob(1), ObjectState::Value(Object::blob("new".into()))));
    assert_eq!((world.bytes(blob(1)).unwrap(), world.contents()), (b"new".to_vec(), (0, 0)));
}

#[test]
fn blobs_that_one_transaction_changes_get_contents_of_their_own() {
    let mut world = World::new();
    for slot in [1, 2] {
        assert!(world.is_committed(blob(slot), ObjectState::Value(Object::blob("hello".into()))));
    }
    let append = |slot: u8| changed_state(vec![ContentOp::Append { data: vec![slot; 1_000].into() }]);
    let txn = world.begin(Vec::new(), [(blob(1), append(1)), (blob(2), append(2))].into(), true);
    assert!(matches!(world.answer_all_but(txn), Some(Answer::Ended { outcome: Outcome::Committed(_), .. })));
    assert_eq!(world.contents(), (2, 0));
    for slot in [1, 2] {
        assert_eq!(world.bytes(blob(slot)).unwrap(), [b"hello".to_vec(), vec![slot as u8; 1_000]].concat());
    }
}

#[test]
fn part_of_a_record_cannot_be_changed() {
    let mut world = World::new();
    world.put(PERSON, 1, 7);
    let change = ObjectState::Changed(ContentPatch::new(vec![ContentOp::Append { data: "x".into() }]).encode());
    assert!(!world.is_committed(blob(1), change));
    assert_eq!(age(&rows::read_object(&world.store, page(1), 1).unwrap().unwrap()), 7);
}

#[test]
fn unfinished_upload_ends_with_its_lease_and_with_its_node() {
    let mut world = World::new();
    let upload = world.store.begin_upload().unwrap();
    let id = world.driver.begin_upload(SPACE, upload, world.now);
    world.now += STAGING_LEASE_MS;
    world.driver.poll(world.now);
    world.carry_out();
    assert!(world.driver.receive_upload(id, world.now).is_err());
    assert!(world.store.upload(upload, "late".into()).is_err(), "the store has aborted it");
    let open = world.store.begin_upload().unwrap();
    let kept = world.driver.begin_upload(SPACE, open, world.now);
    assert_eq!(world.driver.close(), [open]);
    assert!(world.driver.receive_upload(kept, world.now).is_err());
}

#[test]
fn planted_bugs_are_noticed() {
    let checks: [(Bug, fn()); 5] = [
        (Bug::StagedUnmarked, staged_content_becomes_that_of_an_object),
        (Bug::StagedMarkKept, staged_content_becomes_that_of_an_object),
        (Bug::StagedUsedTwice, content_is_taken_by_one_of_two_objects),
        (Bug::ReplacedContentKept, staged_content_becomes_that_of_an_object),
        (Bug::RecoveredContentForgotten, restart_keeps_what_is_prepared_and_frees_what_is_not),
    ];
    for (bug, check) in checks {
        assert_noticed(&[bug], check);
    }
}

/// What was taken in has to be stored, or the node cannot be served any more (K4).
#[test]
fn part_of_a_blob_whose_content_is_lost_cannot_be_changed() {
    assert_noticed(&[Bug::LostContentChanged], || {
        let mut world = World::new();
        let bytes = vec![7; 100];
        for slot in [1, 2] {
            let id = world.stage(&bytes);
            assert!(world.is_committed(blob(slot), refers_to(id, 100)));
        }
        world.restart();
        let lost = rows::read_object(&world.store, page(1), 1).unwrap().unwrap().content().unwrap().id;
        let mut changes = RowChanges::new();
        changes.content(store::ContentChange::Delete { id: lost });
        world.store.commit_rows(changes).unwrap();
        for op in [
            ContentOp::Append { data: "x".into() },
            ContentOp::Write { offset: 5, data: "x".into() },
            ContentOp::Truncate { size: 50 },
            ContentOp::Zero { offset: 5, len: 10 },
        ] {
            assert!(!world.is_committed(blob(1), changed_state(vec![op.clone()])));
            assert!(world.is_committed(blob(2), changed_state(vec![op])));
        }
        assert!(world.driver.failure().is_none());
        assert!(world.is_committed(blob(1), ObjectState::Value(Object::blob("whole".into()))));
        assert_eq!(world.bytes(blob(1)).unwrap(), b"whole");
    });
}

/// Attributes are in the page, and are written again with each change of a part of the bytes.
#[test]
fn transaction_that_changes_parts_of_blobs_writes_a_bounded_number_of_bytes() {
    let mut world = World::new();
    let mut large = Object::blob("x".into());
    for key in ["a", "b", "c"] {
        large.set_attribute(key.into(), Some(vec![7; 1 << 20].into()));
    }
    for slot in 0..23 {
        assert!(world.is_committed(blob(slot), ObjectState::Value(large.clone())));
    }
    let append = |slot| (blob(slot), changed_state(vec![ContentOp::Append { data: "y".into() }]));
    assert!(!world.commit_part(Part { writes: (0..23).map(append).collect(), ..Part::default() }));
    assert!(world.commit_part(Part { writes: (0..20).map(append).collect(), ..Part::default() }));
}

/// The store reads the head of a content that it deletes.
#[test]
fn blob_whose_content_cannot_be_read_is_neither_deleted_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let mut world = World::with_store(Store::open(&dir.path().join("store"), Options::default()).unwrap());
        // Rows are committed at once, as in memory.
        world.is_in_memory = true;
        world
    };
    let mut world = open();
    let mut ids = Vec::new();
    for slot in 0..40 {
        let id = world.stage(&[7; 700]);
        assert!(world.is_committed(blob(slot), refers_to(id, 700)));
        ids.push(id);
    }
    world.store.clone().close().unwrap();
    let transactions = world.transactions;
    drop(world);
    // A page in the middle of those with heads of contents, which is the only one that has a certain key.
    let path = dir.path().join("store/tree/rows");
    let mut bytes = std::fs::read(&path).unwrap();
    let key_of = |id: &ContentId| [&b"o"[..], &id.0.to_be_bytes()].concat();
    let places =
        |key: &[u8]| (17 * 4096..bytes.len() - 17).filter(|at| bytes[*at..].starts_with(key)).collect::<Vec<_>>();
    let only = |slot: usize| if let [at] = places(&key_of(&ids[slot]))[..] { Some((slot, at)) } else { None };
    let (lost, place) = (12..20).find_map(only).unwrap();
    bytes[place] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut world = open();
    world.transactions = transactions;
    assert!(world.store.content_size(ids[lost]).is_err());
    for which in 0..3 {
        for (slot, is_sound) in [(lost as u16, false), (30, true)] {
            let written = match which {
                0 => refers_to(world.stage(&[8; 50]), 50),
                1 => ObjectState::Value(Object::blob("in the page".into())),
                _ => ObjectState::Absent,
            };
            assert_eq!(world.is_committed(blob(slot), written), is_sound, "write {which} of slot {slot}");
            assert!(world.driver.failure().is_none());
        }
    }
}

/// A change of the store creates a bounded number of contents.
#[test]
fn transaction_moves_a_bounded_number_of_blobs_out_of_their_pages() {
    assert_noticed(&[Bug::ContentWorkUnbounded], || {
        let mut world = World::new();
        for slot in 0..101 {
            assert!(world.is_committed(blob(slot), ObjectState::Value(Object::blob("x".into()))));
        }
        let grow = |count| (0..count).map(|slot| (blob(slot), changed_state(vec![ContentOp::Truncate { size: 100 }])));
        assert!(!world.commit_part(Part { writes: grow(101).collect(), ..Part::default() }));
        assert!(world.commit_part(Part { writes: grow(100).collect(), ..Part::default() }));
    });
}
