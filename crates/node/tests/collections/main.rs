//! Collections, directories and names of a cluster in this process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::time::Duration;

use client::plant::Bug;
use client::{Client, CommitOutcome, ErrorKind, IsolationLevel, Oid, PlacementHint, Transaction};
use model::planted_bug::assert_noticed;
use model::{ClassId, Kind, NodeId, Object};

use world::World;

/// After this time a request that should be answered at once counts as one that hangs.
const HANGS: Duration = Duration::from_secs(60);
/// How long something is given that must not happen.
const SHORT: Duration = Duration::from_millis(200);

/// Runs a test with a cluster of two bricks and a client.
fn with_cluster<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::start(2).await;
        test(world.client().await).await;
        world.end().await;
    });
}

fn is_committed(outcome: &CommitOutcome) -> bool {
    matches!(outcome, CommitOutcome::Committed(_))
}

fn begin(cluster: &Client) -> Transaction {
    cluster.begin(IsolationLevel::Optimistic)
}

/// Creates a blob and binds it to a path.
async fn bind(cluster: &Client, path: &str) -> Oid {
    let bind = |t: Transaction| async move {
        let blob = t.create_blob(path.to_owned())?;
        t.bind(path, blob).await?;
        Ok((blob, t))
    };
    let (blob, t) = cluster.transact(bind).await.unwrap();
    t.real_oid(blob).unwrap()
}

async fn resolve(cluster: &Client, path: &str) -> Option<Oid> {
    cluster.transact(|t| async move { t.resolve(path).await }).await.unwrap()
}

async fn names(cluster: &Client, prefix: &str) -> Vec<String> {
    let (mut names, mut all) = (cluster.names(prefix).portion_size(3), Vec::new());
    while let Some(portion) = names.next().await.unwrap() {
        all.extend(portion.into_iter().map(|name| name.path));
    }
    all.iter().map(|name| name.strip_prefix('/').expect("paths are absolute").to_owned()).collect()
}

#[test]
fn paths_are_bound_resolved_and_listed_in_order() {
    with_cluster(|cluster| async move {
        let paths = ["b/two", "a", "b/one", "b/sub/x", "c-d", "c/e", "b.txt"];
        for path in paths {
            let oid = bind(&cluster, path).await;
            assert_eq!(resolve(&cluster, path).await, Some(oid), "{path}");
            assert_eq!(resolve(&cluster, &format!("/{path}")).await, Some(oid));
            assert_eq!(cluster.names_of(oid).await.unwrap(), [format!("/{path}")]);
        }
        assert_eq!(resolve(&cluster, "b/three").await, None);
        assert_eq!(resolve(&cluster, "a/below").await, None);
        // What is in a directory follows its name.
        assert_eq!(names(&cluster, "").await, ["a", "b/one", "b/sub/x", "b/two", "b.txt", "c/e", "c-d"]);
        assert_eq!(names(&cluster, "b/").await, ["b/one", "b/sub/x", "b/two"]);
        assert_eq!(names(&cluster, "b/t").await, ["b/two"]);
        assert_eq!(names(&cluster, "b").await, ["b/one", "b/sub/x", "b/two", "b.txt"]);
        assert_eq!(names(&cluster, "x/").await, [""; 0]);
        let after = |after: &str| cluster.names("").after(after);
        for (from, first) in [("a", Some("/b/one")), ("b/one", Some("/b/sub/x")), ("/b/sub/x", Some("/b/two"))] {
            let portion = after(from).portion_size(1).next().await.unwrap();
            assert_eq!(portion.map(|names| names[0].path.clone()).as_deref(), first, "after {from}");
        }
        assert_eq!(after("c-d").next().await.unwrap(), None);
        let all = cluster.names("b").with_directories().next().await.unwrap().unwrap();
        assert_eq!(all.iter().map(|name| name.path.as_str()).collect::<Vec<_>>()[..2], ["/b", "/b/one"]);
    });
}

#[test]
fn a_transaction_sees_its_own_names() {
    with_cluster(|cluster| async move {
        bind(&cluster, "dir/old").await;
        let t = begin(&cluster);
        let blob = t.create_blob("x").unwrap();
        t.bind("dir/new", blob).await.unwrap();
        t.bind("other/dir/deep", blob).await.unwrap();
        assert!(t.unbind("dir/old").await.unwrap());
        assert_eq!(t.resolve("dir/new").await.unwrap(), Some(blob));
        assert_eq!(t.resolve("other/dir/deep").await.unwrap(), Some(blob));
        assert_eq!(t.resolve("dir/old").await.unwrap(), None);
        assert_eq!(t.list("dir", None, 10).await.unwrap(), [("new".to_owned(), blob)]);
        let root: Vec<String> = t.list("", None, 10).await.unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(root, ["dir", "other"]);
        let dir = t.resolve("dir").await.unwrap().unwrap();
        assert_eq!(t.count(dir).await.unwrap(), 1);
        assert!(is_committed(&t.commit().await.unwrap()));
        let real = t.real_oid(blob).unwrap();
        assert_eq!(resolve(&cluster, "other/dir/deep").await, Some(real));
        assert_eq!(names(&cluster, "").await, ["dir/new", "other/dir/deep"]);
        assert_eq!(cluster.names_of(real).await.unwrap(), ["/dir/new", "/other/dir/deep"]);
        assert_eq!(cluster.collection_totals(dir).await.unwrap().0, 1);
    });
}

#[test]
fn changes_of_different_names_do_not_conflict_and_of_one_name_do() {
    with_cluster(|cluster| async move {
        bind(&cluster, "dir/first").await;
        let bound = |path: &'static str| {
            let t = begin(&cluster);
            async move {
                let blob = t.create_blob(path).unwrap();
                t.bind(path, blob).await.unwrap();
                t
            }
        };
        let (one, two, same) = (bound("dir/1").await, bound("dir/2").await, bound("dir/1").await);
        assert!(is_committed(&one.commit().await.unwrap()));
        assert!(is_committed(&two.commit().await.unwrap()), "another name of the directory");
        assert!(matches!(same.commit().await.unwrap(), CommitOutcome::Conflict(_)), "the same name");
        // A listing conflicts with any change.
        let lists = begin(&cluster);
        assert_eq!(lists.list("dir", None, 10).await.unwrap().len(), 3);
        lists.create_blob("x").unwrap();
        bind(&cluster, "dir/3").await;
        assert!(matches!(lists.commit().await.unwrap(), CommitOutcome::Conflict(_)));
        // Both make the same directory.
        let (one, two) = (bound("new/1").await, bound("new/2").await);
        assert!(is_committed(&one.commit().await.unwrap()));
        assert!(matches!(two.commit().await.unwrap(), CommitOutcome::Conflict(_)));
    });
}

#[test]
fn directories_are_moved_with_everything_below_them() {
    with_cluster(|cluster| async move {
        for path in ["a/b/c/1", "a/b/2", "x/y"] {
            bind(&cluster, path).await;
        }
        let rename = |from: &'static str, to: &'static str| {
            let cluster = cluster.clone();
            async move { cluster.transact(|t| async move { t.rename(from, to).await }).await.map_err(|e| e.kind()) }
        };
        assert_eq!(rename("a/b", "x/moved").await, Ok(()));
        assert_eq!(names(&cluster, "").await, ["x/moved/2", "x/moved/c/1", "x/y"]);
        assert_eq!(rename("x/moved", "x/moved/c/d").await, Err(ErrorKind::Invalid), "below itself");
        assert_eq!(rename("x/moved", "x/y").await, Err(ErrorKind::Exists));
        assert_eq!(rename("x/moved", "none/y").await, Err(ErrorKind::NotFound));
        assert_eq!(rename("none", "x/z").await, Err(ErrorKind::NotFound));
        assert_eq!(rename("x/y", "y").await, Ok(()));
        assert_eq!(names(&cluster, "").await, ["x/moved/2", "x/moved/c/1", "y"]);
        // Two moves that would make a circle.
        let (one, two) = (begin(&cluster), begin(&cluster));
        let dir = |t: Transaction, path: &'static str| async move { t.create_directory(path).await.unwrap() };
        cluster.transact(|t| async move { t.create_directory("p").await }).await.unwrap();
        cluster.transact(|t| async move { t.create_directory("q").await }).await.unwrap();
        one.rename("p", "q/p").await.unwrap();
        two.rename("q", "p/q").await.unwrap();
        assert!(is_committed(&one.commit().await.unwrap()));
        assert!(matches!(two.commit().await.unwrap(), CommitOutcome::Conflict(_)));
        let t = begin(&cluster);
        dir(t.clone(), "p/new").await;
        assert!(is_committed(&t.commit().await.unwrap()));
    });
}

#[test]
fn directories_are_neither_replaced_nor_deleted_with_their_names() {
    with_cluster(|cluster| async move {
        let blob = bind(&cluster, "dir/name").await;
        let kind = |result: client::Result<()>| result.map_err(|error| error.kind());
        let t = begin(&cluster);
        assert_eq!(kind(t.bind("dir", blob).await), Err(ErrorKind::Exists));
        assert_eq!(kind(t.unbind("dir").await.map(drop)), Err(ErrorKind::Invalid));
        assert_eq!(kind(t.remove_directory("dir").await), Err(ErrorKind::Invalid));
        assert_eq!(kind(t.remove_directory("dir/name").await), Err(ErrorKind::Invalid), "it is no directory");
        assert_eq!(kind(t.bind("dir/name/below", blob).await), Err(ErrorKind::Invalid));
        assert_eq!(kind(t.bind("/", blob).await), Err(ErrorKind::Invalid));
        // The brick does not rely on the client.
        let dir = resolve(&cluster, "dir").await.unwrap();
        let t = begin(&cluster);
        t.delete(dir).await.unwrap();
        let error = t.commit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        // An empty one is removed; a transaction that adds a name meanwhile conflicts.
        cluster.transact(|t| async move { t.unbind("dir/name").await }).await.unwrap();
        let (adds, removes) = (begin(&cluster), begin(&cluster));
        adds.bind("dir/late", blob).await.unwrap();
        removes.remove_directory("dir").await.unwrap();
        assert!(is_committed(&removes.commit().await.unwrap()));
        assert!(matches!(adds.commit().await.unwrap(), CommitOutcome::Conflict(_)));
        assert_eq!(resolve(&cluster, "dir").await, None);
        assert_eq!(cluster.get(dir).await.unwrap(), None);
    });
}

/// The client runs in the thread of the test, so a bug that is planted there is in the client only.
#[test]
fn mistakes_in_the_client_are_noticed() {
    assert_noticed(&[Bug::OwnEntriesNotFound, Bug::OwnEntriesNotListed], a_transaction_sees_its_own_names);
    assert_noticed(&[Bug::MovedBelowItself, Bug::OldNameKept], directories_are_moved_with_everything_below_them);
    assert_noticed(&[Bug::CollectionNotRead], directories_are_neither_replaced_nor_deleted_with_their_names);
}

#[test]
fn sets_have_members_in_the_order_of_identifiers() {
    with_cluster(|cluster| async move {
        let mut oids: Vec<Oid> = Vec::new();
        for number in 0..5 {
            oids.push(bind(&cluster, &format!("objects/{number}")).await);
        }
        oids.sort_unstable();
        let t = begin(&cluster);
        let set = t.create_collection().unwrap();
        for oid in &oids[..4] {
            t.add_member(set, *oid).await.unwrap();
        }
        assert!(t.remove_member(set, oids[1]).await.unwrap() && !t.remove_member(set, oids[4]).await.unwrap());
        assert_eq!(t.members(set, None, 10).await.unwrap(), [oids[0], oids[2], oids[3]]);
        assert_eq!(t.count(set).await.unwrap(), 3);
        assert!(is_committed(&t.commit().await.unwrap()));
        let set = t.real_oid(set).unwrap();
        assert_eq!(cluster.collection_totals(set).await.unwrap().0, 3);
        assert_eq!(cluster.get(set).await.unwrap(), Some(Object::collection(Kind::Collection)));
        for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
            let t = cluster.begin(level);
            assert!(t.contains(set, oids[0]).await.unwrap() && !t.contains(set, oids[1]).await.unwrap());
            assert_eq!(t.members(set, Some(oids[0]), 1).await.unwrap(), [oids[2]]);
            t.add_member(set, oids[4]).await.unwrap();
            t.add_member(set, oids[0]).await.unwrap();
            assert!(t.remove_member(set, oids[3]).await.unwrap() || level == IsolationLevel::Locks);
            assert_eq!(t.count(set).await.unwrap(), 3);
            assert_eq!(t.members(set, None, 10).await.unwrap(), [oids[0], oids[2], oids[4]]);
            assert!(is_committed(&t.commit().await.unwrap()));
            assert_eq!(cluster.collection_totals(set).await.unwrap().0, 3);
        }
        assert_eq!(cluster.collections_of(oids[0]).await.unwrap(), [set]);
        assert_eq!(cluster.collections_of(oids[1]).await.unwrap(), []);
        assert_eq!(cluster.names_of(oids[0]).await.unwrap().len(), 1, "a set gives no names");
        let t = begin(&cluster);
        assert_eq!(t.put_entry(set, "name", oids[0]).await.unwrap_err().kind(), ErrorKind::Invalid, "it is a set");
        assert_eq!(t.add_member(oids[0], oids[1]).await.unwrap_err().kind(), ErrorKind::Invalid);
        let snapshot = cluster.begin(IsolationLevel::Snapshot);
        assert_eq!(snapshot.contains(set, oids[0]).await.unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn members_outside_of_transactions_are_listed_up_to_the_limit() {
    with_cluster(|cluster| async move {
        let mut oids: Vec<Oid> = Vec::new();
        for number in 0..3 {
            oids.push(bind(&cluster, &format!("objects/{number}")).await);
        }
        oids.sort_unstable();
        let t = begin(&cluster);
        let set = t.create_collection().unwrap();
        for oid in &oids {
            t.add_member(set, *oid).await.unwrap();
        }
        assert!(is_committed(&t.commit().await.unwrap()));
        let set = t.real_oid(set).unwrap();
        for limit in [0, 1, 2, 3, 4, usize::MAX] {
            let members = tokio::time::timeout(HANGS, cluster.members(set, None, limit)).await;
            assert_eq!(members.expect("the listing does not end").unwrap(), oids[..limit.min(3)], "{limit}");
        }
        assert_eq!(cluster.members(set, Some(oids[0]), 1).await.unwrap(), oids[1..2]);
    });
}

#[test]
fn listing_with_a_limit_contains_changes_of_the_transaction_only_within_it() {
    with_cluster(|cluster| async move {
        for name in ["a", "b", "c"] {
            bind(&cluster, &format!("dir/{name}")).await;
        }
        let t = begin(&cluster);
        t.unbind("dir/a").await.unwrap();
        t.bind("dir/d", t.create_blob("d").unwrap()).await.unwrap();
        let list = async |after: Option<&str>, limit| -> Vec<String> {
            t.list("dir", after, limit).await.unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(list(None, 2).await, ["b", "c"]);
        assert_eq!(list(None, 3).await, ["b", "c", "d"]);
        assert_eq!(list(Some("b"), 1).await, ["c"]);
        assert_eq!(list(Some("c"), 2).await, ["d"]);
        assert_eq!(list(Some("d"), 2).await, [""; 0]);
        assert_eq!(t.list("dir/b", None, 2).await.unwrap_err().kind(), ErrorKind::Invalid, "it is no directory");
    });
}

#[test]
fn listing_with_locks_keeps_others_from_adding_names() {
    with_cluster(|cluster| async move {
        bind(&cluster, "dir/first").await;
        let blob = bind(&cluster, "blob").await;
        let [lists, adds] = [0; 2].map(|_| cluster.begin(IsolationLevel::Locks));
        assert_eq!(lists.list("dir", None, 10).await.unwrap().len(), 1);
        let mut adding = Box::pin(async {
            adds.bind("dir/second", blob).await?;
            adds.commit().await
        });
        assert!(tokio::time::timeout(SHORT, &mut adding).await.is_err(), "it waits for the listing transaction");
        lists.create_blob("x").unwrap();
        assert!(is_committed(&lists.commit().await.unwrap()));
        assert!(is_committed(&adding.await.unwrap()));
    });
}

#[test]
fn large_directories_are_listed_in_portions() {
    with_cluster(|cluster| async move {
        let fill = |t: Transaction| async move {
            let dir = t.create_directory("dir").await?;
            let blob = t.create_blob("x")?;
            for number in 0..2_500 {
                t.put_entry(dir, &format!("{number:05}"), blob).await?;
            }
            Ok(())
        };
        cluster.transact(fill).await.unwrap();
        let t = begin(&cluster);
        let all = t.list("dir", None, usize::MAX).await.unwrap();
        assert_eq!(all.len(), 2_500);
        assert!(all.is_sorted_by(|(one, _), (next, _)| one < next));
        let next = t.list("dir", Some("01233"), 2).await.unwrap();
        assert_eq!(next.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["01234", "01235"]);
        let dir = t.resolve("dir").await.unwrap().unwrap();
        assert_eq!(t.entries(dir, None, "0249", 100).await.unwrap().len(), 10);
        assert_eq!(t.count(dir).await.unwrap(), 2_500);
        assert_eq!(names(&cluster, "dir/02").await.len(), 500);
    });
}

#[test]
fn new_objects_are_placed_at_their_directory() {
    with_cluster(|cluster| async move {
        let t = begin(&cluster);
        let dir = t.create_directory("dir").await.unwrap();
        t.abort();
        assert!(dir.is_temporary());
        let create = |t: Transaction| async move {
            let dir = t.create_object(
                model::ClassId::NONE,
                Object::collection(Kind::Directory),
                PlacementHint::At(NodeId(2)),
            )?;
            t.bind("dir", dir).await
        };
        cluster.transact(create).await.unwrap();
        for path in ["dir/a", "dir/sub/b", "dir/sub/c"] {
            let oid = bind(&cluster, path).await;
            assert_eq!(oid.page().node, NodeId(2), "{path}");
        }
        let t = begin(&cluster);
        let hinted =
            t.create_object(model::ClassId::NONE, Object::blob("x".into()), PlacementHint::At(NodeId(1))).unwrap();
        t.bind("dir/hinted", hinted).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        assert_eq!(t.real_oid(hinted).unwrap().page().node, NodeId(1));
    });
}

#[test]
fn entry_is_added_only_under_a_free_name() {
    with_cluster(|cluster| async move {
        let a = bind(&cluster, "dir/a").await;
        let dir = resolve(&cluster, "dir").await.unwrap();
        for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
            let t = cluster.begin(level);
            assert_eq!(t.add_entry(dir, "a", a).await.unwrap_err().kind(), ErrorKind::Exists);
        }
        // Two transactions that have both seen that a name is free.
        let [first, second] = [begin(&cluster), begin(&cluster)];
        for t in [&first, &second] {
            t.add_entry(dir, "b", t.create_blob("b").unwrap()).await.unwrap();
        }
        assert!(is_committed(&first.commit().await.unwrap()));
        assert!(!is_committed(&second.commit().await.unwrap()));
        assert_eq!(cluster.entry(dir, "a").await.unwrap(), Some(a));
        assert_eq!(cluster.entry(dir, "b").await.unwrap(), resolve(&cluster, "dir/b").await);
        assert_eq!(cluster.entry(dir, "c").await.unwrap(), None);
        assert_eq!(cluster.entry(dir, "a/b").await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

/// A put replaces whatever there is, so it reads nothing of the name.
#[test]
fn last_put_of_a_name_counts_and_no_put_conflicts() {
    with_cluster(|cluster| async move {
        let (a, b) = (bind(&cluster, "dir/a").await, bind(&cluster, "dir/b").await);
        let dir = resolve(&cluster, "dir").await.unwrap();
        let [first, second] = [begin(&cluster), begin(&cluster)];
        first.put_entry(dir, "new", a).await.unwrap();
        second.put_entry(dir, "new", b).await.unwrap();
        assert_eq!(second.entry(dir, "new").await.unwrap(), Some(b));
        assert!(is_committed(&first.commit().await.unwrap()));
        assert!(is_committed(&second.commit().await.unwrap()));
        assert_eq!(cluster.entry(dir, "new").await.unwrap(), Some(b));
        assert_eq!(cluster.collection_totals(dir).await.unwrap().0, 3);
        // A transaction that has read the name conflicts with a put of it.
        let [reader, writer] = [begin(&cluster), begin(&cluster)];
        assert_eq!(reader.entry(dir, "new").await.unwrap(), Some(b));
        reader.put_entry(dir, "copy", b).await.unwrap();
        writer.put_entry(dir, "new", a).await.unwrap();
        assert!(is_committed(&writer.commit().await.unwrap()));
        assert!(!is_committed(&reader.commit().await.unwrap()));
    });
}

/// Otherwise a listing of all names would not end.
#[test]
fn directory_has_one_name() {
    with_cluster(|cluster| async move {
        bind(&cluster, "a/b/file").await;
        let t = begin(&cluster);
        let (a, root) = (t.resolve("a").await.unwrap().unwrap(), t.root().unwrap());
        for (path, directory) in [("a/b/again", a), ("link", a), ("link", root)] {
            assert_eq!(t.bind(path, directory).await.unwrap_err().kind(), ErrorKind::Invalid, "{path}");
        }
        assert_eq!(t.put_entry(root, "link", a).await.unwrap_err().kind(), ErrorKind::Invalid);
        t.bind("a", a).await.unwrap();
        t.put_entry(root, "a", a).await.unwrap();
        let new = t.create_directory("new").await.unwrap();
        assert_eq!(t.bind("newer", new).await.unwrap_err().kind(), ErrorKind::Invalid);
        t.rename("new", "newer").await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        assert_eq!(names(&cluster, "").await, ["a/b/file"]);
    });
}

#[test]
fn root_directory_is_not_replaced() {
    with_cluster(|cluster| async move {
        let t = begin(&cluster);
        let root = t.root().unwrap();
        assert_eq!(t.put(root, Object::blob("x".into())).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(t.delete(root).await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn root_directory_exists_without_having_been_created() {
    with_cluster(|cluster| async move {
        let root = begin(&cluster).root().unwrap();
        let found = cluster.stat(root).await.unwrap().unwrap();
        assert_eq!((found.kind(), found.size, found.entry_changed), (Kind::Directory, 0, None));
        let blob = bind(&cluster, "blob").await;
        let found = cluster.stat(root).await.unwrap().unwrap();
        assert!(found.size == 1 && found.entry_changed.is_some());
        cluster.transact(|t| async move { t.delete(blob).await }).await.unwrap();
        assert_eq!(cluster.stat(blob).await.unwrap(), None);
    });
}

#[test]
fn object_is_deleted_with_its_names_and_memberships() {
    with_cluster(|cluster| async move {
        let (blob, other) = (bind(&cluster, "dir/blob").await, bind(&cluster, "dir/other").await);
        let t = begin(&cluster);
        let set = t.create_collection().unwrap();
        for member in [blob, other] {
            t.add_member(set, member).await.unwrap();
        }
        t.bind("again", blob).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        let set = t.real_oid(set).unwrap();
        let t = begin(&cluster);
        // This name is another object's by then.
        t.unbind("again").await.unwrap();
        t.bind("again", other).await.unwrap();
        t.delete_with_names(blob).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        assert_eq!(cluster.get(blob).await.unwrap(), None);
        assert_eq!(names(&cluster, "").await, ["again", "dir/other"]);
        assert_eq!(cluster.members(set, None, 10).await.unwrap(), [other]);
    });
}

#[test]
fn objects_of_all_logical_nodes_are_listed_once() {
    with_cluster(|cluster| async move {
        let t = begin(&cluster);
        let hints = [1, 2].map(|node| PlacementHint::At(NodeId(node)));
        let create = |number: usize| {
            let blob = Object::blob(vec![7; number % 3].into());
            t.create_object(model::ClassId::NONE, blob, hints[number % 2]).unwrap()
        };
        let created: Vec<Oid> = (0..2_100).map(create).collect();
        assert!(is_committed(&t.commit().await.unwrap()));
        let mut expected: Vec<(Oid, u64)> =
            created.iter().enumerate().map(|(number, oid)| (t.real_oid(*oid).unwrap(), (number % 3) as u64)).collect();
        let (mut objects, mut listed) = (cluster.objects(), Vec::new());
        while let Some(portion) = objects.next().await.unwrap() {
            listed.extend(portion.into_iter().map(|object| (object.oid, object.size)));
            assert!(listed.len() <= expected.len());
        }
        listed.sort_unstable();
        expected.sort_unstable();
        assert!(listed == expected, "{} of {} objects", listed.len(), expected.len());
    });
}

#[test]
fn names_of_an_object_are_paths_only() {
    with_cluster(|cluster| async move {
        let file = bind(&cluster, "d/file").await;
        cluster
            .transact(|t| async move {
                let set = t.create_collection()?;
                t.bind("favourites", set).await
            })
            .await
            .unwrap();
        cluster
            .transact(|t| async move {
                let set = t.resolve("favourites").await?.expect("it is bound");
                let directory = t.resolve("d").await?.expect("it is bound");
                t.add_member(set, directory).await
            })
            .await
            .unwrap();
        assert_eq!(cluster.names_of(file).await.unwrap(), ["/d/file"]);
    });
}

/// A directory with a long path may get a longer one.
#[test]
fn names_with_long_paths_are_listed() {
    with_cluster(|cluster| async move {
        let deep = vec!["x".repeat(200); 5].join("/");
        let oid = bind(&cluster, &deep).await;
        let t = begin(&cluster);
        t.rename(&"x".repeat(200), &"y".repeat(255)).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        let longer = deep.replacen(&"x".repeat(200), &"y".repeat(255), 1);
        assert_eq!(names(&cluster, "").await, std::slice::from_ref(&longer));
        assert_eq!(cluster.names_of(oid).await.unwrap(), [format!("/{longer}")]);
    });
}

#[test]
fn directory_is_not_bound_below_itself() {
    with_cluster(|cluster| async move {
        let t = begin(&cluster);
        let directory = || t.create_object(ClassId::NONE, Object::collection(Kind::Directory), PlacementHint::Anywhere);
        let (upper, lower, lowest) = (directory().unwrap(), directory().unwrap(), directory().unwrap());
        t.put_entry(lower, "lowest", lowest).await.unwrap();
        t.put_entry(upper, "lower", lower).await.unwrap();
        for below in [upper, lower, lowest] {
            for error in [t.put_entry(below, "x", upper).await, t.add_entry(below, "x", upper).await] {
                assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{below}");
            }
        }
        t.bind("upper", upper).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        let oid = t.real_oid(lowest).unwrap();
        assert_eq!(cluster.names_of(oid).await.unwrap(), ["/upper/lower/lowest"]);
        // What a catalogue of directories says that is damaged ends, too.
        let entry = model::Entry { collection: oid, key: model::EntryKey::name("x").unwrap() };
        let t = begin(&cluster);
        t.restore_entry(entry, t.resolve("upper").await.unwrap().unwrap()).await.unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        let error = cluster.names_of(oid).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    });
}

#[test]
fn entries_that_a_transaction_changes_are_counted_once() {
    with_cluster(|cluster| async move {
        let oids = [bind(&cluster, "d/a").await, bind(&cluster, "d/b").await];
        for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
            let t = cluster.begin(level);
            let directory = t.resolve("d").await.unwrap().unwrap();
            for name in 0..100 {
                t.put_entry(directory, &format!("{name}"), oids[0]).await.unwrap();
            }
            t.put_entry(directory, "a", oids[1]).await.unwrap();
            t.remove_entry(directory, "b").await.unwrap();
            assert_eq!(t.count(directory).await.unwrap(), 101);
            t.abort();
        }
    });
}
