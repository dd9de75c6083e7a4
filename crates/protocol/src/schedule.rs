//! Deadlines by key; the first one is found without a scan.

use std::collections::{BTreeMap, BTreeSet};

use crate::lease::Ms;

/// Deadlines, at most one for each key.
#[derive(Clone, Debug)]
pub struct Schedule<K> {
    due: BTreeSet<(Ms, K)>,
    at: BTreeMap<K, Ms>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), at: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Schedule<K> {
    /// Sets or removes the deadline of a key.
    ///
    /// # Panics
    /// If a key has two deadlines, which would be a bug.
    pub fn set(&mut self, key: K, at: Option<Ms>) {
        let before = match at {
            Some(at) => self.at.insert(key, at),
            None => self.at.remove(&key),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, key));
        }
        if let Some(at) = at {
            self.due.insert((at, key));
        }
        assert!(self.due.len() == self.at.len(), "D4, C2: a key has no deadline, or more than one");
    }

    /// The deadline of a key.
    #[must_use]
    pub fn at(&self, key: K) -> Option<Ms> {
        self.at.get(&key).copied()
    }

    /// The first deadline.
    #[must_use]
    pub fn first(&self) -> Option<Ms> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The keys whose deadlines have passed, in their order.
    #[must_use]
    pub fn due(&self, now: Ms) -> BTreeSet<K> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect()
    }

    /// Removes all deadlines.
    pub fn clear(&mut self) {
        self.due.clear();
        self.at.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_deadline_of_a_key_is_the_valid_one() {
        let mut schedule = Schedule::default();
        schedule.set('b', Some(5));
        schedule.set('a', Some(7));
        schedule.set('c', Some(6));
        assert_eq!((schedule.first(), schedule.due(6)), (Some(5), ['b', 'c'].into()));
        schedule.set('b', Some(9));
        schedule.set('c', None);
        assert_eq!((schedule.first(), schedule.due(8)), (Some(7), ['a'].into()));
        schedule.set('a', None);
        assert_eq!(schedule.due(100), ['b'].into());
        schedule.clear();
        assert_eq!(schedule.first(), None);
    }
}
