//! Bricks of real clusters that are killed, stopped and restarted: events for watchers, and spaces of both policies.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{
    BrickStatus, CommitOutcome, ConnectOptions, ErrorKind, Event, Events, FailurePolicy, IsolationLevel, Oid,
    PlacementHint, SpaceStatus,
};
use model::{ClassId, NodeId, Object};
use mortar_tests::cluster::Cluster;
use mortar_tests::stopped_store::open_store;
use mortar_tests::{TEST_TIMEOUT, small_file};
use rustix::process::Signal;
use store::RowChanges;
use tokio::time;

/// Time limit of requests that are refused at once: long enough for the slowest machine, and far shorter than the clients' timeout.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(20);

async fn connect(url: &str) -> client::Client {
    let mut options = ConnectOptions::default();
    options.timeout = TEST_TIMEOUT;
    client::Client::connect_with(url, options).await.unwrap()
}

fn number(number: i64) -> Object {
    Object::blob(number.to_string().into())
}

/// The next event.
async fn next_event(events: &mut Events) -> Event {
    time::timeout(TEST_TIMEOUT, events.next()).await.expect("an event arrives").expect("the client continues")
}

/// Waits for the first event that `look` accepts, and skips others.
async fn wait_for<T>(events: &mut Events, look: impl Fn(Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = look(next_event(events).await) {
            return found;
        }
    }
}

async fn wait_connected(events: &mut Events) -> (String, SpaceStatus) {
    wait_for(events, |event| match event {
        Event::Connected { peer, status: standing } => Some((peer, standing)),
        _ => None,
    })
    .await
}

async fn wait_brick_failed(events: &mut Events) -> BrickStatus {
    wait_for(events, |event| if let Event::BrickFailed(brick) = event { Some(brick) } else { None }).await
}

async fn wait_brick_recovered(events: &mut Events) -> BrickStatus {
    wait_for(events, |event| if let Event::BrickRecovered(brick) = event { Some(brick) } else { None }).await
}

async fn wait_stopped(events: &mut Events) -> String {
    wait_for(events, |event| if let Event::Stopped { why } = event { Some(why) } else { None }).await
}

async fn wait_resumed(events: &mut Events) {
    wait_for(events, |event| (event == Event::Resumed).then_some(())).await;
}

/// The number of the brick with this process name.
fn brick_number(world: &Cluster, standing: &SpaceStatus, name: &str) -> u32 {
    let address = world.address(name);
    standing.bricks.iter().find(|brick| brick.address == address).unwrap().brick
}

/// Creates an object at each of two bricks: the first at the process `brick-1`, the second at `brick-2`.
async fn create_pair(cluster: &client::Client, world: &Cluster, standing: &SpaceStatus) -> [Oid; 2] {
    let nodes: [NodeId; 2] = ["brick-1", "brick-2"].map(|name| {
        let number = brick_number(world, standing, name);
        standing.bricks.iter().find(|known| known.brick == number).unwrap().nodes[0].0
    });
    let made = cluster.transact(|t| async move {
        let made = nodes.map(|node| t.create_object(ClassId::NONE, number(0), PlacementHint::At(node)));
        Ok((t, made.into_iter().collect::<client::Result<Vec<Oid>>>()?))
    });
    let (t, made) = made.await.unwrap();
    [t.real_oid(made[0]).unwrap(), t.real_oid(made[1]).unwrap()]
}

/// Increments each of these objects.
async fn increment(cluster: &client::Client, oids: &[Oid]) -> client::Result<()> {
    let add = |t: client::Transaction| async move {
        for oid in oids {
            let missing = || client::Error::new(ErrorKind::NotFound, format!("{oid} is not there"));
            let object = t.get(*oid).await?.ok_or_else(missing)?;
            let before: i64 = std::str::from_utf8(&object.data).unwrap().parse().unwrap();
            t.put(*oid, number(before + 1)).await?;
        }
        Ok(())
    };
    time::timeout(TEST_TIMEOUT, cluster.transact(add)).await.expect("a transaction ends")
}

/// Checks that every kind of request for this object is refused at once.
async fn check_refused(cluster: &client::Client, oid: Oid) {
    let refused = |error: client::Error| {
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
        assert!(error.message().contains("cannot be reached since"), "{error}");
    };
    let refusing = async {
        refused(increment(cluster, &[oid]).await.unwrap_err());
        refused(cluster.get(oid).await.unwrap_err());
        refused(cluster.put(oid, number(-1)).await.unwrap_err());
        refused(cluster.read_latest(oid).await.unwrap_err());
        refused(cluster.read_cached(oid).await.unwrap_err());
        refused(cluster.find([ClassId(1)], None).next().await.unwrap_err());
        for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
            refused(cluster.begin(level).get(oid).await.unwrap_err());
            let t = cluster.begin(level);
            t.create_object(ClassId::NONE, number(1), PlacementHint::Anywhere).unwrap();
            refused(t.commit().await.unwrap_err());
        }
    };
    time::timeout(PROMPT_TIMEOUT, refusing).await.expect("refused requests fail at once");
}

/// Checks that `waiting` fails in time and names the brick.
async fn check_fails_in_time<T: Debug>(kind: ErrorKind, named: &str, waiting: impl Future<Output = client::Result<T>>) {
    let error = time::timeout(PROMPT_TIMEOUT, waiting).await.expect("the request fails in time").unwrap_err();
    assert!(error.kind() == kind && error.message().contains(named), "{:?}: {error}", error.kind());
}

fn set_policy(world: &Cluster, policy: &str) {
    world.run(&["space", "set", "main", "--policy", policy]).ok();
}

#[tokio::test]
async fn killed_brick_stops_a_fail_stop_space_until_it_is_back() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["space", "create", "small", "--nodes", "1", "--policy", "fail_stop"]).ok();
    let cluster = connect(world.url()).await;
    let mut events = cluster.events().unwrap();
    let (_, standing) = wait_connected(&mut events).await;
    assert_eq!((standing.policy, standing.unreachable().count()), (FailurePolicy::Continue, 0));
    let oids = create_pair(&cluster, &world, &standing).await;
    // The other space uses only the other brick.
    let small = connect(&world.url().replace("/main", "/small")).await;
    let mut of_small = small.events().unwrap();
    let (_, small_standing) = wait_connected(&mut of_small).await;
    let [only] = &small_standing.bricks[..] else { panic!("{small_standing:?}") };
    let first_lives = only.brick == brick_number(&world, &standing, "brick-1");
    let (name, at_dying, at_living) =
        if first_lives { ("brick-2", oids[1], oids[0]) } else { ("brick-1", oids[0], oids[1]) };
    let dying = brick_number(&world, &standing, name);

    set_policy(&world, "fail_stop");
    wait_for(&mut events, |event| (event == Event::PolicyChanged(FailurePolicy::FailStop)).then_some(())).await;
    let begun = cluster.begin(IsolationLevel::Optimistic);
    begun.put(at_living, number(7)).await.unwrap();
    world.signal(name, Signal::KILL);
    assert_eq!(wait_brick_failed(&mut events).await.brick, dying);
    let why = wait_stopped(&mut events).await;
    assert!(why.contains(&format!("brick {dying} (")) && why.contains("mortar space set main"), "{why}");
    for oid in [at_living, at_dying] {
        check_refused(&cluster, oid).await;
    }
    // A new client is refused too.
    check_refused(&connect(world.url()).await, at_living).await;
    assert_eq!(begun.commit().await.unwrap_err().kind(), ErrorKind::Stopped);
    let shown = world.run(&["space", "show", "main", "--json"]).json();
    assert_eq!((&shown[0]["state"], &shown[0]["policy"]), (&"stopped".into(), &"fail_stop".into()), "{shown:?}");
    let put = world.run(&["object", "put", "/name", small_file(), "--json"]);
    assert_eq!(put.code, 5, "{}", put.stderr);
    // The other space has nothing at this brick: it serves, and gets no events.
    small.transact(|t| async move { t.create_blob("fine") }).await.unwrap();

    // Changing the policy takes effect without a restart.
    set_policy(&world, "continue");
    wait_resumed(&mut events).await;
    increment(&cluster, &[at_living]).await.unwrap();
    for _ in 0..20 {
        let made = cluster.transact(|t| async move { t.create_blob("anywhere") });
        time::timeout(PROMPT_TIMEOUT, made)
            .await
            .expect("objects without a hint are created at the reachable brick")
            .unwrap();
    }
    assert_eq!(world.run(&["space", "show", "--json"]).json()[0]["state"], "partial");
    set_policy(&world, "fail_stop");
    wait_stopped(&mut events).await;
    check_refused(&cluster, at_living).await;

    world.restart(name);
    assert_eq!(wait_brick_recovered(&mut events).await.brick, dying);
    wait_resumed(&mut events).await;
    increment(&cluster, &oids).await.unwrap();
    world.run(&["space", "set", "small", "--policy", "continue"]).ok();
    assert_eq!(next_event(&mut of_small).await, Event::PolicyChanged(FailurePolicy::Continue));
}

#[tokio::test]
async fn requests_for_a_dead_brick_fail_within_the_timeout_and_name_it() {
    const GIVEN: Duration = Duration::from_secs(1);
    let world = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    world.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    let patient = connect(world.url()).await;
    let mut events = patient.events().unwrap();
    let (_, standing) = wait_connected(&mut events).await;
    let [at_living, at_dying] = create_pair(&patient, &world, &standing).await;
    let dying = brick_number(&world, &standing, "brick-2");
    world.signal("brick-2", Signal::KILL);
    wait_brick_failed(&mut events).await;
    let address = world.address("brick-2").to_owned();
    let named = format!("brick {dying} ({address}) cannot be reached since ");
    // Commands.
    let oid = at_dying.to_string();
    let file = small_file();
    for command in [
        &["object", "get", &oid][..],
        &["object", "put", &oid, file],
        &["object", "rm", &oid],
        &["query", "Person"],
        &["query", "Person", "--explain"],
    ] {
        let begun = Instant::now();
        let failed = world.run(&[command, &["--timeout", "1", "--json"]].concat());
        assert!(begun.elapsed() < PROMPT_TIMEOUT, "{command:?}");
        let error = &failed.errors()[0]["error"];
        assert_eq!(failed.code, 5, "{command:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(&named), "{command:?}: {error}");
        assert_eq!(error["hint"], serde_json::Value::Null, "{command:?}");
    }
    let index = world.run(&["index", "create", "by_name", "--class", "Person", "--field", "name", "--timeout", "1"]);
    assert!(index.code == 5 && index.stderr.contains(&format!("brick {dying} (")), "{}", index.stderr);
    assert!(index.stderr.contains("`mortar index build by_name` continues"), "{}", index.stderr);
    // The client library.
    let mut options = ConnectOptions::default();
    options.timeout = GIVEN;
    let hasty = client::Client::connect_with(world.url(), options).await.unwrap();
    check_fails_in_time(ErrorKind::Unavailable, &named, hasty.get(at_dying)).await;
    check_fails_in_time(ErrorKind::Unavailable, &named, hasty.read_latest(at_dying)).await;
    check_fails_in_time(ErrorKind::Unavailable, &named, hasty.put(at_dying, number(-1))).await;
    check_fails_in_time(ErrorKind::Unavailable, &named, increment(&hasty, &[at_living, at_dying])).await;
    let mut found = hasty.find([ClassId(1)], None);
    let reading = async {
        while found.next().await?.is_some() {}
        Ok(())
    };
    check_fails_in_time(ErrorKind::Unavailable, &named, reading).await;
    for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
        check_fails_in_time(ErrorKind::Unavailable, &named, hasty.begin(level).get(at_dying)).await;
    }
    // A transaction that could not begin its commit had no effect.
    let blind = hasty.begin(IsolationLevel::Optimistic);
    for oid in [at_living, at_dying] {
        blind.put(oid, number(-1)).await.unwrap();
    }
    check_fails_in_time(ErrorKind::Unavailable, &named, blind.commit()).await;
    increment(&hasty, &[at_living]).await.unwrap();
    let object = patient.get(at_living).await.unwrap().unwrap();
    assert_eq!(object.data.as_ref(), b"1");
}

#[tokio::test]
async fn hanging_brick_is_noticed_and_only_its_requests_wait() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    let cluster = connect(world.url()).await;
    let mut events = cluster.events().unwrap();
    let (_, standing) = wait_connected(&mut events).await;
    let (oids, hanging) = (create_pair(&cluster, &world, &standing).await, brick_number(&world, &standing, "brick-2"));
    world.signal("brick-2", Signal::STOP);
    let away = wait_brick_failed(&mut events).await;
    assert_eq!((away.brick, away.unreachable_since.is_some()), (hanging, true));
    for _ in 0..10 {
        increment(&cluster, &oids[..1]).await.unwrap();
    }
    // A new watcher receives the status too.
    let other = connect(world.url()).await;
    let mut others = other.events().unwrap();
    assert_eq!(wait_connected(&mut others).await.1.unreachable().count(), 1);
    assert_eq!(wait_brick_failed(&mut others).await.brick, hanging);
    // Requests that wait for the brick fail when the space stops.
    let waiting = tokio::spawn({
        let cluster = cluster.clone();
        async move { increment(&cluster, &oids).await }
    });
    time::sleep(Duration::from_millis(100)).await;
    set_policy(&world, "fail_stop");
    let error = time::timeout(PROMPT_TIMEOUT, waiting).await.expect("the waiting request fails").unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stopped | ErrorKind::Unknown), "{error}");
    assert!(error.message().contains(&format!("brick {hanging} (")), "{error}");
    check_refused(&cluster, oids[0]).await;
    world.signal("brick-2", Signal::CONT);
    assert_eq!(wait_brick_recovered(&mut events).await.brick, hanging);
    wait_resumed(&mut events).await;
    increment(&cluster, &oids).await.unwrap();
}

#[tokio::test]
async fn another_peer_server_sends_the_status_again() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "2"]);
    set_policy(&world, "fail_stop");
    let cluster = connect(world.url()).await;
    let mut events = cluster.events().unwrap();
    let (first, standing) = wait_connected(&mut events).await;
    let (oids, dead) = (create_pair(&cluster, &world, &standing).await, brick_number(&world, &standing, "brick-1"));
    // Each peer server determines on its own that a brick is unreachable.
    let beside = connect(&format!("mortar://{}/main", world.address("peer-2"))).await;
    let mut at_second = beside.events().unwrap();
    world.signal("brick-1", Signal::KILL);
    wait_stopped(&mut events).await;
    wait_stopped(&mut at_second).await;
    world.signal("peer-1", Signal::KILL);
    let lost = wait_for(&mut events, |event| match event {
        Event::Disconnected { peer, .. } => Some(peer),
        _ => None,
    });
    assert_eq!(lost.await, first);
    check_refused(&cluster, oids[1]).await;
    let (second, standing) = wait_connected(&mut events).await;
    assert!(second != first && standing.is_stopped(), "{second}: {standing:?}");
    check_refused(&cluster, oids[1]).await;
    world.restart("brick-1");
    assert_eq!(wait_brick_recovered(&mut events).await.brick, dead);
    wait_resumed(&mut events).await;
    increment(&cluster, &oids).await.unwrap();
    let events = world.run(&["events", "--count", "1", "--json"]).json();
    assert_eq!((&events[0]["event"], &events[0]["stopped"]), (&"connected".into(), &false.into()), "{events:?}");
}

/// A brick in memory is another brick after a restart, at the address of the lost one.
#[tokio::test]
async fn new_brick_at_the_address_of_a_lost_one_is_not_mistaken_for_it() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    set_policy(&world, "fail_stop");
    let cluster = connect(world.url()).await;
    let mut events = cluster.events().unwrap();
    let (_, standing) = wait_connected(&mut events).await;
    let (oids, dead) = (create_pair(&cluster, &world, &standing).await, brick_number(&world, &standing, "brick-1"));
    world.signal("brick-1", Signal::KILL);
    wait_stopped(&mut events).await;
    world.restart("brick-1");
    // Longer than a peer server takes to reconnect.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let events = world.run(&["events", "--count", "1", "--json"]).json();
    assert_eq!(events[0]["stopped"], true, "{events:?}");
    let listed = world.run(&["brick", "list", "--json"]).json();
    let lost = listed.iter().find(|one| one["brick"] == dead).unwrap();
    let at = |one: &&serde_json::Value| one["addresses"] == lost["addresses"];
    assert_eq!((listed.len(), listed.iter().filter(at).count()), (3, 2), "{listed:?}");
    check_refused(&cluster, oids[1]).await;
}

#[tokio::test]
async fn slow_watcher_learns_that_it_missed_events_and_delays_no_other() {
    let world = Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"]);
    let cluster = connect(world.url()).await;
    let (mut slow, mut quick) = (cluster.events().unwrap(), cluster.events().unwrap());
    wait_connected(&mut quick).await;
    let single = client::AdminClient::connect(world.url()).await.unwrap();
    for round in 0..300 {
        let policy = if round % 2 == 0 { FailurePolicy::FailStop } else { FailurePolicy::Continue };
        single.set_failure_policy("main", policy).await.unwrap();
        assert_eq!(next_event(&mut quick).await, Event::PolicyChanged(policy));
    }
    cluster.transact(|t| async move { t.create_blob("fine") }).await.unwrap();
    let missed = wait_for(&mut slow, |event| if let Event::Missed(missed) = event { Some(missed) } else { None }).await;
    assert!((300..=301).contains(&missed), "{missed}");
    // It continues with the current status.
    assert_eq!(wait_connected(&mut slow).await.1.policy, FailurePolicy::Continue);
    single.set_failure_policy("main", FailurePolicy::FailStop).await.unwrap();
    assert_eq!(next_event(&mut slow).await, Event::PolicyChanged(FailurePolicy::FailStop));
    cluster.close();
    assert_eq!(slow.next().await, None);
}

#[test]
fn exercise_reports_what_it_waits_for_and_pauses_meanwhile() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["space", "set", "main", "--policy", "fail_stop"]).ok();
    let exercised = std::thread::scope(|scope| {
        let mut exercise = mortar_tests::mortar(&["exercise", "--seconds", "8", "--clients", "4", "--json"]);
        exercise.env("MORTAR_URL", world.url());
        exercise.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let exercise = mortar_tests::spawn(exercise).unwrap();
        let ended = scope.spawn(move || exercise.wait_with_output().unwrap());
        // Waits until its accounts exist and it transfers.
        world.status_until(|shown| {
            shown.iter().any(|one| one["metrics"]["transactions_committed_total"].as_u64() > Some(200))
        });
        world.signal("brick-1", Signal::KILL);
        world.status_until(|shown| shown.iter().any(|one| one["metrics"]["spaces_stopped"] == 1));
        std::thread::sleep(Duration::from_secs(1));
        world.restart("brick-1");
        ended.join().unwrap()
    });
    let messages = String::from_utf8(exercised.stderr).unwrap();
    assert!(exercised.status.success(), "{messages}");
    let report = mortar_tests::json_lines(std::str::from_utf8(&exercised.stdout).unwrap()).remove(0);
    // Four clients that pause for half a second after each failure, for less than a minute.
    assert!(report["failed"].as_u64().unwrap() < 4 * 120, "{report}");
    assert_eq!(report["coins"], report["expected"]);
    for words in ["is stopped: brick", "the space serves again"] {
        assert!(messages.contains(words), "{words}: {messages}");
    }
}

/// Replaces the horizon of a logical node, without which a brick does not serve it. Returns the former one.
fn replace_horizon(brick: &Path, node: NodeId, horizon: Option<Bytes>) -> Option<Bytes> {
    let store = open_store(brick);
    let key = [&b"H"[..], &node.0.to_be_bytes()].concat();
    let before = store.row(&key).unwrap();
    let mut changes = RowChanges::new();
    match horizon {
        Some(horizon) => changes.put(&key, horizon),
        None => changes.remove(&key),
    }
    store.commit_rows(changes).unwrap();
    store.close().unwrap();
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn client_lives_through_the_damage_and_the_recovery_of_a_logical_node() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let client = connect(cluster.url()).await;
    let mut events = client.events().unwrap();
    let (_, status) = wait_connected(&mut events).await;
    let nodes: Vec<NodeId> = status.bricks[1].nodes.iter().map(|(node, _)| *node).collect();
    let [lost, other] = nodes[..2] else { panic!("{status:?}") };
    let create = |node| {
        let client = &client;
        async move {
            let transaction = client.begin(IsolationLevel::Optimistic);
            let created = transaction.create_object(ClassId::NONE, number(1), PlacementHint::At(node)).unwrap();
            assert!(matches!(transaction.commit().await.unwrap(), CommitOutcome::Committed(_)));
            transaction.real_oid(created).unwrap()
        }
    };
    let (at_lost, at_other) = (create(lost).await, create(other).await);
    let brick = cluster.data().join("brick-2");
    cluster.kill("brick-2");
    wait_brick_failed(&mut events).await;
    let horizon = replace_horizon(&brick, lost, Some("damaged".into()));
    cluster.restart("brick-2");
    wait_for(&mut events, |event| match event {
        Event::NodeDamaged { node, brick: 2, damage } if node == lost => Some(damage),
        Event::NodeRecovered { .. } => panic!("it was not damaged: {event:?}"),
        _ => None,
    })
    .await;
    let begun = Instant::now();
    for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
        let read = client.begin(level).get(at_lost).await;
        assert_eq!(read.err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "{level:?}");
    }
    assert_eq!(client.put(at_lost, number(2)).await.err().map(|error| error.kind()), Some(ErrorKind::Corrupt));
    assert!(begun.elapsed() < PROMPT_TIMEOUT, "nothing is waited for");
    client.put(at_other, number(2)).await.unwrap();
    for _ in 0..10 {
        let created = client.transact(|t| async move { t.create_blob(&b"new"[..]) }).await.unwrap();
        assert!(created.is_temporary());
    }
    let moved = cluster.run(&["--timeout", "1", "remap", "--node", &lost.to_string(), "--to", "1"]);
    assert!(moved.code == 5 && moved.stderr.contains("cannot be served"), "{}: {}", moved.code, moved.stderr);
    cluster.run(&["remap", "--cancel"]).ok();

    cluster.kill("brick-2");
    replace_horizon(&brick, lost, horizon);
    cluster.restart("brick-2");
    wait_for(&mut events, |event| match event {
        Event::NodeRecovered { node, brick: 2 } if node == lost => Some(()),
        Event::NodeDamaged { .. } => panic!("it was told already: {event:?}"),
        _ => None,
    })
    .await;
    client.put(at_lost, number(3)).await.unwrap();
    let read = client.begin(IsolationLevel::Locks).get(at_lost).await.unwrap();
    assert_eq!(read, Some(number(3)));
}
