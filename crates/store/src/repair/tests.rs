use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::planted_bug::assert_noticed;
use model::{ContentId, ErrorKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::disk::sim::SimDisk;
use crate::engine::damaged_ranges::DamagedRanges;
use crate::engine::memory::MemoryEngine;
use crate::engine::sim::SimEngine;
use crate::plant::RecoveryBug;
use crate::read::Readable;
use crate::rows::key::{DataId, Key};
use crate::rows::row::CHUNK;
use crate::tests::audit::check_leaks;
use crate::tests::world::{SimulatedStore, small_options};
use crate::tests::{bytes, commit, content, create, ids, new_id, of_contents, pattern};
use crate::{ContentChange, KeyRange, RowChanges};

/// Every acknowledged commit: its position, content and bytes.
type Acknowledged = BTreeMap<u64, (ContentId, bytes::Bytes)>;

fn fill(store: &Store, commits: u8, len: usize, acknowledged: &mut Acknowledged) {
    for i in 0..commits {
        let (id, data) = (new_id(), pattern(len + usize::from(i) * 7, i));
        let position = commit(store, [create(id, data.clone())]);
        // Each commit has a row with its own position.
        let mut row = RowChanges::new();
        row.put(&(position + 1).to_be_bytes(), data.clone());
        assert_eq!(store.commit_rows(row).unwrap(), position + 1);
        acknowledged.insert(position, (id, data));
    }
}

/// Checks that everything up to `kept` is complete and nothing later exists.
fn check(store: &Store, acknowledged: &Acknowledged, kept: u64) {
    for (version, (id, data)) in acknowledged {
        if *version <= kept {
            assert_eq!(bytes(store, *id), *data, "version {version}, kept {kept}");
        } else {
            assert_eq!(store.content_size(*id).unwrap(), None, "version {version}, kept {kept}");
        }
        let row = store.row(&(version + 1).to_be_bytes()).unwrap();
        assert_eq!(row, (*version < kept).then(|| data.clone()), "row of version {}, kept {kept}", version + 1);
    }
    assert_eq!(store.scrub(&()).unwrap().damage, []);
}

fn salvage(disk: &SimDisk, engine: &MemoryEngine) -> Result<Store> {
    let engine = Box::new(engine.clone());
    Store::start(open::open_on(Arc::new(disk.clone()), engine, [7; 16], small_options(), OnDamage::Salvage)?)
}

fn salvaged_position(store: &Store) -> Option<u64> {
    store.loss().unwrap().and_then(|loss| loss.kept)
}

/// A simulated store with some transactions in the B-tree and some in the log only.
fn half_installed(random: &mut StdRng) -> (SimulatedStore, Acknowledged) {
    let (world, mut acknowledged) = (SimulatedStore::new(), Acknowledged::new());
    fill(&world.store, random.random_range(1..60), 1000, &mut acknowledged);
    world.store.install().unwrap();
    fill(&world.store, random.random_range(1..60), 1500, &mut acknowledged);
    (world, acknowledged)
}

fn segments(disk: &dyn Disk) -> Vec<String> {
    disk.list(crate::log::DIR)
        .unwrap()
        .into_iter()
        .filter(|n| n.ends_with(".seg"))
        .map(|n| format!("log/{n}"))
        .collect()
}

#[test]
fn a_repair_keeps_all_that_can_be_read_whatever_page_is_lost() {
    let (mut refused, mut lossless) = (0, 0);
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let (world, acknowledged) = half_installed(&mut random);
        let (disk, engine) = (world.disk.clone(), world.engine.image());
        drop(world);
        let segments = segments(&disk);
        let segment = &segments[random.random_range(0..segments.len())];
        let page = random.random_range(0..small_options().segment_bytes as usize / 4096) * 4096;
        disk.damage(segment, page, |bytes| bytes[..4096].fill(0));
        let last = *acknowledged.keys().last().unwrap();
        let Err(error) = SimulatedStore::open(disk.clone(), engine.image()) else { continue };
        refused += 1;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let store = salvage(&disk, &engine).unwrap();
        let kept = salvaged_position(&store).unwrap();
        lossless += u32::from(kept >= last);
        check(&store, &acknowledged, kept);
        // The store continues, and no version is assigned twice.
        let mut later = Acknowledged::new();
        fill(&store, 20, 3000, &mut later);
        assert!(*later.keys().next().unwrap() > last);
        drop(store);
        let again = SimulatedStore::open(disk.crash(seed), engine.image()).unwrap();
        check(&again.store, &acknowledged, kept);
        check(&again.store, &later, u64::MAX);
    }
    assert!(refused > 50 && lossless > 5, "{refused} refused, {lossless} without loss");
}

#[test]
fn a_repair_that_is_interrupted_anywhere_can_be_repeated() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(1000 + seed);
        let (world, acknowledged) = half_installed(&mut random);
        let (disk, engine) = (world.disk.clone(), world.engine.image());
        drop(world);
        let last = segments(&disk).pop().unwrap();
        disk.damage(&last, 4096, |bytes| bytes[..4096].fill(0));
        // The record of the tail may be older after a power failure.
        let disk = disk.crash(seed);
        if SimulatedStore::open(disk.image(), engine.image()).is_ok() {
            continue;
        }
        if seed % 2 == 0 {
            // Rows of contents were given up, too, and contents are not mended yet. All of them are whole.
            let mut ranges = DamagedRanges::default();
            ranges.add(KeyRange::new(&Key::garbage(DataId(1)), Some(&Key::garbage(DataId(2)))));
            let rows = loss::listing(&engine, &ranges).unwrap();
            engine.write(&mut rows.into_iter().map(Ok)).unwrap();
        }
        let before = disk.steps();
        let whole = salvage(&disk.crash(seed), &engine.image()).unwrap();
        let kept_whole = salvaged_position(&whole).unwrap();
        drop(whole);
        for steps in 0..30 {
            let (disk, engine) = (disk.crash(seed), engine.image());
            disk.stop_after(steps);
            let _ = salvage(&disk, &engine);
            let (disk, engine) = (disk.crash(seed + 1), engine.image());
            let store = match SimulatedStore::open(disk.clone(), engine.image()) {
                Ok(world) => world.store,
                Err(_) => salvage(&disk, &engine).unwrap(),
            };
            assert_eq!(salvaged_position(&store), Some(kept_whole), "seed {seed}, {steps} steps after {before}");
            check(&store, &acknowledged, kept_whole);
        }
    }
}

fn options() -> Options {
    Options { threads: false, ..small_options() }
}

/// A real store with 20 transactions in the B-tree and 40 more in the log.
fn real_store() -> (tempfile::TempDir, Acknowledged) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let mut acknowledged = Acknowledged::new();
    fill(&store, 20, 3000, &mut acknowledged);
    store.install().unwrap();
    fill(&store, 40, 3000, &mut acknowledged);
    (dir, acknowledged)
}

fn zero_page(dir: &Path, segment: usize, page: usize) -> PathBuf {
    let names = segments(&RealDisk::new(dir));
    let path = dir.join(&names[segment]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[page * 4096..(page + 1) * 4096].fill(0);
    fs::write(&path, bytes).unwrap();
    path
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let log = fs::read_dir(dir.join("log")).unwrap();
    log.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_zeroed_page_of_a_real_log_is_refused_by_name_and_repaired_when_asked() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    let damaged = zero_page(dir, 1, 7);
    let bytes = fs::read(&damaged).unwrap();
    let before = files(dir);
    let error = Store::open(dir, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let file = format!("log/{}", damaged.file_name().unwrap().to_str().unwrap());
    for part in ["frame ", "at byte ", file.as_str(), "`mortar repair`"] {
        assert!(error.message().contains(part), "{error}");
    }

    let report = Store::repair(dir, false, &[], options(), &()).unwrap();
    assert!(!report.is_sound() && !report.repaired);
    assert!(report.damage.as_ref().unwrap().contains(&file), "{report:?}");
    let (first, last) = report.lost_txns().unwrap();
    assert!(first == report.kept + 1 && report.installed < report.kept);
    assert_eq!(last, acknowledged.keys().last().unwrap() + 1, "the row of the last content");
    assert_eq!(files(dir), before, "without accept_loss nothing is changed");

    let repaired = Store::repair(dir, true, &[], options(), &()).unwrap();
    assert!(repaired.repaired && repaired.scrub.as_ref().unwrap().is_clean(), "{repaired:?}");
    assert_eq!((repaired.kept, repaired.seen), (report.kept, report.seen));
    let kept_aside = repaired.set_aside.unwrap().join(damaged.file_name().unwrap());
    assert_eq!(fs::read(kept_aside).unwrap(), bytes);

    let store = Store::open(dir, options()).unwrap();
    check(&store, &acknowledged, repaired.kept);
    assert!(commit(&store, [create(new_id(), "x")]) > last);
    drop(store);
    let report = Store::repair(dir, false, &[], options(), &()).unwrap();
    assert!(report.is_sound() && report.lost_txns().is_none(), "{report:?}");
}

#[test]
fn damage_to_installed_frames_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = Store::open(dir, options()).unwrap();
    let mut acknowledged = Acknowledged::new();
    fill(&store, 4, 2000, &mut acknowledged);
    store.install().unwrap();
    fill(&store, 8, 2000, &mut acknowledged);
    drop(store);
    zero_page(dir, 0, 1);
    assert_eq!(Store::open(dir, options()).err().unwrap().kind(), ErrorKind::Corrupt);
    let report = Store::repair(dir, true, &[], options(), &()).unwrap();
    assert!(report.repaired && report.lost_txns().is_none(), "{report:?}");
    assert!(report.to_string().contains("mention no later one"), "{report}");
    check(&Store::open(dir, options()).unwrap(), &acknowledged, u64::MAX);
}

#[test]
fn a_sound_store_needs_no_repair() {
    let (dir, acknowledged) = real_store();
    let report = Store::repair(dir.path(), false, &[], options(), &()).unwrap();
    assert!(report.is_sound() && report.kept >= *acknowledged.keys().last().unwrap(), "{report:?}");
    let report = Store::repair(dir.path(), true, &[], options(), &()).unwrap();
    assert!(report.is_sound() && !report.repaired && report.set_aside.is_none());
    check(&Store::open(dir.path(), options()).unwrap(), &acknowledged, u64::MAX);
}

#[test]
fn a_store_that_is_open_is_not_repaired() {
    let (dir, _) = real_store();
    let _store = Store::open(dir.path(), options()).unwrap();
    let error = Store::repair(dir.path(), true, &[], options(), &()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn the_identity_is_recovered_from_the_log() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    let store_file = dir.join("STORE");
    let text = fs::read(&store_file).unwrap();
    let cut = text[..text.len() / 2].to_vec();
    let mut flipped = text.clone();
    flipped[20] ^= 1;
    for damaged in [None, Some(&b""[..]), Some(&b"\xff\xfe garbage"[..]), Some(&cut), Some(&flipped)] {
        match damaged {
            None => fs::remove_file(&store_file).unwrap(),
            Some(bytes) => fs::write(&store_file, bytes).unwrap(),
        }
        let error = Store::open(dir, options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("STORE") && error.message().contains("`mortar repair`"), "{error}");
        let report = Store::repair(dir, false, &[], options(), &()).unwrap();
        assert!(report.identity_lost && report.damage.is_none() && !report.is_sound());
        let report = Store::repair(dir, true, &[], options(), &()).unwrap();
        assert!(report.repaired, "{report:?}");
        assert_eq!(fs::read(&store_file).unwrap(), text);
        check(&Store::open(dir, options()).unwrap(), &acknowledged, u64::MAX);
    }
    for other in [2, 4] {
        fs::write(&store_file, format!("mortar store {other}\nsomething else\n")).unwrap();
        for error in [Store::open(dir, options()).err(), Store::repair(dir, true, &[], options(), &()).err()] {
            let (error, expected) =
                (error.unwrap(), format!("says \"mortar store {other}\"; this version reads \"mortar store 3\""));
            assert!(error.kind() == ErrorKind::Unsupported && error.message().contains(&expected), "{error}");
        }
    }
}

#[test]
fn a_missing_tree_is_refused_and_the_log_stays() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    let away = dir.join("away");
    fs::rename(dir.join("tree"), &away).unwrap();
    let before = files(dir);
    let error = Store::repair(dir, true, &[], options(), &()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("B-tree is missing"), "{error}");
    let error = Store::open(dir, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("B-tree is missing"), "{error}");
    assert_eq!(files(dir), before);
    fs::remove_dir_all(dir.join("tree")).unwrap();
    fs::rename(&away, dir.join("tree")).unwrap();
    check(&Store::open(dir, options()).unwrap(), &acknowledged, u64::MAX);
}

#[test]
fn a_damaged_tree_and_a_failing_disk_have_different_errors() {
    let (dir, _) = real_store();
    let data = dir.path().join("tree/rows");
    let mut bytes = fs::read(&data).unwrap();
    bytes[..17 * 4096].fill(0x5a);
    fs::write(&data, bytes).unwrap();
    for error in [Store::open(dir.path(), options()).err(), Store::repair(dir.path(), true, &[], options(), &()).err()]
    {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("the B-tree is damaged"), "{error}");
    }
}

#[test]
fn a_repair_frees_space_of_the_tree_to_which_nothing_refers() {
    let (dir, acknowledged) = real_store();
    let data = dir.path().join("tree/rows");
    let mut bytes = fs::read(&data).unwrap();
    // From the newer meta page to the page that lists the pages of the map of used pages, and to the first of these.
    let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    let meta = [0, 16 * 4096].into_iter().max_by_key(|meta| long(meta + 28)).unwrap();
    let map = long(long(meta + 128) * 4096) * 4096;
    bytes[map..map + 4096].fill(0x11);
    fs::write(&data, bytes).unwrap();
    let report = Store::repair(dir.path(), false, &[], options(), &()).unwrap();
    assert_eq!(report.reclaimed, 0, "nothing is changed without leave");
    assert!(report.damaged_structure.iter().any(|damage| damage.contains("map of used pages")), "{report:?}");
    assert!(!report.repaired && !report.is_loss() && report.to_string().contains("map of used pages"), "{report}");
    let report = Store::repair(dir.path(), true, &[], options(), &()).unwrap();
    assert!(report.repaired && report.scrub.as_ref().unwrap().is_clean(), "{report:?}");
    let again = Store::repair(dir.path(), false, &[], options(), &()).unwrap();
    assert!(again.damaged_structure.is_empty(), "{again:?}");
    assert!(report.reclaimed > 0 && report.to_string().contains("bytes of the B-tree"), "{report}");
    assert_eq!(Store::repair(dir.path(), true, &[], options(), &()).unwrap().reclaimed, 0);
    check(&Store::open(dir.path(), options()).unwrap(), &acknowledged, u64::MAX);
}

/// A store on disk with rows and contents of many sizes, all of it in the B-tree, and what it has.
fn filled_store(
    random: &mut StdRng,
) -> (tempfile::TempDir, BTreeMap<Vec<u8>, bytes::Bytes>, BTreeMap<ContentId, bytes::Bytes>) {
    let (dir, mut rows, mut contents) = (tempfile::tempdir().unwrap(), BTreeMap::new(), BTreeMap::new());
    let store = Store::open(dir.path(), options()).unwrap();
    for round in 0..40 {
        let mut changes = RowChanges::new();
        for _ in 0..20 {
            let key = random.random::<u32>().to_be_bytes().to_vec();
            let value = pattern(random.random_range(0..600), round);
            changes.put(&key, value.clone());
            rows.insert(key, value);
        }
        store.commit_rows(changes).unwrap();
        let (id, len) = (new_id(), [100, 3000, 70_000, 300_000][random.random_range(0..4)]);
        let data = pattern(random.random_range(1..len), round);
        commit(&store, [create(id, data.clone())]);
        contents.insert(id, data);
        // Nothing else empties the log.
        store.install().unwrap();
    }
    store.close().unwrap();
    (dir, rows, contents)
}

fn damage_pages(dir: &Path, random: &mut StdRng) {
    let path = dir.join("tree/rows");
    let mut bytes = fs::read(&path).unwrap();
    // There are few pages with the records of extents, so every fourth store gets one of these damaged, too.
    let extent = &Key::extents_of(1)[..];
    let with_extents: Vec<usize> = (17..bytes.len() / 4096)
        .filter(|page| bytes[page * 4096..][..4096].windows(5).filter(|key| *key == extent).count() > 3)
        .collect();
    let mut pages: Vec<usize> =
        (0..random.random_range(1..4)).map(|_| random.random_range(17..bytes.len() / 4096)).collect();
    if random.random_bool(0.25) {
        pages.extend(with_extents);
    }
    for page in pages {
        bytes[page * 4096 + random.random_range(0..4096)] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
}

/// What of the rows and contents can be read.
fn readable(
    store: &Store,
    rows: &BTreeMap<Vec<u8>, bytes::Bytes>,
    contents: &BTreeMap<ContentId, bytes::Bytes>,
) -> (BTreeSet<Vec<u8>>, BTreeSet<ContentId>) {
    let rows = rows.iter().filter(|(key, value)| match store.row(key) {
        Ok(found) => found.as_ref() == Some(*value),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            false
        }
    });
    let contents = contents.iter().filter(|(id, data)| match store.read_content(**id, 0, u64::MAX) {
        Ok(found) => found == **data,
        Err(error) => {
            assert!([ErrorKind::Corrupt, ErrorKind::NotFound].contains(&error.kind()), "{error}");
            false
        }
    });
    (rows.map(|(key, _)| key.clone()).collect(), contents.map(|(id, _)| *id).collect())
}

#[test]
fn rows_on_damaged_pages_are_given_up_when_asked() {
    let (mut lost_rows, mut lost_contents, mut kept_contents, mut without_loss) = (0, 0, 0, 0);
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let (dir, mut rows, mut contents) = filled_store(&mut random);
        let dir = dir.path();
        damage_pages(dir, &mut random);
        let store = Store::open(dir, options()).unwrap();
        let (readable_rows, readable_contents) = readable(&store, &rows, &contents);
        if random.random_bool(0.5) {
            // The log has rows and contents that are not in the B-tree.
            let mut changes = RowChanges::new();
            changes.put(b"logged", "logged".into());
            store.commit_rows(changes).unwrap();
            rows.insert(b"logged".to_vec(), "logged".into());
            // It is refused if its row would be on a damaged page.
            let (id, data) = (new_id(), pattern(200_000, 3));
            if store.commit_rows(of_contents([create(id, data.clone())])).is_ok() {
                contents.insert(id, data);
            }
        }
        drop(store);
        let before = fs::read(dir.join("tree/rows")).unwrap();
        let report = Store::repair(dir, false, &[], options(), &()).unwrap();
        assert!(fs::read(dir.join("tree/rows")).unwrap() == before, "without accept_loss nothing is changed");
        let repaired = Store::repair(dir, true, &[], options(), &()).unwrap();
        assert_eq!((&repaired.lost_rows, repaired.lost_row_ranges), (&report.lost_rows, report.lost_row_ranges));
        let mut first_loss = None;
        // What is left is whole, and stays so when blob files are swept.
        for _ in 0..3 {
            let store = Store::open(dir, options()).unwrap();
            let loss = store.loss().unwrap();
            assert!(loss.is_none() || repaired.is_loss(), "seed {seed}");
            assert_eq!(
                *first_loss.get_or_insert_with(|| loss.clone()),
                loss,
                "seed {seed}: it stays until it is accepted"
            );
            without_loss += u32::from(loss.is_none());
            let ranges = loss.unwrap_or_default().rows;
            let (left_rows, left_contents) = readable(&store, &rows, &contents);
            assert!(
                left_rows.is_superset(&readable_rows) && left_contents.is_superset(&readable_contents),
                "seed {seed}"
            );
            for (key, value) in &rows {
                match store.row(key).unwrap() {
                    Some(found) => assert!(found == *value, "seed {seed}, row {key:02x?}"),
                    None => {
                        assert!(ranges.iter().any(|range| range.contains(key)), "seed {seed}, {key:02x?}");
                        lost_rows += 1;
                    }
                }
            }
            for (id, data) in &contents {
                if store.content_size(*id).unwrap().is_some() {
                    assert!(bytes(&store, *id) == *data, "seed {seed}, content {id}");
                    kept_contents += 1;
                } else {
                    lost_contents += 1;
                }
            }
            content(&store, pattern(200_000, 7));
            (0..5).for_each(|_| store.core().do_housekeeping().unwrap());
            assert_eq!(store.scrub(&()).unwrap().damage, [], "seed {seed}");
            store.close().unwrap();
        }
        let store = Store::open(dir, options()).unwrap();
        store.accept_loss().unwrap();
        assert_eq!(store.loss().unwrap(), None);
        store.close().unwrap();
        assert_eq!(Store::open(dir, options()).unwrap().loss().unwrap(), None, "accepted for good");
        let report = Store::repair(dir, false, &[], options(), &()).unwrap();
        assert!(report.is_sound() && !report.needs_acceptance, "{report:?}");
    }
    let counts = (lost_rows, lost_contents, kept_contents, without_loss);
    assert!(counts.0 > 100 && counts.1 > 10 && counts.2 > 1000 && counts.3 > 0, "{counts:?}");
}

#[test]
fn content_that_the_log_changes_is_not_given_up_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let id = new_id();
    commit(&store, [create(id, pattern(3 * CHUNK, 1))]);
    // So many that their chunks are on several pages.
    for number in 0..60 {
        commit(&store, [create(new_id(), pattern(2 * CHUNK, number))]);
        store.install().unwrap();
    }
    let key = store.read_row(|layers| Ok(Key::chunk(layers.content(id)?.unwrap().head.data, 2))).unwrap();
    commit(&store, [ContentChange::Write { id, offset: 70_000, data: "changed".into() }]);
    drop(store);
    let path = dir.path().join("tree/rows");
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<usize> = (17 * 4096..bytes.len() - key.len()).filter(|at| bytes[*at..].starts_with(&key)).collect();
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&path, &bytes).unwrap();
    for accept_loss in [false, true] {
        let error = Store::repair(dir.path(), accept_loss, &[], options(), &()).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("the log changes content"), "{error}");
    }
    assert!(fs::read(&path).unwrap() == bytes, "nothing was changed");
}

#[test]
fn loss_whose_list_is_lost_is_a_loss_of_everything() {
    let (engine, mut ranges) = (MemoryEngine::default(), DamagedRanges::default());
    ranges.add(KeyRange::new(b"ka", Some(b"kb")));
    let write = |rows: Vec<crate::engine::EngineRow>| engine.write(&mut rows.into_iter().map(Ok)).unwrap();
    write(loss::listing(&engine, &ranges).unwrap());
    let rows = |engine: &MemoryEngine| loss::loss_in(engine).unwrap().unwrap().rows;
    assert_eq!(rows(&engine), [KeyRange::new(b"a", Some(b"b"))]);
    // Another repair adds to the list.
    let mut more = DamagedRanges::default();
    more.add(KeyRange::new(b"kx", Some(b"ky")));
    write(loss::listing(&engine, &more).unwrap());
    assert_eq!(rows(&engine), [KeyRange::new(b"a", Some(b"b")), KeyRange::new(b"x", Some(b"y"))]);
    let mut list = DamagedRanges::default();
    list.add(KeyRange::new(b"l", Some(b"m")));
    write(loss::listing(&engine, &list).unwrap());
    assert!(rows(&engine).contains(&KeyRange::ALL));
}

#[test]
fn rows_beside_damaged_pages_are_all_visited() {
    let mut damaged_stores = 0;
    for seed in 0..25 {
        let mut random = StdRng::seed_from_u64(300 + seed);
        let (dir, mut rows, _) = filled_store(&mut random);
        damage_pages(dir.path(), &mut random);
        let store = Store::open(dir.path(), options()).unwrap();
        // Some rows are changed in the buffer only.
        let mut changes = RowChanges::new();
        for key in rows.keys().step_by(40).cloned().collect::<Vec<_>>() {
            changes.put(&key, "changed".into());
            rows.insert(key, "changed".into());
        }
        store.commit_rows(changes).unwrap();
        let (mut visited, mut ranges) = (Vec::new(), Vec::new());
        let visit = |key: &[u8], value: &[u8]| {
            assert!(rows[key] == value, "seed {seed}, row {key:02x?}");
            visited.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        let damaged = |range: KeyRange, error: &Error| {
            assert!(crate::error::is_unreadable_part(error), "seed {seed}: {error}");
            ranges.push(range);
        };
        store.rows_beside_damage(&[0], &[0xff; 5], visit, damaged).unwrap();
        damaged_stores += u32::from(!ranges.is_empty());
        assert!(visited.is_sorted() && ranges.is_sorted_by(|one, next| one.to.as_ref().unwrap() <= &next.from));
        for key in rows.keys() {
            let is_lost = ranges.iter().any(|range| range.contains(key));
            assert!(is_lost != visited.binary_search(key).is_ok(), "seed {seed}, row {key:02x?}");
            // A range is no larger than what cannot be read, but for rows in the buffer.
            assert!(!is_lost || store.row(key).is_err() || rows[key] == "changed", "seed {seed}, row {key:02x?}");
        }
        let mut first = None;
        let until_first = |key: &[u8], _: &[u8]| {
            first = Some(key.to_vec());
            std::ops::ControlFlow::Break(())
        };
        store.rows_beside_damage(&[0], &[0xff; 5], until_first, |_, _| ()).unwrap();
        assert_eq!(first.as_ref(), visited.first(), "it ends when it is told to");
    }
    assert!(damaged_stores > 10, "{damaged_stores}");
}

#[test]
fn essential_rows_are_not_given_up() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(100 + seed);
        let (dir, rows, _) = filled_store(&mut random);
        damage_pages(dir.path(), &mut random);
        let before = fs::read(dir.path().join("tree/rows")).unwrap();
        let essential = [EssentialRows { from: &[0x40], to: &[0xc0], what: "the list of friends" }];
        match Store::repair(dir.path(), true, &essential, options(), &()) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.message().contains("the list of friends") && error.message().contains("page"), "{error}");
                assert_eq!(fs::read(dir.path().join("tree/rows")).unwrap(), before);
                refused += 1;
            }
            Ok(_) => {
                let store = Store::open(dir.path(), options()).unwrap();
                for (key, value) in rows.range(vec![0x40]..vec![0xc0]) {
                    assert_eq!(store.row(key).unwrap().as_ref(), Some(value));
                }
            }
        }
    }
    assert!((3..18).contains(&refused), "{refused} refused");
}

#[test]
fn lost_transactions_are_a_loss_until_it_is_accepted() {
    let (dir, _) = real_store();
    zero_page(dir.path(), 1, 7);
    let report = Store::repair(dir.path(), true, &[], options(), &()).unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    assert_eq!(store.loss().unwrap(), Some(Loss { kept: Some(report.kept), rows: Vec::new() }));
    store.accept_loss().unwrap();
    store.close().unwrap();
    assert_eq!(Store::open(dir.path(), options()).unwrap().loss().unwrap(), None);
}

#[test]
fn a_missing_log_is_refused_and_what_is_installed_can_be_kept() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    fs::remove_dir_all(dir.join("log")).unwrap();
    let error = Store::open(dir, options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("log has no frame"), "{error}");
    let report = Store::repair(dir, true, &[], options(), &()).unwrap();
    assert_eq!((report.kept, report.lost_txns()), (report.installed, None));
    check(&Store::open(dir, options()).unwrap(), &acknowledged, report.installed);
}

#[test]
fn the_record_of_the_end_tells_what_is_lost_with_the_last_segments() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    for segment in segments(&RealDisk::new(dir)) {
        fs::remove_file(dir.join(segment)).unwrap();
    }
    let report = Store::repair(dir, false, &[], options(), &()).unwrap();
    let last = report.installed + u64::try_from(acknowledged.range(report.installed + 1..).count()).unwrap();
    assert!(last >= report.installed + 40);
    let lost = report.lost_txns().unwrap();
    assert!(lost.0 == report.installed + 1 && lost.1 >= *acknowledged.keys().last().unwrap(), "{lost:?} {report:?}");
    assert!(report.to_string().contains(&format!("transactions {} to {} would be lost", lost.0, lost.1)), "{report}");
    Store::repair(dir, true, &[], options(), &()).unwrap();
    let report = Store::repair(dir, false, &[], options(), &()).unwrap();
    assert!(report.is_sound() && report.lost_txns().is_none(), "{report:?}");
    check(&Store::open(dir, options()).unwrap(), &acknowledged, lost.0 - 1);
}

#[test]
fn the_record_of_the_end_tells_that_the_last_frame_is_lost() {
    let (dir, acknowledged) = real_store();
    let dir = dir.path();
    let sound = Store::repair(dir, false, &[], options(), &()).unwrap();
    let last = dir.join(segments(&RealDisk::new(dir)).pop().unwrap());
    let mut bytes = fs::read(&last).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    fs::write(&last, bytes).unwrap();
    let report = Store::repair(dir, false, &[], options(), &()).unwrap();
    assert_eq!(report.lost_txns(), Some((sound.kept, sound.kept)), "{report:?}");
    assert!(acknowledged.range(..=sound.kept).count() > 0);
}

#[test]
fn directory_without_a_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::repair(&dir.path().join("nothing"), true, &[], options(), &()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = Store::repair(dir.path(), true, &[], options(), &()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let error = Store::repair(dir.path(), true, &[], options(), &()).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("letter.txt"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn chunks_of_lost_transactions_are_freed() {
    let world = SimulatedStore::new();
    content(&world.store, "installed");
    world.store.install().unwrap();
    content(&world.store, pattern(2 * 65_536, 1));
    content(&world.store, "after the chunks");
    // The next opening sweeps the blob file of the first, when nothing is lost yet.
    let world = world.crash(1).unwrap();
    world.core().do_housekeeping().unwrap();
    content(&world.store, pattern(3000, 2));
    let (disk, engine) = (world.disk.crash(2), world.engine.image());
    drop(world);
    let first = segments(&disk).remove(0);
    let log = disk.bytes(&first);
    let at = log.windows(16).position(|bytes| bytes == &b"after the chunks"[..]).unwrap();
    // Destroys all frames up to the one with that text, among them the one with the chunks.
    disk.damage(&first, 64, |bytes| bytes[..at + 16 - 64].fill(0));
    assert_eq!(SimulatedStore::open(disk.clone(), engine.image()).err().unwrap().kind(), ErrorKind::Corrupt);
    let faults = Arc::default();
    let boxed = SimEngine { memory: engine.clone(), disk: disk.clone(), faults: Arc::clone(&faults) };
    let core = open::open_on(Arc::new(disk.clone()), Box::new(boxed), [7; 16], small_options(), OnDamage::Salvage);
    let world = SimulatedStore { disk, engine, faults, store: Store::start(core.unwrap()).unwrap() };
    assert_eq!(ids(&world.store).len(), 1);
    world.run_housekeeping();
    check_leaks(&world);
}

#[test]
fn planted_bugs_of_repair_are_noticed() {
    let lost = [RecoveryBug::SalvageSkipsGap, RecoveryBug::SalvagedPositionsReused];
    assert_noticed(&lost, a_repair_keeps_all_that_can_be_read_whatever_page_is_lost);
    assert_noticed(&[RecoveryBug::LostChunksKept], chunks_of_lost_transactions_are_freed);
    assert_noticed(&[RecoveryBug::IdentityNotChecked], the_identity_is_recovered_from_the_log);
    let given_up = [RecoveryBug::LossNotKept, RecoveryBug::HolesLeft, RecoveryBug::UsedExtentsForgotten];
    assert_noticed(&given_up, rows_on_damaged_pages_are_given_up_when_asked);
}
