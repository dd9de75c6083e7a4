//! A logical node moves from one brick to another while clients commit. The test sets the placement map.

use model::planted_bug::plant;
use model::{ClassId, Object, Oid, PageId, SpaceId};
use protocol::commit::{Outcome, Part, Request as Asked};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use store::{Options, Store};
use wire::cluster::Message;
use wire::driving::PeerHandle;

use bytes::Bytes;

use super::*;
use crate::auth::ClusterCredentials;
use crate::brick::plant::Bug;
use crate::cluster_view::ClusterView;
use crate::node_placement::{BrickId, NodePlacement, PlacementSnapshot};

mod attempts;

const NODE: NodeId = NodeId(7);
const OLD: BrickId = BrickId(1);
const NEW: BrickId = BrickId(2);
/// The epochs of the node at the old brick, of its seal, and at the new brick.
const AT_OLD: u64 = 4;
const SEALED: u64 = 5;
const AT_NEW: u64 = 6;

/// Bugs that this test notices. The simulation of drivers notices others.
const MOVE_BUGS: [Bug; 6] = [
    Bug::ChangesForgotten,
    Bug::LateQuestionCounts,
    Bug::LastBeforeAll,
    Bug::ToldUnsealed,
    Bug::SealNotWritten,
    Bug::ServedUnsealed,
];

type CheckResult = std::result::Result<(), String>;

fn start_brick(store: &Store, id: BrickId) -> Arc<Nodes> {
    let realm = ClusterView::new(|_| Box::pin(async { Ok(1) }));
    Nodes::new(store.clone(), realm, id, ClusterCredentials::default())
}

/// The map by which a brick serves the node under an epoch.
fn served_map(brick: BrickId, epoch: u64) -> PlacementSnapshot {
    PlacementSnapshot {
        nodes: [(NODE, NodePlacement { brick, epoch, moves: u32::from(epoch == AT_NEW) })].into(),
        ..PlacementSnapshot::default()
    }
}

/// The map by which the node moves.
fn moving_map(sealed: Option<u64>) -> PlacementSnapshot {
    let transfer = Transfer { from: OLD, to: NEW, sealed };
    let nodes = if sealed.is_some() { BTreeMap::new() } else { served_map(OLD, AT_OLD).nodes };
    PlacementSnapshot { nodes, moving: [(NODE, transfer)].into(), ..PlacementSnapshot::default() }
}

async fn follow(brick: &Arc<Nodes>, map: PlacementSnapshot) {
    brick.cluster_view.placement.set(map);
    brick.follow_map();
    time::sleep(Duration::from_millis(1)).await;
    brick.follow_map();
}

/// The two bricks, and the objects whose commits were acknowledged.
struct MoveWorld {
    stores: [Store; 2],
    old: Arc<Nodes>,
    new: Arc<Nodes>,
    acknowledged: Vec<(Oid, usize)>,
    asked: CopyRows,
}

impl MoveWorld {
    async fn begin() -> Self {
        let stores = [(); 2].map(|()| Store::in_memory(Options::default()).unwrap());
        let (old, new) = (start_brick(&stores[0], OLD), start_brick(&stores[1], NEW));
        follow(&old, served_map(OLD, AT_OLD)).await;
        new.set_seal(NODE, INCOMPLETE_COPY).unwrap();
        let asked =
            CopyRows { node: NODE, to: NEW.0, attempt: 5, number: 0, last_answered: 0, from: Some(Bytes::new()) };
        Self { stores, old, new, acknowledged: Vec::new(), asked }
    }

    /// Commits new objects of these sizes at a brick, under an epoch.
    fn commit(&mut self, at: BrickId, epoch: u64, sizes: &[usize]) {
        let brick = if at == OLD { &self.old } else { &self.new };
        let post = PeerHandle::new(Arc::default());
        for size in sizes {
            let number = 1 + self.acknowledged.len() as u64;
            let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NODE, number }, 1);
            let now = brick.time.now();
            let txn = TxnId { start: HlcTimestamp::at(now), client: ClientId(number) };
            let writes = [(oid, ObjectState::Value(Object::blob(vec![7; *size].into())))].into();
            let request = Asked::Commit { txn, part: Part { writes, ..Part::default() } };
            brick.handle_message(&post, Message::Ask { node: NODE, epoch, seen: HlcTimestamp::ZERO, request }).unwrap();
            let outcome = brick.with_driver(NODE, |hosted| Ok(hosted.outcome(txn)));
            if let Ok(Some(Outcome::Committed(_))) = outcome {
                self.acknowledged.push((oid, *size));
            }
        }
    }

    /// Checks that the brick that serves the node has all acknowledged objects.
    fn check_nothing_lost(&self) -> CheckResult {
        for brick in [&self.old, &self.new].into_iter().filter(|brick| brick.is_served(NODE)) {
            for (oid, size) in &self.acknowledged {
                let found = brick.read_latest(*oid, |stored| stored.map(|stored| stored.data.len())).unwrap();
                if found != Some(*size) {
                    return Err(format!("brick {} serves the node, and lacks {oid}: {found:?}", brick.id.0));
                }
            }
        }
        Ok(())
    }

    /// Sends one request of the new brick. Returns whether the answer had the last rows.
    fn ask(&mut self) -> Result<bool> {
        self.asked.number += 1;
        let copied = self.old.copy_rows(&self.asked)?;
        (self.asked.last_answered, self.asked.from) = (self.asked.number, copied.next.clone());
        let is_all = copied.sealed.is_some();
        let sealed = copied.sealed;
        let (rows, _) = attempt::changes_of(NODE, copied)?;
        self.new.write_rows(NODE, rows, sealed)?;
        Ok(is_all)
    }

    /// The whole move, with an outdated map, a late and an early request, and a restarted brick.
    async fn run() -> CheckResult {
        let mut world = Self::begin().await;
        world.commit(OLD, AT_OLD, &[100; 30]);
        follow(&world.old, moving_map(None)).await;
        assert!(!world.ask().unwrap());
        world.commit(OLD, AT_OLD, &[100; 10]);
        // An outdated map, by which the new brick served the node before, arrives late.
        follow(&world.new, served_map(NEW, AT_OLD - 1)).await;
        world.check_nothing_lost()?;
        follow(&world.new, PlacementSnapshot::default()).await;
        assert!(!world.ask().unwrap());
        // The request before, whose first try was answered, arrives late. Its answer is lost.
        world.commit(OLD, AT_OLD, &[100; 10]);
        let late = CopyRows { last_answered: world.asked.number - 1, ..world.asked.clone() };
        drop(world.old.copy_rows(&late));
        assert!(!world.ask().unwrap());
        // The old brick has not applied the map yet by which it does not serve the node any more.
        world.commit(OLD, AT_OLD, &[700 << 10; 3]);
        world.old.cluster_view.placement.set(moving_map(Some(SEALED)));
        let mut is_all = false;
        for _ in 0..3 {
            is_all |= world.ask().unwrap_or(false);
        }
        world.commit(OLD, AT_OLD, &[100]);
        if !is_all {
            follow(&world.old, moving_map(Some(SEALED))).await;
        }
        for _ in 0..20 {
            is_all = is_all || world.ask().unwrap();
        }
        assert!(is_all);
        follow(&world.new, served_map(NEW, AT_NEW)).await;
        world.check_nothing_lost()?;
        world.commit(NEW, AT_NEW, &[100; 10]);
        world.check_nothing_lost()?;
        follow(&world.old, served_map(NEW, AT_NEW)).await;
        // The old brick restarts with an outdated map.
        world.old = start_brick(&world.stores[0], OLD);
        follow(&world.old, served_map(OLD, AT_OLD)).await;
        world.check_nothing_lost()?;
        assert!(world.new.is_served(NODE) && world.acknowledged.len() > 60);
        Ok(())
    }
}

#[tokio::test]
async fn new_brick_of_a_moved_node_has_all_acknowledged_objects() {
    MoveWorld::run().await.unwrap();
}

#[tokio::test]
async fn planted_bugs_in_moves_are_noticed() {
    for bug in MOVE_BUGS {
        let _planted = plant(bug);
        let found = MoveWorld::run().await.expect_err(&format!("{bug:?} is not noticed"));
        assert!(found.contains("lacks"), "{bug:?}: {found}");
    }
}
