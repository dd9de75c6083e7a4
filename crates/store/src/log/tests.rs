use super::frame::encode;
use super::recover::{LogDamage, OnDamage, open};
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
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new();
        let log = Log::create(Arc::new(disk.clone()), STORE, SEGMENT, 1, 0).unwrap();
        Self { disk, log, next: 1, forced: 0, crc: 0 }
    }

    fn batch(&mut self, payloads: &[usize]) -> FrameBatch {
        let mut batch = FrameBatch::default();
        for len in payloads {
            let payload = vec![self.next as u8; *len];
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload);
            self.crc = encode(&mut batch.bytes, &STORE, self.next, self.forced, self.crc, write).unwrap();
            batch.frames.push((batch.bytes.len(), self.next, self.crc));
            self.next += 1;
        }
        batch
    }

    fn append(&mut self, payloads: &[usize]) -> Result<(), LogError> {
        let prev = self.crc;
        let batch = self.batch(payloads);
        self.log.append(&batch, prev)?;
        self.forced = self.next - 1;
        Ok(())
    }
}

fn reopen(disk: &SimDisk, installed: Seq) -> Result<(Vec<Seq>, recover::RecoveredLog), LogError> {
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
    let (seen, recovered) = reopen(&world.disk.crash(1), 0).unwrap();
    assert_eq!(seen, (1..=62).collect::<Vec<_>>());
    assert_eq!((recovered.last, recovered.cut), (62, false));
}

#[test]
fn freed_segments_are_used_again_and_their_old_frames_do_not_count() {
    let mut world = World::new();
    for round in 0..40 {
        world.append(&[900]).unwrap();
        world.log.free(world.forced.saturating_sub(2)).unwrap();
        let (seen, _) = reopen(&world.disk.crash(round), world.forced - 1).unwrap();
        assert_eq!(seen, [world.forced]);
    }
    assert!(world.log.size() <= 5 * SEGMENT, "{} bytes", world.log.size());
}

#[test]
fn a_batch_that_was_torn_in_the_middle_is_cut() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    let prev = world.crc;
    let batch = world.batch(&[100; 5]);
    world.log.append(&batch, prev).unwrap();
    // The first frame of the second batch did not reach the disk; nothing in the batch was acknowledged.
    let at = 64 + 3 * frame::frame_len(100);
    world.disk.damage(FIRST, at, |bytes| bytes[..20].fill(0));
    let (seen, recovered) = reopen(&world.disk, 0).unwrap();
    assert_eq!((seen, recovered.last, recovered.cut), (vec![1, 2, 3], 3, true));
    // The next opening finds no trace of what was cut.
    assert!(!reopen(&world.disk, 0).unwrap().1.cut);
}

#[test]
fn damage_to_what_was_forced_is_refused_by_name() {
    let mut world = World::new();
    world.append(&[100; 3]).unwrap();
    world.append(&[100]).unwrap();
    let at = 64 + frame::frame_len(100);
    for zeroed in [false, true] {
        let disk = world.disk.crash(1);
        disk.damage(FIRST, at, |bytes| if zeroed { bytes[..512].fill(0) } else { bytes[40] ^= 1 });
        let expected = LogDamage {
            segment: FIRST.to_owned(),
            offset: at as u64,
            seq: 2,
            forced: if zeroed { 0 } else { 3 },
            last: 4,
        };
        if zeroed {
            // The frames that say that earlier ones were forced are gone too.
            assert_eq!(reopen(&disk, 0).unwrap().0, [1]);
        } else {
            assert_eq!(damage(reopen(&disk, 0)), expected);
        }
    }
}

#[test]
fn a_zeroed_page_with_forced_frames_after_it_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..30 {
        world.append(&[100]).unwrap();
    }
    world.disk.damage(FIRST, 512, |bytes| bytes[..512].fill(0));
    let damage = damage(reopen(&world.disk, 0));
    assert_eq!((damage.seq, damage.forced, damage.last), (4, 29, 30));
}

#[test]
fn a_lost_segment_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[900]).unwrap();
    }
    let missing = "log/0000000000000003.seg";
    world.disk.remove(missing).unwrap();
    assert_eq!(damage(reopen(&world.disk, 0)).seq, 9);
    // If all of it is installed, nothing is lost.
    assert_eq!(reopen(&world.disk, 13).unwrap().0, [14, 15, 16, 17, 18, 19, 20]);
}

#[test]
fn a_log_that_ends_before_the_installed_position_begins_again_without_its_old_segments() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[900]).unwrap();
    }
    world.disk.remove("log/0000000000000005.seg").unwrap();
    let (seen, recovered) = reopen(&world.disk, 20).unwrap();
    assert!(seen.is_empty() && recovered.last == 20);
    let names = world.disk.list("log").unwrap();
    assert_eq!(names.iter().filter(|name| name.ends_with(".seg")).count(), 1, "{names:?}");
    assert!(reopen(&world.disk, 20).unwrap().0.is_empty());
}

#[test]
fn a_log_without_the_frames_after_the_installed_ones_is_refused() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append(&[900]).unwrap();
    }
    world.disk.remove(FIRST).unwrap();
    assert_eq!(damage(reopen(&world.disk, 2)).seq, 3);
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
            let (seen, recovered) = reopen(&world.disk.crash(room as u64), installed).unwrap();
            assert_eq!(seen, (installed + 1..=6).collect::<Vec<_>>(), "room for {room} bytes");
            assert_eq!(recovered.last, 6);
        }
    }
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was() {
    let mut world = World::new();
    world.append(&[900; 3]).unwrap();
    world.disk.set_free_bytes(Some(1000));
    let (crc, next) = (world.crc, world.next);
    assert!(matches!(world.append(&[900; 9]), Err(LogError::Full(_))));
    assert_eq!(reopen(&world.disk.crash(3), 0).unwrap().0, [1, 2, 3]);
    world.disk.set_free_bytes(None);
    (world.crc, world.next) = (crc, next);
    world.append(&[900; 9]).unwrap();
    assert_eq!(reopen(&world.disk.crash(4), 0).unwrap().0, (1..=12).collect::<Vec<_>>());
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
        let (seen, _) = reopen(&disk, 0).unwrap();
        assert!(seen.len() >= if done { 16 } else { 7 }, "stop {stop}, seed {seed}: {seen:?}");
        assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
        let (again, recovered) = reopen(&disk, 0).unwrap();
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
        let (seen, _) = reopen(&disk, 0).unwrap();
        assert_eq!(reopen(&disk.crash(seed), 0).unwrap().0, seen, "seed {seed}");
    }
}

#[test]
fn planted_bugs_of_the_log_are_noticed() {
    assert_noticed(&[RecoveryBug::DamageIsTornTail], damage_to_what_was_forced_is_refused_by_name);
    assert_noticed(&[RecoveryBug::TornTailKept], a_batch_that_was_torn_in_the_middle_is_cut);
    let torn = an_appended_batch_survives_every_crash_and_a_torn_one_is_cut_as_a_whole;
    assert_noticed(&[RecoveryBug::TornSegmentsKept], torn);
    let replayed = replayed_frames_are_durable_even_if_the_process_stopped_before_forcing_them;
    assert_noticed(&[RecoveryBug::ReplayedFramesNotForced], replayed);
}
