//! Blobs of any size: uploaded, read in ranges, changed in part, with attributes; two bricks and a peer server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::{Client, CommitOutcome, ErrorKind, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, ContentOp, Object};
use proptest::test_runner::{Config as ProptestConfig, TestCaseError, TestRunner};
use world::{World, pattern, run};

/// All bytes of a blob, read piece by piece.
///
/// A commit is acknowledged before all of its bricks have applied it. A validated read waits for that, the pieces do not.
async fn read_all(cluster: &Client, oid: Oid) -> client::Result<Vec<u8>> {
    cluster.transact(|t| async move { t.get(oid).await }).await?;
    let (mut reader, mut bytes) = (cluster.content_reader(oid, 0), Vec::new());
    while let Some(piece) = reader.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Creates a blob of uploaded bytes and binds it to a name.
async fn create(cluster: &Client, name: &str, bytes: &[u8]) -> Oid {
    let staged = cluster.upload(None, bytes).await.unwrap();
    assert_eq!(staged.size(), bytes.len() as u64);
    let made = cluster.transact(|t| async move {
        let blob = t.create_blob_from(staged)?;
        t.bind(name, blob).await?;
        Ok((t, blob))
    });
    let (t, blob) = made.await.unwrap();
    t.real_oid(blob).unwrap()
}

/// Creates a blob whose bytes are in its page.
async fn create_small(cluster: &Client, node: usize, bytes: &'static str) -> Oid {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let hint = PlacementHint::At(cluster.nodes()[node]);
    let blob = t.create_object(ClassId::NONE, Object::blob(bytes.into()), hint).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    t.real_oid(blob).unwrap()
}

#[test]
fn large_blobs_are_read_as_they_were_uploaded() {
    run(async {
        let world = World::start(2).await;
        let (writer, reader) = (world.client().await, world.client().await);
        for size in [0, 1, 4_095, 65_536, 1 << 20, 5 * (1 << 20) + 17] {
            let bytes = pattern(size, size as u64);
            let oid = create(&writer, &format!("blob-{size}"), &bytes).await;
            assert!(read_all(&reader, oid).await.unwrap() == bytes, "{size} bytes");
            let head = reader.get(oid).await.unwrap().unwrap();
            assert_eq!((head.size(), head.data.len()), (size as u64, 0));
            let (from, len) = (size / 3, 5_000);
            let range = reader.transact(|t| async move { t.read_at(oid, from as u64, len).await }).await.unwrap();
            assert!(range == bytes[from..(from + len).min(size)], "a range of {size} bytes");
        }
        world.end().await;
    });
}

/// As in a `select!` whose other branch is chosen.
#[test]
fn dropped_reads_skip_no_bytes() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let bytes = pattern(6 * (1 << 20) + 5, 3);
        let oid = create(&cluster, "blob", &bytes).await;
        let mut reader = cluster.content_reader(oid, 0);
        let (mut read, mut dropped) = (reader.next().await.unwrap().unwrap().to_vec(), 0);
        loop {
            match tokio::time::timeout(Duration::ZERO, reader.next()).await {
                Ok(Ok(Some(piece))) => read.extend_from_slice(&piece),
                Ok(end) => break assert_eq!(end.unwrap(), None),
                Err(_) => {
                    dropped += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        assert!(dropped > 0 && read == bytes, "{} of {} bytes, {dropped} dropped", read.len(), bytes.len());
        world.end().await;
    });
}

#[test]
fn reader_goes_on_after_an_error_where_it_was() {
    run(async {
        let mut world = World::start(1).await;
        let writer = world.client().await;
        let bytes = pattern(9 * (1 << 20) + 5, 3);
        let oid = create(&writer, "blob", &bytes).await;
        let cluster = world.client_with_timeout(Duration::from_millis(500)).await;
        let mut reader = cluster.content_reader(oid, 0);
        let mut read = reader.next().await.unwrap().unwrap().to_vec();
        world.stop_brick().await;
        let failed = loop {
            match reader.next().await {
                Ok(piece) => read.extend_from_slice(&piece.expect("the blob has more bytes")),
                Err(error) => break error,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        world.start_brick().await;
        loop {
            match reader.next().await {
                Ok(Some(piece)) => read.extend_from_slice(&piece),
                Ok(None) => break,
                // The brick is not connected yet.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
        assert!(read == bytes, "{} bytes instead of {}", read.len(), bytes.len());
        world.end().await;
    });
}

#[test]
fn change_of_a_blob_follows_its_replacement_by_another_task_of_the_transaction() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let oid = create_small(&cluster, 0, "old").await;
        let t = cluster.begin(IsolationLevel::Locks);
        // Both wait for the lock.
        let (put, appended) = tokio::join!(biased; t.put(oid, Object::blob("new".into())), t.append(oid, "er"));
        put.unwrap();
        appended.unwrap();
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        assert_eq!(read_all(&cluster, oid).await.unwrap(), b"newer");
        world.end().await;
    });
}

#[test]
fn upload_with_a_dropped_write_is_not_finished() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let mut writer = cluster.content_writer(None);
        writer.write(pattern(10, 1).into()).await.unwrap();
        let was_dropped = tokio::select! {
            biased;
            _ = writer.write(pattern(3 << 20, 2).into()) => false,
            // The write is polled once.
            () = std::future::ready(()) => true,
        };
        assert!(was_dropped, "it waits for the brick");
        assert_eq!(writer.write(Bytes::from_static(b"x")).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(writer.finish().await.unwrap_err().kind(), ErrorKind::Invalid);
        world.wait_until_no_uploads().await;
        world.end().await;
    });
}

#[test]
fn upload_that_a_thread_without_a_runtime_drops_is_given_up() {
    run(async {
        let world = World::start(1).await;
        let url = world.url();
        let (dropped, was_dropped) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let client = client::blocking::Client::connect(&url).unwrap();
            let mut upload = client.content_writer(None);
            upload.write(pattern(2 << 20, 5).into()).unwrap();
            drop(upload);
            dropped.send(()).unwrap();
            // The client stays connected until the brick has given up the upload.
            assert!(ends.recv().is_err());
            client.close();
        });
        was_dropped.await.unwrap();
        world.wait_until_no_uploads().await;
        drop(end);
        thread.join().unwrap();
        world.end().await;
    });
}

#[test]
fn replaced_and_deleted_contents_leave_nothing_behind() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let oid = create(&cluster, "blob", &pattern(300_000, 1)).await;
        let second = pattern(200_000, 2);
        let staged = cluster.upload(Some(oid.page().node), &second[..]).await.unwrap();
        cluster.transact(|t| async move { t.put_content(oid, staged).await }).await.unwrap();
        assert!(read_all(&cluster, oid).await.unwrap() == second);
        assert_eq!(world.contents(), 1, "the first content is gone");
        cluster.transact(|t| async move { t.put(oid, Object::blob("small".into())).await }).await.unwrap();
        assert_eq!(read_all(&cluster, oid).await.unwrap(), b"small");
        assert_eq!(world.contents(), 0);
        let third = create(&cluster, "third", &second).await;
        cluster.transact(|t| async move { t.delete(third).await }).await.unwrap();
        assert_eq!(world.contents(), 0);
        assert_eq!(read_all(&cluster, third).await.unwrap_err().kind(), ErrorKind::NotFound);
        // An upload that is given up.
        let mut writer = cluster.content_writer(None);
        writer.write(second.clone().into()).await.unwrap();
        drop(writer);
        world.wait_until_no_uploads().await;
        world.end().await;
    });
}

#[test]
fn readers_of_a_changed_blob_never_see_two_states() {
    run(async {
        let world = World::start(1).await;
        let (cluster, other) = (world.client().await, world.client().await);
        let oid = create(&cluster, "blob", &pattern(8 << 20, 1)).await;
        let mut reader = cluster.content_reader(oid, 0);
        reader.next().await.unwrap();
        other.transact(|t| async move { t.write_at(oid, 100, "changed").await }).await.unwrap();
        let mut result = reader.next().await;
        while matches!(result, Ok(Some(_))) {
            result = reader.next().await;
        }
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Conflict);
        // A transaction that has read the bytes before conflicts.
        let t = cluster.begin(IsolationLevel::Optimistic);
        let before = t.read_at(oid, 100, 7).await.unwrap();
        other.transact(|t| async move { t.write_at(oid, 100, "again!!").await }).await.unwrap();
        t.put(create_small(&cluster, 0, "result").await, Object::blob(before)).await.unwrap();
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)));
        world.end().await;
    });
}

#[test]
fn concurrent_appends_are_all_there_once() {
    const CLIENTS: u8 = 4;
    const APPENDS: u8 = 25;
    run(async {
        let world = World::start(2).await;
        let first = world.client().await;
        let oid = create_small(&first, 0, "").await;
        let mut tasks = Vec::new();
        for client in 0..CLIENTS {
            let cluster = world.client().await;
            tasks.push(tokio::spawn(async move {
                for number in 0..APPENDS {
                    let record: Bytes = [&[client, number][..], &[7; 30]].concat().into();
                    let append = |t: client::Transaction| {
                        let record = record.clone();
                        async move { t.append(oid, record).await }
                    };
                    cluster.transact(append).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let bytes = read_all(&first, oid).await.unwrap();
        let mut records: Vec<[u8; 2]> = bytes.chunks(32).map(|record| [record[0], record[1]]).collect();
        for client in 0..CLIENTS {
            let own: Vec<u8> = records.iter().filter(|record| record[0] == client).map(|record| record[1]).collect();
            assert!(own.is_sorted(), "the appends of a client are in their order");
        }
        records.sort_unstable();
        let expected: Vec<[u8; 2]> = (0..CLIENTS).flat_map(|c| (0..APPENDS).map(move |n| [c, n])).collect();
        assert_eq!(records, expected);
        world.end().await;
    });
}

/// Some changes of one or two blobs, as one transaction.
type Changes = Vec<(bool, ContentOp)>;

fn changes() -> impl proptest::strategy::Strategy<Value = Vec<Changes>> {
    use proptest::prelude::*;
    let data = || proptest::collection::vec(1..=255_u8, 0..3_000).prop_map(Bytes::from);
    let op = prop_oneof![
        3 => (0..100_000_u64, data()).prop_map(|(offset, data)| ContentOp::Write { offset, data }),
        3 => data().prop_map(|data| ContentOp::Append { data }),
        1 => (0..150_000_u64).prop_map(|size| ContentOp::Truncate { size }),
        1 => (0..100_000_u64, 0..100_000_u64).prop_map(|(offset, len)| ContentOp::Zero { offset, len }),
    ];
    proptest::collection::vec(proptest::collection::vec((any::<bool>(), op), 1..4), 1..12)
}

async fn change(t: &client::Transaction, oid: Oid, op: &ContentOp) -> client::Result<()> {
    match op.clone() {
        ContentOp::Write { offset, data } => t.write_at(oid, offset, data).await,
        ContentOp::Append { data } => t.append(oid, data).await,
        ContentOp::Truncate { size } => t.truncate(oid, size).await,
        ContentOp::Zero { offset, len } => t.zero(oid, offset, len).await,
    }
}

#[test]
fn partial_changes_of_blobs_at_two_bricks_are_those_of_bytes_in_memory() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let world = runtime.block_on(World::start(2));
    let (cluster, other) = runtime.block_on(async { (world.client().await, world.client().await) });
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, ..ProptestConfig::default() });
    let result = runner.run(&changes(), |transactions| {
        let checked: Result<(), String> = runtime.block_on(async {
            let oids = [create_small(&cluster, 0, "zero").await, create_small(&cluster, 1, "one").await];
            let mut model = [b"zero".to_vec(), b"one".to_vec()];
            for changes in &transactions {
                let t = cluster.begin(IsolationLevel::Optimistic);
                for (which, op) in changes {
                    let which = usize::from(*which);
                    change(&t, oids[which], op).await.unwrap();
                    op.apply(&mut model[which]);
                    // A transaction sees its own changes.
                    let from = model[which].len() / 2;
                    let seen = t.read_at(oids[which], from as u64, 2_000).await.unwrap();
                    if seen != model[which][from..(from + 2_000).min(model[which].len())] {
                        return Err("the transaction does not see its own changes".to_owned());
                    }
                }
                match t.commit().await.unwrap() {
                    CommitOutcome::Committed(_) => {}
                    other => return Err(format!("{other:?}")),
                }
                for (oid, expected) in oids.iter().zip(&model) {
                    if read_all(&other, *oid).await.unwrap() != *expected {
                        return Err(format!("{oid} has other bytes than expected"));
                    }
                }
            }
            Ok(())
        });
        checked.map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    runtime.block_on(world.end());
}

#[test]
fn bytes_in_the_page_of_a_new_blob_are_changed_in_its_transaction() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let staged = cluster.upload(None, &pattern(100_000, 1)[..]).await.unwrap();
        let t = cluster.begin(IsolationLevel::Optimistic);
        let (small, uploaded) = (t.create_blob("hello").unwrap(), t.create_blob_from(staged).unwrap());
        t.write_at(small, 0, "J").await.unwrap();
        t.append(small, "!").await.unwrap();
        assert_eq!(t.read_at(small, 0, 10).await.unwrap(), "Jello!");
        assert_eq!(t.append(uploaded, "!").await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(t.truncate(small, (4 << 20) + 1).await.unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        assert_eq!(read_all(&cluster, t.real_oid(small).unwrap()).await.unwrap(), b"Jello!");
        assert_eq!(read_all(&cluster, t.real_oid(uploaded).unwrap()).await.unwrap(), pattern(100_000, 1));
        world.end().await;
    });
}

#[test]
fn attributes_stay_with_their_object() {
    run(async {
        let world = World::start(1).await;
        let (cluster, other) = (world.client().await, world.client().await);
        let bytes = pattern(100_000, 1);
        let oid = create(&cluster, "blob", &bytes).await;
        cluster
            .transact(|t| async move {
                t.set_attribute(oid, "type", Some("text/plain".into())).await?;
                t.set_attribute(oid, "owner", Some("ann".into())).await
            })
            .await
            .unwrap();
        let attributes = |object: Option<Object>| {
            let object = object.unwrap();
            object.attributes().iter().map(|(key, value)| format!("{key:?}={value:?}")).collect::<Vec<_>>()
        };
        let expected = [r#"b"owner"=b"ann""#, r#"b"type"=b"text/plain""#];
        assert_eq!(attributes(other.read_latest(oid).await.unwrap()), expected);
        other.transact(|t| async move { t.append(oid, "more").await }).await.unwrap();
        assert_eq!(attributes(cluster.read_latest(oid).await.unwrap()), expected);
        assert_eq!(read_all(&cluster, oid).await.unwrap(), [&bytes[..], b"more"].concat());
        cluster.transact(|t| async move { t.set_attribute(oid, "owner", None).await }).await.unwrap();
        assert_eq!(attributes(other.read_latest(oid).await.unwrap()), expected[1..]);
        assert_eq!(read_all(&other, oid).await.unwrap().len(), bytes.len() + 4);
        // Of one transaction, at the same time, and of an object that is not cached.
        let third = world.client().await;
        let t = third.begin(IsolationLevel::Optimistic);
        let (one, two) =
            tokio::join!(t.set_attribute(oid, "one", Some("1".into())), t.set_attribute(oid, "two", Some("2".into())));
        one.and(two).unwrap();
        assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
        let both = [r#"b"one"=b"1""#, r#"b"two"=b"2""#, expected[1]];
        assert_eq!(attributes(cluster.read_latest(oid).await.unwrap()), both);
        let missing = oid.page().number + 40_000;
        let nothing = Oid::new(ClassId::NONE, model::PageId { number: missing, ..oid.page() }, 0);
        let refused = cluster.transact(|t| async move { t.set_attribute(nothing, "a", None).await }).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        world.end().await;
    });
}

/// A blob of up to 4 MiB may have its bytes in its page.
#[test]
fn ranges_are_read_wherever_the_bytes_are() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let bytes = pattern(3 << 20, 9);
        let inline = Bytes::from(bytes.clone());
        let (t, blob) = cluster
            .transact(|t| {
                let inline = inline.clone();
                async move {
                    let blob = t.create_blob(inline)?;
                    Ok((t, blob))
                }
            })
            .await
            .unwrap();
        let beside = create(&cluster, "blob", &bytes).await;
        for oid in [t.real_oid(blob).unwrap(), beside] {
            for (from, to) in [(0, 3 << 20), (1_500_000, 2_800_000), (10, 11), (3 << 20, 4 << 20), (5, 5)] {
                let (mut reader, mut read) = (cluster.content_reader(oid, from).until(to), Vec::new());
                while let Some(piece) = reader.next().await.unwrap() {
                    read.extend_from_slice(&piece);
                }
                let to = (to as usize).min(bytes.len());
                assert!(read == bytes[from as usize..to], "{from}..{to} of {oid}");
            }
        }
        world.end().await;
    });
}

#[test]
fn one_read_in_a_transaction_has_at_most_four_mebibytes() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let bytes = pattern((4 << 20) + 1, 6);
        let oid = create(&cluster, "blob", &bytes).await;
        let t = cluster.begin(IsolationLevel::Optimistic);
        assert!(t.read_at(oid, 1, 4 << 20).await.unwrap() == bytes[1..]);
        assert_eq!(t.read_at(oid, 0, (4 << 20) + 1).await.unwrap_err().kind(), ErrorKind::TooLarge);
        world.end().await;
    });
}

#[test]
fn contents_survive_a_restart_of_the_brick() {
    run(async {
        let mut world = World::start(1).await;
        let cluster = world.client().await;
        let bytes = pattern(700_000, 3);
        let oid = create(&cluster, "blob", &bytes).await;
        let staged = cluster.upload(None, &b"staged before the restart"[..]).await.unwrap();
        let mut unfinished = cluster.content_writer(None);
        unfinished.write(pattern(2 << 20, 4).into()).await.unwrap();
        world.stop_brick().await;
        world.start_brick().await;
        assert!(read_all(&cluster, oid).await.unwrap() == bytes);
        let made = cluster.transact(|t| async move {
            let blob = t.create_blob_from(staged)?;
            Ok((t, blob))
        });
        let (t, blob) = made.await.unwrap();
        let made = t.real_oid(blob).unwrap();
        assert_eq!(read_all(&cluster, made).await.unwrap(), b"staged before the restart");
        assert_eq!(unfinished.finish().await.unwrap_err().kind(), ErrorKind::NotFound);
        world.end().await;
    });
}

#[test]
fn contents_of_others_and_unknown_ones_are_refused() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let oid = create(&cluster, "blob", &pattern(100_000, 1)).await;
        let head = cluster.get(oid).await.unwrap().unwrap();
        let thief = create_small(&cluster, 0, "mine").await;
        let stolen = head.content().unwrap();
        let t = cluster.begin(IsolationLevel::Optimistic);
        t.put(thief, Object::blob_with_content(stolen)).await.unwrap();
        assert_eq!(t.commit().await.unwrap_err().kind(), ErrorKind::NotFound);
        let record = create_small(&cluster, 0, "page").await;
        cluster.transact(|t| async move { t.delete(record).await }).await.unwrap();
        let t = cluster.begin(IsolationLevel::Optimistic);
        t.append(record, "x").await.unwrap();
        assert_eq!(t.commit().await.unwrap_err().kind(), ErrorKind::NotFound, "a part of nothing");
        assert!(read_all(&cluster, oid).await.unwrap() == pattern(100_000, 1));
        world.end().await;
    });
}

#[test]
fn content_that_another_object_has_is_refused_after_attempts_with_locks() {
    run(async {
        let world = World::start(1).await;
        let cluster = world.client().await;
        let blob = create(&cluster, "one", &pattern(10, 1)).await;
        let staged = cluster.upload(None, &pattern(10, 2)[..]).await.unwrap();
        let take = async |t: Transaction| t.bind("two", t.create_blob_from(staged)?).await;
        cluster.transact(take).await.unwrap();
        let attempts = AtomicU32::new(0);
        let replace = async |t: Transaction| {
            attempts.fetch_add(1, Ordering::Relaxed);
            t.put_content(blob, staged).await
        };
        assert_eq!(cluster.transact(replace).await.unwrap_err().kind(), ErrorKind::NotFound);
        // Three attempts without locks, and as many with them.
        assert_eq!(attempts.into_inner(), 6);
        world.end().await;
    });
}
