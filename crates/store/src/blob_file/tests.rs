use model::Op;

use crate::read::Reading;
use crate::row::CHUNK;
use crate::tests::world::Simulated;
use crate::tests::{blob, commit, pattern};

#[test]
fn a_blob_file_that_is_gone_never_lends_its_number_to_another() {
    let world = Simulated::new();
    let oid = blob(&world.store, pattern(3 * CHUNK, 1));
    world.store.install().unwrap();
    commit(&world.store, [Op::Delete { oid }]);
    for _ in 0..3 {
        world.store.core().chores().unwrap();
        world.store.force().unwrap();
        world.store.install().unwrap();
    }
    // The next opening gives the storage back and removes the file, and ends before that is noted in the B-tree.
    let second = world.crash(1).unwrap();
    second.store.core().chores().unwrap();
    let third = second.crash(2).unwrap();
    let oid = blob(&third.store, pattern(3 * CHUNK, 2));
    third.store.core().chores().unwrap();
    assert_eq!(third.store.read(oid, 0, 1 << 20).unwrap(), pattern(3 * CHUNK, 2));
    assert_eq!(third.store.scrub(&()).unwrap().damage, []);
}
