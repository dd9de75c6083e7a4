use super::frame::encode;
use super::recover::{LogDamage, OnDamage, open};
use super::tail_record::RecordFault;
use super::*;
use model::planted_bug::assert_noticed;

use crate::disk::sim::SimDisk;
use crate::plant::RecoveryBug;

const STORE: StoreId = *b"0123456789abcdef";
const SEGMENT: u64 = 4096;

/// A log with a few batches in it, as the store would write them.
struct World {
    disk: SimDisk,
    log: Log,
    next: Seq,
    forced: Seq,
    crc: u32,
    /// The checksum of each frame.
    crcs: Vec<u32>,
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new();
        let log = Log::create(Arc::new(disk.clone()), STORE, SEGMENT, 1, 0).unwrap();
        Self { disk, log, next: 1, forced: 0, crc: 0, crcs: vec![0] }
    }

    fn batch(&mut self, payloads: &[usize]) -> FrameBatch {
        let mut batch = FrameBatch::default();
        for len in payloads {
            let payload = vec![self.next as u8; *len];
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload);
            self.crc = encode(&mut batch.bytes, &STORE, self.next, self.forced, self.crc, write).unwrap();
            batch.frames.push((batch.bytes.len(), self.next, self.crc));
            self.crcs.truncate(self.next as usize);
            self.crcs.push(self.crc);
            self.next += 1;
        }
        batch
    }

    fn at(&self, seq: Seq) -> LogPosition {
        LogPosition { seq, crc: self.crcs[seq as usize] }
    }

    fn append(&mut self, payloads: &[usize]) -> Result<(), LogError> {
        let prev = self.crc;
        let batch = self.batch(payloads);
        self.log.append(&batch, prev)?;
        self.forced = self.next - 1;
        Ok(())
    }
}

fn reopen(disk: &SimDisk, installed: LogPosition) -> Result<(Vec<Seq>, recover::RecoveredLog), LogError> {
    let mut seen = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let recovered = open(&disk, STORE, SEGMENT, installed, OnDamage::Refuse, &mut |seq, payload| {
        assert!(payload.iter().all(|b| *b == seq as u8));
        seen.push(seq);
        Ok(())
    })?;
    Ok((seen, recovered))
}

fn damage(result: Result<(Vec<Seq>, recover::RecoveredLog), LogError>) -> LogDamage {
    match result {
        Err(LogError::Damaged(damage)) => damage,
        Err(other) => panic!("another error: {other}"),
        Ok((seen, _)) => panic!("opened, with {seen:?}"),
    }
}

const FIRST: &str = "log/0000000000000001.seg";

#[test]
fn frames_come_back_in_order_over_segments() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[100, 700, 1]).unwrap();
    }
    world.append(&[3 * SEGMENT as usize]).unwrap();
    world.append(&[5]).unwrap();
    let (seen, recovered) = reopen(&world.disk.crash(1), world.at(0)).unwrap();
    assert_eq!(seen, (1..=62).collect::<Vec<_>>());
    assert_eq!((recovered.last, recovered.cut), (62, false));
}

#[test]
fn freed_segments_are_used_again_and_their_old_frames_do_not_count() {
    let mut world = World::new();
    for round in 0..40 {
        world.append(&[900]).unwrap();
        world.log.free(world.forced.saturating_sub(2)).unwrap();
        let (seen, _) = reopen(&world.disk.crash(round), world.at(world.forced - 1)).unwrap();
        assert_eq!(seen, [world.forced]);
    }
    assert!(world.log.size() <= 5 * SEGMENT, "{} bytes", world.log.size());
}

/// The bytes of all segments and spares, by their files.
fn bytes_on_disk(disk: &SimDisk) -> u64 {
    let names = disk.list(DIR).unwrap().into_iter().filter(|name| name != "tail");
    names.map(|name| disk.bytes(&format!("{DIR}/{name}")).len() as u64).sum()
}

#[test]
fn size_of_a_log_is_known_without_waiting_for_its_disk() {
    let mut world = World::new();
    let mut sizes = std::collections::BTreeSet::new();
    for round in 0..40 {
        world.append(&[if round % 10 == 9 { 3 * SEGMENT as usize } else { 900 }]).unwrap();
        if round % 4 == 3 {
            world.log.free(world.forced - 1).unwrap();
        }
        if round % 6 == 5 {
            world.log.ensure_spare().unwrap();
        }
        assert_eq!(world.log.size(), bytes_on_disk(&world.disk), "round {round}");
        let disk = world.disk.crash_of_process();
        assert_eq!(reopen(&disk, world.at(world.forced - 1)).unwrap().1.log.size(), bytes_on_disk(&disk));
        sizes.insert(world.log.size());
    }
    assert!(sizes.len() > 3, "{sizes:?}");
    // A batch is being written, and segments are being freed.
    let (tail, record, pool) = (world.log.tail.lock(), world.log.tail_record.lock(), world.log.segments.pool.lock());
    std::thread::scope(|scope| {
        let (told, size) = std::sync::mpsc::channel();
        let log = &world.log;
        scope.spawn(move || told.send(log.size()));
        let size = size.recv_timeout(std::time::Duration::from_secs(30));
        drop((tail, record, pool));
        assert!(size.is_ok(), "it has waited");
    });
}

#[test]
fn a_batch_that_was_torn_in_the_middle_is_cut() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    let prev = world.crc;
    let batch = world.batch(&[100; 5]);
    world.log.append(&batch, prev).unwrap();
    // The first frame of the second batch did not reach the disk; nothing in the batch was acknowledged or recorded.
    record_tail(&world.disk, TailRecord { segment: 1, position: world.at(3) });
    let at = 64 + 3 * frame::frame_len(100);
    world.disk.damage(FIRST, at, |bytes| bytes[..20].fill(0));
    let (seen, recovered) = reopen(&world.disk, world.at(0)).unwrap();
    assert_eq!((seen, recovered.last, recovered.cut), (vec![1, 2, 3], 3, true));
    // The next opening finds no trace of what was cut.
    assert!(!reopen(&world.disk, world.at(0)).unwrap().1.cut);
}

#[test]
fn damage_to_what_was_forced_is_refused_by_name() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    world.append(&[100]).unwrap();
    let at = 64 + frame::frame_len(100);
    for (zeroed, recorded) in [(false, true), (true, true), (false, false)] {
        let disk = world.disk.image();
        disk.damage(FIRST, at, |bytes| if zeroed { bytes[..512].fill(0) } else { bytes[40] ^= 1 });
        if !recorded {
            // The record is as old as after a power failure; a later frame says that the damaged one was forced.
            record_tail(&disk, TailRecord { segment: 1, position: world.at(0) });
        }
        let forced = if recorded { 4 } else { 3 };
        let expected = LogDamage::Frame { segment: FIRST.to_owned(), offset: at as u64, seq: 2, forced };
        assert_eq!(damage(reopen(&disk, world.at(0))), expected, "zeroed {zeroed}, recorded {recorded}");
    }
}

#[test]
fn a_zeroed_page_with_forced_frames_after_it_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..30 {
        world.append(&[100]).unwrap();
    }
    world.disk.damage(FIRST, 512, |bytes| bytes[..512].fill(0));
    let expected = LogDamage::Frame { segment: FIRST.to_owned(), offset: 64 + 3 * 136, seq: 4, forced: 30 };
    assert_eq!(damage(reopen(&world.disk, world.at(0))), expected);
}

#[test]
fn a_lost_segment_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[900]).unwrap();
    }
    let missing = "log/0000000000000003.seg";
    world.disk.remove(missing).unwrap();
    let lost = damage(reopen(&world.disk, world.at(0)));
    assert!(matches!(lost, LogDamage::Frame { seq: 9, forced: 20, .. }), "{lost:?}");
    // If all of it is installed, nothing is lost.
    assert_eq!(reopen(&world.disk, world.at(13)).unwrap().0, [14, 15, 16, 17, 18, 19, 20]);
}

/// Replaces the tail record, as if nothing later had been recorded.
fn record_tail(disk: &SimDisk, record: TailRecord) {
    disk.remove(tail_record::FILE).unwrap();
    TailRecordFile::open(disk, STORE).unwrap().force(record).unwrap();
}

#[test]
fn a_log_that_ends_before_the_installed_position_is_refused() {
    let mut world = World::new();
    for _ in 0..10 {
        world.append(&[900]).unwrap();
    }
    let older = world.disk.image();
    for _ in 0..10 {
        world.append(&[900]).unwrap();
    }
    for installed in [11, 15, 20] {
        let refused = damage(reopen(&older, world.at(installed)));
        assert!(matches!(refused, LogDamage::EndsEarly { seq: 11, .. }), "{refused:?}");
    }
    assert!(reopen(&older, world.at(10)).unwrap().0.is_empty());
}

#[test]
fn a_last_segment_that_is_missing_replaced_or_cut_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..10 {
        world.append(&[900]).unwrap();
    }
    let last = world.disk.list("log").unwrap().into_iter().rfind(|name| name.ends_with(".seg")).unwrap();
    let last = format!("log/{last}");
    let (older, index) = (world.disk.bytes(FIRST), world.log.tail.lock().index);
    world.append(&[900]).unwrap();
    assert_eq!(world.log.tail.lock().index, index);
    let expect = |change: &dyn Fn(&SimDisk), fault| {
        let disk = world.disk.image();
        change(&disk);
        for installed in [0, 5, 9] {
            let refused = damage(reopen(&disk, world.at(installed)));
            match fault {
                Some(fault) => assert_eq!(refused, LogDamage::Segment { segment: last.clone(), fault }),
                None => {
                    assert!(matches!(&refused, LogDamage::Frame { segment, .. } if *segment == last), "{refused:?}")
                }
            }
        }
    };
    let replace = |disk: &SimDisk, bytes: &[u8]| disk.damage(&last, 0, |all| all.copy_from_slice(bytes));
    expect(&|disk| disk.remove(&last).unwrap(), Some(SegmentFault::Missing));
    expect(&|disk| replace(disk, &[0; SEGMENT as usize]), Some(SegmentFault::Header));
    expect(&|disk| replace(disk, &older), Some(SegmentFault::OtherNumber(1)));
    let foreign = SegmentHeader { index, first: 9, prev: 1 }.encode(b"another one, yes");
    expect(
        &|disk| disk.damage(&last, 0, |bytes| bytes[..64].copy_from_slice(&foreign)),
        Some(SegmentFault::OtherStore),
    );
    // Its frames are gone: zeros, an older copy of the file, or a shorter file.
    for frames in 0..3 {
        let from = SEGMENT_HEADER as usize + frames * frame::frame_len(900);
        expect(&|disk| disk.damage(&last, from, |bytes| bytes.fill(0)), None);
        expect(&|disk| disk.cut(&last, from), None);
    }
}

#[test]
fn a_log_of_another_history_is_refused() {
    let mut world = World::new();
    for _ in 0..10 {
        world.append(&[900]).unwrap();
    }
    for seq in 1..=10 {
        let installed = LogPosition { seq, crc: world.at(seq).crc ^ 1 };
        let refused = damage(reopen(&world.disk, installed));
        assert!(matches!(refused, LogDamage::OtherHistory { than: "the B-tree", .. }), "{refused:?}");
        let disk = world.disk.image();
        record_tail(&disk, TailRecord { segment: world.log.tail.lock().index, position: installed });
        let refused = damage(reopen(&disk, world.at(0)));
        assert!(matches!(refused, LogDamage::OtherHistory { than: tail_record::FILE, .. }), "{refused:?}");
    }
}

#[test]
fn a_log_without_its_tail_record_is_refused() {
    let mut world = World::new();
    world.append(&[900]).unwrap();
    world.disk.remove(tail_record::FILE).unwrap();
    assert_eq!(damage(reopen(&world.disk, world.at(0))), LogDamage::Record(RecordFault::Missing));
}

/// A segment of another store after the end would otherwise be removed.
#[test]
fn a_segment_of_another_store_is_refused_wherever_it_is_and_stays() {
    let mut world = World::new();
    world.append(&[900]).unwrap();
    for index in [0, 2, 9] {
        let disk = world.disk.image();
        let header = SegmentHeader { index, first: 1, prev: 0 }.encode(b"another one, yes");
        disk.create(&segment_name(index)).unwrap().write_at(0, &header).unwrap();
        let segment = segment_name(index);
        let expected = LogDamage::Segment { segment: segment.clone(), fault: SegmentFault::OtherStore };
        assert_eq!(damage(reopen(&disk, world.at(0))), expected);
        assert_eq!(disk.bytes(&segment)[..], header);
    }
}

#[test]
fn a_log_without_the_frames_after_the_installed_ones_is_refused() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[900]).unwrap();
    }
    world.disk.remove(FIRST).unwrap();
    let lost = damage(reopen(&world.disk, world.at(2)));
    assert!(matches!(lost, LogDamage::NoFrame { seq: 3, .. }), "{lost:?}");
}

/// Regression: when there was no room for the second of two segments, the first one was left. Later frames in the old
/// segment were then ignored, even acknowledged ones.
#[test]
fn no_segment_of_a_batch_that_did_not_fit_is_left() {
    for room in [100, 3000, 4096, 4200, 6000, 8100] {
        let mut world = World::new();
        world.append(&[100]).unwrap();
        let (next, crc) = (world.next, world.crc);
        world.disk.set_free_bytes(Some(room));
        assert!(matches!(world.append(&[2000, 3000, 3000]), Err(LogError::Full(_))), "room for {room} bytes");
        world.disk.set_free_bytes(None);
        (world.next, world.crc) = (next, crc);
        for _ in 0..5 {
            world.append(&[100]).unwrap();
        }
        for installed in 0..=6 {
            let (seen, recovered) = reopen(&world.disk.crash(room as u64), world.at(installed)).unwrap();
            assert_eq!(seen, (installed + 1..=6).collect::<Vec<_>>(), "room for {room} bytes");
            assert_eq!(recovered.last, 6);
        }
    }
}

/// Regression: an error of the disk before the first byte of a batch ended the log.
#[test]
fn a_segment_that_cannot_be_made_leaves_the_log_as_it_was() {
    let (mut repeated, mut ended) = (0, 0);
    for failing in 0..30 {
        let mut world = World::new();
        world.append(&[900; 3]).unwrap();
        let (crc, next) = (world.crc, world.next);
        world.disk.fail_change(failing, io::ErrorKind::Other);
        match world.append(&[900; 9]) {
            Ok(()) => {
                assert!(!world.disk.has_failed());
                continue;
            }
            Err(LogError::NoSegment(_)) => repeated += 1,
            Err(_) => {
                ended += 1;
                continue;
            }
        }
        assert_eq!(reopen(&world.disk.image(), world.at(0)).unwrap().0, [1, 2, 3]);
        (world.crc, world.next) = (crc, next);
        world.append(&[900; 9]).unwrap();
        assert_eq!(reopen(&world.disk.crash(failing as u64), world.at(0)).unwrap().0, (1..=12).collect::<Vec<_>>());
    }
    assert!(repeated >= 10 && ended >= 3, "{repeated} repeated, {ended} ended");
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was() {
    let mut world = World::new();
    world.append(&[900; 3]).unwrap();
    world.disk.set_free_bytes(Some(1000));
    let (crc, next) = (world.crc, world.next);
    assert!(matches!(world.append(&[900; 9]), Err(LogError::Full(_))));
    assert_eq!(reopen(&world.disk.crash(3), world.at(0)).unwrap().0, [1, 2, 3]);
    world.disk.set_free_bytes(None);
    (world.crc, world.next) = (crc, next);
    world.append(&[900; 9]).unwrap();
    assert_eq!(reopen(&world.disk.crash(4), world.at(0)).unwrap().0, (1..=12).collect::<Vec<_>>());
}

#[test]
fn an_appended_batch_survives_every_crash_and_a_torn_one_is_cut_as_a_whole() {
    for seed in 0..300 {
        let mut world = World::new();
        world.append(&[400; 7]).unwrap();
        let stop = seed as usize % 7;
        world.disk.stop_after(stop);
        let done = world.append(&[700; 9]).is_ok();
        let disk = world.disk.crash(seed);
        let (seen, _) = reopen(&disk, world.at(0)).unwrap();
        assert!(seen.len() >= if done { 16 } else { 7 }, "stop {stop}, seed {seed}: {seen:?}");
        assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
        let (again, recovered) = reopen(&disk, world.at(0)).unwrap();
        assert_eq!(
            (again, recovered.cut),
            (seen, false),
            "stop {stop}, seed {seed}: the next opening finds a clean end"
        );
    }
}

#[test]
fn replayed_frames_are_durable_even_if_the_process_stopped_before_forcing_them() {
    for seed in 0..100 {
        let mut world = World::new();
        world.append(&[400; 7]).unwrap();
        world.disk.stop_after(seed as usize % 24);
        let _ = world.append(&[700; 9]);
        // The process stops and the machine runs on: the operating system still has the unforced bytes.
        let disk = world.disk.crash_of_process();
        let (seen, _) = reopen(&disk, world.at(0)).unwrap();
        assert_eq!(reopen(&disk.crash(seed), world.at(0)).unwrap().0, seen, "seed {seed}");
    }
}

/// After a force that failed, the system shows the bytes, and a later force does not write them.
#[test]
fn replayed_frames_are_durable_even_if_a_force_of_them_failed() {
    let mut unacknowledged = 0;
    for seed in 0..150 {
        let mut world = World::new();
        world.append(&[400; 7]).unwrap();
        let last = world.next - 1;
        world.disk.fail_change(seed as usize % 30, io::ErrorKind::Other);
        let appended = world.append(&[700; 9]);
        assert_eq!(world.disk.has_failed(), appended.is_err(), "seed {seed}");
        let disk = world.disk.crash_of_process();
        let (seen, _) = reopen(&disk, world.at(0)).unwrap();
        unacknowledged += u32::from(appended.is_err() && seen.len() as u64 > last);
        for later in 0..3 {
            assert_eq!(reopen(&disk.crash(seed + later), world.at(0)).unwrap().0, seen, "seed {seed}");
        }
    }
    assert!(unacknowledged > 10, "{unacknowledged}");
}

#[test]
fn planted_bugs_of_the_log_are_noticed() {
    assert_noticed(&[RecoveryBug::DamageIsTornTail], damage_to_what_was_forced_is_refused_by_name);
    assert_noticed(&[RecoveryBug::TornTailKept], a_batch_that_was_torn_in_the_middle_is_cut);
    let torn = an_appended_batch_survives_every_crash_and_a_torn_one_is_cut_as_a_whole;
    assert_noticed(&[RecoveryBug::TornSegmentsKept], torn);
    let replayed = replayed_frames_are_durable_even_if_the_process_stopped_before_forcing_them;
    assert_noticed(&[RecoveryBug::ReplayedFramesNotForced], replayed);
    let failed = replayed_frames_are_durable_even_if_a_force_of_them_failed;
    assert_noticed(&[RecoveryBug::ReplayedFramesNotWritten], failed);
    let last = a_last_segment_that_is_missing_replaced_or_cut_is_refused_by_name;
    assert_noticed(&[RecoveryBug::TailNotRecorded], last);
    assert_noticed(&[RecoveryBug::HistoryNotChecked], a_log_of_another_history_is_refused);
}

/// A position in the log that no store reaches.
const IMPOSSIBLE: [Seq; 3] = [u64::MAX, 1 << 63, 1 << 46];

fn salvage(disk: &SimDisk, installed: LogPosition) -> Result<recover::RecoveredLog, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    open(&disk, STORE, SEGMENT, installed, OnDamage::Salvage, &mut |_, _| Ok(()))
}

/// Whether a log takes a batch that begins at `next`, in several segments, and frees what was before it.
fn check_appends(recovered: &recover::RecoveredLog, next: Seq) {
    let (mut batch, mut crc) = (FrameBatch::default(), recovered.crc);
    for seq in next..next + 20 {
        crc = encode(&mut batch.bytes, &STORE, seq, seq - 1, crc, |out| out.extend_from_slice(&[0; 900])).unwrap();
        batch.frames.push((batch.bytes.len(), seq, crc));
    }
    recovered.log.append(&batch, recovered.crc).unwrap();
    recovered.log.free(next + 19).unwrap();
    recovered.log.ensure_spare().unwrap();
}

#[test]
fn files_that_are_not_named_as_segments_are_neither_read_nor_removed() {
    let mut world = World::new();
    for _ in 0..10 {
        world.append(&[900]).unwrap();
    }
    let strange =
        ["ffffffffffffffff.seg", "8000000000000000.seg", "1.seg", "+000000000000001.seg", "000000000000000A.seg"];
    for name in strange {
        world.disk.create(&format!("log/{name}")).unwrap().write_at(0, &world.disk.bytes(FIRST)).unwrap();
    }
    for installed in [0, 3, 5, 10] {
        let disk = world.disk.image();
        assert_eq!(reopen(&disk, world.at(installed)).unwrap().0, (installed + 1..=10).collect::<Vec<_>>());
        let (seen, recovered) = reopen(&disk, world.at(installed)).unwrap();
        assert_eq!(seen, (installed + 1..=10).collect::<Vec<_>>());
        check_appends(&recovered, 11);
        let salvaged = salvage(&world.disk.image(), world.at(installed)).unwrap();
        assert_eq!(salvaged.salvaged.unwrap().kept, 10);
        check_appends(&salvaged, salvaged.last + 1);
        strange.iter().for_each(|name| drop(disk.bytes(&format!("log/{name}"))));
    }
}

#[test]
fn a_segment_with_the_last_number_refuses_a_repair_by_name() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    world.disk.create("log/7fffffffffffffff.seg").unwrap();
    let before = world.disk.digest();
    let error = salvage(&world.disk, world.at(0)).err().unwrap();
    assert!(matches!(error, LogError::Io(_)), "{error}");
    assert!(format!("{error:?}").contains("log/7fffffffffffffff.seg"), "{error:?}");
    assert_eq!(world.disk.digest(), before, "nothing is changed");
}

#[test]
fn spares_with_numbers_that_no_log_assigns_are_left_alone() {
    let mut world = World::new();
    world.append(&[900]).unwrap();
    let strange = ["spare-18446744073709551615", "spare-18446744073709551614", "spare-9223372036854775808", "spare-+7"];
    for name in strange {
        world.disk.create(&format!("log/{name}")).unwrap().write_at(0, &[9; SEGMENT as usize]).unwrap();
    }
    let disk = world.disk.crash_of_process();
    let (seen, recovered) = reopen(&disk, world.at(0)).unwrap();
    assert_eq!(seen, [1]);
    check_appends(&recovered, 2);
    for name in strange {
        assert_eq!(disk.bytes(&format!("log/{name}")), [9; SEGMENT as usize], "{name}");
    }
}

#[test]
fn frames_with_positions_that_no_store_reaches_do_not_count() {
    for seq in IMPOSSIBLE {
        for (seq, forced) in [(seq, 3), (4, seq), (seq, seq)] {
            let mut world = World::new();
            world.append(&[100; 3]).unwrap();
            let mut frame = Vec::new();
            encode(&mut frame, &STORE, seq, forced, world.crc, |out| out.extend_from_slice(&[4; 10])).unwrap();
            world
                .disk
                .damage(FIRST, 64 + 3 * frame::frame_len(100), |bytes| bytes[..frame.len()].copy_from_slice(&frame));
            assert_eq!(reopen(&world.disk.image(), world.at(0)).unwrap().0, [1, 2, 3]);
            let recovered = salvage(&world.disk, world.at(0)).unwrap();
            assert_eq!(recovered.salvaged, Some(recover::Salvaged { kept: 3, seen: 3 }));
            check_appends(&recovered, recovered.last + 1);
        }
    }
}

#[test]
fn a_segment_that_begins_at_a_position_that_no_store_reaches_has_no_valid_header() {
    for first in IMPOSSIBLE {
        let header = SegmentHeader { index: 1, first, prev: 0 };
        assert_eq!(SegmentHeader::decode(&header.encode(&STORE), &STORE), Err(SegmentFault::Header));
    }
}

#[test]
fn a_record_of_a_position_or_with_a_number_that_no_log_reaches_is_damaged() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    for seq in IMPOSSIBLE {
        record_tail(&world.disk, TailRecord { segment: 1, position: LogPosition { seq, crc: 0 } });
        assert_eq!(damage(reopen(&world.disk, world.at(0))), LogDamage::Record(RecordFault::Damaged));
        let recovered = salvage(&world.disk.image(), world.at(0)).unwrap();
        assert_eq!(recovered.salvaged, Some(recover::Salvaged { kept: 3, seen: 3 }));
        check_appends(&recovered, recovered.last + 1);
    }
}

#[test]
fn a_repair_that_would_leave_no_positions_is_refused() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    record_tail(&world.disk, TailRecord { segment: 1, position: LogPosition { seq: (1 << 46) - 1, crc: 0 } });
    let before = world.disk.digest();
    let error = salvage(&world.disk, world.at(0)).err().unwrap();
    assert!(format!("{error:?}").contains("70368744177663"), "{error:?}");
    assert_eq!(world.disk.digest(), before, "nothing is changed");
}
