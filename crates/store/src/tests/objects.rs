//! Each operation on every kind of store. `settle` moves changes to the B-tree, if there is one.

use super::world::{memory_store, on_every_store};
use super::*;
use crate::checksum::crc32c;
use crate::read::ContentRef;

const CHUNK: usize = 64 << 10;

fn bytes(store: &Store, oid: Oid) -> Bytes {
    store.read(oid, 0, 1 << 20).unwrap()
}

#[test]
fn blobs_of_every_size_come_back() {
    on_every_store(|store, settle| {
        for len in [0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5] {
            let oid = blob(store, pattern(len, 1));
            settle();
            assert_eq!(store.stat(oid).unwrap().unwrap().size, len as u64);
            assert_eq!(bytes(store, oid), pattern(len, 1), "{len} bytes");
            assert_eq!(store.get(oid, 1 << 20).unwrap().unwrap().1, Some(pattern(len, 1)));
            let mut shown = None;
            let keep = |content: ContentRef<'_>| (content.bytes.to_vec(), content.crc32c);
            assert!(store.get_with(oid, 1 << 20, |_, content| shown = content.map(keep)).unwrap());
            let (shown, checksum) = shown.unwrap();
            assert!(shown == pattern(len, 1), "{len} bytes shown");
            assert_eq!(checksum.is_some(), (1..=4096).contains(&len), "{len} bytes");
            assert_eq!(checksum.unwrap_or(crc32c(&shown)), crc32c(&shown), "{len} bytes");
            for (from, to) in [(0, 1), (len / 2, len), (len.saturating_sub(2), len), (CHUNK - 1, CHUNK + 1)] {
                let (from, to) = (from.min(len), to.min(len));
                let part = store.read(oid, from as u64, (to.max(from) - from) as u64).unwrap();
                assert_eq!(part, pattern(len, 1).slice(from..to.max(from)), "{from}..{to} of {len}");
            }
        }
    });
}

#[test]
fn small_writes_into_a_large_blob_read_as_if_it_were_memory() {
    on_every_store(|store, settle| {
        let mut plain = pattern(4 * CHUNK, 2).to_vec();
        let oid = blob(store, plain.clone());
        settle();
        for (i, at) in [0, 10, 5000, CHUNK - 3, 2 * CHUNK, 2 * CHUNK + 100, 4 * CHUNK - 1].into_iter().enumerate() {
            let data = pattern(700 + i, 9);
            plain.resize(plain.len().max(at + data.len()), 0);
            plain[at..at + data.len()].copy_from_slice(&data);
            commit(store, [Op::Write { oid, offset: at as u64, data }]);
            if i % 2 == 0 {
                settle();
            }
            assert_eq!(bytes(store, oid), plain, "after write {i}");
        }
        assert_eq!(store.stat(oid).unwrap().unwrap().size, plain.len() as u64);
    });
}

#[test]
fn a_gap_after_the_end_reads_as_zeros() {
    on_every_store(|store, settle| {
        let oid = blob(store, "abc");
        commit(store, [Op::Write { oid, offset: 200_000, data: "xyz".into() }]);
        settle();
        let found = bytes(store, oid);
        assert_eq!(found.len(), 200_003);
        assert!(found[3..200_000].iter().all(|b| *b == 0));
        assert_eq!(&found[200_000..], b"xyz");
    });
}

#[test]
fn truncated_bytes_do_not_reappear() {
    on_every_store(|store, settle| {
        for (from, to) in [(100, 50), (CHUNK, 10), (3 * CHUNK + 7, CHUNK + 1), (3 * CHUNK, CHUNK), (2 * CHUNK, 0)] {
            let oid = blob(store, pattern(from, 3));
            settle();
            commit(store, [Op::Truncate { oid, size: to as u64 }]);
            settle();
            commit(store, [Op::Truncate { oid, size: 4 * CHUNK as u64 }]);
            let found = bytes(store, oid);
            assert_eq!(found[..to], pattern(from, 3)[..to]);
            assert!(found[to..].iter().all(|b| *b == 0), "{from} to {to}");
        }
    });
}

#[test]
fn zeroed_ranges_are_zeros_and_the_size_stays() {
    on_every_store(|store, settle| {
        for (from, to) in [(0, 10), (100, CHUNK), (CHUNK - 1, 3 * CHUNK + 1), (0, 4 * CHUNK), (CHUNK, 2 * CHUNK)] {
            let mut plain = pattern(4 * CHUNK, 4).to_vec();
            let oid = blob(store, plain.clone());
            settle();
            commit(store, [Op::Zero { oid, offset: from as u64, len: (to - from) as u64 }]);
            plain[from..to].fill(0);
            assert_eq!(bytes(store, oid), plain);
            settle();
            assert_eq!(bytes(store, oid), plain);
        }
    });
}

#[test]
fn appends_follow_each_other() {
    on_every_store(|store, settle| {
        let oid = blob(store, "");
        let mut plain = Vec::new();
        for (i, len) in [10, CHUNK - 10, CHUNK, 2 * CHUNK + 5, 3, CHUNK].into_iter().enumerate() {
            let data = pattern(len, i as u8);
            plain.extend_from_slice(&data);
            commit(store, [Op::Append { oid, data }]);
            if i % 3 == 2 {
                settle();
            }
        }
        assert_eq!(bytes(store, oid), plain);
    });
}

#[test]
fn a_clone_and_its_source_change_independently() {
    on_every_store(|store, settle| {
        let (a, b) = (blob(store, pattern(3 * CHUNK + 9, 1)), blob(store, "old"));
        commit(store, [Op::Write { oid: a, offset: 5, data: "five".into() }]);
        settle();
        commit(store, [Op::Clone { from: a, to: b }]);
        let before = bytes(store, a);
        assert_eq!(bytes(store, b), before);
        commit(store, [Op::Write { oid: a, offset: CHUNK as u64, data: "changed".into() }]);
        settle();
        assert_eq!(bytes(store, b), before);
        commit(store, [Op::Delete { oid: a }]);
        settle();
        assert_eq!(bytes(store, b), before);
    });
}

#[test]
fn deleting_removes_everything_that_belongs_to_an_object() {
    on_every_store(|store, settle| {
        let made = commit(
            store,
            [
                create(0, Kind::Collection, ""),
                create(1, Kind::Blob, pattern(2 * CHUNK, 5)),
                Op::Add { collection: temporary(0), member: temporary(1) },
                Op::SetAttribute { oid: temporary(1), key: "k".into(), value: "v".into() },
                Op::Bind { name: name("a/b"), oid: temporary(1) },
            ],
        );
        let (collection, object) = (made.created[0], made.created[1]);
        settle();
        assert_eq!(store.members(collection, None, 10).unwrap(), [object]);
        assert_eq!(store.names_of(object).unwrap(), ["a/b"]);
        assert_eq!(store.collections_of(object, None, 10).unwrap(), [collection]);
        commit(store, [Op::Delete { oid: object }]);
        settle();
        assert_eq!(store.stat(object).unwrap(), None);
        assert_eq!(store.members(collection, None, 10).unwrap(), []);
        assert_eq!(store.stat(collection).unwrap().unwrap().size, 0);
        assert_eq!(store.resolve(&name("a/b")).unwrap(), None);
        assert_eq!(store.attribute(object, b"k").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(store.objects(MAIN, None, 10).unwrap().len(), 1);
    });
}

#[test]
fn attributes_are_listed_in_order_and_continue_after_a_key() {
    on_every_store(|store, settle| {
        let oid = blob(store, "");
        let ops: Vec<Op> = (0..50u8)
            .map(|i| Op::SetAttribute { oid, key: format!("key{i:02}").into(), value: vec![i; i as usize].into() })
            .collect();
        commit(store, ops);
        settle();
        commit(store, [Op::RemoveAttribute { oid, key: "key07".into() }]);
        let first = store.attributes(oid, None, 10).unwrap();
        assert_eq!(first.last().unwrap().0, "key10");
        let rest = store.attributes(oid, Some(&first.last().unwrap().0), 100).unwrap();
        assert_eq!(rest.len(), 39);
        assert_eq!(rest[0], (Bytes::from("key11"), vec![11; 11].into()));
        assert_eq!(store.attribute(oid, b"key07").unwrap(), None);
    });
}

#[test]
fn listings_show_every_object_once_in_order() {
    on_every_store(|store, settle| {
        let mut all = Vec::new();
        for round in 0..5 {
            let ops: Vec<Op> = (0..300).map(|i| create(i, Kind::Record, vec![round; 40])).collect();
            all.extend(commit(store, ops).created);
            if round % 2 == 0 {
                settle();
            }
        }
        all.sort();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let part = store.objects(MAIN, after, 97).unwrap();
            let Some(last) = part.last() else { break };
            after = Some(last.oid);
            found.extend(part.iter().map(|stat| stat.oid));
        }
        assert_eq!(found, all);
        assert!(store.objects(SpaceId(2), None, 10).unwrap().is_empty());
    });
}

#[test]
fn objects_created_together_share_a_page() {
    on_every_store(|store, _| {
        let made = commit(store, (0..10).map(|i| create(i, Kind::Record, vec![0; 100])).collect::<Vec<_>>());
        assert!(made.created.iter().all(|oid| oid.page() == made.created[0].page()));
        // Objects are created in another page by then.
        let others = commit(store, (0..3).map(|i| create(i, Kind::Record, vec![0; 5_000])).collect::<Vec<_>>());
        assert_ne!(others.created[2].page(), made.created[0].page());
        let ops =
            [Op::Create { oid: temporary(0), kind: Kind::Record, data: "near".into(), near: Some(made.created[3]) }];
        assert_eq!(commit(store, ops).created[0].page(), made.created[0].page());
    });
}

#[test]
fn a_transaction_that_fails_changes_nothing() {
    on_every_store(|store, _| {
        let oid = blob(store, "before");
        let missing = "1.0.0.ffff.0".parse().unwrap();
        let ops = [Op::Put { oid, data: "after".into() }, create(1, Kind::Blob, "new"), Op::Delete { oid: missing }];
        let (kind, message) = refusal(store, ops);
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(message.contains("operation 3") && message.contains("1.0.0.ffff.0"), "{message}");
        assert_eq!(bytes(store, oid), "before");
        assert_eq!(store.objects(MAIN, None, 10).unwrap().len(), 1);
    });
}

#[test]
fn a_conflict_names_what_was_read_and_what_is_current() {
    on_every_store(|store, _| {
        let oid = blob(store, "one");
        let read = store.stat(oid).unwrap().unwrap().version;
        let current = commit(store, [Op::Put { oid, data: "two".into() }]).version;
        let ops = [Op::Expect { oid, version: Some(read) }, Op::Put { oid, data: "three".into() }];
        let expected = Conflict::Object { oid, read: Some(read), current: Some(current) };
        assert_eq!(conflict(store, ops), expected);
        assert_eq!(bytes(store, oid), "two");
        let ops = [Op::ExpectName { name: name("n"), oid: Some(oid) }];
        let expected = Conflict::Name { name: name("n"), read: Some(oid), current: None };
        assert_eq!(conflict(store, ops), expected);
    });
}

#[test]
fn snapshots_keep_what_they_saw() {
    on_every_store(|store, settle| {
        let oid = blob(store, pattern(2 * CHUNK, 1));
        commit(store, [Op::Bind { name: name("n"), oid }]);
        settle();
        let snapshot = store.snapshot().unwrap();
        commit(store, [Op::Write { oid, offset: 10, data: "later".into() }, Op::Unbind { name: name("n") }]);
        settle();
        commit(store, [Op::Delete { oid }]);
        settle();
        blob(store, pattern(3 * CHUNK, 2));
        settle();
        assert_eq!(snapshot.read(oid, 0, 1 << 20).unwrap(), pattern(2 * CHUNK, 1));
        assert_eq!(snapshot.resolve(&name("n")).unwrap(), Some(oid));
        assert_eq!(snapshot.objects(MAIN, None, 10).unwrap().len(), 1);
        assert_eq!(store.stat(oid).unwrap(), None);
    });
}

#[test]
fn uploads_become_content_all_at_once() {
    on_every_store(|store, settle| {
        for len in [0, 100, CHUNK, CHUNK + 1, 300 * CHUNK + 77] {
            let id = store.begin_upload().unwrap();
            let whole = pattern(len, 6);
            for piece in whole.chunks(100_000) {
                store.upload(id, Bytes::copy_from_slice(piece)).unwrap();
            }
            let ops = [create(0, Kind::Blob, ""), Op::PutUpload { oid: temporary(0), upload: id }];
            let oid = commit(store, ops).created[0];
            settle();
            let found: Vec<u8> =
                (0..len.div_ceil(1 << 20)).flat_map(|i| store.read(oid, (i << 20) as u64, 1 << 20).unwrap()).collect();
            assert!(found == whole, "{len} bytes");
            assert_eq!(refusal(store, [Op::PutUpload { oid, upload: id }]).0, ErrorKind::NotFound);
        }
    });
}

#[test]
fn sizes_over_a_limit_are_refused_with_the_limit() {
    let store = memory_store();
    let oid = blob(&store, "");
    let long = "x".repeat(1025);
    for (op, part) in [
        (Op::Bind { name: name(&long), oid }, "1025 bytes; the limit is 1024"),
        (Op::Bind { name: name("a\0b"), oid }, "NUL"),
        (Op::SetAttribute { oid, key: "".into(), value: "".into() }, "empty"),
        (Op::SetAttribute { oid, key: vec![1; 256].into(), value: "".into() }, "limit is 255"),
        (Op::SetAttribute { oid, key: "k".into(), value: vec![1; (1 << 20) + 1].into() }, "limit is 1048576"),
        (Op::Write { oid, offset: 1 << 50, data: "x".into() }, "limit is 1125899906842624"),
        (Op::Truncate { oid, size: u64::MAX }, "limit is 1125899906842624"),
        (Op::Put { oid: temporary(5), data: "x".into() }, "temporary"),
        (Op::Add { collection: oid, member: oid }, "needs a collection"),
        (Op::Create { oid, kind: Kind::Blob, data: "".into(), near: None }, "not a temporary identifier"),
    ] {
        let (_, message) = refusal(&store, [op]);
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn spaces_are_created_once() {
    on_every_store(|store, _| {
        let space = store.create_space("photos").unwrap();
        assert_eq!(store.create_space("photos").unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(store.spaces().unwrap(), [(MAIN, "main".to_owned()), (space, "photos".to_owned())]);
        assert_eq!(store.create_space("no spaces").unwrap_err().kind(), ErrorKind::Invalid);
        let oid = Oid::temporary(SpaceId(9), ClassId::NONE, 0);
        let ops = [Op::Create { oid, kind: Kind::Blob, data: "".into(), near: None }];
        assert_eq!(refusal(store, ops).0, ErrorKind::NotFound);
    });
}

#[test]
fn a_range_reads_the_same_from_every_layer_and_into_any_memory() {
    on_every_store(|store, next| {
        // Two runs of chunks in files, a partial chunk, a gap, and an end within a chunk.
        let mut plain = vec![0; 9 * CHUNK + 77];
        let oid = blob(store, "");
        for (at, len, seed) in [
            (0, 3 * CHUNK, 1),
            (6 * CHUNK, 2 * CHUNK, 2),
            (3 * CHUNK, CHUNK, 3),
            (CHUNK + 5, 10, 4),
            (9 * CHUNK, 77, 5),
        ] {
            plain[at..at + len].copy_from_slice(&pattern(len, seed));
            commit(store, [Op::Write { oid, offset: at as u64, data: pattern(len, seed) }]);
            next();
        }
        for (from, to) in
            [(0, plain.len()), (0, CHUNK), (7, 4 * CHUNK), (2 * CHUNK, 8 * CHUNK), (8 * CHUNK, 9 * CHUNK + 70)]
        {
            assert_eq!(store.read(oid, from as u64, (to - from) as u64).unwrap(), plain[from..to]);
            let mut out = vec![9; to - from];
            assert_eq!(store.read_into(oid, from as u64, &mut out).unwrap(), to - from);
            assert_eq!(out, plain[from..to]);
        }
        assert_eq!(store.read_into(oid, 9 * CHUNK as u64, &mut [0; 100]).unwrap(), 77);
        assert_eq!(store.read_into(oid, 1 << 40, &mut [0; 100]).unwrap(), 0);
    });
}

#[test]
fn a_cached_listing_is_never_stale() {
    on_every_store(|store, settle| {
        let collection = commit(store, [create(0, Kind::Collection, "")]).created[0];
        let mut members = Vec::new();
        for _ in 0..5 {
            let oid = blob(store, "member");
            commit(store, [Op::Add { collection, member: oid }]);
            members.push(oid);
            assert_eq!(store.members(collection, None, 100).unwrap(), members);
            assert_eq!(store.members(collection, Some(members[0]), 2).unwrap(), members[1..members.len().min(3)]);
            settle();
        }
        let before = store.snapshot().unwrap();
        commit(store, [Op::Remove { collection, member: members[3] }]);
        commit(store, [Op::Delete { oid: members[1] }]);
        assert_eq!(store.members(collection, None, 100).unwrap(), [members[0], members[2], members[4]]);
        assert_eq!(before.members(collection, None, 100).unwrap(), members);
        assert_eq!(store.members(collection, None, 100).unwrap(), [members[0], members[2], members[4]]);
        commit(store, [Op::Delete { oid: collection }]);
        assert_eq!(store.members(collection, None, 100).unwrap_err().kind(), ErrorKind::NotFound);
    });
}
