//! Logical nodes that move from brick to brick while clients work.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, CommitOutcome, IsolationLevel, PlacementHint};
use meta::catalog;
use model::{ClassId, NodeId, Object, Oid};
use node::catalog_messages::move_request_to_proto;
use query::Query;
use tokio::time;
use world::{ACCOUNT, BADGE, World, account, badge, parse_account};

const BALANCE: i64 = 100;

/// Creates named accounts, spread over all logical nodes.
async fn open_accounts(cluster: &Client, count: usize) -> Vec<Oid> {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let nodes = cluster.nodes();
    let mut made = Vec::new();
    for number in 0..count {
        let owner = format!("owner-{number}");
        let oid =
            t.create_object(ACCOUNT, account(&owner, BALANCE), PlacementHint::At(nodes[number % nodes.len()])).unwrap();
        t.bind(&owner, oid).await.unwrap();
        made.push(oid);
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    made.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect()
}

/// Transfers money between accounts until `end` is set, but at least ten times.
async fn transfer(cluster: Client, accounts: Arc<Vec<Oid>>, end: Arc<AtomicBool>) {
    let mut done = 0;
    while done < 10 || !end.load(Ordering::Relaxed) {
        let [from, to] = [(); 2].map(|()| accounts[rand::random_range(..accounts.len())]);
        if from == to {
            continue;
        }
        cluster
            .transact(|t| async move {
                let ((payer, has), (payee, gets)) =
                    (parse_account(t.get(from).await?)?, parse_account(t.get(to).await?)?);
                t.put(from, account(&payer, has - 1)).await?;
                t.put(to, account(&payee, gets + 1)).await
            })
            .await
            .unwrap();
        done += 1;
    }
}

/// Checks the sum of all accounts with reads, and their number with a query, until `end` is set, but at least once.
async fn audit(cluster: Client, accounts: Arc<Vec<Oid>>, end: Arc<AtomicBool>) {
    let mut is_first = true;
    while is_first || !end.load(Ordering::Relaxed) {
        is_first = false;
        let oids = &accounts;
        let (sum, asked) = cluster
            .transact(|t| async move {
                let mut sum = 0;
                for oid in oids.iter() {
                    sum += parse_account(t.get(*oid).await?)?.1;
                }
                let query = Query::parse_of("Account", "owner.startsWith('owner-')").unwrap();
                Ok((sum, t.query(&query).await?.all().await?.len()))
            })
            .await
            .unwrap();
        assert_eq!((sum, asked), (BALANCE * accounts.len() as i64, accounts.len()));
    }
}

/// Creates named accounts until `end` is set, but at least ten.
async fn create(cluster: Client, end: Arc<AtomicBool>) -> Vec<(String, Oid)> {
    let mut made = Vec::new();
    while made.len() < 10 || !end.load(Ordering::Relaxed) {
        let owner = format!("new-{}", made.len());
        let name = &owner;
        let t = cluster
            .transact(|t| async move {
                let oid = t.create_object(ACCOUNT, account(name, 0), PlacementHint::Anywhere)?;
                t.bind(name, oid).await?;
                Ok((t, oid))
            })
            .await
            .unwrap();
        made.push((owner, t.0.real_oid(t.1).unwrap()));
        time::sleep(Duration::from_millis(1)).await;
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_lose_no_updates_of_concurrent_clients() {
    let world = World::start(3, 4).await;
    let setup = world.client(0).await;
    let accounts = Arc::new(open_accounts(&setup, 40).await);
    let nodes: Vec<NodeId> = setup.nodes().to_vec();
    let end = Arc::new(AtomicBool::new(false));
    let mut transfers = Vec::new();
    for number in 0..4 {
        transfers.push(tokio::spawn(transfer(world.client(number).await, accounts.clone(), end.clone())));
    }
    let audits = tokio::spawn(audit(world.client(0).await, accounts.clone(), end.clone()));
    let created = tokio::spawn(create(world.client(1).await, end.clone()));
    for _ in 0..9 {
        for node in &nodes {
            let (at, _) = world.placement(*node);
            world.begin_move(*node, at % 3 + 1).await;
        }
        world.wait_for_moves(&nodes).await;
        time::sleep(Duration::from_millis(300)).await;
    }
    end.store(true, Ordering::Relaxed);
    for one in transfers {
        one.await.unwrap();
    }
    audits.await.unwrap();
    let created = created.await.unwrap();

    let reader = world.client(1).await;
    let t = reader.begin(IsolationLevel::Optimistic);
    let oids: BTreeSet<Oid> = created.iter().map(|(_, oid)| *oid).collect();
    assert_eq!(oids.len(), created.len());
    for (owner, oid) in &created {
        assert_eq!(t.resolve(owner).await.unwrap(), Some(*oid));
        assert_eq!(parse_account(t.get(*oid).await.unwrap()).unwrap().0, *owner);
    }
    let query = Query::parse_of("Account", "owner.startsWith('new-')").unwrap();
    assert_eq!(t.query(&query).await.unwrap().all().await.unwrap().len(), created.len());
    let all = Query::parse_of("Account", "").unwrap();
    assert_eq!(t.query(&all).await.unwrap().all().await.unwrap().len(), created.len() + accounts.len());
    assert!(nodes.iter().all(|node| world.cluster_view.placement.of(*node).unwrap().moves == 9));
    world.end().await;
}

/// The balances of accounts; waits until all can be read.
async fn balances(cluster: &Client, accounts: &[Oid]) -> Vec<i64> {
    cluster
        .transact(|t| async move {
            let mut balances = Vec::new();
            for oid in accounts {
                balances.push(parse_account(t.get(*oid).await?)?.1);
            }
            Ok(balances)
        })
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn move_continues_after_a_restart_of_a_brick() {
    let mut world = World::start(2, 1).await;
    let cluster = world.client(0).await;
    let accounts = Arc::new(open_accounts(&cluster, 40).await);
    let node = cluster.nodes()[0];
    let end = Arc::new(AtomicBool::new(false));
    let mut transfers = Vec::new();
    for number in 0..3 {
        transfers.push(tokio::spawn(transfer(world.client(number).await, accounts.clone(), end.clone())));
    }
    let created = tokio::spawn(create(world.client(1).await, end.clone()));
    for round in 0..8_usize {
        let (from, _) = world.placement(node);
        let to = from % 2 + 1;
        world.begin_move(node, to).await;
        time::sleep(Duration::from_millis(round as u64 / 2 * 6)).await;
        let stopped = (if round % 2 == 0 { from } else { to }) as usize - 1;
        world.stop_brick(stopped).await;
        time::sleep(Duration::from_millis(20)).await;
        world.start_brick(stopped).await;
        world.wait_for_moves(&[node]).await;
        assert_eq!(world.placement(node).0, to);
        let sum: i64 = balances(&cluster, &accounts).await.iter().sum();
        assert_eq!(sum, 40 * BALANCE);
    }
    end.store(true, Ordering::Relaxed);
    for one in transfers {
        one.await.unwrap();
    }
    let created = created.await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    for (owner, oid) in &created {
        assert_eq!(t.resolve(owner).await.unwrap(), Some(*oid));
        assert_eq!(parse_account(t.get(*oid).await.unwrap()).unwrap().0, *owner);
    }
    world.end().await;
}

/// Creates badges with these numbers, one after another, while others do the same. Returns the numbers of the created
/// badges.
async fn claim(cluster: Client, numbers: std::ops::Range<i64>) -> BTreeSet<i64> {
    let mut got = BTreeSet::new();
    for number in numbers {
        let claimed = cluster.transact(|t| async move {
            t.create_object(BADGE, badge(number), PlacementHint::Anywhere)?;
            Ok(())
        });
        match claimed.await {
            Ok(()) => drop(got.insert(number)),
            Err(error) => assert_eq!(error.kind(), client::ErrorKind::Exists, "{error}"),
        }
    }
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_stay_unique_over_moves() {
    const NUMBERS: i64 = 60;
    let world = World::start(2, 2).await;
    world.define_badges().await;
    let cluster = world.client(0).await;
    let nodes: Vec<NodeId> = cluster.nodes().to_vec();
    let mut claims = Vec::new();
    for number in 0..3 {
        claims.push(tokio::spawn(claim(world.client(number).await, 0..NUMBERS)));
    }
    let mut moves = 0;
    while moves < 2 || claims.iter().any(|claim| !claim.is_finished()) {
        for node in &nodes {
            world.begin_move(*node, world.placement(*node).0 % 2 + 1).await;
        }
        world.wait_for_moves(&nodes).await;
        moves += 1;
    }
    let mut all = BTreeSet::new();
    for claim in claims {
        for number in claim.await.unwrap() {
            assert!(all.insert(number), "two clients have created number {number}");
        }
    }
    assert_eq!(all, (0..NUMBERS).collect(), "one client has created each of them");
    let badges = cluster.query(&Query::of("Badge")).await.unwrap().all().await.unwrap();
    assert_eq!(badges.len(), NUMBERS as usize);
    // Later attempts are refused, too.
    assert_eq!(claim(world.client(1).await, 0..NUMBERS).await, BTreeSet::new());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_move_leaves_the_node_at_its_brick() {
    let mut world = World::start(2, 1).await;
    let cluster = world.client(0).await;
    let accounts = open_accounts(&cluster, 4).await;
    let node = cluster.nodes()[0];
    let (from, _) = world.placement(node);
    let to = from % 2 + 1;
    // The target brick is stopped, so the node stays sealed.
    world.stop_brick(to as usize - 1).await;
    world.begin_move(node, to).await;
    world.editor().seal(node, catalog::BrickId(to)).await.unwrap();
    world.editor().cancel_move(node).await.unwrap();
    assert_eq!(balances(&cluster, &accounts).await, [BALANCE; 4]);
    assert_eq!(world.placement(node), (from, None));
    world.start_brick(to as usize - 1).await;
    world.begin_move(node, to).await;
    world.wait_for_moves(&[node]).await;
    assert_eq!(world.placement(node), (to, None));
    assert_eq!(balances(&cluster, &accounts).await, [BALANCE; 4]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_server_reports_what_the_new_brick_has_copied() {
    let world = World::start(2, 1).await;
    let cluster = world.client(0).await;
    let accounts = open_accounts(&cluster, 4).await;
    let node = cluster.nodes()[0];
    let to = world.placement(node).0 % 2 + 1;
    world.begin_move(node, to).await;
    world.wait_for_moves(&[node]).await;
    // The new brick serves the node.
    assert_eq!(balances(&cluster, &accounts).await, [BALANCE; 4]);
    let request = move_request_to_proto(&catalog::MoveRequest::Show { nodes: vec![node.0] });
    let state = world.admin().await.move_nodes(request).await.unwrap().nodes.remove(0);
    let move_in = state.move_in.expect("the new brick has reported nothing");
    assert!(move_in.rows > 4 && move_in.bytes > 100 && move_in.pause_us.is_some(), "{move_in:?}");
    assert_eq!((state.brick, state.moves, move_in.problem.as_str()), (to, 1, ""));
    world.end().await;
}

/// Appends numbered records to a blob until `end` is set. Returns how many.
async fn append(cluster: Client, blob: Oid, client: u8, end: Arc<AtomicBool>) -> u32 {
    let mut done = 0_u32;
    while !end.load(Ordering::Relaxed) {
        let record = [&[client][..], &done.to_be_bytes(), &[0xaa; 1_000]].concat();
        let record: client::Bytes = record.into();
        let appended = |t: client::Transaction| {
            let record = record.clone();
            async move { t.append(blob, record).await }
        };
        cluster.transact(appended).await.unwrap();
        done += 1;
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_that_grow_are_moved_whole() {
    const RECORD: usize = 1 + 4 + 1_000;
    let world = World::start(2, 2).await;
    let cluster = world.client(0).await;
    let node = cluster.nodes()[0];
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    let staged = cluster.upload(Some(node), &large[..]).await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let still = t.create_blob_from(staged).unwrap();
    let growing = t.create_object(ClassId::NONE, Object::blob("".into()), PlacementHint::At(node)).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let [still, growing] = [still, growing].map(|oid| t.real_oid(oid).unwrap());
    // One that is staged while it moves is used afterwards.
    let waiting = cluster.upload(Some(node), &b"staged before the moves"[..]).await.unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let mut appenders = Vec::new();
    for client in 0..2 {
        appenders.push(tokio::spawn(append(world.client(1).await, growing, client, end.clone())));
    }
    for round in 0..4 {
        let (from, _) = world.placement(node);
        world.begin_move(node, 3 - from).await;
        world.wait_for_moves(&[node]).await;
        assert_eq!(world.placement(node).0, 3 - from, "move {round}");
    }
    end.store(true, Ordering::Relaxed);
    let mut expected = Vec::new();
    for (client, appender) in appenders.into_iter().enumerate() {
        expected.extend((0..appender.await.unwrap()).map(|number| (client as u8, number)));
    }
    let read = async |oid| {
        let (mut reader, mut bytes) = (cluster.content_reader(oid, 0), Vec::new());
        while let Some(piece) = reader.next().await.unwrap() {
            bytes.extend_from_slice(&piece);
        }
        bytes
    };
    assert!(read(still).await == large, "a content that did not change");
    let records = read(growing).await;
    let mut found: Vec<(u8, u32)> = records
        .chunks(RECORD)
        .map(|record| (record[0], u32::from_be_bytes(record[1..5].try_into().unwrap())))
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    let t = cluster.begin(IsolationLevel::Optimistic);
    let late = t.create_blob_from(waiting).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(read(t.real_oid(late).unwrap()).await, b"staged before the moves");
    world.end().await;
}
