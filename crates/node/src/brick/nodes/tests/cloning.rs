//! Logical nodes of clones at a brick: which requests are taken, and what becomes of rows that nothing needs.

use model::planted_bug::assert_noticed;
use model::{SpaceMap, SpaceNodes};
use store::RowChanges;
use wire::cluster::CloneRows;
use wire::proto::moves::ClonedRows;

use super::*;
use crate::brick::page_rows as rows;
use crate::brick::plant::Bug;

/// The first logical node of the clone, and the one that [`NODE`] becomes.
const FIRST: NodeId = NodeId(100);
const CLONE: NodeId = NodeId(103);
/// More rows than one change of the store may have.
const OBJECTS: u16 = 5_000;

fn map() -> SpaceMap {
    let place = |space, node| SpaceNodes { space: SpaceId(space), first_node: node };
    SpaceMap::new(place(1, NodeId(0)), place(2, FIRST), 8).unwrap()
}

fn object_key(node: NodeId, space: u16, slot: u16) -> rows::Key {
    rows::object_key(PageId { space: SpaceId(space), node, number: 1 }, slot)
}

/// A brick on a disk with objects in these slots.
struct CloneTest {
    nodes: Arc<Nodes>,
    _dir: tempfile::TempDir,
}

impl CloneTest {
    fn new(slots: impl Iterator<Item = u16>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let test = Self { nodes: nodes_on(Store::open(&dir.path().join("s"), Options::default()).unwrap()), _dir: dir };
        let mut changes = RowChanges::new();
        slots.for_each(|slot| changes.put(&object_key(NODE, 1, slot), rows::encode_object(&Object::blob("x".into()))));
        test.nodes.store.commit_rows(changes).unwrap();
        test
    }

    fn step(&self, cut: u64, from: Option<Bytes>) -> Result<ClonedRows> {
        let asked = CloneRows { cut, node: NODE, map: map(), from, most_objects: 4_096 };
        let cloned = self.nodes.clone_rows(&asked, &self.nodes.store.snapshot()?);
        self.handle_tasks();
        cloned
    }

    fn handle_tasks(&self) {
        let mut tasks = Vec::new();
        self.nodes.inbox.take(&mut tasks);
        tasks.into_iter().for_each(|task| self.nodes.handle_task(task));
    }

    fn has_object(&self, slot: u16) -> bool {
        self.nodes.store.row(&object_key(CLONE, 2, slot)).unwrap().is_some()
    }

    fn seal(&self) -> Option<u64> {
        let seals = rows::read_seals(&self.nodes.store).unwrap();
        seals.into_iter().find(|(node, _)| *node == CLONE).map(|(_, epoch)| epoch)
    }

    /// There is a map in which the clone is placed here, or its space was removed.
    fn follow_map(&self, has_clone: bool) {
        let mut map = PlacementSnapshot::clone(&self.nodes.cluster_view.placement.snapshot());
        match has_clone {
            true => drop(map.nodes.insert(CLONE, NodePlacement { brick: BrickId(1), epoch: 9, moves: 0 })),
            false => drop(map.removed.insert(FIRST, 8)),
        }
        self.nodes.cluster_view.placement.set(map);
        self.nodes.follow_map();
    }
}

#[tokio::test]
async fn a_logical_node_of_a_clone_is_marked_until_it_is_complete_and_served_then() {
    let test = CloneTest::new(0..OBJECTS);
    let first = test.step(1, None).unwrap();
    assert!(first.objects > 0 && first.objects < OBJECTS.into() && test.seal() == Some(u64::MAX));
    assert_eq!(test.step(1, None).unwrap_err().kind(), ErrorKind::NotFound, "it would begin again");
    let second = test.step(1, first.next.clone()).unwrap();
    assert_eq!((second.objects, &second.next), (u64::from(OBJECTS) - first.objects, &None));
    assert_eq!((test.seal(), test.has_object(OBJECTS - 1)), (Some(0), true));
    test.follow_map(true);
    assert!(test.nodes.served_node(CLONE).is_some());
    assert_eq!(test.step(2, None).unwrap_err().kind(), ErrorKind::Invalid, "it is served");
}

#[test]
fn all_rows_of_a_clone_are_of_one_cut_and_one_attempt() {
    assert_noticed(&[Bug::EarlierCutContinues, Bug::EarlierCloneKept], || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let test = CloneTest::new(0..OBJECTS);
            let first = test.step(5, None).unwrap();
            let mut gone = RowChanges::new();
            gone.remove(&object_key(NODE, 1, 0));
            test.nodes.store.commit_rows(gone).unwrap();
            let again = test.step(6, None).unwrap();
            // Neither the first attempt nor a cut that the brick does not know goes on.
            for cut in [5, 7] {
                assert_eq!(test.step(cut, first.next.clone()).unwrap_err().kind(), ErrorKind::NotFound);
            }
            assert_eq!(test.step(5, None).unwrap_err().kind(), ErrorKind::NotFound);
            test.step(6, again.next).unwrap();
            assert!(!test.has_object(0), "an object of the first attempt is left");
        });
    });
}

#[tokio::test]
async fn rows_of_a_clone_that_was_given_up_are_removed() {
    let test = CloneTest::new(0..OBJECTS);
    let first = test.step(1, None).unwrap();
    test.follow_map(false);
    let until = time::Instant::now() + Duration::from_secs(10);
    while test.has_object(1) {
        assert!(time::Instant::now() < until, "the rows are still there");
        time::sleep(Duration::from_millis(5)).await;
        test.handle_tasks();
        test.nodes.poll_manager(test.nodes.time.now());
    }
    assert_eq!(test.step(1, first.next).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(test.step(2, None).unwrap_err().kind(), ErrorKind::NotFound);
}
