//! A cluster within the process: opened, closed and opened again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::fs;
use std::time::Duration;

use client::{Client, CommitOutcome, Embedded, ErrorKind, IsolationLevel, Oid, PlacementHint};
use model::{Object, limits};
use tokio::time::{Instant, sleep, timeout};

async fn bind(cluster: &Client, name: &str, bytes: &str) -> Oid {
    let stored = cluster.transact(|t| async move {
        let oid =
            t.create_object(model::ClassId::NONE, Object::blob(bytes.to_owned().into()), PlacementHint::Anywhere)?;
        t.bind(name, oid).await?;
        Ok((oid, t))
    });
    let (oid, t) = stored.await.unwrap();
    t.real_oid(oid).unwrap()
}

async fn read(cluster: &Client, name: &str) -> Option<Vec<u8>> {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let oid = t.resolve(name).await.unwrap()?;
    Some(t.get(oid).await.unwrap().unwrap().data.to_vec())
}

#[tokio::test]
async fn directory_keeps_objects_names_and_contents_until_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let content: Vec<u8> = (0..6_000_000_u32).map(|number| (number / 7) as u8).collect();
    let first = Client::open(&path).await.unwrap();
    bind(&first, "small", "hello").await;
    let mut writer = first.content_writer(None);
    writer.write(content.clone().into()).await.unwrap();
    let staged = writer.finish().await.unwrap();
    first.transact(|t| async move { t.bind("large", t.create_blob_from(staged)?).await }).await.unwrap();
    first.shutdown().await.unwrap();

    let second = Client::open(&path).await.unwrap();
    assert_eq!(read(&second, "small").await.unwrap(), b"hello");
    let large = second.resolve("large").await.unwrap().unwrap();
    let (mut reader, mut bytes) = (second.content_reader(large, 0), Vec::new());
    while let Some(piece) = reader.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    assert!(bytes == content);
    assert!(!path.join("brick-2").exists(), "it is the directory of one brick");
    bind(&second, "small too", "again").await;
    assert_eq!(read(&second, "small too").await.unwrap(), b"again");
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn directory_is_open_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = Client::open(dir.path()).await.unwrap();
    let refused = Client::open(dir.path()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    bind(&first, "still", "here").await;
    first.shutdown().await.unwrap();
    // A client that is only dropped ends its servers as well, soon.
    let second = Client::open(dir.path()).await.unwrap();
    assert_eq!(read(&second, "still").await.unwrap(), b"here");
    drop(second);
    let until = Instant::now() + Duration::from_secs(20);
    let third = loop {
        match Client::open(dir.path()).await {
            Ok(third) => break third,
            Err(error) => assert!(error.kind() == ErrorKind::Unavailable && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    };
    third.shutdown().await.unwrap();
}

#[tokio::test]
async fn directory_with_other_files_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let refused = Client::open(dir.path()).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("letter.txt"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn clients_of_one_cluster_in_memory_share_objects_and_another_has_its_own() {
    let (one, other) = (Embedded::in_memory().await.unwrap(), Embedded::in_memory().await.unwrap());
    let writer = one.connect("main", Default::default()).await.unwrap();
    bind(&writer, "shared", "by two").await;
    let reader = one.connect("main", Default::default()).await.unwrap();
    assert_eq!(read(&reader, "shared").await.unwrap(), b"by two");
    let stranger = other.connect("main", Default::default()).await.unwrap();
    assert_eq!(read(&stranger, "shared").await, None);
    let missing = one.connect("photos", Default::default()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    one.shutdown().await.unwrap();
    let late = timeout(Duration::from_secs(5), reader.resolve("shared")).await;
    assert!(late.expect("clients end with their cluster").is_err());
    let refused = one.connect("main", Default::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
}

/// The transaction is refused before it is sent, and its reads are as usable as before.
#[tokio::test]
async fn transaction_that_has_read_too_much_is_refused_and_the_client_continues() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let mut all = Vec::new();
    while all.len() <= limits::READS {
        let t = client.begin(IsolationLevel::Optimistic);
        let created: Vec<Oid> = (0..limits::OBJECTS).map(|_| t.create_blob("x").unwrap()).collect();
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        all.extend(created.into_iter().map(|oid| t.real_oid(oid).unwrap()));
    }
    let t = client.begin(IsolationLevel::Optimistic);
    for oid in &all[..limits::READS] {
        t.get(*oid).await.unwrap();
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let t = client.begin(IsolationLevel::Optimistic);
    for oid in &all[..=limits::READS] {
        t.get(*oid).await.unwrap();
    }
    let refused = t.commit().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    assert!(t.get(all[0]).await.unwrap().is_some());
    t.abort();
    bind(&client, "after", "it").await;
    cluster.shutdown().await.unwrap();
}

/// Regression: each transaction counted its temporary identifiers from 1, so a stale one replaced or deleted an object of another transaction.
#[tokio::test]
async fn temporary_identifier_means_an_object_of_its_transaction_only() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let one = client.begin(IsolationLevel::Optimistic);
    let stale = one.create_blob("first").unwrap();
    assert!(matches!(one.commit().await.unwrap(), CommitOutcome::Committed(_)));
    for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
        let t = client.begin(level);
        let second = t.create_blob("second").unwrap();
        let refused = [
            t.get(stale).await.map(drop),
            t.get_for_update(stale).await.map(drop),
            t.put(stale, Object::blob("changed".into())).await,
            t.delete(stale).await,
            t.append(stale, "more").await,
            t.set_attribute(stale, "key", Some("value".into())).await,
            t.bind("stale", stale).await,
        ];
        for result in refused {
            let error = result.unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.message().contains("real_oid"), "{error}");
        }
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        let committed = client.get(t.real_oid(second).unwrap()).await.unwrap();
        assert_eq!(committed.unwrap().data, "second");
    }
    let error = client.get(stale).await.unwrap_err();
    assert!(error.message().contains("real_oid"), "{error}");
    cluster.shutdown().await.unwrap();
}

/// Regression: the server refused the message, and the client sent it again until its timeout, while all of its other calls waited.
#[tokio::test]
async fn change_of_a_blob_that_is_too_large_is_refused_before_it_is_sent() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let blob = bind(&client, "blob", "").await;
    // An append is encoded with its kind and its length.
    let most = limits::OBJECT - 5;
    assert_eq!(client.append(blob, vec![7; most]).await.unwrap(), 0);
    let t = client.begin(IsolationLevel::Optimistic);
    t.append(blob, vec![7; most + 1]).await.unwrap_err();
    t.append(blob, vec![7; 1 << 20]).await.unwrap();
    let error = t.append(blob, vec![7; most - (1 << 20)]).await.unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::TooLarge, Some(blob)), "{error}");
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(t.append_offsets(blob), [most as u64]);
    let error = client.append(blob, vec![7; most + 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn blob_that_is_replaced_or_deleted_has_nothing_of_earlier_changes_of_the_transaction() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let [replaced, deleted] = [bind(&client, "replaced", "old").await, bind(&client, "deleted", "old").await];
    let t = client.begin(IsolationLevel::Optimistic);
    for blob in [replaced, deleted] {
        t.append(blob, "appended").await.unwrap();
    }
    t.put(replaced, Object::blob("new".into())).await.unwrap();
    t.delete(deleted).await.unwrap();
    assert_eq!(t.get(replaced).await.unwrap(), Some(Object::blob("new".into())));
    assert_eq!(t.get(deleted).await.unwrap(), None);
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(client.get(replaced).await.unwrap(), Some(Object::blob("new".into())));
    assert_eq!(client.get(deleted).await.unwrap(), None);
    assert!(t.append_offsets(replaced).is_empty());
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn group_snapshot_refuses_each_kind_of_change_at_once() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let blob = bind(&client, "blob", "x").await;
    let t = client.begin(IsolationLevel::Snapshot);
    let refused = [
        t.create_blob("new").map(drop),
        t.put(blob, Object::blob("changed".into())).await,
        t.delete(blob).await,
        t.append(blob, "more").await,
        t.set_attribute(blob, "key", Some("value".into())).await,
        t.bind("other", blob).await,
        t.create_directory("directory").await.map(drop),
    ];
    for (at, result) in refused.into_iter().enumerate() {
        let error = result.expect_err(&format!("change {at}"));
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "change {at}: {error}");
    }
    t.abort();
    assert_eq!(client.get(blob).await.unwrap().unwrap().data, "x");
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn members_are_those_of_sets_and_names_those_of_directories() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let blob = bind(&client, "blob", "x").await;
    let t = client.begin(IsolationLevel::Optimistic);
    let directory = t.create_directory("below").await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let directory = t.real_oid(directory).unwrap_or(directory);
    let absent = Oid::new(directory.class(), directory.page(), directory.slot() + 1);
    let t = client.begin(IsolationLevel::Optimistic);
    for (wrong, expected) in
        [(blob, ErrorKind::Invalid), (directory, ErrorKind::Invalid), (absent, ErrorKind::NotFound)]
    {
        assert_eq!(t.add_member(wrong, blob).await.unwrap_err().kind(), expected, "{wrong}");
        assert_eq!(t.remove_member(wrong, blob).await.unwrap_err().kind(), expected, "{wrong}");
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    cluster.shutdown().await.unwrap();
}

/// Regression: a commit that was refused before it was sent left the transaction without its temporary identifiers.
#[tokio::test]
async fn transaction_whose_commit_was_not_sent_keeps_its_new_objects() {
    let cluster = Embedded::in_memory().await.unwrap();
    let client = cluster.connect("main", Default::default()).await.unwrap();
    let t = client.begin(IsolationLevel::Optimistic);
    let first = t.create_blob("first").unwrap();
    t.bind("kept", first).await.unwrap();
    let others: Vec<Oid> = (0..limits::OBJECTS).map(|_| t.create_blob("x").unwrap()).collect();
    let refused = t.commit().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    assert_eq!(t.get(first).await.unwrap().unwrap().data, "first");
    assert_eq!(t.real_oid(first), None, "it is not committed");
    t.put(first, Object::blob("changed".into())).await.unwrap();
    for other in &others {
        t.delete(*other).await.unwrap();
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let (kept, gone) = (t.real_oid(first).unwrap(), t.real_oid(others[0]));
    assert_eq!((read(&client, "kept").await.unwrap(), gone), (b"changed".to_vec(), None));
    assert_eq!(client.get(kept).await.unwrap().unwrap().data, "changed");
    cluster.shutdown().await.unwrap();
}
