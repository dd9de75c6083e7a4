//! What random transactions do with objects.

use mortar_tests::acts::Act;
use mortar_tests::keyed_objects::KeyedObject;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::objects::Objects;
use crate::recorder::Recorder;

/// Some lists, each read or appended to. `appends` is the percentage of appends.
pub(crate) fn use_lists(rng: &mut StdRng, objects: &Objects, record: &Recorder, appends: u32) -> Vec<Act> {
    let count = *[1, 1, 2, 2, 3, 4].choose(rng).unwrap();
    let lists: Vec<KeyedObject> = objects.lists.sample(rng, count).cloned().collect();
    let mut acts = Vec::new();
    for list in lists {
        if rng.random_range(0..100) < appends {
            acts.push(Act::Append(list, record.next_element()));
        } else {
            acts.push(Act::Read(list));
        }
    }
    acts
}

/// A transfer between two accounts.
pub(crate) fn transfer(rng: &mut StdRng, objects: &Objects) -> Vec<Act> {
    let two: Vec<KeyedObject> = objects.accounts.sample(rng, 2).cloned().collect();
    let amount = rng.random_range(1..10);
    vec![Act::Add(two[0].clone(), -amount), Act::Add(two[1].clone(), amount)]
}

/// Reads all accounts.
pub(crate) fn audit(objects: &Objects) -> Vec<Act> {
    objects.accounts.iter().cloned().map(Act::Balance).collect()
}
