use super::*;
use model::planted_bug::assert_noticed;

const NODE: NodeId = NodeId(3);

/// A writer with what was submitted and not answered.
struct World {
    writer: RowWriter,
    submitted: VecDeque<(Life, Vec<Vec<u8>>)>,
}

impl World {
    fn new() -> Self {
        Self { writer: RowWriter::open(NODE, 1, 100), submitted: VecDeque::new() }
    }

    /// A record with one row of this name, which is flushed.
    fn write(&mut self, position: u64, name: &[u8]) {
        self.writer.begin_record(position);
        self.writer.rows().put(name, Default::default());
        assert_eq!(self.writer.flush_records(), Flushed::Rows);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some((life, rows)) = self.writer.next_submission() {
            let names = rows.keys().filter(|key| key[0] != b'L').map(<[u8]>::to_vec).collect();
            self.submitted.push_back((life, names));
        }
    }

    /// The store answers the oldest submission.
    fn answer(&mut self, result: Result<()>) -> WriteResult {
        let (life, _) = self.submitted.pop_front().unwrap();
        self.writer.handle_written(life, result, 1_000)
    }

    fn names(&self) -> Vec<&[u8]> {
        self.submitted.iter().flat_map(|(_, names)| names.iter().map(|name| &name[..])).collect()
    }
}

fn full() -> Result<()> {
    Err(Error::new(ErrorKind::Full, "full"))
}

fn behind() -> Result<()> {
    Err(Error::new(ErrorKind::Unavailable, "behind"))
}

#[test]
fn limit_is_raised_with_the_first_record_above_it() {
    let mut writer = RowWriter::open(NODE, 1, 100);
    writer.begin_record(101);
    let limits = |writer: &mut RowWriter| writer.rows().keys().filter(|key| **key == rows::limit_key(NODE)[..]).count();
    assert_eq!(limits(&mut writer), 1);
    (102..=101 + POSITION_BATCH).for_each(|position| writer.begin_record(position));
    assert_eq!(limits(&mut writer), 1);
    writer.begin_record(102 + POSITION_BATCH);
    assert_eq!(limits(&mut writer), 2);
}

#[test]
#[should_panic(expected = "L1")]
fn position_that_is_left_out_is_our_own_mistake() {
    RowWriter::open(NODE, 1, 100).begin_record(102);
}

#[test]
fn refused_rows_go_again_before_those_behind_them_once_there_is_room() {
    let mut world = World::new();
    world.write(101, b"a");
    world.write(102, b"b");
    assert!(matches!(world.answer(full()), WriteResult::Deferred { is_first: true }));
    // The store still has an answer to give: what comes now waits behind.
    world.write(103, b"c");
    assert!(world.names() == [b"b"] && world.writer.full_error().is_some());
    assert!(matches!(world.answer(behind()), WriteResult::Deferred { is_first: false }));
    assert!(!world.writer.submit_deferred(), "there is no room yet");
    world.writer.retry(1_000);
    world.collect();
    assert_eq!(world.names(), [b""; 0], "it is not tried again at once");
    world.writer.retry(world.writer.retry_at().unwrap());
    world.collect();
    assert_eq!(world.names(), [b"a"], "one submission shows whether there is room");
    assert!(matches!(world.answer(Ok(())), WriteResult::Durable(SubmittedRows { position: 101, .. })));
    assert!(world.writer.submit_deferred());
    world.collect();
    assert_eq!(world.names(), [b"b", b"c"]);
    assert!(matches!(world.answer(Ok(())), WriteResult::Durable(SubmittedRows { position: 102, .. })));
    assert!(matches!(world.answer(Ok(())), WriteResult::Durable(SubmittedRows { position: 103, .. })));
    assert!(world.writer.is_idle());
}

#[test]
fn result_of_an_earlier_life_means_nothing() {
    let mut world = World::new();
    world.write(101, b"a");
    let (old, _) = world.submitted[0];
    assert!(matches!(world.answer(full()), WriteResult::Deferred { .. }));
    world.writer.retry(world.writer.retry_at().unwrap());
    world.collect();
    assert!(matches!(world.writer.handle_written(old, Ok(()), 2_000), WriteResult::Outdated));
    assert!(!world.writer.is_idle());
    let other = Life { opening: 2, ..world.submitted[0].0 };
    assert!(matches!(world.writer.handle_written(other, Ok(()), 2_000), WriteResult::Outdated));
}

#[test]
fn store_that_fails_is_not_tried_again() {
    let mut world = World::new();
    world.write(101, b"a");
    let broken = Err(Error::new(ErrorKind::Io, "broken"));
    assert!(matches!(world.answer(broken), WriteResult::Failed(error) if error.kind() == ErrorKind::Io));
    assert_eq!(world.writer.retry_at(), None);
}

#[test]
fn only_rows_behind_refused_ones_may_be_refused_for_another_reason_than_a_full_store() {
    let mut world = World::new();
    world.write(101, b"a");
    assert!(matches!(world.answer(behind()), WriteResult::Failed(error) if error.kind() == ErrorKind::Unavailable));
    let mut world = World::new();
    world.write(101, b"a");
    world.write(102, b"b");
    assert!(matches!(world.answer(full()), WriteResult::Deferred { is_first: true }));
    let broken = Err(Error::new(ErrorKind::Io, "broken"));
    assert!(matches!(world.answer(broken), WriteResult::Failed(error) if error.kind() == ErrorKind::Io));
}

#[test]
fn records_without_rows_are_durable_with_those_before_them() {
    let mut world = World::new();
    world.writer.begin_record(101);
    assert_eq!(world.writer.flush_records(), Flushed::Rows, "the limit is a row");
    world.collect();
    world.writer.begin_record(102);
    assert_eq!(world.writer.flush_records(), Flushed::WithOthers);
    assert!(matches!(world.answer(Ok(())), WriteResult::Durable(SubmittedRows { position: 102, .. })));
    world.writer.begin_record(103);
    assert_eq!(world.writer.flush_records(), Flushed::Durable(103));
    assert_eq!(world.writer.flush_records(), Flushed::Nothing);
}

#[test]
fn closed_writer_waits_for_what_the_store_has_and_for_nothing_that_it_refused() {
    let mut world = World::new();
    world.write(101, b"a");
    world.write(102, b"b");
    assert!(matches!(world.answer(full()), WriteResult::Deferred { .. }));
    world.writer.close();
    assert!(!world.writer.is_idle());
    let (life, _) = world.submitted.pop_front().unwrap();
    assert!(world.writer.finish_write(life).is_some() && world.writer.is_idle());
}

#[test]
fn planted_bugs_are_noticed() {
    assert_noticed(&[Bug::OldLifeCounts], result_of_an_earlier_life_means_nothing);
    assert_noticed(
        &[Bug::ClosedWithRowsInFlight],
        closed_writer_waits_for_what_the_store_has_and_for_nothing_that_it_refused,
    );
    assert_noticed(&[Bug::RefusedRowsBehindLater], refused_rows_go_again_before_those_behind_them_once_there_is_room);
}

#[test]
fn refused_rows_of_a_one_phase_commit_are_lost_with_those_around_them() {
    assert_noticed(&[Bug::RefusedOnePhaseRetried], || {
        let mut world = World::new();
        world.write(101, b"a");
        world.writer.begin_one_phase();
        world.write(102, b"b");
        world.write(103, b"c");
        assert!(matches!(world.answer(full()), WriteResult::Deferred { is_first: true }));
        assert!(matches!(world.answer(behind()), WriteResult::Deferred { is_first: false }));
        assert!(matches!(world.answer(behind()), WriteResult::Lost) && world.writer.is_idle());
        world.writer.retry(2_000);
        world.collect();
        assert_eq!(world.names(), Vec::<&[u8]>::new());
        // Rows of another logical node were refused before.
        let mut world = World::new();
        world.writer.begin_one_phase();
        world.write(101, b"b");
        assert!(matches!(world.answer(behind()), WriteResult::Lost) && world.writer.is_idle());
    });
}
