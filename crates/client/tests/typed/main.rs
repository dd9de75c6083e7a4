//! Structs in a cluster: their classes in the catalogue, and transactions that load, change and create objects as structs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod derive;
#[allow(dead_code, reason = "only its `run` is tested")]
#[path = "../../examples/jukebox.rs"]
mod jukebox;
mod unique;
mod versions;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use client::persistent::Classes;
use client::{
    Client, CommitOutcome, ErrorKind, IsolationLevel, Loaded, LoadedMut, Oid, Persistent, PlacementHint, Ref,
    Transaction,
};
use model::{ClassId, Object, PageId, SpaceId};
use world::World;

/// How long something is given that must not happen.
const SHORT: Duration = Duration::from_millis(200);

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Bank {
    #[persistent(unique)]
    name: String,
    branches: Vec<Ref<Bank>>,
}

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Account {
    owner: String,
    balance: i64,
    bank: Option<Ref<Bank>>,
}

fn bank(name: &str) -> Bank {
    Bank { name: name.to_owned(), branches: Vec::new() }
}

fn account(owner: &str, bank: Option<Ref<Bank>>) -> Account {
    Account { owner: owner.to_owned(), balance: 100, bank }
}

/// Creates an account and commits.
async fn ann(cluster: &Client) -> Ref<Account> {
    cluster
        .transact(|t| async move {
            let bank = t.create(bank("North")).await?;
            let ann = t.create(account("Ann", Some(bank))).await?;
            t.bind("ann", ann).await?;
            Ok(ann)
        })
        .await
        .unwrap()
}

async fn expect_committed(t: &Transaction) {
    let decided = t.commit().await.unwrap();
    assert!(matches!(decided, CommitOutcome::Committed(_)), "{decided:?}");
}

fn kind<T>(result: client::Result<T>) -> ErrorKind {
    result.err().unwrap().kind()
}

/// The value of a future that is ready at its first poll.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn last_field_of_a_struct_can_become_null() {
    let world = World::start(1).await;
    let (one, two) = (world.client().await, world.client().await);
    one.define::<Account>().await.unwrap();
    let ann = ann(&one).await;
    assert!(two.read(ann).await.unwrap().unwrap().bank.is_some());
    let t = one.begin(IsolationLevel::Optimistic);
    t.load_mut(ann).await.unwrap().bank = None;
    expect_committed(&t).await;
    assert_eq!(world.client().await.read(ann).await.unwrap().unwrap().bank, None);
    world.end().await;
}

#[tokio::test]
async fn listing_of_a_directory_has_as_many_names_as_wanted() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    let named = cluster.transact(|t| async move {
        let blob = t.create_blob("it")?;
        for number in 0..1500 {
            t.bind(&format!("many/{number:04}"), blob).await?;
        }
        Ok(())
    });
    named.await.unwrap();
    let directory = cluster.resolve("many").await.unwrap().unwrap();
    for (after, limit, expected) in [(None, 1200, 1200), (Some("0499"), 1200, 1000), (None, 2000, 1500)] {
        let listed = cluster.entries(directory, after, limit).await.unwrap();
        assert_eq!(listed.len(), expected, "at most {limit} after {after:?}");
    }
    world.end().await;
}

#[test]
fn classes_to_which_containers_refer_are_defined_with_a_class() {
    #[derive(Persistent, Clone, Debug, PartialEq)]
    struct Optional {
        bank: Option<Ref<Bank>>,
    }
    #[derive(Persistent, Clone, Debug, PartialEq)]
    struct Listed {
        banks: Vec<Ref<Bank>>,
    }
    #[derive(Persistent, Clone, Debug, PartialEq)]
    struct Collected {
        banks: BTreeSet<Ref<Bank>>,
    }
    #[derive(Persistent, Clone, Debug, PartialEq)]
    struct Mapped {
        banks: BTreeMap<String, Ref<Bank>>,
    }
    let names = |classes: Classes| classes.iter().map(|class| class.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(Classes::of::<Optional>()), ["Bank", "Optional"]);
    assert_eq!(names(Classes::of::<Listed>()), ["Bank", "Listed"]);
    assert_eq!(names(Classes::of::<Collected>()), ["Bank", "Collected"]);
    assert_eq!(names(Classes::of::<Mapped>()), ["Bank", "Mapped"]);
}

#[tokio::test]
async fn changes_are_committed_and_visible_to_other_clients() {
    let world = World::start(2).await;
    let (one, other) = (world.client().await, world.client().await);
    one.define::<Account>().await.unwrap();
    let ann = ann(&one).await;
    assert!(!ann.oid().is_temporary());
    other
        .transact(|t| async move {
            assert_eq!(t.resolve_ref::<Account>("ann").await?, Some(ann));
            let mut account = t.load_mut(ann).await?;
            account.balance += 10;
            Ok(())
        })
        .await
        .unwrap();
    let t = one.begin(IsolationLevel::Optimistic);
    let account = t.load(ann).await.unwrap();
    assert_eq!((account.owner.as_str(), account.balance), ("Ann", 110));
    // Loading an object does not load the objects that it refers to.
    let bank = t.load(account.bank.unwrap()).await.unwrap();
    assert_eq!(bank.name, "North");
    expect_committed(&t).await;
    assert_eq!(other.read(ann).await.unwrap().unwrap().balance, 110);
    world.end().await;
}

#[tokio::test]
async fn object_is_one_struct_within_transaction() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let (one, two) = (t.load(ann).await.unwrap(), t.try_load(ann).await.unwrap().unwrap());
    assert!(std::ptr::eq::<Account>(&*one, &*two));
    assert_eq!(Loaded::reference(&one), ann);
    // Many readers or one writer.
    let error = t.load_mut(ann).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("is being read or changed by this transaction"), "{error}");
    drop((one, two));
    let mut changing = t.load_mut(ann).await.unwrap();
    changing.balance = 7;
    assert_eq!(kind(t.load(ann).await), ErrorKind::Invalid);
    assert_eq!(kind(t.commit().await), ErrorKind::Invalid);
    assert_eq!(LoadedMut::reference(&changing), ann);
    drop(changing);
    assert_eq!(t.load(ann).await.unwrap().balance, 7);
    // It is not visible outside before the commit.
    assert_eq!(cluster.read(ann).await.unwrap().unwrap().balance, 100);
    expect_committed(&t).await;
    assert_eq!(cluster.read(ann).await.unwrap().unwrap().balance, 7);
    world.end().await;
}

/// The address of the struct of an object in a new transaction: it tells whether two transactions share it.
async fn struct_address(cluster: &Client, reference: Ref<Account>) -> usize {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let account = t.load(reference).await.unwrap();
    let address = std::ptr::from_ref::<Account>(&account).addr();
    expect_committed(&t).await;
    drop(account);
    address
}

#[tokio::test]
async fn transactions_share_struct_until_its_object_changes() {
    let world = World::start(2).await;
    let (one, other) = (world.client().await, world.client().await);
    one.define::<Account>().await.unwrap();
    let ann = ann(&one).await;
    let first = one.begin(IsolationLevel::Optimistic);
    let held = first.load(ann).await.unwrap();
    let address = std::ptr::from_ref::<Account>(&held).addr();
    assert_eq!(struct_address(&one, ann).await, address);
    // Another client changes it: what was loaded stays as it was, and what is loaded now is new.
    let change = other.transact(|t| async move {
        t.load_mut(ann).await?.balance = 7;
        Ok(())
    });
    change.await.unwrap();
    let changed = one.transact(|t| async move { Ok(t.load(ann).await?.balance) }).await.unwrap();
    assert_eq!((changed, held.balance), (7, 100));
    assert_ne!(struct_address(&one, ann).await, address);
    assert!(matches!(first.commit().await.unwrap(), CommitOutcome::Conflict(_)), "its read is not current any more");
    // So does this client.
    let t = one.begin(IsolationLevel::Optimistic);
    assert_eq!(t.load(ann).await.unwrap().balance, 7);
    t.load_mut(ann).await.unwrap().balance = 8;
    assert_eq!(t.load(ann).await.unwrap().balance, 8, "a transaction sees its own changes");
    let outside = one.begin(IsolationLevel::Optimistic);
    assert_eq!(outside.load(ann).await.unwrap().balance, 7, "others do not before the commit");
    expect_committed(&t).await;
    let changed = one.transact(|t| async move { Ok(t.load(ann).await?.balance) }).await.unwrap();
    assert_eq!(changed, 8);
    // What is aborted leaves the struct of the others as it was.
    let t = one.begin(IsolationLevel::Optimistic);
    t.load_mut(ann).await.unwrap().balance = 9;
    t.abort();
    assert_eq!(one.transact(|t| async move { Ok(t.load(ann).await?.balance) }).await.unwrap(), 8);
    world.end().await;
}

#[tokio::test]
async fn struct_that_is_read_is_not_replaced_by_a_record_of_its_transaction() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    for _ in 0..2 {
        let t = cluster.begin(IsolationLevel::Optimistic);
        let account = t.load(ann).await.unwrap();
        let record = t.get(ann.oid()).await.unwrap().unwrap();
        assert_eq!(kind(t.put(ann.oid(), record.clone()).await), ErrorKind::Invalid);
        assert_eq!(kind(t.remove(ann).await), ErrorKind::Invalid);
        let bank: Ref<Bank> = account.bank.unwrap();
        drop(account);
        t.put(ann.oid(), record).await.unwrap();
        assert_eq!(t.load(ann).await.unwrap().balance, 100);
        assert_eq!(t.load(bank).await.unwrap().name, "North");
        t.remove(ann).await.unwrap();
        assert!(t.try_load(ann).await.unwrap().is_none());
        t.abort();
    }
    world.end().await;
}

#[tokio::test]
async fn structs_stay_within_the_limit_of_the_cache() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Note>().await.unwrap();
    let mut notes = Vec::new();
    for _ in 0..20 {
        let note = cluster.transact(|t| async move { t.create(Note { text: "x".repeat(8 << 10) }).await });
        notes.push(note.await.unwrap());
    }
    // Room for three of them.
    let mut options = client::ConnectOptions::default();
    options.cache_bytes = 32 << 10;
    let small = Client::connect_with(&world.url(), options).await.unwrap();
    for _ in 0..3 {
        for note in &notes {
            let note = *note;
            let len = small.transact(|t| async move { Ok(t.load(note).await?.text.len()) }).await.unwrap();
            assert_eq!(len, 8 << 10);
        }
    }
    world.end().await;
}

#[tokio::test]
async fn records_and_structs_of_one_transaction_agree() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let before = t.get(ann.oid()).await.unwrap().unwrap();
    t.load_mut(ann).await.unwrap().balance = 1;
    let after = t.get(ann.oid()).await.unwrap().unwrap();
    assert_ne!(before, after);
    assert_eq!(cluster.decode::<Account>(ann.oid(), &after).await.unwrap().balance, 1);
    t.put(ann.oid(), before).await.unwrap();
    assert_eq!(t.load(ann).await.unwrap().balance, 100);
    let reading = t.load(ann).await.unwrap();
    assert_eq!(kind(t.put(ann.oid(), after).await), ErrorKind::Invalid);
    drop(reading);
    expect_committed(&t).await;
    world.end().await;
}

#[tokio::test]
async fn struct_that_is_changed_back_is_not_written() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let bob = cluster.transact(|t| async move { t.create(account("Bob", None)).await }).await.unwrap();
    let (t, other) = (cluster.begin(IsolationLevel::Optimistic), cluster.begin(IsolationLevel::Optimistic));
    assert_eq!(other.load(ann).await.unwrap().balance, 100);
    t.load_mut(ann).await.unwrap().balance = 7;
    t.load_mut(ann).await.unwrap().balance = 100;
    expect_committed(&t).await;
    other.load_mut(bob).await.unwrap().balance = 7;
    expect_committed(&other).await;
    // Except if it has been flushed before.
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.load_mut(ann).await.unwrap().balance = 7;
    t.flush().unwrap();
    t.load_mut(ann).await.unwrap().balance = 100;
    expect_committed(&t).await;
    assert_eq!(cluster.read(ann).await.unwrap().unwrap().balance, 100);
    world.end().await;
}

#[tokio::test]
async fn conflicting_changes_are_serialized() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = world.client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let add = |t: Transaction| async move {
                    t.load_mut(ann).await?.balance += 1;
                    Ok(())
                };
                client.transact(add).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let balance = cluster.transact(|t| async move { Ok(t.load(ann).await?.balance) }).await.unwrap();
    assert_eq!(balance, 160);
    world.end().await;
}

#[tokio::test]
async fn drafts_become_persistent_when_something_persistent_refers_to_them() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    // `transact` repeats this if checks of unique names conflict with the commit just before.
    let drafted = cluster.transact(|t| async move {
        let branch = t.draft(bank("Branch")).await?;
        let mut head = bank("Head");
        head.branches.push(branch);
        let head = t.draft(head).await?;
        let unreferenced = t.draft(bank("Unreferenced")).await?;
        let named = t.draft(bank("Named")).await?;
        t.bind("bank", named).await?;
        t.load_mut(ann).await?.bank = Some(head);
        // A draft may be changed.
        t.load_mut(branch).await?.branches.push(head);
        Ok((branch, head, unreferenced, named))
    });
    let (branch, head, unreferenced, named) = drafted.await.unwrap();
    assert_eq!(cluster.read(head).await.unwrap().unwrap().branches, [branch]);
    assert_eq!(cluster.read(branch).await.unwrap().unwrap().branches, [head]);
    assert_eq!(cluster.read(named).await.unwrap().unwrap().name, "Named");
    assert_eq!(cluster.read(unreferenced).await.unwrap(), None);
    world.end().await;
}

#[tokio::test]
async fn draft_that_is_written_as_a_record_is_persistent() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let draft = t.draft(account("Draft", None)).await.unwrap();
    let record = t.get(draft.oid()).await.unwrap().unwrap();
    t.put(draft.oid(), record).await.unwrap();
    t.load_mut(draft).await.unwrap().balance = 7;
    expect_committed(&t).await;
    assert_eq!(cluster.read(draft).await.unwrap().unwrap().balance, 7);
    world.end().await;
}

#[tokio::test]
async fn check_of_a_transaction_writes_nothing() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.load_mut(ann).await.unwrap().balance = 7;
    let bob = t.create(account("Bob", None)).await.unwrap();
    t.bind("bob", bob).await.unwrap();
    assert!(matches!(t.check().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(cluster.read(ann).await.unwrap().unwrap().balance, 100);
    assert_eq!(cluster.begin(IsolationLevel::Optimistic).resolve("bob").await.unwrap(), None);
    world.end().await;
}

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Ledger {
    balances: BTreeMap<Ref<Bank>, i64>,
}

#[tokio::test]
async fn draft_becomes_persistent_as_the_key_of_a_map() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Ledger>().await.unwrap();
    let drafted = cluster.transact(|t| async move {
        let draft = t.draft(bank("Draft")).await?;
        t.create(Ledger { balances: [(draft, 7)].into() }).await?;
        Ok(draft)
    });
    assert_eq!(cluster.read(drafted.await.unwrap()).await.unwrap().unwrap().name, "Draft");
    world.end().await;
}

#[tokio::test]
async fn places_of_objects_that_were_not_created_are_those_of_the_next_objects() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let begin = || cluster.begin(IsolationLevel::Optimistic);
    let (aborted, checked, committed) = (begin(), begin(), begin());
    let first = aborted.create(account("Aborted", None)).await.unwrap();
    aborted.abort();
    assert_eq!(checked.create(account("Checked", None)).await.unwrap(), first);
    assert!(matches!(checked.check().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(cluster.read(first).await.unwrap(), None);
    assert_eq!(committed.create(account("Committed", None)).await.unwrap(), first);
    expect_committed(&committed).await;
    assert_eq!(cluster.read(first).await.unwrap().unwrap().owner, "Committed");
    assert_ne!(begin().create(account("Next", None)).await.unwrap(), first);
    world.end().await;
}

#[tokio::test]
async fn draft_that_is_read_as_a_record_stays_a_draft() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let (kept, draft) =
        (t.create(account("Kept", None)).await.unwrap(), t.draft(account("Draft", None)).await.unwrap());
    t.load_mut(kept).await.unwrap().balance = 7;
    for (reference, balance) in [(kept, 7), (draft, 100)] {
        let record = t.get(reference.oid()).await.unwrap().unwrap();
        assert_eq!(cluster.decode::<Account>(reference.oid(), &record).await.unwrap().balance, balance);
    }
    expect_committed(&t).await;
    assert_eq!(cluster.read(kept).await.unwrap().unwrap().balance, 7);
    assert_eq!(cluster.read(draft).await.unwrap(), None);
    world.end().await;
}

#[tokio::test]
async fn loading_removed_object_or_object_of_another_class_fails() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let bank = cluster
        .transact(|t| async move {
            let bank = t.load(ann).await?.bank.unwrap();
            t.remove(bank).await?;
            assert_eq!(kind(t.load(bank).await), ErrorKind::NotFound);
            let removed = t.create(account("Bob", None)).await?;
            t.remove(removed).await?;
            assert!(t.try_load(removed).await?.is_none());
            Ok(bank)
        })
        .await
        .unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let error = t.load(bank).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("there is no Bank"), "{error}");
    assert!(t.try_load(bank).await.unwrap().is_none());
    assert_eq!(kind(t.remove(bank).await), ErrorKind::NotFound);
    let error = t.load(Ref::<Bank>::new(ann.oid())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("is of class Account, and the program expects one of class Bank"), "{error}");
    assert_eq!(kind(t.resolve_ref::<Bank>("ann").await), ErrorKind::Invalid);
    let blob = t.create_object(ClassId::NONE, Object::blob("x".into()), PlacementHint::Anywhere).unwrap();
    assert_eq!(kind(t.load(Ref::<Bank>::new(blob)).await), ErrorKind::Invalid);
    world.end().await;
}

#[tokio::test]
async fn error_of_missing_class_names_define() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let error = t.create(bank("North")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("Client::define"), "{error}");
    // A client that connected before sees the new class.
    world.client().await.define::<Bank>().await.unwrap();
    t.create(bank("North")).await.unwrap();
    t.abort();
    // `transact` repeats this if the index becomes ready meanwhile.
    cluster.transact(|t| async move { t.create(bank("North")).await }).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn new_objects_share_page_and_aborted_pages_are_reused() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let three = async |t: &Transaction| -> Vec<Oid> {
        let mut made = Vec::new();
        for owner in ["a", "b", "c"] {
            made.push(t.create(account(owner, None)).await.unwrap().oid());
        }
        made
    };
    let (t, u) = (cluster.begin(IsolationLevel::Optimistic), cluster.begin(IsolationLevel::Optimistic));
    let (one, two) = (three(&t).await, three(&u).await);
    assert!(one.iter().all(|oid| oid.page() == one[0].page()));
    assert!(two.iter().all(|oid| oid.page() == two[0].page()));
    assert_ne!(one[0].page(), two[0].page());
    t.abort();
    u.abort();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let again = three(&t).await;
    assert!(again == one || again == two);
    expect_committed(&t).await;
    // Near an object of this transaction or an earlier one, and at a logical node.
    let t = cluster.begin(IsolationLevel::Optimistic);
    let near = t.create_with(account("near", None), PlacementHint::Near(again[0])).await.unwrap();
    assert_eq!(near.oid().page(), again[0].page());
    let node = cluster.nodes()[3];
    let at = t.create_with(account("at", None), PlacementHint::At(node)).await.unwrap();
    let beside = t.create_with(account("beside", None), PlacementHint::Near(at.oid())).await.unwrap();
    assert_eq!((at.oid().page().node, beside.oid().page()), (node, at.oid().page()));
    expect_committed(&t).await;
    for reference in [near, beside] {
        assert_eq!(cluster.read(reference).await.unwrap().unwrap().balance, 100);
    }
    // Another client finds a free slot in the page, too.
    let other = world.client().await;
    let t = other.begin(IsolationLevel::Optimistic);
    let third = t.create_with(account("third", None), PlacementHint::Near(again[0])).await.unwrap();
    assert_eq!(third.oid().page(), again[0].page());
    expect_committed(&t).await;
    assert_eq!(other.read(near).await.unwrap().unwrap().owner, "near");
    world.end().await;
}

#[tokio::test]
async fn prefetched_objects_load_without_waiting() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let nodes: Vec<_> = cluster.nodes().to_vec();
    let ann = cluster
        .transact(|t| {
            let nodes = &nodes;
            async move {
                let mut head = bank("Head");
                for (number, node) in nodes.iter().enumerate() {
                    head.branches.push(t.create_with(bank(&number.to_string()), PlacementHint::At(*node)).await?);
                }
                let head = t.create_with(head, PlacementHint::At(nodes[1])).await?;
                t.create_with(account("Ann", Some(head)), PlacementHint::At(nodes[2])).await
            }
        })
        .await
        .unwrap();
    let reader = world.client().await;
    let t = reader.begin(IsolationLevel::Optimistic);
    t.prefetch_along([ann], &["bank.branches"]).await.unwrap();
    let account = at_once(t.load(ann)).expect("not prefetched").unwrap();
    let head = at_once(t.load(account.bank.unwrap())).expect("not prefetched").unwrap();
    let branches = at_once(t.load_all(head.branches.iter().copied())).expect("not prefetched").unwrap();
    let names: Vec<&str> = branches.iter().map(|branch| branch.name.as_str()).collect();
    assert_eq!(names, ["0", "1", "2", "3"]);
    let error = t.prefetch_along([ann], &["bank.boss"]).await.unwrap_err();
    assert!(error.message().contains("\"boss\""), "{error}");
    drop((account, head, branches));
    expect_committed(&t).await;
    let other = world.client().await;
    let t = other.begin(IsolationLevel::Optimistic);
    let foreign = Oid::new(ann.oid().class(), PageId { space: SpaceId(9), ..ann.oid().page() }, 1);
    assert_eq!(kind(t.prefetch([foreign]).await), ErrorKind::Invalid);
    t.prefetch([ann]).await.unwrap();
    assert!(at_once(t.get(ann.oid())).expect("not prefetched").unwrap().is_some());
    expect_committed(&t).await;
    world.end().await;
}

#[tokio::test]
async fn locking_transactions_lock_structs() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let t = cluster.begin(IsolationLevel::Locks);
    assert_eq!(t.load(ann).await.unwrap().balance, 100);
    t.load_mut(ann).await.unwrap().balance = 50;
    let bob = t.create(account("Bob", None)).await.unwrap();
    assert_eq!(t.load_all([ann, bob]).await.unwrap()[0].balance, 50);
    expect_committed(&t).await;
    let t = cluster.begin(IsolationLevel::Locks);
    assert_eq!((t.load(ann).await.unwrap().balance, t.load(bob).await.unwrap().balance), (50, 100));
    t.remove(bob).await.unwrap();
    expect_committed(&t).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    assert!(t.try_load(bob).await.unwrap().is_none());
    world.end().await;
}

#[tokio::test]
async fn struct_that_is_changed_after_it_was_loaded_is_locked_against_readers() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await;
    let [changes, reads] = [(); 2].map(|()| cluster.begin(IsolationLevel::Locks));
    assert_eq!(changes.load(ann).await.unwrap().balance, 100);
    changes.load_mut(ann).await.unwrap().balance = 50;
    let mut reading = Box::pin(reads.load(ann));
    assert!(tokio::time::timeout(SHORT, &mut reading).await.is_err(), "it waits for the lock");
    expect_committed(&changes).await;
    assert_eq!(reading.await.unwrap().balance, 50);
    world.end().await;
}

#[tokio::test]
async fn locks_of_several_objects_are_requested_together() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Account>().await.unwrap();
    let ann = ann(&cluster).await.oid();
    let bob = cluster.transact(|t| async move { t.create(account("Bob", None)).await }).await.unwrap().oid();
    // The oldest first: it is not aborted by the others.
    let [holds, reads, waits] = [(); 3].map(|()| cluster.begin(IsolationLevel::Locks));
    assert!(holds.get_for_update(ann).await.unwrap().is_some());
    let none = Oid::new(ann.class(), ann.page(), 900);
    let oids = [ann, none, bob];
    let mut reading = Box::pin(reads.get_all_for_update(&oids));
    assert!(tokio::time::timeout(SHORT, &mut reading).await.is_err(), "it waits for the first lock");
    let mut waiting = Box::pin(waits.get_for_update(bob));
    assert!(tokio::time::timeout(SHORT, &mut waiting).await.is_err(), "it has the last lock already");
    expect_committed(&holds).await;
    let found: Vec<bool> = reading.await.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(found, [true, false, true]);
    assert_eq!(reads.get_all(&oids).await.unwrap().len(), 3);
    reads.abort();
    assert!(waiting.await.unwrap().is_some());
    waits.abort();
    world.end().await;
}

#[tokio::test]
async fn names_are_listed_by_prefix_until_they_are_removed() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    let oid = cluster
        .transact(|t| async move {
            let oid = t.create_blob("content")?;
            for path in ["albums/blue", "albums/red", "people/ann"] {
                t.bind(path, oid).await?;
            }
            Ok(oid)
        })
        .await
        .unwrap();
    assert!(oid.is_temporary());
    let listed = async |prefix: &str| {
        let mut names = cluster.names(prefix);
        let mut paths = Vec::new();
        while let Some(portion) = names.next().await.unwrap() {
            paths.extend(portion.into_iter().map(|name| name.path));
        }
        paths
    };
    assert_eq!(listed("albums/").await, ["/albums/blue", "/albums/red"]);
    assert_eq!(listed("").await, ["/albums/blue", "/albums/red", "/people/ann"]);
    let removed = cluster
        .transact(|t| async move { Ok((t.unbind("albums/red").await?, t.unbind("albums/green").await?)) })
        .await
        .unwrap();
    assert_eq!(removed, (true, false), "it says which of them were bound");
    assert_eq!(listed("albums/").await, ["/albums/blue"]);
    world.end().await;
}

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Note {
    text: String,
}

#[tokio::test]
async fn page_that_would_become_too_large_refuses_a_change_each_time() {
    const LARGE: usize = (4 << 20) - 64;
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Note>().await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let note = t.create(Note { text: "small".to_owned() }).await.unwrap();
    expect_committed(&t).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let blobs: Vec<Oid> = (0..4)
        .map(|_| t.create_object(ClassId::NONE, Object::blob("small".into()), PlacementHint::Near(note.oid())).unwrap())
        .collect();
    expect_committed(&t).await;
    let blobs: Vec<Oid> = blobs.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect();
    assert!(blobs.iter().all(|oid| oid.page() == note.oid().page()));
    for oid in &blobs {
        let t = cluster.begin(IsolationLevel::Optimistic);
        t.put(*oid, Object::blob(vec![7; LARGE].into())).await.unwrap();
        expect_committed(&t).await;
    }
    // The page has to be cached for its size to be known.
    assert!(cluster.get(blobs[0]).await.unwrap().is_some());
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.load_mut(note).await.unwrap().text = "x".repeat(1 << 20);
    for _ in 0..2 {
        assert_eq!(kind(t.flush()), ErrorKind::TooLarge, "a change that was refused once is not forgotten");
    }
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.put(blobs[0], Object::blob(vec![8; 40 << 10].into())).await.unwrap();
    t.load_mut(note).await.unwrap().text = "y".repeat(40 << 10);
    t.abort();
    world.end().await;
}

#[tokio::test]
async fn new_objects_that_grow_beyond_their_page_are_refused() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Note>().await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    for number in 0..5 {
        let note = t.create(Note { text: number.to_string() }).await.unwrap();
        t.load_mut(note).await.unwrap().text = "x".repeat((4 << 20) - 64);
    }
    assert_eq!(kind(t.commit().await), ErrorKind::TooLarge);
    world.end().await;
}

#[tokio::test]
async fn example_plays_its_album() {
    let world = World::start(2).await;
    for time in 1..=2 {
        let lines = jukebox::run(&world.client().await).await.unwrap();
        assert_eq!(lines[0], "Blue by Ann and the Bricks");
        assert_eq!(lines[1], format!("  Sea (3:10), played {time} times"));
        assert_eq!(lines.len(), 4);
    }
    world.end().await;
}
