//! What transactions do with objects.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::objects::{KeyedObject, Objects};
use crate::recorder::Recorder;

/// The operation of one step of a transaction on an object.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Read(KeyedObject),
    /// Appends this element.
    Append(KeyedObject, i64),
    /// Reads a balance.
    Balance(KeyedObject),
    /// Adds this amount to a balance.
    Add(KeyedObject, i64),
    /// Writes the current value again.
    Touch(KeyedObject),
}

impl Act {
    pub(crate) fn object(&self) -> &KeyedObject {
        let (Self::Read(kept) | Self::Append(kept, _) | Self::Balance(kept) | Self::Add(kept, _) | Self::Touch(kept)) =
            self;
        kept
    }

    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Balance(_))
    }
}

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
