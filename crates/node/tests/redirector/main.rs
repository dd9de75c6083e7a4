//! Redirectors: groups of clients in one process with a cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../auth/world.rs"]
#[allow(dead_code, reason = "shared with the tests of authentication")]
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Client, CommitOutcome, ConnectOptions, Credentials, ErrorKind, IsolationLevel, Transaction};
use meta::catalog::Permission;
use model::{Object, Oid};
use node::auth::{ClusterCredentials, Secret};
use node::{Config, Redirector, RedirectorSettings};
use protocol::commit::Part;
use protocol::gateway::Call;
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use relay::Relay;
use tokio::time;
use wire::cluster::Message;
use wire::handshake::{self, ClientNumber, Introduction};
use wire::link::{self, Caller, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream};

use world::{World, run};

/// A redirector below these servers.
async fn redirector_below(upstream: &[Address], secret: &Secret) -> Redirector {
    redirector_of(None, upstream, secret).await
}

/// A redirector of a group.
async fn redirector_of(group: Option<&str>, upstream: &[Address], secret: &Secret) -> Redirector {
    let (group, secret) = (group.map(str::to_owned), secret.clone());
    let cluster_credentials = ClusterCredentials { secret: Some(secret), ..ClusterCredentials::default() };
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { listen, threads: 1, cluster_credentials, ..Config::default() };
    let settings = RedirectorSettings { upstream: upstream.to_vec(), group, ..RedirectorSettings::default() };
    Redirector::start(settings, config).await.unwrap()
}

/// A client that connects to the first of these servers that answers.
async fn connect(servers: &[&Address], user: &str) -> client::Result<Client> {
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(20);
    if !user.is_empty() {
        options.credentials = Some(Credentials { user: user.to_owned(), password: "right one".to_owned() });
    }
    let hosts: Vec<String> = servers.iter().map(ToString::to_string).collect();
    Client::connect_with(&format!("mortar://{}/main", hosts.join(",")), options).await
}

/// A client of a group.
async fn join(group: &str, world: &World) -> Client {
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(20);
    let peer = &world.peer.addresses()[0];
    Client::connect_with(&format!("mortar://{peer}/main?group={group}"), options).await.unwrap()
}

/// What a redirector has counted.
async fn counts(redirector: &Redirector) -> BTreeMap<String, u64> {
    let admin = World::client_at(redirector.addresses(), "", "").await.unwrap();
    admin.status().await.unwrap().metrics.into_iter().collect()
}

/// Creates objects of about a kilobyte, so that they fill many pages.
async fn create(client: &Client, count: u8) -> Vec<Oid> {
    let t = client.begin(IsolationLevel::Optimistic);
    let created: Vec<Oid> = (0..count).map(|number| t.create_blob(vec![number; 1000]).unwrap()).collect();
    let ended = t.commit().await.unwrap();
    assert!(matches!(ended, CommitOutcome::Committed(_)), "{ended:?}");
    created.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect()
}

async fn read_all(client: &Client, oids: &[Oid]) -> Vec<u8> {
    let mut found = Vec::new();
    for oid in oids {
        found.push(client.get(*oid).await.unwrap().unwrap().data[0]);
    }
    found
}

/// Sets the first byte of an object.
async fn change(client: &Client, oid: Oid, value: u8) {
    let change = async |t: Transaction| {
        let mut bytes = t.get(oid).await?.unwrap().data.to_vec();
        bytes[0] = value;
        t.put(oid, Object::blob(bytes.into())).await
    };
    client.transact(change).await.unwrap();
}

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = time::timeout(Duration::from_secs(30), async {
        while !is_so().await {
            time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}: not within 30 s"));
}

#[test]
fn page_that_a_member_has_is_not_fetched_above_again() {
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let direct = connect(&[&world.peer.addresses()[0]], "").await.unwrap();
        let oids = create(&direct, 100).await;
        let at = &redirector.addresses()[0];
        let (first, second) = (connect(&[at], "").await.unwrap(), connect(&[at], "").await.unwrap());
        let expected: Vec<u8> = (0..100).collect();
        assert_eq!(read_all(&first, &oids).await, expected);
        let once = counts(&redirector).await;
        assert!(once["pages_fetched_above_total"] >= 10, "{once:?}");
        assert_eq!(once["pages_helped_total"], 0);
        assert_eq!(read_all(&second, &oids).await, expected);
        let twice = counts(&redirector).await;
        assert_eq!(twice["pages_fetched_above_total"], once["pages_fetched_above_total"], "{twice:?}");
        assert!(twice["pages_helped_total"] >= 10, "{twice:?}");
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn members_are_sent_what_a_member_commits() {
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let at = &redirector.addresses()[0];
        let (writer, reader) = (connect(&[at], "").await.unwrap(), connect(&[at], "").await.unwrap());
        let oids = create(&writer, 20).await;
        read_all(&reader, &oids).await;
        read_all(&writer, &oids).await;
        let before = counts(&redirector).await;
        change(&writer, oids[3], 200).await;
        wait_until("the update arrives", async || read_all(&reader, &oids[3..4]).await == [200]).await;
        // A write outside of transactions, too.
        writer.put(oids[4], Object::blob(vec![201; 1000].into())).await.unwrap();
        wait_until("the write arrives", async || read_all(&reader, &oids[4..5]).await == [201]).await;
        let after = counts(&redirector).await;
        assert_eq!(after["pages_fetched_above_total"], before["pages_fetched_above_total"], "{after:?}");
        assert!(after["updates_total"] > before["updates_total"], "{after:?}");
        // What a client elsewhere commits invalidates the copies here.
        let elsewhere = connect(&[&world.peer.addresses()[0]], "").await.unwrap();
        change(&elsewhere, oids[5], 202).await;
        wait_until("the change is seen", async || read_all(&reader, &oids[5..6]).await == [202]).await;
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn transactions_of_members_and_others_lose_no_update() {
    run(async {
        let (world, secret) = World::without_users().await;
        let near = redirector_below(world.peer.addresses(), &secret).await;
        // A chain: a redirector below a redirector.
        let site = redirector_below(near.addresses(), &secret).await;
        let direct = connect(&[&world.peer.addresses()[0]], "").await.unwrap();
        let oids = create(&direct, 4).await;
        let servers = [world.peer.addresses()[0].clone(), near.addresses()[0].clone(), site.addresses()[0].clone()];
        let mut running = tokio::task::JoinSet::new();
        for number in 0..6_usize {
            let (server, oids) = (servers[number % 3].clone(), oids.clone());
            running.spawn(async move {
                let client = connect(&[&server], "").await.unwrap();
                for round in 0..20 {
                    let oid = oids[(number + round) % oids.len()];
                    let increment = async |t: Transaction| {
                        let mut bytes = t.get(oid).await?.unwrap().data.to_vec();
                        bytes[1] = bytes[1].wrapping_add(1);
                        t.put(oid, Object::blob(bytes.into())).await
                    };
                    client.transact(increment).await.unwrap();
                }
            });
        }
        running.join_all().await;
        // Writes outside of transactions pass both.
        let below = connect(&[&site.addresses()[0]], "").await.unwrap();
        let written = create(&below, 1).await[0];
        for value in 1..=20 {
            below.put(written, Object::blob(vec![value; 10].into())).await.unwrap();
        }
        assert_eq!(read_all(&direct, &[written]).await, [20]);
        let sum: u32 = {
            let t = direct.begin(IsolationLevel::Optimistic);
            let mut sum = 0;
            for (number, oid) in oids.iter().enumerate() {
                sum += u32::from(t.get(*oid).await.unwrap().unwrap().data[1].wrapping_sub(number as u8));
            }
            sum
        };
        assert_eq!(sum, 120);
        site.shutdown().await.unwrap();
        near.shutdown().await.unwrap();
    });
}

#[test]
fn locks_of_members_are_held_until_their_transactions_end() {
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let member = connect(&[&redirector.addresses()[0]], "").await.unwrap();
        let oids = create(&member, 3).await;
        // The renewals of all come together, so that some of them come while the connection above is busy.
        let mut transactions = Vec::new();
        for oid in &oids {
            let t = member.begin(IsolationLevel::Locks);
            assert!(t.get(*oid).await.unwrap().is_some());
            transactions.push((t, *oid));
        }
        // A lock that is not renewed for 5 s is lost.
        time::sleep(Duration::from_secs(8)).await;
        for (t, oid) in transactions {
            t.put(oid, Object::blob(vec![9].into())).await.unwrap();
            let ended = t.commit().await.unwrap();
            assert!(matches!(ended, CommitOutcome::Committed(_)), "{ended:?}");
        }
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn member_may_do_what_the_server_above_permits() {
    run(async {
        let users = [("ann", Some(Permission::Write)), ("bob", Some(Permission::Read)), ("eve", None)];
        let (world, secret) = World::with(&users).await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let at = &redirector.addresses()[0];
        for unknown in ["eve", "nemo", ""] {
            assert_eq!(connect(&[at], unknown).await.unwrap_err().kind(), ErrorKind::Denied, "{unknown}");
        }
        let (ann, bob) = (connect(&[at], "ann").await.unwrap(), connect(&[at], "bob").await.unwrap());
        let oids = create(&ann, 3).await;
        assert_eq!(read_all(&bob, &oids).await, [0, 1, 2]);
        let written = async |by: &Client| by.put(oids[0], Object::blob(vec![9; 10].into())).await;
        assert_eq!(written(&bob).await.unwrap_err().kind(), ErrorKind::Denied);
        let committed = bob
            .transact(async |t: Transaction| {
                t.get(oids[1]).await?;
                t.put(oids[1], Object::blob(vec![9; 10].into())).await
            })
            .await;
        assert_eq!(committed.unwrap_err().kind(), ErrorKind::Denied);
        written(&ann).await.unwrap();
        assert_eq!(read_all(&ann, &oids).await, [9, 1, 2]);
        // A permission that is taken away is gone here, too.
        world.grant("ann", Some(Permission::Read)).await;
        wait_until(
            "ann may not write any more",
            async || matches!(written(&ann).await, Err(error) if error.kind() == ErrorKind::Denied),
        )
        .await;
        assert_eq!(read_all(&ann, &oids[1..]).await, [1, 2]);
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn members_go_on_without_their_redirector() {
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let another = redirector_below(world.peer.addresses(), &secret).await;
        let servers = [&redirector.addresses()[0], &another.addresses()[0], &world.peer.addresses()[0]];
        let member = connect(&servers, "").await.unwrap();
        let oids = create(&member, 50).await;
        read_all(&member, &oids).await;
        assert!(counts(&redirector).await["pages_fetched_total"] > 0);
        redirector.shutdown().await.unwrap();
        change(&member, oids[7], 100).await;
        let after = counts(&another).await;
        assert_eq!(after["groups"], 1, "{after:?}");
        // Its copies are compared with the store's, and kept.
        assert_eq!(read_all(&member, &oids[8..]).await, (8..50).collect::<Vec<u8>>());
        another.shutdown().await.unwrap();
        change(&member, oids[8], 101).await;
        assert_eq!(read_all(&member, &oids[7..9]).await, [100, 101]);
    });
}

#[test]
fn redirector_uses_the_next_server_above_when_one_does_not_answer() {
    run(async {
        let (world, secret) = World::without_users().await;
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let upstream = [closed.to_string().parse().unwrap(), world.peer.addresses()[0].clone()];
        let redirector = redirector_below(&upstream, &secret).await;
        let member = connect(&[&redirector.addresses()[0]], "").await.unwrap();
        let oids = create(&member, 3).await;
        assert_eq!(read_all(&member, &oids).await, [0, 1, 2]);
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn everything_else_is_forwarded() {
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let member = connect(&[&redirector.addresses()[0]], "").await.unwrap();
        // A name, content beside its head, and its bytes.
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| index as u8).collect();
        let staged = member.upload(None, bytes.as_slice()).await.unwrap();
        let oid = {
            let t = member.begin(IsolationLevel::Optimistic);
            let oid = t.create_blob_from(staged).unwrap();
            t.bind("large", oid).await.unwrap();
            assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
            t.real_oid(oid).unwrap()
        };
        let direct = connect(&[&world.peer.addresses()[0]], "").await.unwrap();
        assert_eq!(direct.resolve("large").await.unwrap(), Some(oid));
        assert_eq!(member.resolve("large").await.unwrap(), Some(oid));
        let reader = member.begin(IsolationLevel::Optimistic);
        assert_eq!(reader.read_at(oid, 1_000_000, 16).await.unwrap(), &bytes[1_000_000..1_000_016]);
        let admin = World::client_at(redirector.addresses(), "", "").await.unwrap();
        admin.create_space("more").await.unwrap();
        assert_eq!(admin.status().await.unwrap().role, "redirector");
        redirector.shutdown().await.unwrap();
    });
}

/// The redirectors of a group with their members, in the order in which clients try them.
async fn list_redirectors(world: &World, group: &str) -> Vec<(String, u64)> {
    let admin = world.client("", "").await.unwrap();
    let found = admin.redirectors(group).await.unwrap();
    found.into_iter().map(|redirector| (redirector.addresses[0].clone(), redirector.counts.members)).collect()
}

/// All bytes of a blob.
async fn read_blob(client: &Client, oid: Oid) -> client::Result<Vec<u8>> {
    let (mut reader, mut found) = (client.content_reader(oid, 0), Vec::new());
    while let Some(piece) = reader.next().await? {
        found.extend_from_slice(&piece);
    }
    Ok(found)
}

#[test]
fn contents_that_many_members_read_cross_the_link_once() {
    const PIECES: u64 = 6;
    run(async {
        let (world, secret) = World::without_users().await;
        let redirector = redirector_below(world.peer.addresses(), &secret).await;
        let direct = connect(&[&world.peer.addresses()[0]], "").await.unwrap();
        let mut bytes: Vec<u8> = (0..(PIECES as usize - 1) << 20).map(|place| (place / 1_000) as u8).collect();
        bytes.extend([9; 1_000]);
        let staged = direct.upload(None, bytes.as_slice()).await.unwrap();
        let t = direct.begin(IsolationLevel::Optimistic);
        let oid = t.create_blob_from(staged).unwrap();
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        let oid = t.real_oid(oid).unwrap();
        let mut members = Vec::new();
        for _ in 0..5 {
            members.push(connect(&[&redirector.addresses()[0]], "").await.unwrap());
        }
        let reads: Vec<_> =
            members.iter().cloned().map(|m| tokio::spawn(async move { read_blob(&m, oid).await })).collect();
        for read in reads {
            assert!(read.await.unwrap().unwrap() == bytes, "a member has read other bytes");
        }
        // The first piece of each read asks for the newest state.
        let counted = counts(&redirector).await;
        assert_eq!(counted["content_reads_total"], 5 * (PIECES - 1), "{counted:?}");
        assert_eq!(counted["contents_kept_total"], 4 * (PIECES - 1), "{counted:?}");
        assert_eq!(counted["contents_kept_bytes_total"], 4 * (bytes.len() as u64 - (1 << 20)), "{counted:?}");

        // A member reads a state to its end although another one is there meanwhile, or is told.
        let (mut begun, mut found) = (members[0].content_reader(oid, 0), Vec::new());
        found.extend_from_slice(&begun.next().await.unwrap().unwrap());
        let place = 3 << 20;
        members[1].transact(async |t| t.write_at(oid, place, vec![77; 10]).await).await.unwrap();
        let ended = loop {
            match begun.next().await {
                Ok(Some(piece)) => found.extend_from_slice(&piece),
                Ok(None) => break Ok(found),
                Err(error) => break Err(error.kind()),
            }
        };
        assert!(ended == Ok(bytes.clone()) || ended == Err(ErrorKind::Conflict), "a read has mixed two states");
        // Who begins later reads the change, members of a read cached before included.
        bytes[place as usize..][..10].fill(77);
        for member in &members {
            assert!(read_blob(member, oid).await.unwrap() == bytes, "a member has read an older state");
        }
        redirector.shutdown().await.unwrap();
    });
}

#[test]
fn clients_of_a_group_meet_at_the_first_redirector_that_lives() {
    run(async {
        let (world, secret) = World::without_users().await;
        let mut redirectors = Vec::new();
        for _ in 0..2 {
            redirectors.push(redirector_of(Some("shed"), world.peer.addresses(), &secret).await);
        }
        redirectors.sort_by_key(|redirector| redirector.addresses()[0].to_string());
        let at: Vec<String> = redirectors.iter().map(|redirector| redirector.addresses()[0].to_string()).collect();
        let members = async || list_redirectors(&world, "shed").await;
        wait_until("both are registered", async || members().await.len() == 2).await;
        assert_eq!(list_redirectors(&world, "attic").await, []);
        let (one, other) = (join("shed", &world).await, join("shed", &world).await);
        let oids = create(&one, 30).await;
        read_all(&other, &oids).await;
        wait_until("both are at the first one", async || members().await == [(at[0].clone(), 2), (at[1].clone(), 0)])
            .await;
        // The first one ends: both go on at the second one.
        redirectors.remove(0).shutdown().await.unwrap();
        change(&one, oids[0], 77).await;
        wait_until("both see the change", async || read_all(&other, &oids[..1]).await == [77]).await;
        wait_until("both are at the second one", async || members().await == [(at[1].clone(), 2)]).await;
        // The second one ends, too: they go direct.
        redirectors.remove(0).shutdown().await.unwrap();
        change(&other, oids[1], 78).await;
        wait_until("both see the change", async || read_all(&one, &oids[1..2]).await == [78]).await;
        wait_until("no redirector is registered", async || members().await.is_empty()).await;
        // One that comes later is found.
        let last = redirector_of(Some("shed"), world.peer.addresses(), &secret).await;
        wait_until("both are at the last one", async || {
            change(&one, oids[2], 79).await;
            read_all(&other, &oids[2..3]).await;
            members().await.first().is_some_and(|(_, count)| *count == 2)
        })
        .await;
        last.shutdown().await.unwrap();
    });
}

#[test]
fn only_processes_of_the_cluster_register() {
    run(async {
        let (world, _) = World::with(&[("ann", Some(Permission::Admin))]).await;
        let stranger = redirector_of(Some("shed"), world.peer.addresses(), &Secret::generate()).await;
        assert_eq!(connect(&[&stranger.addresses()[0]], "ann").await.unwrap_err().kind(), ErrorKind::Denied);
        let admin = world.client("ann", "right one").await.unwrap();
        time::sleep(Duration::from_millis(300)).await;
        assert!(admin.redirectors("").await.unwrap().is_empty());
        stranger.shutdown().await.unwrap();
    });
}

/// A connection whose messages the test sends itself.
struct WickedClient {
    mailbox: Arc<Mailbox>,
    caller: Caller,
}

/// Ignores what a server sends.
struct Ignoring;

impl Service for Ignoring {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&client::Error::new(ErrorKind::Unsupported, "a client answers no requests"));
    }

    fn on_messages(&mut self, _: impl Iterator<Item = Message>) -> client::Result<()> {
        Ok(())
    }
}

impl WickedClient {
    async fn connect(server: &Address, number: Option<ClientNumber>) -> Self {
        let mut stream = Stream::dial(server, None).await.unwrap();
        let introduction = Introduction { client: number, ..Introduction::new("main", "test") };
        let terms = handshake::introduce(&mut stream, &introduction).await.unwrap();
        let mailbox = Arc::new(Mailbox::default());
        let link = Link::new(stream, Ignoring, Limits::default(), terms.max_frame, mailbox.clone());
        tokio::spawn(link::drive(link));
        Self { caller: Caller::new(mailbox.clone(), 1 << 20), mailbox }
    }

    async fn take_number(&self) -> ClientNumber {
        let request = Request::GetNumbers(proto::GetNumbers { count: 1 });
        match self.caller.call(request, Vec::new()).await.unwrap().response {
            Response::Numbers(numbers) => ClientNumber::first(numbers).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a commit that makes an object this.
    fn commit(&self, txn: TxnId, oid: Oid, value: u8) {
        let writes = [(oid, ObjectState::Value(Object::blob(vec![value; 1000].into())))].into();
        let parts = [(oid.page().node, Part { writes, ..Part::default() })].into();
        let (request, raw) = Message::Call { txn, call: Call::Commit { parts, creates: false } }.encode();
        self.mailbox.send_one_way(request, raw);
    }
}

/// A member sends one commit to two servers, with different contents. What the store has applied is proven to the redirector by a digest, so
/// the others do not get what the redirector has seen.
#[test]
fn commit_with_two_contents_deceives_no_member() {
    run(async {
        let (world, secret) = World::without_users().await;
        let above = &world.peer.addresses()[0];
        let (any, target) = ("127.0.0.1:0".parse().unwrap(), above.to_string().parse().unwrap());
        let link = Relay::start(relay::Config::new(any, target)).unwrap();
        let far = link.address().to_string().parse().unwrap();
        let redirector = redirector_below(&[far], &secret).await;
        let near = &redirector.addresses()[0];
        let direct = connect(&[above], "").await.unwrap();
        let oids = create(&direct, 10).await;
        let reader = connect(&[near], "").await.unwrap();
        read_all(&reader, &oids).await;
        let (elsewhere, number) = {
            let first = WickedClient::connect(above, None).await;
            let number = first.take_number().await;
            (WickedClient::connect(above, Some(number.clone())).await, number)
        };
        let member = WickedClient::connect(near, Some(number.clone())).await;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let start = HlcTimestamp::at(since.as_millis() as u64);
        let txn = TxnId { start, client: ClientId(number.number) };
        // The redirector has seen the commit long before the store says that it has applied it, and the store gets the other one first.
        link.set_delay(Duration::from_millis(700));
        member.commit(txn, oids[3], 66);
        time::sleep(Duration::from_millis(100)).await;
        elsewhere.commit(txn, oids[3], 200);
        wait_until("the change is seen", async || read_all(&reader, &oids[3..4]).await != [3]).await;
        assert_eq!(read_all(&reader, &oids[3..4]).await, [200]);
        assert_eq!(read_all(&direct, &oids[3..4]).await, [200]);
        link.set_delay(Duration::ZERO);
        let counted = counts(&redirector).await;
        assert_eq!(counted["copies_forged_total"], 1, "{counted:?}");
        redirector.shutdown().await.unwrap();
    });
}
