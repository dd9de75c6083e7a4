//! Groups whose members and redirectors are killed and stopped at chosen moments, and the messages of groups that cross the link to
//! the server above.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, CommitOutcome, ConnectOptions, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, NodeId, PageId};
use mortar_tests::acts::Act;
use mortar_tests::keyed_objects::{KeyedObject, ObjectForm, list_object, single_object, value};
use mortar_tests::{TEST_TIMEOUT, mortar, run};
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use wire::proto::cluster::{call, down, fetched, up};
use wire::proto::request::Request;

use crate::client_process::{ClientProcess, ClientProgram, Reply};
use crate::message_tap::{Direction, MessageTap};
use crate::objects::Objects;
use crate::relay::NetworkConditions;
use crate::test_cluster::{GROUP, ServerId, TestCluster};

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The peer server, and so the link above the group.
const PEER: ServerId = ServerId::Peer(1);
/// A URL with this number is one of the group, and one of no group.
const IN_GROUP: u64 = 0;
const DIRECT: u64 = 3;

/// A cluster of two bricks and one peer server, and a group whose members reach it through redirectors.
struct Site {
    cluster: TestCluster,
    /// What crosses the link: the messages of redirectors, and of members that are connected to the peer server.
    link: Arc<MessageTap>,
}

impl Site {
    async fn start(redirectors: u64) -> Self {
        let cluster = TestCluster::start_on((2, 1, redirectors), false).await.unwrap();
        let site = Self { link: cluster.relay(PEER).tap(), cluster };
        wait_until("the redirectors are registered", || site.redirectors().len() as u64 == redirectors).await;
        site
    }

    /// The addresses of the redirectors, in the order in which members try them.
    fn redirectors(&self) -> Vec<String> {
        let shown = run(mortar(&["--server", &self.cluster.url(DIRECT), "--json", "redirector"]).arg(GROUP));
        let listed = shown.json()[0]["redirectors"].as_array().unwrap().clone();
        listed.iter().map(|one| one["addresses"][0].as_str().unwrap().to_owned()).collect()
    }

    /// The redirector that members try first.
    fn first_redirector(&self) -> ServerId {
        let first = &self.redirectors()[0];
        let mut servers = self.cluster.servers().into_iter();
        servers.find(|server| self.cluster.relay(*server).address.to_string() == *first).unwrap()
    }

    async fn join(&self) -> Client {
        self.connect(IN_GROUP).await
    }

    async fn connect(&self, number: u64) -> Client {
        let mut options = ConnectOptions::default();
        options.timeout = TEST_TIMEOUT;
        Client::connect_with(&self.cluster.url(number), options).await.unwrap()
    }

    /// Starts a member as a process, and waits until it is connected.
    async fn start_member(&self, number: usize, objects: &Objects) -> Arc<ClientProcess> {
        let url = self.cluster.url(IN_GROUP);
        let member = ClientProcess::start(ClientProgram::Rust, number, &url, self.cluster.dir());
        member.ready().await.unwrap();
        member.announce(objects);
        member
    }
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not in time");
        time::sleep(POLL_INTERVAL).await;
    }
}

/// Creates a list at each of two bricks, as a client outside of the group, so that no member has their pages.
async fn create_lists(site: &Site) -> Objects {
    let creator = site.connect(DIRECT).await;
    let t = creator.begin(IsolationLevel::Optimistic);
    let create =
        |node| t.create_object(ClassId::NONE, list_object(false, &[]), PlacementHint::At(NodeId(node))).unwrap();
    let created = [1, 2].map(create);
    assert!(is_committed(&t.commit().await.unwrap()));
    let oids = created.map(|oid| t.real_oid(oid).unwrap());
    creator.close();
    let lists = oids.iter().zip(1..).map(|(oid, number)| KeyedObject {
        key: format!("list{number}"),
        oid: *oid,
        form: ObjectForm::Blob,
    });
    Objects { lists: lists.collect(), ..Objects::default() }
}

fn is_committed(ended: &CommitOutcome) -> bool {
    matches!(ended, CommitOutcome::Committed(_))
}

/// Appends an element to each list.
fn append(objects: &Objects, element: i64) -> Vec<Act> {
    objects.lists.iter().map(|list| Act::Append(list.clone(), element)).collect()
}

/// Appends an element to each list as a client that repeats what fails.
async fn append_as(client: &Client, objects: &Objects, element: i64) {
    let acts = append(objects, element);
    let (done, _) = crate::worker::transact(client, &acts, false).await;
    done.unwrap();
}

/// The lists that have an element, as one transaction reads them.
async fn count_lists_with(client: &Client, objects: &Objects, element: i64) -> usize {
    let count = async |t: Transaction| {
        let mut count = 0;
        for list in &objects.lists {
            let elements = list.elements(t.get(list.oid).await?.as_ref()).unwrap();
            let found = elements.iter().filter(|one| **one == element).count();
            assert!(found <= 1, "an element is there {found} times");
            count += found;
        }
        Ok(count)
    };
    client.transact(count).await.unwrap()
}

// ---------------------------------------------------------------------------------------------- members

/// How a member fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberFault {
    Killed,
    Stopped,
}

/// Where the messages of a commit are held when the member fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommitStage {
    /// On the connections to this server.
    held_at: ServerId,
    direction: Direction,
}

const REDIRECTOR: ServerId = ServerId::Redirector(1);
const COMMIT_STAGES: [CommitStage; 4] = [
    CommitStage { held_at: REDIRECTOR, direction: Direction::Up },
    CommitStage { held_at: PEER, direction: Direction::Up },
    CommitStage { held_at: PEER, direction: Direction::Down },
    CommitStage { held_at: REDIRECTOR, direction: Direction::Down },
];

/// Holds the bytes of one connection in one direction.
fn holding(connection: u64, direction: Direction) -> NetworkConditions {
    NetworkConditions {
        holds_upstream: direction == Direction::Up,
        holds_downstream: direction == Direction::Down,
        only: Some(connection),
        ..NetworkConditions::default()
    }
}

/// The connections on which commits or their replies have crossed.
fn commits(tap: &MessageTap, direction: Direction) -> Vec<u64> {
    let is_commit = |request: &Request| match request {
        Request::Call(call) => matches!(call.call, Some(call::Call::Commit(_))).then_some(()),
        Request::Reply(_) => Some(()),
        _ => None,
    };
    tap.select(direction, is_commit).into_iter().map(|(connection, ())| connection).collect()
}

/// The last reply to a request, and whether its steps were reported before.
async fn last_reply(replies: &mut UnboundedReceiver<Reply>) -> Option<Reply> {
    loop {
        match time::timeout(TEST_TIMEOUT, replies.recv()).await.expect("a member replies") {
            Some(Reply::Steps(_)) => {}
            reply => return reply,
        }
    }
}

#[tokio::test]
async fn member_may_fail_at_each_stage_of_its_commit() {
    let site = Site::start(1).await;
    let tap = site.cluster.relay(REDIRECTOR).tap();
    let objects = create_lists(&site).await;
    let other = site.join().await;
    let faults = [MemberFault::Killed, MemberFault::Stopped];
    let cases = COMMIT_STAGES.iter().flat_map(|stage| faults.map(|fault| (*stage, fault)));
    for (number, (stage, fault)) in cases.enumerate() {
        let element = 1_000 * (number as i64 + 1);
        let member = site.start_member(number, &objects).await;
        tap.clear();
        site.link.clear();
        let warm = last_reply(&mut member.run(1, 0, &[], &append(&objects, element))).await;
        assert_eq!(warm, Some(Reply::Committed), "{stage:?}, {fault:?}");
        let at = if stage.held_at == PEER { &site.link } else { &tap };
        let connection = commits(at, Direction::Up)[0];
        at.clear();
        site.cluster.relay(stage.held_at).set_conditions(holding(connection, stage.direction));
        let mut replies = member.run(2, 0, &[], &append(&objects, element + 1));
        wait_until("the message is held", || !commits(at, stage.direction).is_empty()).await;
        match fault {
            MemberFault::Killed => member.kill(),
            MemberFault::Stopped => member.signal(Signal::STOP),
        }
        if stage.direction == Direction::Up {
            // What is held may still arrive, so others may wait for it.
            site.cluster.relay(stage.held_at).set_conditions(NetworkConditions::default());
        }
        append_as(&other, &objects, element + 2).await;
        site.cluster.relay(stage.held_at).set_conditions(NetworkConditions::default());
        let reply = match fault {
            MemberFault::Killed => None,
            MemberFault::Stopped => {
                member.signal(Signal::CONT);
                last_reply(&mut replies).await
            }
        };
        let count = count_lists_with(&other, &objects, element + 1).await;
        match reply {
            Some(Reply::Committed) => assert_eq!(count, 2, "{stage:?}"),
            Some(Reply::Conflict(..)) => assert_eq!(count, 0, "{stage:?}"),
            None if stage.direction == Direction::Down => assert_eq!(count, 2, "{stage:?}: the reply was under way"),
            None => assert!(count == 0 || count == 2, "{stage:?}: a part of the transaction is there"),
            other => panic!("{stage:?}, {fault:?}: {other:?}"),
        }
        if fault == MemberFault::Stopped {
            assert_goes_on(&member, &objects, element + 3).await;
        }
    }
}

/// Checks that a member commits, if necessary after a conflict with what it has missed.
async fn assert_goes_on(member: &ClientProcess, objects: &Objects, element: i64) {
    for number in 3..10 {
        match last_reply(&mut member.run(number, 0, &[], &append(objects, element))).await {
            Some(Reply::Committed) => return,
            Some(Reply::Conflict(..)) => {}
            other => panic!("a member that was stopped: {other:?}"),
        }
    }
    panic!("a member that was stopped gets conflicts only");
}

#[tokio::test]
async fn member_may_fail_while_it_helps_another() {
    let site = Site::start(1).await;
    let tap = site.cluster.relay(REDIRECTOR).tap();
    for (number, fault) in [MemberFault::Killed, MemberFault::Stopped].into_iter().enumerate() {
        let objects = create_lists(&site).await;
        let helper = site.start_member(number, &objects).await;
        tap.clear();
        let warm = last_reply(&mut helper.run(1, 0, &[], &append(&objects, 1))).await;
        assert_eq!(warm, Some(Reply::Committed));
        let connection = commits(&tap, Direction::Up)[0];
        let reader = site.join().await;
        tap.clear();
        site.cluster.relay(REDIRECTOR).set_conditions(holding(connection, Direction::Down));
        let reading = tokio::spawn({
            let (reader, objects) = (reader.clone(), Objects { lists: objects.lists.clone(), ..Objects::default() });
            async move { count_lists_with(&reader, &objects, 1).await }
        });
        let is_help = |request: &Request| match request {
            Request::Down(message) => matches!(message.down, Some(down::Down::Help(_))).then_some(()),
            _ => None,
        };
        wait_until("the helper was asked", || !tap.select(Direction::Down, is_help).is_empty()).await;
        match fault {
            MemberFault::Killed => helper.kill(),
            MemberFault::Stopped => helper.signal(Signal::STOP),
        }
        let count = time::timeout(TEST_TIMEOUT, reading).await.expect("the pages come from above").unwrap();
        assert_eq!(count, 2);
        append_as(&reader, &objects, 2).await;
        site.cluster.relay(REDIRECTOR).set_conditions(NetworkConditions::default());
        if fault == MemberFault::Stopped {
            helper.signal(Signal::CONT);
            assert_goes_on(&helper, &objects, 3).await;
        }
        reader.close();
    }
}

/// Commits of each member while another one, which has the same pages, is stopped.
const COMMITS_BESIDE_STOPPED: i64 = 150;

/// Members write objects of pages that a stopped member has, too, each its own, and read others of these pages that do not change. Were
/// conflicts of objects to become conflicts of pages, because the stopped one acknowledges no invalidation, the reads would be refused (V3).
#[tokio::test]
async fn stopped_member_adds_no_abort() {
    let site = Site::start(1).await;
    let creator = site.connect(DIRECT).await;
    let t = creator.begin(IsolationLevel::Optimistic);
    let create =
        |node| t.create_object(ClassId::NONE, list_object(false, &[]), PlacementHint::At(NodeId(node))).unwrap();
    let created: Vec<Oid> = [1, 1, 1, 2, 2, 2].into_iter().map(create).collect();
    assert!(is_committed(&t.commit().await.unwrap()));
    let oids: Vec<Oid> = created.iter().map(|oid| t.real_oid(*oid).unwrap()).collect();
    assert_eq!(oids.iter().map(|oid| oid.page()).collect::<BTreeSet<PageId>>().len(), 2, "one page for each brick");
    creator.close();
    let keyed = |place: usize| KeyedObject { key: format!("list{place}"), oid: oids[place], form: ObjectForm::Blob };
    let objects = Objects { lists: (0..oids.len()).map(keyed).collect(), ..Objects::default() };
    let stopped = site.start_member(0, &objects).await;
    let of_stopped = Objects { lists: vec![keyed(2), keyed(5)], ..Objects::default() };
    let acts = append(&of_stopped, 1);
    assert_eq!(last_reply(&mut stopped.run(1, 0, &[], &acts)).await, Some(Reply::Committed));
    let mut running = JoinSet::new();
    stopped.signal(Signal::STOP);
    for own in 0..2 {
        let member = site.join().await;
        let (written, read) = ([keyed(own), keyed(own + 3)], of_stopped.lists.clone());
        running.spawn(async move {
            for element in 0..COMMITS_BESIDE_STOPPED {
                let t = member.begin(IsolationLevel::Optimistic);
                for (read, written) in read.iter().zip(&written) {
                    let unchanged = t.get(read.oid).await.unwrap();
                    assert_eq!(read.elements(unchanged.as_ref()).unwrap(), [1]);
                    t.put(written.oid, list_object(false, &[element])).await.unwrap();
                }
                let ended = t.commit().await.unwrap();
                assert!(is_committed(&ended), "commit {element}: {ended:?}");
            }
        });
    }
    running.join_all().await;
    stopped.signal(Signal::CONT);
    assert_goes_on(&stopped, &of_stopped, 2).await;
}

// ---------------------------------------------------------------------------------------------- redirectors

/// Objects of a warm cache, and their size: four of them fill a page.
const WARM_OBJECTS: u32 = 120;
const WARM_OBJECT_BYTES: usize = 2_000;
/// Members of the group.
const MEMBERS: usize = 3;
/// The longest time without work after the loss of a redirector: more than a client takes to notice that a server hangs, to wait
/// for all redirectors, and to connect to a peer server.
const FAIL_OVER_LIMIT: Duration = Duration::from_secs(10);

/// Loses the redirector of a group with warm caches. No page may be fetched again.
async fn lose_redirector(name: &str, redirectors: u64, lose: impl Fn(&mut TestCluster, ServerId)) {
    let mut site = Site::start(redirectors).await;
    let mut members = Vec::new();
    for _ in 0..MEMBERS {
        members.push(site.join().await);
    }
    let (warm, counters) = create_warm_objects(&members[0]).await;
    for (member, own) in members.iter().zip(&counters) {
        read_all(member, &warm).await;
        add_one(member, *own).await;
    }
    let pages_of = |oids: &[Oid]| -> BTreeSet<(u32, u64)> {
        oids.iter().map(|oid| (oid.page().node.0, oid.page().number)).collect()
    };
    // Pages of counters change, so that their copies may be outdated.
    let pages = &pages_of(&warm) - &pages_of(&counters);
    let first = site.first_redirector();
    site.link.clear();
    lose(&mut site.cluster, first);
    let lost = Instant::now();
    let mut running = JoinSet::new();
    for (member, own) in members.iter().cloned().zip(counters) {
        running.spawn(async move {
            add_one(&member, own).await;
            (lost.elapsed(), member)
        });
    }
    let mut times = Vec::new();
    while let Some(ended) = running.join_next().await {
        times.push(ended.unwrap().0);
    }
    for member in &members {
        read_all(member, &warm).await;
    }
    let fetched = |is_again: bool| {
        let of_page = |request: &Request| {
            let Request::Down(message) = request else { return None };
            let Some(down::Down::Fetched(fetched)) = &message.down else { return None };
            let page = fetched.page.as_ref()?;
            let is_copy = matches!(fetched.reply, Some(fetched::Reply::Copy(_)));
            (pages.contains(&(page.node, page.number)) && is_copy == is_again).then_some(())
        };
        site.link.select(Direction::Down, of_page).len()
    };
    let (again, revalidated) = (fetched(true), fetched(false));
    println!(
        "{name}: the first commits ended after {times:?}; {} pages in each of {MEMBERS} caches, {revalidated} times revalidated over \
         the link, {again} fetched again",
        pages.len()
    );
    assert_eq!(again, 0, "{name}: caches are kept");
    assert!(revalidated >= pages.len(), "{name}: {revalidated} revalidations of {} pages", pages.len());
    assert!(times.iter().all(|time| *time < FAIL_OVER_LIMIT), "{name}: {times:?}");
}

/// Creates objects that fill pages, and a counter for each member.
async fn create_warm_objects(client: &Client) -> (Vec<Oid>, Vec<Oid>) {
    let t = client.begin(IsolationLevel::Optimistic);
    let create = |node: u32, bytes: Vec<u8>| {
        let object = model::Object::blob(bytes.into());
        t.create_object(ClassId::NONE, object, PlacementHint::At(NodeId(node))).unwrap()
    };
    let warm: Vec<Oid> = (0..WARM_OBJECTS).map(|number| create(1 + number % 2, vec![7; WARM_OBJECT_BYTES])).collect();
    assert!(is_committed(&t.commit().await.unwrap()));
    let warm: Vec<Oid> = warm.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect();
    let mut counters = Vec::new();
    for _ in 0..MEMBERS {
        let t = client.begin(IsolationLevel::Optimistic);
        let counter = t.create_object(ClassId::NONE, single_object(0), PlacementHint::At(NodeId(1))).unwrap();
        assert!(is_committed(&t.commit().await.unwrap()));
        counters.push(t.real_oid(counter).unwrap());
    }
    (warm, counters)
}

async fn read_all(client: &Client, oids: &[Oid]) {
    let t = client.begin(IsolationLevel::Optimistic);
    for oid in oids {
        assert!(t.get(*oid).await.unwrap().is_some());
    }
    assert!(is_committed(&t.commit().await.unwrap()));
}

async fn add_one(client: &Client, counter: Oid) {
    let add = async |t: Transaction| {
        let before = value(t.get(counter).await?.as_ref()).unwrap().unwrap();
        t.put(counter, single_object(before + 1)).await
    };
    client.transact(add).await.unwrap();
}

#[tokio::test]
async fn caches_are_kept_when_one_of_two_redirectors_is_killed() {
    lose_redirector("one of two redirectors killed", 2, TestCluster::kill).await;
}

#[tokio::test]
async fn caches_are_kept_when_the_only_redirector_is_killed() {
    lose_redirector("the only redirector killed", 1, TestCluster::kill).await;
}

#[tokio::test]
async fn caches_are_kept_when_one_of_two_redirectors_is_stopped() {
    let stop = |cluster: &mut TestCluster, redirector| cluster.signal(redirector, Signal::STOP);
    lose_redirector("one of two redirectors stopped", 2, stop).await;
}

#[tokio::test]
async fn caches_are_kept_when_the_only_redirector_is_stopped() {
    let stop = |cluster: &mut TestCluster, redirector| cluster.signal(redirector, Signal::STOP);
    lose_redirector("the only redirector stopped", 1, stop).await;
}

// ---------------------------------------------------------------------------------------------- round trips

/// The calls that have crossed the link: a repeated call counts once.
fn calls(link: &MessageTap, direction: Direction) -> BTreeSet<String> {
    let call = |request: &Request| match request {
        Request::Call(call) => Some(format!("{:?} {:?}", call.txn, call.call.as_ref().map(discriminant))),
        Request::Reply(reply) => Some(format!("{:?} {:?}", reply.txn, reply.reply.as_ref().map(discriminant))),
        // The probes of liveness, and the time of day.
        Request::Ping(_) | Request::Time(_) => None,
        // The messages of the cache trees, of which the test holds all.
        Request::Up(_) | Request::Down(_) => None,
        other => Some(format!("{other:?}")),
    };
    link.select(direction, call).into_iter().map(|(_, call)| call).collect()
}

/// The connection of the redirector on which the messages of the cache trees cross the link.
fn tree_connection(link: &MessageTap) -> u64 {
    let is_tree = |request: &Request| match request {
        Request::Up(message) => matches!(message.up, Some(up::Up::Fetch(_) | up::Up::Renew(_))).then_some(()),
        _ => None,
    };
    let connections: BTreeSet<u64> =
        link.select(Direction::Up, is_tree).into_iter().map(|(number, ())| number).collect();
    assert_eq!(connections.len(), 1, "all members share one connection for their cache trees");
    *connections.first().unwrap()
}

/// A commit through a redirector and a peer server: one call and one reply cross the link, and no other message is needed, because
/// the messages of the cache trees are held meanwhile.
#[tokio::test]
async fn commit_takes_one_round_trip_over_the_link() {
    let site = Site::start(1).await;
    let objects = create_lists(&site).await;
    let member = site.join().await;
    let commit = async |lists: &[KeyedObject], writes: bool, element: i64| {
        let t = member.begin(IsolationLevel::Optimistic);
        for list in lists {
            let before = t.get(list.oid).await.unwrap();
            let mut elements = list.elements(before.as_ref()).unwrap();
            elements.push(element);
            if writes {
                t.put(list.oid, list_object(false, &elements)).await.unwrap();
            }
        }
        t.commit().await.unwrap()
    };
    // Now the pages are in the cache.
    assert!(is_committed(&commit(&objects.lists, false, 0).await));
    let tree = tree_connection(&site.link);
    for (number, (bricks, writes)) in (1..).zip([(1, true), (2, true), (1, false), (2, false)]) {
        // What the last commit has changed is in the cache, too.
        assert!(is_committed(&commit(&objects.lists, false, 0).await));
        let both = NetworkConditions { holds_downstream: true, ..holding(tree, Direction::Up) };
        site.cluster.relay(PEER).set_conditions(both);
        site.link.clear();
        let ended = commit(&objects.lists[..bricks], writes, number).await;
        let (up, down) = (calls(&site.link, Direction::Up), calls(&site.link, Direction::Down));
        site.cluster.relay(PEER).set_conditions(NetworkConditions::default());
        assert!(is_committed(&ended), "{bricks} bricks: {ended:?}");
        assert_eq!((up.len(), down.len()), (1, 1), "{bricks} bricks, writes: {writes}: {up:?}, {down:?}");
    }
}
