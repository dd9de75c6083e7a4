//! Random queries: bricks, indexes and streams return the same results as one evaluation over all objects.

use std::collections::BTreeMap;

use client::{Client, IsolationLevel};
use model::{Object, Oid};
use query::{Query, Row};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::guards::index;
use super::world::{PERSON, Person, STUDENT, World, create, expect_committed, expected_rows, object, parse, person};

const NAMES: [&str; 6] = ["Ann", "Anna", "Bob", "Cid", "ann", ""];
const CITIES: [&str; 3] = ["Rome", "Oslo", "Bonn"];

fn pick<'a>(of: &[&'a str], rng: &mut StdRng) -> &'a str {
    of[rng.random_range(0..of.len())]
}

fn random_person(known: &[Oid], rng: &mut StdRng) -> Person {
    let one = |rng: &mut StdRng| known.get(rng.random_range(0..known.len().max(1))).copied();
    let friends = (0..rng.random_range(0..3)).filter_map(|_| one(rng)).collect();
    Person {
        age: Some(rng.random_range(-2..8)).filter(|_| rng.random_bool(0.8)),
        city: Some(pick(&CITIES, rng).to_owned()).filter(|_| rng.random_bool(0.7)),
        boss: one(rng).filter(|_| rng.random_bool(0.6)),
        friends,
        ..person(pick(&NAMES, rng), 0)
    }
}

fn random_condition(levels: u32, rng: &mut StdRng) -> String {
    if levels > 0 && rng.random_bool(0.6) {
        let (a, b) = (random_condition(levels - 1, rng), random_condition(levels - 1, rng));
        return match rng.random_range(0..5) {
            0 | 1 => format!("({a} && {b})"),
            2 | 3 => format!("({a} || {b})"),
            _ => format!("!({a})"),
        };
    }
    let number = rng.random_range(-2..8);
    let compare = pick(&["==", "!=", "<", "<=", ">", ">="], rng);
    let name = pick(&NAMES, rng);
    match rng.random_range(0..13) {
        0 => format!("age {compare} {number}"),
        1 => format!("name {compare} '{name}'"),
        2 => format!("city {compare} '{}'", pick(&CITIES, rng)),
        3 => format!("age {compare} {number}.5"),
        4 => format!("city {} null", pick(&["==", "!="], rng)),
        5 => format!("age in [{number}, {}, 3]", number + 2),
        6 => format!("name.startsWith('{name}')"),
        7 => format!("boss.age {compare} {number}"),
        8 => format!("boss.boss.name {compare} '{name}'"),
        9 => format!("friends.any(f => f.age {compare} {number})"),
        10 => format!("age + 1 {compare} boss.age"),
        11 => "boss in friends".to_owned(),
        _ => format!("age {compare} {number} && age {} {}", pick(&["<", ">"], rng), rng.random_range(-2..8)),
    }
}

/// A query with a defined result: its rows have an order, or are compared as a set.
fn random_query(rng: &mut StdRng) -> Query {
    let condition = random_condition(rng.random_range(0..3), rng);
    let key = pick(
        &["age", "name", "city", "boss.age", "age desc", "name desc", "city desc nulls first", "age nulls last"],
        rng,
    );
    let other = pick(&["name", "age desc", "boss.name"], rng);
    let page = match rng.random_range(0..3) {
        0 => String::new(),
        1 => format!(" limit {}", rng.random_range(0..6)),
        _ => format!(" skip {} limit {}", rng.random_range(0..4), rng.random_range(1..5)),
    };
    let mut query = parse(&match rng.random_range(0..8) {
        0 => condition,
        1 | 2 => format!("{condition} order by {key}{page}"),
        3 => format!("{condition} order by {key}, {other}{page}"),
        4 => format!("select name, boss.age where {condition} order by {key}{page}"),
        5 => format!("select city, count(*), sum(age), min(name), max(age), avg(age) where {condition} group by city"),
        6 => format!("select count(*) where {condition}"),
        _ => format!(
            "select city, age, count(boss) where {condition} group by city, age order by count(boss), city, age"
        ),
    });
    if rng.random_bool(0.2) {
        query.class = "Student".to_owned();
    }
    query.only = rng.random_bool(0.2);
    query
}

/// Sorts the rows, unless the query orders them.
fn normalize_order(query: &Query, mut rows: Vec<Row>) -> Vec<Row> {
    if query.order.is_empty() {
        rows.sort_by_key(|row| format!("{row:?}"));
    }
    rows
}

async fn compare(world: &World, cluster: &Client, objects: &BTreeMap<Oid, Object>, rng: &mut StdRng, count: u32) {
    let schema = world.cluster_view.schema(cluster.space()).unwrap();
    for _ in 0..count {
        let query = random_query(rng);
        let expected = expected_rows(&schema.classes, &query, objects).map(|rows| normalize_order(&query, rows));
        let asked = match cluster.query(&query).await {
            Ok(rows) => rows.all().await,
            Err(error) => Err(error),
        };
        match (asked.map(|rows| normalize_order(&query, rows)), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{query}"),
            (Err(found), Err(expected)) => assert_eq!(found.kind(), expected.kind(), "{query}"),
            (found, expected) => panic!("{query}: {found:?} instead of {expected:?}"),
        }
    }
}

/// Creates random people in all logical nodes who refer to each other, and deletes some of them.
async fn people(cluster: &Client, count: usize, rng: &mut StdRng) -> BTreeMap<Oid, Object> {
    let mut objects = BTreeMap::new();
    let mut known = Vec::new();
    while known.len() < count {
        let new: Vec<_> = (0..25)
            .map(|_| (if rng.random_bool(0.3) { STUDENT } else { PERSON }, random_person(&known, rng)))
            .collect();
        let oids = create(cluster, &new).await;
        for (oid, (class, person)) in oids.iter().zip(&new) {
            objects.insert(*oid, object(*class, person));
        }
        known.extend(oids);
    }
    change_randomly(cluster, &mut objects, rng).await;
    objects
}

/// Deletes some of the people and changes others.
async fn change_randomly(cluster: &Client, objects: &mut BTreeMap<Oid, Object>, rng: &mut StdRng) {
    let known: Vec<Oid> = objects.keys().copied().collect();
    let t = cluster.begin(IsolationLevel::Optimistic);
    for oid in &known {
        match rng.random_range(0..10) {
            0 => {
                t.delete(*oid).await.unwrap();
                objects.remove(oid);
            }
            1 | 2 => {
                let other = object(oid.class(), &random_person(&known, rng));
                t.put(*oid, other.clone()).await.unwrap();
                objects.insert(*oid, other);
            }
            _ => {}
        }
    }
    expect_committed(&t).await;
}

#[tokio::test]
async fn random_queries_of_extents_return_correct_results() {
    let world = World::start(3, 5).await;
    let cluster = world.client().await;
    let mut rng = StdRng::seed_from_u64(7);
    let objects = people(&cluster, 100, &mut rng).await;
    compare(&world, &cluster, &objects, &mut rng, 300).await;
    world.end().await;
}

#[tokio::test]
async fn random_queries_of_indexes_return_correct_results() {
    let world = World::start(3, 5).await;
    let cluster = world.client().await;
    let mut rng = StdRng::seed_from_u64(9);
    // Some people are created before the indexes, some after them.
    let mut objects = people(&cluster, 75, &mut rng).await;
    index(&world, "by_age", &["age"]).await;
    index(&world, "by_city", &["city", "age"]).await;
    index(&world, "by_name", &["name"]).await;
    compare(&world, &cluster, &objects, &mut rng, 150).await;
    change_randomly(&cluster, &mut objects, &mut rng).await;
    objects.extend(people(&cluster, 25, &mut rng).await);
    compare(&world, &cluster, &objects, &mut rng, 150).await;
    compare_in_transactions(&world, &cluster, &objects, &mut rng).await;
    world.end().await;
}

#[tokio::test]
async fn random_queries_in_a_transaction_include_its_changes() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let mut rng = StdRng::seed_from_u64(8);
    let objects = people(&cluster, 50, &mut rng).await;
    compare_in_transactions(&world, &cluster, &objects, &mut rng).await;
    world.end().await;
}

/// Compares random queries of transactions that have changed objects and are aborted afterwards.
async fn compare_in_transactions(world: &World, cluster: &Client, before: &BTreeMap<Oid, Object>, rng: &mut StdRng) {
    let schema = world.cluster_view.schema(cluster.space()).unwrap();
    for _ in 0..10 {
        let t = cluster.begin(IsolationLevel::Optimistic);
        let mut objects = before.clone();
        let known: Vec<Oid> = objects.keys().copied().collect();
        for _ in 0..8 {
            let oid = known[rng.random_range(0..known.len())];
            let changed = object(oid.class(), &random_person(&known, rng));
            t.put(oid, changed.clone()).await.unwrap();
            objects.insert(oid, changed);
            let gone = known[rng.random_range(0..known.len())];
            t.delete(gone).await.unwrap();
            objects.remove(&gone);
            let new = object(PERSON, &random_person(&known, rng));
            let oid = t.create_object(PERSON, new.clone(), Default::default()).unwrap();
            objects.insert(oid, new);
        }
        for _ in 0..20 {
            let query = random_query(rng);
            let expected = expected_rows(&schema.classes, &query, &objects).unwrap();
            let found = t.query(&query).await.unwrap().all().await.unwrap();
            assert_eq!(normalize_order(&query, found), normalize_order(&query, expected), "{query}");
        }
        t.abort();
    }
}
