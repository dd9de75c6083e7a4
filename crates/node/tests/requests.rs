//! Every request, through a client and a real socket, on a store in memory and on one on disk.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use bytes::Bytes;
use client::{Client, Conflict, ErrorKind, Kind, Oid, Outcome};
use world::{World, expect_committed, pattern, run};

/// Runs a test on a store in memory over TCP and on one on disk over a Unix socket.
fn on_both(test: impl AsyncFn(&World, &Client)) {
    run(async {
        let world = World::in_memory().await;
        test(&world, &Client::connect(&world.tcp()).await.unwrap()).await;
        world.brick.shutdown().await.unwrap();
        let world = World::durable().await;
        test(&world, &world.client().await).await;
        world.brick.shutdown().await.unwrap();
    });
}

async fn create(client: &Client, content: impl Into<Bytes>) -> Oid {
    let mut tx = client.transaction();
    tx.create_blob(content);
    expect_committed(client.commit(tx).await.unwrap()).created[0]
}

#[test]
fn objects_round_trip() {
    on_both(async |_, client| {
        let oid = create(client, "Hello, world").await;
        let stat = client.stat(oid).await.unwrap().unwrap();
        assert_eq!((stat.oid, stat.kind, stat.size), (oid, Kind::Blob, 12));
        let (again, content) = client.get(oid, 100).await.unwrap().unwrap();
        assert_eq!((again, content.unwrap()), (stat.clone(), "Hello, world".into()));
        let (again, content) = client.get(oid, 11).await.unwrap().unwrap();
        assert_eq!((again, content), (stat, None));
        assert_eq!(client.read(oid, 7, 3).await.unwrap(), "wor");
        assert_eq!(client.read(oid, 7, 1000).await.unwrap(), "world");
        assert_eq!(client.read(oid, 70, 1000).await.unwrap(), "");
    });
}

#[test]
fn missing_objects_differ_from_empty_objects() {
    on_both(async |_, client| {
        let empty = create(client, "").await;
        assert_eq!(client.read(empty, 0, 10).await.unwrap(), "");
        assert_eq!(client.reader(empty, ..).next().await.unwrap(), None);
        let missing = create(client, "").await;
        let mut tx = client.transaction();
        tx.delete(missing);
        expect_committed(client.commit(tx).await.unwrap());
        assert_eq!(client.stat(missing).await.unwrap(), None);
        assert_eq!(client.get(missing, 10).await.unwrap(), None);
        assert_eq!(client.read(missing, 0, 10).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(client.reader(missing, ..).next().await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn transaction_of_many_operations_is_atomic() {
    on_both(async |_, client| {
        let mut tx = client.transaction();
        let blob = tx.create_blob("0123456789");
        let copy = tx.create_blob("");
        let all = tx.create_collection();
        tx.write(blob, 2, "xx").append(blob, "end").zero(blob, 4, 2).copy(blob, copy).truncate(copy, 5);
        tx.set_attribute(blob, "color", "red").set_attribute(blob, "gone", "x").remove_attribute(blob, "gone");
        tx.add(all, blob)
            .add(all, copy)
            .bind("docs/one", blob)
            .bind("docs/two", copy)
            .bind("other", all)
            .unbind("other");
        let done = expect_committed(client.commit(tx).await.unwrap());
        let (blob, copy, all) = (done.created[0], done.created[1], done.created[2]);
        assert_eq!(client.read(blob, 0, 100).await.unwrap(), "01xx\0\x006789end");
        assert_eq!(client.read(copy, 0, 100).await.unwrap(), "01xx\0");
        assert_eq!(client.attribute(blob, b"color").await.unwrap().unwrap(), "red");
        assert_eq!(client.attribute(blob, b"gone").await.unwrap(), None);
        assert_eq!(client.attributes(blob, None, 10).await.unwrap(), [("color".into(), "red".into())]);
        assert_eq!(client.members(all, None, 10).await.unwrap(), [blob, copy]);
        assert_eq!(client.members(all, Some(blob), 10).await.unwrap(), [copy]);
        assert!(client.contains(all, copy).await.unwrap());
        assert!(!client.contains(all, all).await.unwrap());
        assert_eq!(client.collections_of(copy, None, 10).await.unwrap(), [all]);
        assert_eq!(client.resolve("docs/one").await.unwrap(), Some(blob));
        assert_eq!(client.resolve("other").await.unwrap(), None);
        let names = client.names("docs/", None, 10).await.unwrap();
        assert_eq!(names, [("docs/one".to_owned(), blob), ("docs/two".to_owned(), copy)]);
        assert_eq!(client.names("docs/", Some("docs/one"), 10).await.unwrap(), names[1..]);
        assert_eq!(client.names_of(copy).await.unwrap(), ["docs/two"]);
        let objects = client.objects(None, 10).await.unwrap();
        assert_eq!(objects.iter().map(|stat| stat.oid).collect::<Vec<_>>(), [blob, copy, all]);
        assert_eq!(client.objects(Some(blob), 1).await.unwrap(), objects[1..2]);
    });
}

#[test]
fn failed_expectation_is_a_conflict_and_changes_nothing() {
    on_both(async |_, client| {
        let oid = create(client, "first").await;
        let version = client.stat(oid).await.unwrap().unwrap().version;
        let mut tx = client.transaction();
        tx.expect(oid, Some(version)).put(oid, "second").expect_name("free", None);
        expect_committed(client.commit(tx.clone()).await.unwrap());
        let Outcome::Conflict(Conflict::Object { oid: at, read, current }) = client.commit(tx).await.unwrap() else {
            panic!("the outcome is not a version conflict");
        };
        assert_eq!((at, read), (oid, Some(version)));
        assert!(current > read);
        let mut tx = client.transaction();
        tx.bind("free", oid).expect_name("taken", Some(oid));
        assert!(matches!(client.commit(tx).await.unwrap(), Outcome::Conflict(Conflict::Name { .. })));
        assert_eq!(client.resolve("free").await.unwrap(), None);
    });
}

#[test]
fn snapshot_shows_the_state_when_it_was_taken() {
    on_both(async |_, client| {
        let oid = create(client, "old").await;
        let snapshot = client.snapshot().await.unwrap();
        let mut tx = client.transaction();
        tx.put(oid, "new").bind("name", oid);
        expect_committed(client.commit(tx).await.unwrap());
        assert_eq!(snapshot.read(oid, 0, 10).await.unwrap(), "old");
        assert_eq!(snapshot.get(oid, 10).await.unwrap().unwrap().1.unwrap(), "old");
        assert_eq!(snapshot.resolve("name").await.unwrap(), None);
        assert_eq!(snapshot.names("", None, 10).await.unwrap(), []);
        assert_eq!(client.read(oid, 0, 10).await.unwrap(), "new");
    });
}

#[test]
fn content_of_any_size_is_uploaded_and_read_in_pieces() {
    on_both(async |_, client| {
        for size in [0, 1, 65_535, 65_536, 1 << 20, (1 << 20) + 1, (7 << 20) + 12_345] {
            let content = pattern(size, size as u64);
            let upload = client.upload(content.as_slice()).await.unwrap();
            let mut tx = client.transaction();
            tx.create_blob_from(upload);
            let oid = expect_committed(client.commit(tx).await.unwrap()).created[0];
            assert_eq!(client.stat(oid).await.unwrap().unwrap().size, size as u64);
            assert!(client.read(oid, 0, u64::MAX).await.unwrap() == content, "{size} bytes");
            let (start, end) = (size / 3, size - size / 5);
            let mut reader = client.reader(oid, start as u64..end as u64);
            let mut part = Vec::new();
            while let Some(piece) = reader.next().await.unwrap() {
                part.extend_from_slice(&piece);
            }
            assert!(part == content[start..end], "{size} bytes");
        }
    });
}

#[test]
fn large_data_in_a_transaction_round_trips() {
    on_both(async |_, client| {
        let content = pattern(3 << 20, 1);
        let oid = create(client, content.clone()).await;
        let mut tx = client.transaction();
        tx.write(oid, 100_000, pattern(200_000, 2)).append(oid, pattern(70_000, 3));
        expect_committed(client.commit(tx).await.unwrap());
        let mut expected = content;
        expected[100_000..300_000].copy_from_slice(&pattern(200_000, 2));
        expected.extend_from_slice(&pattern(70_000, 3));
        assert!(client.read(oid, 0, u64::MAX).await.unwrap() == expected);
    });
}

#[test]
fn upload_belongs_to_its_connection_and_to_one_transaction() {
    on_both(async |world, client| {
        let stranger = world.client().await;
        let upload = client.upload(&b"content"[..]).await.unwrap();
        let mut theft = stranger.transaction();
        theft.create_blob_from(upload);
        assert_eq!(stranger.commit(theft).await.unwrap_err().kind(), ErrorKind::NotFound);
        let mut tx = client.transaction();
        tx.create_blob_from(upload);
        expect_committed(client.commit(tx.clone()).await.unwrap());
        assert_eq!(client.commit(tx).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn unfinished_uploads_end_with_their_writer_or_connection() {
    on_both(async |world, client| {
        let mut writer = client.writer();
        writer.write(Bytes::from(pattern(100_000, 1))).await.unwrap();
        assert_eq!(client.status().await.unwrap().metric("store_uploads"), Some(1));
        drop(writer);
        while client.status().await.unwrap().metric("store_uploads") != Some(0) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let other = world.client().await;
        let _kept = other.upload(&b"content"[..]).await.unwrap();
        assert_eq!(client.status().await.unwrap().metric("store_uploads"), Some(1));
        drop(other);
        while client.status().await.unwrap().metric("store_uploads") != Some(0) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn long_listings_are_complete() {
    on_both(async |_, client| {
        let mut tx = client.transaction();
        let all = tx.create_collection();
        for number in 0..11_000 {
            let oid = tx.create_blob("");
            tx.add(all, oid);
            if number % 10 == 0 {
                tx.bind(format!("n/{number:05}"), oid);
            }
        }
        for number in 0..40 {
            tx.set_attribute(all, format!("{number:02}"), pattern(200_000, number));
        }
        let done = expect_committed(client.commit(tx).await.unwrap());
        let members = client.members(done.created[0], None, usize::MAX).await.unwrap();
        assert_eq!(members.len(), 11_000);
        assert!(members.is_sorted());
        assert_eq!(client.members(done.created[0], Some(members[9]), 200).await.unwrap(), members[10..210]);
        assert_eq!(client.objects(None, usize::MAX).await.unwrap().len(), 11_001);
        assert_eq!(client.names("n/", None, usize::MAX).await.unwrap().len(), 1_100);
        let attributes = client.attributes(done.created[0], None, usize::MAX).await.unwrap();
        assert_eq!(attributes.len(), 40);
        assert!(attributes[39].1 == pattern(200_000, 39));
    });
}

#[test]
fn spaces_are_separate() {
    on_both(async |world, client| {
        let photos = client.create_space("photos").await.unwrap();
        assert_eq!(client.create_space("photos").await.unwrap_err().kind(), ErrorKind::Exists);
        let spaces = client.spaces().await.unwrap();
        let known: Vec<_> = spaces.iter().map(|space| (space.id, space.name.as_str())).collect();
        assert_eq!(known, [(client.space(), "main"), (photos, "photos")]);
        let url = world.unix().replace("/main", "/photos");
        let other = Client::connect(&url).await.unwrap();
        assert_eq!(other.space(), photos);
        let mut tx = other.transaction();
        let oid = tx.create_blob("content");
        tx.bind("name", oid);
        expect_committed(other.commit(tx).await.unwrap());
        assert!(other.resolve("name").await.unwrap().is_some());
        assert_eq!(client.resolve("name").await.unwrap(), None);
        let missing = Client::connect(&url.replace("photos", "none")).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.message().contains("photos"), "{missing}");
    });
}

#[test]
fn backup_contains_everything() {
    on_both(async |_, client| {
        let mut tx = client.transaction();
        for number in 0..20 {
            let oid = tx.create_blob(pattern(400_000, number));
            tx.bind(format!("{number}"), oid);
        }
        let done = expect_committed(client.commit(tx).await.unwrap());
        let (mut archive, mut last) = (Vec::new(), 0);
        let summary = client.backup_with(&mut archive, |progress| last = progress.done).await.unwrap();
        assert_eq!((summary.objects, summary.bytes, last), (20, archive.len() as u64, archive.len() as u64));
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("restored");
        store::Store::restore(&target, &mut archive.as_slice(), store::Options::default(), &()).unwrap();
        let restored = store::Store::open(&target, store::Options::default()).unwrap();
        for (number, oid) in done.created.iter().enumerate() {
            assert!(restored.read(*oid, 0, 1 << 20).unwrap() == pattern(400_000, number as u64));
        }
    });
}

#[test]
fn scrub_of_an_intact_store_counts_everything() {
    on_both(async |_, client| {
        for _ in 0..20 {
            create(client, pattern(200_000, 1)).await;
        }
        let report = client.scrub(|_| ()).await.unwrap();
        assert_eq!((report.objects, report.bytes, report.damaged), (20, 20 * 200_000, Vec::new()));
    });
}

#[test]
fn dropped_backup_ends() {
    on_both(async |_, client| {
        let mut tx = client.transaction();
        for number in 0..24 {
            tx.create_blob(pattern(1 << 20, number));
        }
        expect_committed(client.commit(tx).await.unwrap());
        // More backups than may run at a time; each is dropped when its first piece has arrived.
        for _ in 0..12 {
            let (began, begun) = tokio::sync::oneshot::channel::<()>();
            let mut began = Some(began);
            // The dropped sender signals that a piece has arrived. A backup may also be refused while others still end.
            tokio::select! {
                _ = client.backup_with(tokio::io::sink(), |_| drop(began.take())) => {}
                _ = begun => {}
            }
        }
        while client.backup(tokio::io::sink()).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn transactions_over_the_limits_are_refused() {
    on_both(async |_, client| {
        let mut tx = client.transaction();
        tx.create_blob(Bytes::from(vec![0; (33 << 20) + 1]));
        assert_eq!(client.commit(tx).await.unwrap_err().kind(), ErrorKind::TooLarge);
        let mut tx = client.transaction();
        tx.create_blob(Bytes::from(vec![0; 50 << 20]));
        assert_eq!(client.commit(tx).await.unwrap_err().kind(), ErrorKind::TooLarge);
        let mut tx = client.transaction();
        let oid = tx.create_blob("");
        tx.bind("", oid);
        assert_eq!(client.commit(tx).await.unwrap_err().kind(), ErrorKind::Invalid);
        client.ping().await.unwrap();
    });
}

#[test]
fn blocking_client_reads_and_writes() {
    use std::io::Read;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::in_memory());
    let client = client::blocking::Client::connect(&world.unix()).unwrap();
    let content = pattern(3_000_000, 5);
    let upload = client.upload(content.as_slice()).unwrap();
    let mut tx = client.transaction();
    let oid = tx.create_blob_from(upload);
    tx.bind("name", oid);
    let oid = expect_committed(client.commit(tx).unwrap()).created[0];
    assert_eq!(client.resolve("name").unwrap(), Some(oid));
    let mut read = Vec::new();
    client.reader(oid, ..).read_to_end(&mut read).unwrap();
    assert!(read == content);
    let snapshot = client.snapshot().unwrap();
    assert_eq!(snapshot.stat(oid).unwrap().unwrap().size, 3_000_000);
    runtime.block_on(world.brick.shutdown()).unwrap();
}
