//! Authentication and permissions: clusters in one process, with users and TLS.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hostile;
mod tls;
mod world;

use std::time::Duration;

use client::{AdminClient, Client, CommitOutcome, ErrorKind, Event, IsolationLevel, Transaction};
use meta::MetaStore;
use meta::catalog::{ADMINISTRATORS, Grantee, JobRequest, JobState, Permission};
use model::{FailurePolicy, Object, Oid};
use node::auth::{ClusterCredentials, Secret};
use node::catalog_messages::{job_answer_from_proto, job_request_to_proto};
use node::meta::RemoteMetaStore;
use node::{Config, PeerServer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time;
use wire::handshake::{self, Role};
use wire::transport::{self, Stream};

use world::{World, run};

fn expect_denied<T: std::fmt::Debug>(result: client::Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    error.message().to_owned()
}

/// Checks that a write outside of transactions is denied. If its connection has ended meanwhile, it was sent again, and the client does not
/// know whether the first message was taken.
fn expect_denied_write<T: std::fmt::Debug>(result: client::Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unknown), "{error}");
    assert!(["permission", "password"].iter().any(|why| error.message().contains(why)), "{error}");
}

/// Creates an object with this text, which is also its name.
async fn create(cluster: &Client, text: &'static str) -> client::Result<Oid> {
    let bind = async |t: Transaction| {
        let oid = t.create_blob(text)?;
        t.bind(text, oid).await
    };
    cluster.transact(bind).await?;
    Ok(cluster.begin(IsolationLevel::Optimistic).resolve(text).await?.unwrap())
}

#[test]
fn every_server_admits_permitted_users_only() {
    run(async {
        let (world, secret) = World::with(&[("ann", Some(Permission::Write)), ("bob", None)]).await;
        let (world_secret, secret) = (secret.clone(), secret.primary());
        // A peer server admits users with a permission in the space.
        for (name, password, is_admitted) in [
            ("ann", "right one", true),
            ("root", "right one", true),
            ("", secret.as_str(), true),
            ("ann", "wrong", false),
            ("bob", "right one", false),
            ("unknown", "right one", false),
            ("", "", false),
            ("", "wrong", false),
        ] {
            let connected = world.client(name, password).await;
            assert_eq!(connected.is_ok(), is_admitted, "{name} {connected:?}");
            if !is_admitted {
                expect_denied(connected);
            }
        }
        // The meta-server has its own copy of the catalogue, which may be slightly outdated.
        while World::client_at(world.meta.addresses(), "root", "right one").await.is_err() {}
        // Bricks and meta-servers admit only processes of the cluster and administrators.
        for addresses in [world.brick.addresses(), world.meta.addresses()] {
            assert!(World::client_at(addresses, "root", "right one").await.is_ok());
            assert!(World::client_at(addresses, "", &secret).await.is_ok());
            assert!(expect_denied(World::client_at(addresses, "ann", "right one").await).contains("administrator"));
            expect_denied(World::client_at(addresses, "", "").await);
        }
        let stranger =
            RemoteMetaStore::new_as(world.meta.addresses().to_vec(), ClusterCredentials::default(), Role::Peer)
                .unwrap();
        assert_eq!(stranger.get(Vec::new()).await.unwrap_err().kind(), ErrorKind::Denied);
        // A process of the cluster says who it is by the secret, which must be the right one.
        for (secret, is_admitted) in [(world_secret, true), (Secret::generate(), false)] {
            let credentials = ClusterCredentials { secret: Some(secret), ..ClusterCredentials::default() };
            let member = RemoteMetaStore::new_as(world.meta.addresses().to_vec(), credentials, Role::Peer).unwrap();
            let read = member.get(Vec::new()).await;
            assert_eq!(
                read.map(drop).map_err(|error| error.kind()),
                if is_admitted { Ok(()) } else { Err(ErrorKind::Denied) }
            );
        }
    });
}

#[test]
fn only_administrators_learn_whether_there_is_a_space() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write))]).await;
        let (ann, root) =
            (world.client("ann", "right one").await.unwrap(), world.client("root", "right one").await.unwrap());
        for client in [&ann, &root] {
            assert_eq!(client.space_usages(Some("main")).await.unwrap().len(), 1);
        }
        expect_denied(ann.space_usages(Some("other")).await);
        assert_eq!(root.space_usages(Some("other")).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn permissions_limit_requests() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Read))]).await;
        let (ann, bob) = (world.cluster("ann").await.unwrap(), world.cluster("bob").await.unwrap());
        let oid = create(&ann, "first").await.unwrap();
        assert_eq!(bob.get(oid).await.unwrap().unwrap().data, "first");
        assert_eq!(bob.read_cached(oid).await.unwrap().unwrap().data, "first");
        // Creating an object requests pages from a brick; changing one does not.
        assert!(expect_denied(create(&bob, "second").await).contains("write"));
        let change = async |t: Transaction| {
            t.get(oid).await?;
            t.put(oid, Object::blob("changed".into())).await
        };
        expect_denied(bob.transact(change).await);
        expect_denied_write(bob.put(oid, Object::blob("changed".into())).await);
        expect_denied(bob.begin(IsolationLevel::Locks).get_for_update(oid).await);
        assert_eq!(ann.get(oid).await.unwrap().unwrap().data, "first");
        // Reading is permitted, also in transactions.
        let read = bob.begin(IsolationLevel::Optimistic);
        assert!(read.get(oid).await.unwrap().is_some());
        assert!(matches!(read.commit().await.unwrap(), CommitOutcome::Committed(_)));
        // Only administrators create spaces.
        let (as_ann, as_root) =
            (world.client("ann", "right one").await.unwrap(), world.client("root", "right one").await.unwrap());
        expect_denied(as_ann.create_space("more").await);
        as_root.create_space("more").await.unwrap();
        let names = |spaces: Vec<client::SpaceInfo>| spaces.into_iter().map(|space| space.name).collect::<Vec<_>>();
        assert_eq!(
            names(as_ann.spaces().await.unwrap()),
            ["main"],
            "ann sees only spaces in which she has a permission"
        );
        assert_eq!(names(as_root.spaces().await.unwrap()), ["main", "more"]);
    });
}

#[test]
fn jobs_are_seen_and_changed_by_those_who_may_begin_them() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Read))]).await;
        let client = async |name: &str| world.client(name, "right one").await.unwrap();
        let (ann, bob, root) = (client("ann").await, client("bob").await, client("root").await);
        let send = async |by: &AdminClient, request: &JobRequest| {
            Ok::<_, client::Error>(job_answer_from_proto(by.jobs(job_request_to_proto(request)).await?)?.jobs)
        };
        let evolve = |space: &str| JobRequest::Evolve { space: space.to_owned(), classes: Vec::new(), rate: None };
        assert!(expect_denied(send(&bob, &evolve("main")).await).contains("write"));
        assert!(expect_denied(send(&ann, &evolve("none")).await).contains("or there is none"));
        expect_denied(send(&ann, &JobRequest::Scrub { bricks: Vec::new(), rate: None }).await);
        let begun = send(&ann, &evolve("main")).await.unwrap().remove(0);
        assert_eq!((begun.begun_by.as_str(), begun.state), ("ann", JobState::Running));
        let scrub = send(&root, &JobRequest::Scrub { bricks: Vec::new(), rate: None }).await.unwrap().remove(0);
        for (who, seen) in [(&ann, vec![begun.job]), (&bob, vec![]), (&root, vec![begun.job, scrub.job])] {
            let listed = send(who, &JobRequest::List).await.unwrap();
            assert_eq!(listed.iter().map(|view| view.job).collect::<Vec<_>>(), seen);
        }
        for (who, job) in [(&bob, begun.job), (&ann, scrub.job)] {
            for request in [JobRequest::Show { job }, JobRequest::Pause { job }, JobRequest::Cancel { job }] {
                assert_eq!(send(who, &request).await.unwrap_err().kind(), ErrorKind::NotFound, "{request:?}");
            }
        }
        let paused = send(&ann, &JobRequest::Pause { job: begun.job }).await.unwrap().remove(0);
        assert_eq!(paused.state, JobState::Paused);
        let cancelled = send(&root, &JobRequest::Cancel { job: begun.job }).await.unwrap().remove(0);
        assert_eq!(cancelled.state, JobState::Cancelled);
    });
}

#[test]
fn readers_receive_events_and_administrators_set_the_policy() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Read))]).await;
        let bob = world.cluster("bob").await.unwrap();
        let mut events = bob.events().unwrap();
        let mut next = async || time::timeout(Duration::from_secs(30), events.next()).await.expect("no event").unwrap();
        let Event::Connected { status: standing, .. } = next().await else {
            panic!("the first event is not the connection")
        };
        assert_eq!((standing.space.as_str(), standing.policy), ("main", FailurePolicy::Continue));
        let ann = world.client("ann", "right one").await.unwrap();
        expect_denied(ann.set_failure_policy("main", FailurePolicy::FailStop).await);
        expect_denied(ann.set_failure_policy("none", FailurePolicy::FailStop).await);
        world.grant("ann", Some(Permission::Admin)).await;
        ann.set_failure_policy("main", FailurePolicy::FailStop).await.unwrap();
        assert_eq!(next().await, Event::PolicyChanged(FailurePolicy::FailStop));
        // A client without the permission to read receives no events until it has the permission again.
        world.grant("bob", None).await;
        assert!(matches!(next().await, Event::Disconnected { .. }));
        assert!(matches!(next().await, Event::Refused { why } if why.contains("no permission to read")));
        ann.set_failure_policy("main", FailurePolicy::Continue).await.unwrap();
        ann.set_failure_policy("main", FailurePolicy::FailStop).await.unwrap();
        ann.set_failure_policy("main", FailurePolicy::Continue).await.unwrap();
        world.grant("bob", Some(Permission::Read)).await;
        assert!(matches!(next().await, Event::Connected { status, .. } if status.policy == FailurePolicy::Continue));
        assert_eq!(next().await, Event::PolicyChanged(FailurePolicy::Continue));
    });
}

/// The authenticator of a peer server that refuses all clients.
struct DenyAll;

impl handshake::HandshakeAuthenticator for DenyAll {
    async fn admit(
        &mut self,
        _: &wire::proto::Hello,
        _: &transport::RemoteEndpoint,
    ) -> client::Result<handshake::Terms> {
        Err(client::Error::new(ErrorKind::Denied, "this server refuses all clients"))
    }
}

#[test]
fn client_refused_by_one_peer_server_uses_the_next() {
    run(async {
        let (world, secret) = World::without_users().await;
        let membership = ClusterCredentials { secret: Some(secret), ..ClusterCredentials::default() };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let start = world.editor.start_number().await.unwrap();
        let config = Config { listen, cluster_credentials: membership, threads: 1, ..Config::default() };
        let other = PeerServer::start(world.cluster_view.clone(), start.0, config).await.unwrap();
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = door.local_addr().unwrap();
        let (knocked, mut knocks) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = door.accept().await {
                let _ = handshake::accept(&mut Stream::Tcp(stream), &mut DenyAll, "test").await;
                knocked.send(()).unwrap();
            }
        });
        let [first, second] = [&world.peer, &other].map(|peer| peer.addresses()[0].to_string());
        let cluster = Client::connect(&format!("mortar://{first},{closed},{second}/main")).await.unwrap();
        let mut events = cluster.events().unwrap();
        assert!(matches!(events.next().await, Some(Event::Connected { peer, .. }) if peer == first));
        world.peer.shutdown().await.unwrap();
        assert!(matches!(events.next().await, Some(Event::Disconnected { .. })));
        knocks.recv().await.unwrap();
        let next = events.next().await;
        assert!(matches!(&next, Some(Event::Connected { peer, .. }) if *peer == second), "{next:?}");
        // When no peer server admits the client, it receives the reason.
        other.shutdown().await.unwrap();
        assert!(matches!(events.next().await, Some(Event::Disconnected { .. })));
        assert!(matches!(events.next().await, Some(Event::Refused { why }) if why.contains("refuses all clients")));
    });
}

#[test]
fn client_with_a_changed_password_or_removed_user_is_denied() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write)), ("bob", Some(Permission::Write))]).await;
        let (ann, bob) = (world.cluster("ann").await.unwrap(), world.cluster("bob").await.unwrap());
        let mut events = ann.events().unwrap();
        let oid = create(&ann, "first").await.unwrap();
        assert!(ann.get(oid).await.unwrap().is_some() && bob.get(oid).await.unwrap().is_some());
        let changed = world.editor.set_password("ann", Some("another one")).await.unwrap();
        world.reach(&changed.revision).await;
        let refused = async {
            loop {
                if let Event::Refused { why } = events.next().await.expect("the client has ended") {
                    return why;
                }
            }
        };
        let why = time::timeout(Duration::from_secs(20), refused).await.expect("no refusal");
        assert_eq!(why, "user or password is wrong");
        // All reads and writes are denied, also of cached objects.
        expect_denied(ann.get(oid).await);
        expect_denied(ann.read_latest(oid).await);
        expect_denied_write(ann.put(oid, Object::blob("changed".into())).await);
        expect_denied(create(&ann, "second").await);
        let begun = ann.begin(IsolationLevel::Optimistic);
        expect_denied(begun.commit().await);
        expect_denied(world.client("ann", "right one").await);
        assert!(world.client("ann", "another one").await.is_ok());
        // Other users are not affected, until bob is removed.
        assert!(bob.read_latest(oid).await.unwrap().is_some());
        world.grant("bob", None).await;
        let removed = world.editor.remove_user("bob").await.unwrap();
        world.reach(&removed.revision).await;
        expect_denied(bob.read_latest(oid).await);
        expect_denied(create(&bob, "third").await);
    });
}

#[test]
fn leaving_a_group_ends_its_permissions() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Read))]).await;
        let editor = &world.editor;
        editor.create_group("staff").await.unwrap();
        editor.grant("main", Grantee::Group("staff"), Some(Permission::Write)).await.unwrap();
        let joined = editor.set_member("staff", "ann", true).await.unwrap();
        world.reach(&joined.revision).await;
        let ann = world.cluster("ann").await.unwrap();
        let oid = create(&ann, "first").await.unwrap();
        let left = editor.set_member("staff", "ann", false).await.unwrap();
        world.reach(&left.revision).await;
        expect_denied_write(ann.put(oid, Object::blob("changed".into())).await);
        expect_denied(create(&ann, "second").await);
        assert!(ann.read_latest(oid).await.unwrap().is_some(), "the user has its own permission to read");
        world.grant("ann", None).await;
        expect_denied(ann.read_latest(oid).await);
    });
}

#[test]
fn changed_permissions_apply_to_existing_connections() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Write))]).await;
        let ann = world.cluster("ann").await.unwrap();
        let oid = create(&ann, "first").await.unwrap();
        world.grant("ann", Some(Permission::Read)).await;
        expect_denied_write(ann.put(oid, Object::blob("changed".into())).await);
        expect_denied(create(&ann, "second").await);
        assert!(ann.read_latest(oid).await.unwrap().is_some());
        world.grant("ann", Some(Permission::Write)).await;
        ann.put(oid, Object::blob("changed".into())).await.unwrap();
        let disabled = world.editor.set_disabled("ann", true).await.unwrap();
        world.reach(&disabled.revision).await;
        expect_denied(ann.read_latest(oid).await);
        let enabled = world.editor.set_disabled("ann", false).await.unwrap();
        world.reach(&enabled.revision).await;
        // The client connects again by itself.
        let back = async {
            while ann.read_latest(oid).await.is_err() {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        time::timeout(Duration::from_secs(30), back).await.unwrap();
    });
}

#[test]
fn first_user_ends_anonymous_access_but_not_that_of_processes() {
    run(async {
        let (world, _) = World::without_users().await;
        let anyone = Client::connect(&World::url(world.peer.addresses())).await.unwrap();
        let oid = create(&anyone, "first").await.unwrap();
        world.add("root", None).await;
        assert!(expect_denied(anyone.read_latest(oid).await).contains("users"));
        let root = world.cluster("root").await.unwrap();
        assert_eq!(root.get(oid).await.unwrap().unwrap().data, "first");
        create(&root, "second").await.unwrap();
        assert!(world.editor.set_member(ADMINISTRATORS, "root", false).await.is_err());
    });
}
