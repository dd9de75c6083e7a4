//! What every server does alike, as the library's clients see it.

use std::time::Duration;

use bytes::Bytes;
use client::{
    Client, CommitOutcome, ErrorKind, Event, IsolationLevel, Kind, Object, Oid, Persistent, PlacementHint, Ref,
    Transaction,
};
use query::{Query, Row};
use tokio::time::{sleep, timeout};

/// Bytes of a large content: many chunks and a part of one.
const LARGE: usize = (5 << 20) + 777;
/// Bytes of the largest object.
const OBJECT_BYTES: usize = 4 << 20;
/// How long a snapshot may need to see a commit, and an event to come.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Account {
    #[persistent(unique)]
    owner: String,
    #[persistent(index)]
    balance: i64,
    guardian: Option<Ref<Account>>,
}

/// Runs all parts with two clients of one space.
pub(crate) async fn run_all(one: &Client, other: &Client) {
    transactions(one, other).await;
    conflicts(one, other).await;
    locks(one, other).await;
    snapshots(one, other).await;
    writes_outside_of_transactions(one, other).await;
    watches(one, other).await;
    names(one, other).await;
    collections(one, other).await;
    contents(one, other).await;
    attributes(one).await;
    structs_and_queries(one, other).await;
    listing(one).await;
    errors(one).await;
    large_objects_of_one_page(one, other).await;
    events(one).await;
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: client::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Waits until `is_so` says yes.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// Creates objects in a transaction; returns their real identifiers.
async fn create(client: &Client, create: impl Fn(&Transaction) -> client::Result<Vec<Oid>>) -> Vec<Oid> {
    let (t, made) = client
        .transact(|t| {
            let made = create(&t);
            async move { Ok((t, made?)) }
        })
        .await
        .unwrap();
    made.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect()
}

async fn blob(client: &Client, bytes: &'static str) -> Oid {
    create(client, |t| Ok(vec![t.create_blob(bytes)?])).await[0]
}

async fn bytes_of(client: &Client, oid: Oid) -> Option<Bytes> {
    let object = client.transact(|t| async move { t.get(oid).await }).await.unwrap();
    object.map(|object| object.data)
}

async fn transactions(one: &Client, other: &Client) {
    let t = one.begin(IsolationLevel::Optimistic);
    let (first, second) = (t.create_blob("first").unwrap(), t.create_blob("second").unwrap());
    assert!(first.is_temporary(), "its identifier comes with the commit");
    t.put(first, Object::blob("changed".into())).await.unwrap();
    assert_eq!(t.get(first).await.unwrap().unwrap().data, "changed", "a transaction sees its own changes");
    t.delete(second).await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let (first, second) = (t.real_oid(first).unwrap(), t.real_oid(second));
    assert_eq!(bytes_of(other, first).await.unwrap(), "changed");
    if let Some(second) = second {
        assert_eq!(bytes_of(other, second).await, None);
    }

    let t = one.begin(IsolationLevel::Optimistic);
    t.put(first, Object::blob("never".into())).await.unwrap();
    t.abort();
    assert_eq!(bytes_of(one, first).await.unwrap(), "changed");

    // Objects at all logical nodes, in one transaction.
    let spread = create(one, |t| {
        let at = |node: &_| t.create_object(model::ClassId::NONE, Object::blob("x".into()), PlacementHint::At(*node));
        one.nodes().iter().map(at).collect()
    })
    .await;
    other
        .transact(|t| {
            let spread = spread.clone();
            async move {
                for oid in spread {
                    t.delete(oid).await?;
                }
                Ok(())
            }
        })
        .await
        .unwrap();
    for oid in spread {
        assert_eq!(bytes_of(one, oid).await, None);
    }
}

async fn conflicts(one: &Client, other: &Client) {
    let oid = blob(one, "0").await;
    // A transaction that ends has read what is current; one that is only begun may read an older copy.
    assert_eq!(bytes_of(other, oid).await.unwrap(), "0");
    let (mine, yours) = (one.begin(IsolationLevel::Optimistic), other.begin(IsolationLevel::Optimistic));
    for t in [&mine, &yours] {
        assert_eq!(t.get(oid).await.unwrap().unwrap().data, "0");
        t.put(oid, Object::blob("1".into())).await.unwrap();
    }
    assert!(matches!(mine.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert!(matches!(yours.commit().await.unwrap(), CommitOutcome::Conflict(_)));

    let add = |client: &Client| {
        let client = client.clone();
        async move {
            for _ in 0..20 {
                let added = client.transact(|t| async move {
                    let before: u64 = std::str::from_utf8(&t.get(oid).await?.unwrap().data).unwrap().parse().unwrap();
                    t.put(oid, Object::blob((before + 1).to_string().into())).await
                });
                added.await.unwrap();
            }
        }
    };
    tokio::join!(add(one), add(other), add(one), add(other));
    assert_eq!(bytes_of(one, oid).await.unwrap(), "81", "no change is lost");
}

async fn locks(one: &Client, other: &Client) {
    let oid = blob(one, "0").await;
    let add = async |client: &Client| {
        let t = client.begin(IsolationLevel::Locks);
        let Some(before) = t.get_for_update(oid).await? else { panic!("a lock shows the newest state") };
        let before: u64 = std::str::from_utf8(&before.data).unwrap().parse().unwrap();
        t.put(oid, Object::blob((before + 1).to_string().into())).await?;
        t.commit().await
    };
    let add_all = async |client: &Client| {
        let mut count = 0;
        while count < 20 {
            match add(client).await {
                Ok(CommitOutcome::Committed(_)) => count += 1,
                // An older transaction took the lock.
                Ok(CommitOutcome::Conflict(_)) => {}
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(add_all(one), add_all(other));
    assert_eq!(bytes_of(one, oid).await.unwrap(), "40", "no change is lost");
}

async fn snapshots(one: &Client, other: &Client) {
    let (left, right) = (blob(one, "0").await, blob(one, "0").await);
    let both = async |client: &Client| {
        let t = client.begin(IsolationLevel::Snapshot);
        let read = async |oid| Ok::<_, client::Error>(t.get(oid).await?.map(|object| object.data));
        let seen = (read(left).await, read(right).await);
        let ended = t.commit().await;
        match (seen, ended) {
            ((Ok(left), Ok(right)), Ok(CommitOutcome::Committed(_))) => Some((left, right)),
            _ => None,
        }
    };
    for number in 1..5 {
        let text = number.to_string();
        let change = one.transact(|t| {
            let text = text.clone();
            async move {
                for oid in [left, right] {
                    t.put(oid, Object::blob(text.clone().into())).await?;
                }
                Ok(())
            }
        });
        change.await.unwrap();
        eventually("a snapshot shows the last commit", async || {
            let Some((left, right)) = both(other).await else { return false };
            assert_eq!(left, right, "a snapshot is of one time");
            left.is_some_and(|left| left == text)
        })
        .await;
    }
    let t = other.begin(IsolationLevel::Snapshot);
    assert_eq!(kind(t.put(left, Object::blob("no".into())).await), ErrorKind::Invalid);
}

async fn writes_outside_of_transactions(one: &Client, other: &Client) {
    let oid = blob(one, "before").await;
    let read = async || other.get(oid).await.unwrap().map(|object| object.data);
    eventually("others see a new object", async || read().await.is_some_and(|data| data == "before")).await;
    one.put(oid, Object::blob("after".into())).await.unwrap();
    assert_eq!(one.get(oid).await.unwrap().unwrap().data, "after");
    assert_eq!(other.read_latest(oid).await.unwrap().unwrap().data, "after");
    eventually("a cached copy is invalidated", async || read().await.is_some_and(|data| data == "after")).await;
    eventually("the peer server's copy, too", async || other.read_cached(oid).await.unwrap().unwrap().data == "after")
        .await;
}

async fn watches(one: &Client, other: &Client) {
    let oids = create(one, |t| Ok(vec![t.create_blob("left")?, t.create_blob("right")?])).await;
    let (left, right) = (oids[0], oids[1]);
    eventually("others see new objects", async || other.get(left).await.unwrap().is_some()).await;
    let mut watch = other.watch([left, right]).await.unwrap();
    let mut changed = async || timeout(PATIENCE, watch.next()).await.expect("a change is noticed").unwrap();
    one.put(right, Object::blob("new".into())).await.unwrap();
    let [(oid, state)] = &changed().await[..] else { panic!("one object has changed") };
    assert_eq!((*oid, state.as_ref().unwrap().data.as_ref()), (right, &b"new"[..]));
    // What this client changes itself, and what is deleted, is told, too.
    other.transact(|t| async move { t.put(left, Object::blob("own".into())).await }).await.unwrap();
    assert_eq!(changed().await[0].0, left);
    one.transact(|t| async move { t.delete(left).await }).await.unwrap();
    assert_eq!(changed().await, [(left, None)]);
    // A change between two calls is not missed, and no change is told twice.
    one.put(right, Object::blob("again".into())).await.unwrap();
    eventually("the copy is current", async || other.get(right).await.unwrap().unwrap().data == "again").await;
    assert_eq!(changed().await[0].0, right);
    assert!(timeout(Duration::from_millis(50), watch.next()).await.is_err(), "nothing has changed");
}

async fn names(one: &Client, other: &Client) {
    let oid = blob(one, "named").await;
    let made = one.transact(|t| async move {
        t.create_directory("suite/deep/er").await?;
        t.bind("suite/deep/er/name", oid).await?;
        t.bind("suite/alias", oid).await
    });
    made.await.unwrap();
    assert_eq!(other.resolve("suite/deep/er/name").await.unwrap(), Some(oid));
    assert_eq!(other.resolve("suite/deep/missing").await.unwrap(), None);
    let mut of = other.names_of(oid).await.unwrap();
    of.sort();
    assert_eq!(of, ["/suite/alias", "/suite/deep/er/name"]);
    one.transact(|t| async move { t.rename("suite/deep", "suite/moved").await }).await.unwrap();
    assert_eq!(other.resolve("suite/moved/er/name").await.unwrap(), Some(oid));
    assert_eq!(other.resolve("suite/deep/er/name").await.unwrap(), None);
    let t = one.begin(IsolationLevel::Optimistic);
    assert_eq!(kind(t.remove_directory("suite/moved").await), ErrorKind::Invalid, "it is not empty");
    t.abort();

    let many = one.transact(|t| async move {
        for number in 0..150 {
            t.bind(&format!("suite/many/{number:03}"), oid).await?;
        }
        Ok(())
    });
    many.await.unwrap();
    let mut listed = Vec::new();
    let mut portions = other.names("suite/many").portion_size(40);
    while let Some(portion) = portions.next().await.unwrap() {
        assert!(portion.len() <= 40);
        listed.extend(portion.into_iter().map(|name| name.path));
    }
    let expected: Vec<String> = (0..150).map(|number| format!("/suite/many/{number:03}")).collect();
    assert_eq!(listed, expected);
    let directory = other.resolve("suite/many").await.unwrap().unwrap();
    let after = other.entries(directory, Some("147"), 10).await.unwrap();
    assert_eq!(after, [("148".to_owned(), oid), ("149".to_owned(), oid)]);
    assert!(one.transact(|t| async move { t.unbind("suite/alias").await }).await.unwrap());
    assert!(!one.transact(|t| async move { t.unbind("suite/alias").await }).await.unwrap());
}

async fn collections(one: &Client, other: &Client) {
    let collection = create(one, |t| Ok(vec![t.create_collection()?])).await[0];
    let members = create(one, |t| (0..120).map(|_| t.create_blob("m")).collect()).await;
    let added = one.transact(|t| {
        let members = members.clone();
        async move {
            for member in members {
                t.add_member(collection, member).await?;
            }
            t.count(collection).await
        }
    });
    assert_eq!(added.await.unwrap(), 120);
    let mut found = Vec::new();
    loop {
        let portion = other.members(collection, found.last().copied(), 50).await.unwrap();
        if portion.is_empty() {
            break;
        }
        found.extend(portion);
    }
    let mut expected = members.clone();
    expected.sort();
    assert_eq!(found, expected);
    let gone = members[3];
    let removed = one.transact(|t| async move { t.remove_member(collection, gone).await });
    assert!(removed.await.unwrap());
    let has = other.transact(|t| async move { Ok((t.contains(collection, gone).await?, t.count(collection).await?)) });
    assert_eq!(has.await.unwrap(), (false, 119));
    assert_eq!(other.collections_of(members[4]).await.unwrap(), [collection]);
    assert_eq!(other.stat(collection).await.unwrap().unwrap().kind(), Kind::Collection);
    let t = one.begin(IsolationLevel::Optimistic);
    let refused = match t.delete(collection).await {
        Ok(()) => t.commit().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(refused.is_err(), "a collection with members is not deleted");
}

async fn contents(one: &Client, other: &Client) {
    let large: Bytes = (0..LARGE).map(|at| (at / 3) as u8).collect::<Vec<_>>().into();
    let mut writer = one.content_writer(None);
    for piece in large.chunks(700_000) {
        writer.write(large.slice_ref(piece)).await.unwrap();
    }
    let staged = writer.finish().await.unwrap();
    assert_eq!(staged.size(), LARGE as u64);
    let oid = create(one, |t| Ok(vec![t.create_blob_from(staged)?])).await[0];
    let mut model = large.to_vec();
    assert!(read_all(other, oid).await == model);

    let appended = one.transact(|t| async move {
        t.write_at(oid, 100_000, vec![1; 70_000]).await?;
        t.zero(oid, 3 << 20, 100_000).await?;
        t.append(oid, "the end").await?;
        assert_eq!(t.read_at(oid, 100_000, 3).await?, [1; 3][..]);
        Ok(())
    });
    appended.await.unwrap();
    model[100_000..170_000].fill(1);
    model[3 << 20..(3 << 20) + 100_000].fill(0);
    model.extend_from_slice(b"the end");
    assert!(read_all(other, oid).await == model);
    one.transact(|t| async move { t.truncate(oid, 1_000_000).await }).await.unwrap();
    model.truncate(1_000_000);
    assert!(read_all(other, oid).await == model);
    let part = other.transact(|t| async move { t.read_at(oid, 999_990, 100).await }).await.unwrap();
    assert_eq!(part, model[999_990..]);
    assert_eq!(other.stat(oid).await.unwrap().unwrap().size, 1_000_000);

    append_at_once(one, other, oid).await;
    append_offsets(one, other).await;
    model = read_all(one, oid).await;

    // A transaction that is aborted leaves the content as it was.
    let t = one.begin(IsolationLevel::Optimistic);
    t.write_at(oid, 0, "never").await.unwrap();
    t.abort();
    assert!(read_all(one, oid).await == model);
    one.transact(|t| async move { t.delete(oid).await }).await.unwrap();
    assert_eq!(other.stat(oid).await.unwrap(), None);
}

/// Many transactions append to one blob at the same time: each line is there once, at the offset that its client was told.
async fn append_at_once(one: &Client, other: &Client, large: Oid) {
    const APPENDERS: usize = 16;
    const LINES: usize = 8;
    for oid in [large, blob(one, "").await] {
        let before = read_all(one, oid).await;
        let line = |appender: usize, line: usize| format!("{appender:02} {line:02}\n");
        let appenders = (0..APPENDERS).map(|appender| {
            let client = if appender % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(async move {
                let mut offsets = Vec::new();
                for number in 0..LINES {
                    let text = line(appender, number);
                    let offset = client.append(oid, text.clone()).await?;
                    let read = client.content_reader(oid, offset).until(offset + text.len() as u64).next().await?;
                    assert_eq!(read.unwrap(), text, "a client finds its bytes where they are");
                    offsets.push((offset, text));
                }
                Ok::<_, client::Error>(offsets)
            })
        });
        let mut told = Vec::new();
        for appender in appenders.collect::<Vec<_>>() {
            told.extend(appender.await.unwrap().unwrap());
        }
        let after = read_all(other, oid).await;
        for (offset, text) in told {
            assert!(after[offset as usize..].starts_with(text.as_bytes()), "{text} is not at {offset}");
        }
        let appended = after.strip_prefix(&before[..]).unwrap();
        let mut lines: Vec<&str> = std::str::from_utf8(appended).unwrap().split_inclusive('\n').collect();
        let in_order = |appender: usize| {
            let own: Vec<&str> =
                lines.iter().copied().filter(|line| line.starts_with(&format!("{appender:02}"))).collect();
            own.is_sorted()
        };
        assert!((0..APPENDERS).all(in_order), "the lines of a client are in the order of its transactions");
        lines.sort_unstable();
        let all: Vec<String> = (0..APPENDERS * LINES).map(|at| line(at / LINES, at % LINES)).collect();
        assert_eq!(lines, all);
    }
}

/// A transaction appends to several blobs, at one or several bricks, and several times to each: its commit tells each offset.
async fn append_offsets(one: &Client, other: &Client) {
    let nodes = [one.nodes().first(), one.nodes().last()].map(|node| *node.unwrap());
    let blobs = create(one, |t| {
        // The first two have their bytes in their pages; then a content is made of the bytes of the first.
        let at = |node, bytes: &'static str| {
            t.create_object(model::ClassId::NONE, Object::blob(bytes.into()), PlacementHint::At(node))
        };
        Ok(vec![at(nodes[0], "12345")?, at(nodes[1], "")?])
    })
    .await;
    let (left, right) = (blobs[0], blobs[1]);
    for (round, more) in [1, 100_000, 3].into_iter().enumerate() {
        let size = async |oid| read_all(other, oid).await.len() as u64;
        let (left_size, right_size) = (size(left).await, size(right).await);
        let t = other
            .transact(|t| async move {
                t.append(right, "r").await?;
                t.append(left, vec![1; more]).await?;
                t.write_at(left, 0, "0").await?;
                t.append(left, "second").await?;
                t.append(right, "").await?;
                let new = t.create_blob("new")?;
                t.append(new, "er").await?;
                assert!(t.append_offsets(left).is_empty(), "it is not committed");
                assert_eq!(t.read_at(new, 0, 9).await?, "newer");
                Ok((t, new))
            })
            .await
            .unwrap();
        let (t, new) = t;
        assert_eq!(t.append_offsets(left), [left_size, left_size + more as u64], "round {round}");
        assert_eq!(t.append_offsets(right), [right_size, right_size + 1], "round {round}");
        assert_eq!(t.append_offsets(new), [3]);
        assert_eq!(size(left).await, left_size + more as u64 + 6);
    }
    let t = one.begin(IsolationLevel::Optimistic);
    t.append(left, "x").await.unwrap();
    let size = read_all(one, left).await.len() as u64;
    let CommitOutcome::Committed(receipt) = t.commit().await.unwrap() else {
        panic!("no other transaction changes the blobs")
    };
    assert_eq!((receipt.offset(left), receipt.offset(right)), (Some(size), None));
    let t = one.begin(IsolationLevel::Locks);
    t.append(left, "y").await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(t.append_offsets(left), [size + 1]);
    one.transact(|t| async move { t.delete(right).await }).await.unwrap();
    assert_eq!(kind(one.append(right, "z").await), ErrorKind::NotFound);
}

async fn read_all(client: &Client, oid: Oid) -> Vec<u8> {
    let (mut reader, mut bytes) = (client.content_reader(oid, 0), Vec::new());
    while let Some(piece) = reader.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

async fn attributes(one: &Client) {
    let oid = blob(one, "with attributes").await;
    let set = one.transact(|t| async move {
        t.set_attribute(oid, "colour", Some("red".into())).await?;
        t.set_attribute(oid, "shape", Some("round".into())).await
    });
    set.await.unwrap();
    one.transact(|t| async move { t.set_attribute(oid, "shape", None).await }).await.unwrap();
    let stat = one.stat(oid).await.unwrap().unwrap();
    let found: Vec<_> = stat.object.attributes().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(found, [(Bytes::from("colour"), Bytes::from("red"))]);
    assert_eq!(stat.object.data, "with attributes");
}

async fn structs_and_queries(one: &Client, other: &Client) {
    one.define::<Account>().await.unwrap();
    let account = |owner: &str, balance| Account { owner: owner.to_owned(), balance, guardian: None };
    let made = one.transact(|t| async move {
        let ann = t.create(account("ann", 100)).await?;
        for number in 0..30 {
            t.create(Account { guardian: Some(ann), ..account(&format!("child {number:02}"), number) }).await?;
        }
        Ok(ann)
    });
    let ann = made.await.unwrap();
    other
        .transact(|t| async move {
            t.load_mut(ann).await?.balance -= 1;
            Ok(())
        })
        .await
        .unwrap();
    // Reads outside of transactions are of the nearest copy.
    eventually("the change is seen", async || one.read(ann).await.unwrap().unwrap().balance == 99).await;
    let twice = one.transact(|t| async move { t.create(account("ann", 0)).await }).await;
    assert_eq!(kind(twice), ErrorKind::Exists, "an owner has one account");

    let query = |text: &str| Query::parse_of("Account", text).unwrap();
    let few = query("select owner where guardian.owner == 'ann' && balance >= 27 order by balance desc");
    let rows = other.query(&few).await.unwrap().all().await.unwrap();
    let owners: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    assert!(rows.len() == 3 && owners[0].contains("child 29") && owners[2].contains("child 27"), "{owners:?}");
    let count =
        other.query(&query("select count(*), sum(balance) where balance < 10")).await.unwrap().all().await.unwrap();
    assert_eq!(count, [Row::Values(vec![model::Value::Int64(10), model::Value::Int64(45)])]);
    // A query sees what its transaction has changed, and protects what it has seen.
    let t = one.begin(IsolationLevel::Optimistic);
    t.create(account("bob", 28)).await.unwrap();
    assert_eq!(t.query(&query("balance == 28")).await.unwrap().all().await.unwrap().len(), 2);
    other.transact(|t| async move { t.create(account("eve", 28)).await }).await.unwrap();
    assert!(matches!(t.commit().await, Ok(CommitOutcome::Conflict(_))), "a phantom");
    let mut explained = one.explain(&query("balance == 28")).await.unwrap();
    while explained.next().await.unwrap().is_some() {}
    assert!(explained.explanation().unwrap().text.contains("index"), "{:?}", explained.explanation());
}

async fn listing(one: &Client) {
    let oid = blob(one, "listed").await;
    let (mut objects, mut found) = (one.objects(), false);
    while let Some(portion) = objects.next().await.unwrap() {
        found |= portion.iter().any(|listed| listed.oid == oid && listed.size == 6);
    }
    assert!(found, "an object without a name is listed, too");
}

async fn errors(one: &Client) {
    let missing = blob(one, "short-lived").await;
    one.transact(|t| async move { t.delete(missing).await }).await.unwrap();
    assert_eq!(one.get(missing).await.unwrap(), None);
    let t = one.begin(IsolationLevel::Optimistic);
    assert_eq!(kind(t.read_at(missing, 0, 1).await), ErrorKind::NotFound);
    assert_eq!(kind(t.bind("a//b", missing).await), ErrorKind::Invalid);
    assert_eq!(kind(t.bind(&"x".repeat(300), missing).await), ErrorKind::TooLarge);
    t.abort();
    assert_eq!(kind(one.get(Oid::new(model::ClassId::NONE, other_space_page(one), 1)).await), ErrorKind::Invalid);
}

fn other_space_page(one: &Client) -> model::PageId {
    model::PageId { space: model::SpaceId(one.space().0 + 1), node: one.nodes()[0], number: 1 }
}

/// Objects of one page that are 72 MiB together. The reader has no copy of them.
async fn large_objects_of_one_page(one: &Client, other: &Client) {
    const OBJECTS: u8 = 18;
    let oids = create(one, |t| (0..OBJECTS).map(|number| t.create_blob(vec![number])).collect()).await;
    assert!(oids.iter().all(|oid| oid.page() == oids[0].page()));
    let content = |number: u8| Bytes::from(vec![number; OBJECT_BYTES]);
    let change = async |t: Transaction| {
        for (number, oid) in (0..).zip(&oids) {
            t.put(*oid, Object::blob(content(number))).await?;
        }
        Ok(())
    };
    one.transact(change).await.unwrap();
    let read = async |t: Transaction| {
        for (number, oid) in (0..).zip(&oids) {
            assert!(t.get(*oid).await?.is_some_and(|object| object.data == content(number)), "{oid}");
        }
        Ok(())
    };
    other.transact(read).await.unwrap();
    let delete = async |t: Transaction| {
        for oid in &oids {
            t.delete(*oid).await?;
        }
        Ok(())
    };
    other.transact(delete).await.unwrap();
}

async fn events(one: &Client) {
    let mut events = one.events().unwrap();
    let first = timeout(PATIENCE, events.next()).await.unwrap();
    assert!(matches!(first, Some(Event::Connected { .. })), "{first:?}");
    let status = one.space_status().unwrap();
    assert!(status.unreachable().next().is_none() && status.why_stopped().is_none());
}
