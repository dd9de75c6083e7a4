//! The operations on a cluster in this process, beside the control.

use clap::ValueEnum;
use client::{ConnectOptions, Embedded, IsolationLevel};

use super::control::Control;
use super::design::{Design, Size};
use super::generate::ModuleData;
use super::load::load;
use super::model::{AtomicPart, Connection};
use super::objects::{Database, Objects};
use super::operation::Operation;
use super::space::Space;
use super::traversal::{Counts, Traversal, UpdatedField, Updates};

/// A cluster with a tiny database of two modules, and the control.
struct World {
    embedded: Embedded,
    design: Design,
    control: Control,
}

impl World {
    async fn start() -> Self {
        let embedded = Embedded::in_memory().await.unwrap();
        let world = Self { embedded, design: Design::new(Size::Tiny, 2), control: Control::default() };
        let space = world.connect(false).await;
        space.define().await.unwrap();
        load(&space, &world.design, |_, _| {}).await.unwrap();
        load(&world.control, &world.design, |_, _| {}).await.unwrap();
        world
    }

    /// A new client.
    async fn connect(&self, with_snapshots: bool) -> Space {
        let mut options = ConnectOptions::default();
        options.snapshots = with_snapshots;
        Space::new(self.embedded.connect("main", options).await.unwrap(), with_snapshots)
    }

    /// Runs an operation on the control.
    async fn expected_counts(&self, operation: Operation, module: u32) -> Counts {
        operation.run(&self.control, &self.design, module).await.unwrap()
    }
}

/// The identifiers, positions and build dates of all atomic parts.
async fn atomic_parts(database: &impl Database) -> Vec<[i64; 4]> {
    database.transact(async |objects| parts_of(objects).await).await.unwrap()
}

async fn parts_of(objects: &impl Objects) -> client::Result<Vec<[i64; 4]>> {
    let parts = objects.all::<AtomicPart>().await?;
    let mut parts: Vec<[i64; 4]> = parts.iter().map(|part| [part.id, part.x, part.y, part.build_date]).collect();
    parts.sort_unstable();
    Ok(parts)
}

#[tokio::test]
async fn operations_count_the_same_as_on_structs_in_memory() {
    let world = World::start().await;
    let space = world.connect(false).await;
    for operation in Operation::value_variants() {
        for module in [1, 2] {
            let counts = operation.run(&space, &world.design, module).await.unwrap();
            assert_eq!(counts, world.expected_counts(*operation, module).await, "{operation} of module {module}");
            // Few parts of the tiny size are as late as Q2 asks.
            assert!(counts.visited > 0 || *operation == Operation::Q2, "{operation} finds nothing");
        }
    }
    assert_eq!(atomic_parts(&space).await, atomic_parts(&world.control).await);
    world.embedded.shutdown().await.unwrap();
}

#[tokio::test]
async fn traversals_visit_all_parts_of_all_uses() {
    let world = World::start().await;
    let uses = world.design.base_assemblies() * world.design.components;
    let parts = (uses * world.design.atomic_parts) as u64;
    let counts = |visited, updated| Counts { visited, updated };
    for (operation, expected) in [
        (Operation::T1, counts(parts, 0)),
        (Operation::T2a, counts(parts, uses as u64)),
        (Operation::T2b, counts(parts, parts)),
        (Operation::T2c, counts(parts, 4 * parts)),
        (Operation::T2one, counts(parts, world.design.atomic_parts as u64)),
        (Operation::T6, counts(uses as u64, 0)),
    ] {
        assert_eq!(world.expected_counts(operation, 1).await, expected, "{operation}");
    }
    world.embedded.shutdown().await.unwrap();
}

#[tokio::test]
async fn other_clients_see_updates() {
    let world = World::start().await;
    let (writer, reader) = (world.connect(false).await, world.connect(false).await);
    let before = atomic_parts(&reader).await;
    Operation::T2b.run(&writer, &world.design, 1).await.unwrap();
    let after_t2 = atomic_parts(&reader).await;
    let changed = |from: &[[i64; 4]], to: &[[i64; 4]], field: usize| {
        from.iter().zip(to).filter(|(from, to)| from[field] != to[field]).count()
    };
    assert!(changed(&before, &after_t2, 1) > 0);
    assert_eq!(changed(&before, &after_t2, 1), changed(&before, &after_t2, 2));
    assert_eq!(changed(&before, &after_t2, 3), 0);
    Operation::T3b.run(&writer, &world.design, 1).await.unwrap();
    let after_t3 = atomic_parts(&reader).await;
    // The same parts.
    assert_eq!(changed(&after_t2, &after_t3, 3), changed(&before, &after_t2, 1));
    assert_eq!(changed(&after_t2, &after_t3, 1), 0);
    world.embedded.shutdown().await.unwrap();
}

#[tokio::test]
async fn snapshots_traverse_the_same_parts() {
    let world = World::start().await;
    let space = world.connect(true).await;
    let counts = Operation::T1.run(&space, &world.design, 2).await.unwrap();
    assert_eq!(counts, world.expected_counts(Operation::T1, 2).await);
    world.embedded.shutdown().await.unwrap();
}

#[tokio::test]
async fn database_is_loaded_once() {
    let world = World::start().await;
    let error = world.connect(false).await.define().await.unwrap_err();
    assert_eq!(error.kind(), client::ErrorKind::Exists);
    world.embedded.shutdown().await.unwrap();
}

#[tokio::test]
async fn loaded_objects_are_those_of_the_generator() {
    let design = Design::new(Size::Tiny, 1);
    let [one, other] = [Control::default(), Control::default()];
    load(&one, &design, |_, _| {}).await.unwrap();
    load(&other, &design, |_, _| {}).await.unwrap();
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    let connections = one.all::<Connection>().await.unwrap();
    let data = ModuleData::generate(&design, 1);
    let generated = data.composite_parts.iter().flat_map(|part| &part.parts).map(|part| part.targets.len());
    assert_eq!(connections.len(), generated.sum::<usize>());
}

#[tokio::test]
async fn small_size_has_the_results_of_java() {
    let (control, design) = (Control::default(), Design::new(Size::Small, 1));
    load(&control, &design, |_, _| {}).await.unwrap();
    // Computed with `Design` of java/bench.
    for (operation, visited) in [
        (Operation::T1, 43_740),
        (Operation::T6, 2_187),
        (Operation::Q1, 10),
        (Operation::Q2, 91),
        (Operation::Q3, 996),
        (Operation::Q4, 462),
        (Operation::Q5, 242),
        (Operation::Q7, 10_000),
        (Operation::Q8, 10_000),
    ] {
        let counts = operation.run(&control, &design, 1).await.unwrap();
        assert_eq!(counts, Counts { visited, updated: 0 }, "{operation}");
    }
}

#[tokio::test]
async fn a_path_leads_to_one_composite_part_of_the_module() {
    let world = World::start().await;
    let space = world.connect(false).await;
    let transaction = space.begin(IsolationLevel::Optimistic);
    let module = transaction.module(2).await.unwrap();
    let traversal = Traversal::updating(Updates::FirstCompositePart, UpdatedField::Position);
    let mut branches = Vec::new();
    let choose = |count: usize| {
        branches.push(count);
        count - 1
    };
    let counts = traversal.run_one(&transaction, module, choose).await.unwrap();
    assert_eq!(branches, [world.design.fanout, world.design.fanout, world.design.components]);
    let parts = world.design.atomic_parts as u64;
    assert_eq!(counts, Counts { visited: parts, updated: parts });
    let found = Traversal::composite_parts(&transaction, module).await.unwrap();
    let most = world.design.composite_parts.min(world.design.base_assemblies() * world.design.components);
    assert!(found.len() > world.design.components && found.len() <= most, "{} composite parts", found.len());
}
