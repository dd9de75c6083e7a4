//! Indexes follow whatever happens.

use super::*;

/// What happens to a logical node.
#[derive(Clone, Debug)]
enum Step {
    Write {
        slot: u16,
        class: u32,
        age: i64,
        prepares: bool,
    },
    Remove {
        slot: u16,
        prepares: bool,
    },
    Decide(bool),
    /// One more index, or one less.
    Add,
    Drop,
    Poll,
    Answers,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..30_u16, 0..3_u32, 0..6_i64, any::<bool>());
    prop_oneof![
        12 => write.prop_map(|(slot, class, age, prepares)| Step::Write { slot, class, age, prepares }),
        4 => (0..30_u16, any::<bool>()).prop_map(|(slot, prepares)| Step::Remove { slot, prepares }),
        4 => any::<bool>().prop_map(Step::Decide),
        1 => Just(Step::Add),
        1 => Just(Step::Drop),
        6 => Just(Step::Poll),
        4 => Just(Step::Answers),
        1 => Just(Step::Reopen),
    ]
}

/// Whatever happens while indexes are made, each has in the end what one has that is made afterwards.
fn indexes_follow(mut world: World, steps: Vec<Step>) {
    let (mut indexes, mut gone, mut next) = (vec![BY_AGE], Vec::new(), BY_AGE + 1);
    let list = |indexes: &[u32]| indexes.iter().map(|index| by_age(*index)).collect::<Vec<_>>();
    for step in steps {
        match step {
            Step::Write { slot, class, age, prepares } => {
                let class = ClassId(class);
                world.begin(Vec::new(), [(oid(class, slot), ObjectState::Value(person(class, age)))].into(), !prepares);
            }
            Step::Remove { slot, prepares } => {
                world.begin(Vec::new(), [(oid(PERSON, slot), ObjectState::Absent)].into(), !prepares);
            }
            Step::Decide(commits) => world.decide(commits),
            Step::Add => {
                indexes.push(next);
                next += 1;
                world.set_indexes(&list(&indexes));
            }
            Step::Drop if !indexes.is_empty() => {
                gone.push(indexes.remove(0));
                world.set_indexes(&list(&indexes));
            }
            Step::Drop => {}
            Step::Poll => world.poll(),
            Step::Answers => drop(world.answers()),
            Step::Reopen => world = world.reopen(),
        }
    }
    world.answer_all();
    while !world.prepared.is_empty() {
        world.decide(true);
        world.answer_all();
    }
    world.settle();
    indexes.push(next);
    world.set_indexes(&list(&indexes));
    world.settle();
    let expected = world.expected_index();
    let afterwards = world.entries(next);
    for index in indexes {
        assert_eq!(world.ages(index, false, 4), expected);
        assert_eq!(world.entries(index), afterwards);
    }
    for index in gone {
        assert_eq!(world.entries(index), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn indexes_are_what_they_would_be_if_made_afterwards(steps in proptest::collection::vec(step(), 0..120)) {
        indexes_follow(World::with_index(), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn indexes_on_disk_are_what_they_would_be_if_made_afterwards(steps in proptest::collection::vec(step(), 0..120)) {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::with_store(Store::open(dir.path(), Options::default()).unwrap());
        world.set_indexes(&[by_age(BY_AGE)]);
        indexes_follow(world, steps);
    }
}
