//! Each change of contents on every kind of store. `settle` moves changes to the B-tree, if there is one.

use std::collections::BTreeSet;

use super::world::{memory_store, on_every_store};
use super::*;

const CHUNK: usize = 64 << 10;

#[test]
fn contents_of_every_size_come_back() {
    on_every_store(|store, settle| {
        for len in [0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5] {
            let id = content(store, pattern(len, 1));
            settle();
            assert_eq!(store.content_size(id).unwrap(), Some(len as u64));
            assert_eq!(bytes(store, id), pattern(len, 1), "{len} bytes");
            for (from, to) in [(0, 1), (len / 2, len), (len.saturating_sub(2), len), (CHUNK - 1, CHUNK + 1)] {
                let (from, to) = (from.min(len), to.min(len));
                let part = store.read_content(id, from as u64, (to.max(from) - from) as u64).unwrap();
                assert_eq!(part, pattern(len, 1).slice(from..to.max(from)), "{from}..{to} of {len}");
            }
        }
    });
}

#[test]
fn small_writes_into_a_large_content_read_as_if_it_were_memory() {
    on_every_store(|store, settle| {
        let mut plain = pattern(4 * CHUNK, 2).to_vec();
        let id = content(store, plain.clone());
        settle();
        for (i, at) in [0, 10, 5000, CHUNK - 3, 2 * CHUNK, 2 * CHUNK + 100, 4 * CHUNK - 1].into_iter().enumerate() {
            let data = pattern(700 + i, 9);
            plain.resize(plain.len().max(at + data.len()), 0);
            plain[at..at + data.len()].copy_from_slice(&data);
            commit(store, [write(id, at, data)]);
            if i % 2 == 0 {
                settle();
            }
            assert_eq!(bytes(store, id), plain, "after write {i}");
        }
        assert_eq!(store.content_size(id).unwrap(), Some(plain.len() as u64));
    });
}

#[test]
fn a_gap_after_the_end_reads_as_zeros() {
    on_every_store(|store, settle| {
        let id = content(store, "abc");
        commit(store, [write(id, 200_000, "xyz")]);
        settle();
        let found = bytes(store, id);
        assert_eq!(found.len(), 200_003);
        assert!(found[3..200_000].iter().all(|b| *b == 0));
        assert_eq!(&found[200_000..], b"xyz");
    });
}

#[test]
fn truncated_bytes_do_not_reappear() {
    on_every_store(|store, settle| {
        for (from, to) in [(100, 50), (CHUNK, 10), (3 * CHUNK + 7, CHUNK + 1), (3 * CHUNK, CHUNK), (2 * CHUNK, 0)] {
            let id = content(store, pattern(from, 3));
            settle();
            commit(store, [truncate(id, to)]);
            settle();
            commit(store, [truncate(id, 4 * CHUNK)]);
            let found = bytes(store, id);
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
            let id = content(store, plain.clone());
            settle();
            commit(store, [zero(id, from, to - from)]);
            plain[from..to].fill(0);
            assert_eq!(bytes(store, id), plain);
            settle();
            assert_eq!(bytes(store, id), plain);
        }
    });
}

#[test]
fn writes_at_the_end_follow_each_other() {
    on_every_store(|store, settle| {
        let id = content(store, "");
        let mut plain = Vec::new();
        for (i, len) in [10, CHUNK - 10, CHUNK, 2 * CHUNK + 5, 3, CHUNK].into_iter().enumerate() {
            let data = pattern(len, i as u8);
            commit(store, [write(id, plain.len(), data.clone())]);
            plain.extend_from_slice(&data);
            if i % 3 == 2 {
                settle();
            }
        }
        assert_eq!(bytes(store, id), plain);
    });
}

/// A content of the largest size with a few bytes takes no more work and room than those bytes.
#[test]
fn a_content_of_gaps_is_as_quick_as_its_bytes() {
    on_every_store(|store, settle| {
        let (id, size) = (content(store, "a"), limits::BLOB);
        let end = ContentChange::Write { id, offset: size - 3, data: "end".into() };
        commit(store, [ContentChange::Truncate { id, size }, end]);
        settle();
        assert_eq!(store.content_size(id).unwrap(), Some(size));
        assert_eq!(store.read_content(id, 0, 3).unwrap()[..], *b"a\0\0");
        assert_eq!(store.read_content(id, size - 4, 10).unwrap()[..], *b"\0end");
        commit(store, [ContentChange::Zero { id, offset: 0, len: u64::MAX }]);
        settle();
        assert_eq!(store.read_content(id, size - 4, 10).unwrap()[..], [0; 4]);
        commit(store, [truncate(id, 5), delete(id)]);
        assert_eq!(store.content_size(id).unwrap(), None);
    });
}

#[test]
fn a_deleted_content_is_gone_and_the_others_stay() {
    on_every_store(|store, settle| {
        let (gone, kept) = (content(store, pattern(2 * CHUNK + 5, 5)), content(store, "kept"));
        settle();
        commit(store, [delete(gone)]);
        settle();
        assert_eq!(store.content_size(gone).unwrap(), None);
        let error = store.read_content(gone, 0, 10).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, &*format!("there is no content {gone}")));
        assert_eq!(store.content_pieces(gone, 0, 10).err().unwrap().kind(), ErrorKind::NotFound);
        assert_eq!((ids(store), bytes(store, kept)), (vec![kept], b"kept".to_vec()));
        // Deleting nothing succeeds.
        commit(store, [delete(gone)]);
    });
}

#[test]
fn a_content_is_resized_whether_it_exists_or_not() {
    on_every_store(|store, settle| {
        let id = new_id();
        for (size, expected) in [(5, &b"\0\0\0\0\0"[..]), (3, b"\0\0\0"), (0, b""), (2, b"\0\0")] {
            commit(store, [ContentChange::Resize { id, size }]);
            settle();
            assert_eq!(bytes(store, id), expected);
        }
        commit(store, [write(id, 0, "ab"), ContentChange::Resize { id, size: 3 }]);
        assert_eq!(bytes(store, id), b"ab\0");
    });
}

#[test]
fn listings_show_every_content_once_in_order() {
    on_every_store(|store, settle| {
        let mut all = BTreeSet::new();
        for round in 0..5 {
            let new: Vec<_> = (0..300).map(|_| new_id()).collect();
            commit(store, new.iter().rev().map(|id| create(*id, vec![round; 40])));
            all.extend(new);
            if round % 2 == 0 {
                settle();
            }
        }
        let extremes = [ContentId(0), ContentId(u128::MAX)];
        commit(store, extremes.map(|id| create(id, "")));
        let (mut found, mut from) = (Vec::new(), ContentId(1));
        loop {
            let part = store.contents(from, ContentId(u128::MAX), 97).unwrap();
            let Some(last) = part.last() else { break };
            from = ContentId(last.0 + 1);
            found.extend(part);
        }
        assert!(found.iter().eq(&all));
        assert_eq!(store.contents(ContentId(0), ContentId(1), 10).unwrap(), [ContentId(0)]);
        let (first, second) = (found[0], found[1]);
        assert_eq!(store.contents(first, second, 10).unwrap(), [first], "the end is excluded");
        assert_eq!(store.contents(first, first, 10).unwrap(), []);
        assert_eq!(store.contents(second, first, 10).unwrap(), []);
        assert_eq!(store.contents(first, second, 0).unwrap(), []);
        assert_eq!(bytes(store, extremes[1]), b"");
    });
}

#[test]
fn contents_and_rows_change_together_or_not_at_all() {
    on_every_store(|store, settle| {
        let id = content(store, "before");
        settle();
        let with_row = |value: &'static str, changes: Vec<ContentChange>| {
            let mut all = of_contents(changes);
            all.put(b"row", value.into());
            all
        };
        let missing = new_id();
        let error = store.commit_rows(with_row("1", vec![write(id, 0, "after"), write(missing, 0, "x")])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains(&missing.to_string()), "{error}");
        assert_eq!((bytes(store, id), store.row(b"row").unwrap()), (b"before".to_vec(), None));
        store.commit_rows(with_row("2", vec![write(id, 0, "after ")])).unwrap();
        settle();
        assert_eq!((bytes(store, id), store.row(b"row").unwrap()), (b"after ".to_vec(), Some("2".into())));
    });
}

#[test]
fn changes_that_cannot_be_made_are_refused_by_kind_and_change_nothing() {
    let store = memory_store();
    let id = content(&store, pattern(3 * CHUNK, 1));
    let large = |size: u64| ContentChange::Truncate { id, size };
    for (change, kind, part) in [
        (create(id, "again"), ErrorKind::Exists, "used once"),
        (take(id, upload(&store, b"again")), ErrorKind::Exists, "used once"),
        (take(id, upload(&store, &pattern(2 * CHUNK, 1))), ErrorKind::Exists, "used once"),
        (write(new_id(), 0, "x"), ErrorKind::NotFound, "there is no content"),
        (truncate(new_id(), 0), ErrorKind::NotFound, "there is no content"),
        (zero(new_id(), 0, 1), ErrorKind::NotFound, "there is no content"),
        (take(new_id(), UploadId(4)), ErrorKind::NotFound, "there is no upload"),
        (write(id, 1 << 50, "x"), ErrorKind::TooLarge, "limit is 1125899906842624"),
        (large(limits::BLOB + 1), ErrorKind::TooLarge, "limit is 1125899906842624"),
        (large(u64::MAX), ErrorKind::TooLarge, "limit is 1125899906842624"),
        (ContentChange::Resize { id, size: u64::MAX }, ErrorKind::TooLarge, "limit is 1125899906842624"),
    ] {
        let (found, message) = refusal(&store, [truncate(id, 0), change]);
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    let many = (0..=limits::OPERATIONS).map(|_| delete(id));
    assert_eq!(refusal(&store, many).0, ErrorKind::TooLarge);
    let half = Bytes::from(vec![0; limits::CHANGE / 2 + 1]);
    assert_eq!(refusal(&store, [write(id, 0, half.clone()), write(id, 0, half)]).0, ErrorKind::TooLarge);
    assert_eq!(bytes(&store, id), pattern(3 * CHUNK, 1));
    assert_eq!(ids(&store), [id]);
}

#[test]
fn large_reads_are_refused() {
    let store = memory_store();
    let id = content(&store, "");
    commit(&store, [truncate(id, limits::CONTENT_READ + 1)]);
    let error = store.read_content(id, 0, u64::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(store.read_content(id, 1, u64::MAX).unwrap().len(), limits::CONTENT_READ);
}

#[test]
fn snapshots_keep_what_they_saw() {
    on_every_store(|store, settle| {
        let id = content(store, pattern(2 * CHUNK, 1));
        settle();
        let snapshot = store.snapshot().unwrap();
        commit(store, [write(id, 10, "later")]);
        settle();
        commit(store, [delete(id)]);
        settle();
        content(store, pattern(3 * CHUNK, 2));
        settle();
        assert_eq!(snapshot.read_content(id, 0, 1 << 20).unwrap(), pattern(2 * CHUNK, 1));
        assert_eq!(snapshot.content_size(id).unwrap(), Some(2 * CHUNK as u64));
        assert_eq!(snapshot.contents(ContentId(0), ContentId(u128::MAX), 10).unwrap(), [id]);
        assert_eq!(store.content_size(id).unwrap(), None);
    });
}

#[test]
fn uploads_become_contents_all_at_once() {
    on_every_store(|store, settle| {
        for len in [0, 100, CHUNK, CHUNK + 1, 300 * CHUNK + 77] {
            let whole = pattern(len, 6);
            let (id, upload) = (new_id(), upload(store, &whole));
            assert_eq!(store.upload_size(upload).unwrap(), len as u64);
            assert_eq!(store.seal_upload(upload).unwrap(), len as u64);
            assert_eq!(store.upload(upload, "late".into()).unwrap_err().kind(), ErrorKind::NotFound);
            commit(store, [take(id, upload)]);
            settle();
            assert!(bytes(store, id) == whole, "{len} bytes");
            assert_eq!(refusal(store, [take(new_id(), upload)]).0, ErrorKind::NotFound);
        }
    });
}

#[test]
fn a_range_reads_the_same_from_every_layer() {
    on_every_store(|store, settle| {
        // Two runs of chunks in files, a partial chunk, a gap, and an end within a chunk.
        let mut plain = vec![0; 9 * CHUNK + 77];
        let id = content(store, "");
        for (at, len, seed) in [
            (0, 3 * CHUNK, 1),
            (6 * CHUNK, 2 * CHUNK, 2),
            (3 * CHUNK, CHUNK, 3),
            (CHUNK + 5, 10, 4),
            (9 * CHUNK, 77, 5),
        ] {
            plain[at..at + len].copy_from_slice(&pattern(len, seed));
            commit(store, [write(id, at, pattern(len, seed))]);
            settle();
        }
        for (from, to) in
            [(0, plain.len()), (0, CHUNK), (7, 4 * CHUNK), (2 * CHUNK, 8 * CHUNK), (8 * CHUNK, 9 * CHUNK + 70)]
        {
            assert_eq!(store.read_content(id, from as u64, (to - from) as u64).unwrap(), plain[from..to]);
        }
        assert_eq!(store.read_content(id, 9 * CHUNK as u64, 100).unwrap().len(), 77);
        assert_eq!(store.read_content(id, 1 << 40, 100).unwrap().len(), 0);
    });
}
