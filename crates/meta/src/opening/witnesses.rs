//! What a process remembers of the logs of others.

use std::collections::BTreeMap;

use super::plant::{Bug, planted};
use super::{ForcedPosition, Opening, believes};

/// Subjects that a process remembers: all bricks of a cluster, and the catalogue.
pub const MAX_SUBJECTS: usize = crate::limits::MEMBERS + 1;

/// A log that others witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The catalogue.
    Catalogue,
    /// The log of the brick with this number, which is at least 1.
    Brick(u32),
}

/// What was seen of a log, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WitnessedPosition {
    /// The highest position that was seen, with its opening.
    pub forced: ForcedPosition,
    /// When it was first seen: microseconds since 1970 by the clock of the witness. For messages to the operator only.
    pub at_us: u64,
}

/// The highest openings and positions that a process saw of other logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witnesses {
    seen: BTreeMap<Subject, WitnessedPosition>,
    /// Openings that were claimed and are not known to have served. They say what to believe, and are no positions of the log.
    claimed: BTreeMap<Subject, Opening>,
}

impl Witnesses {
    /// What was seen of a log.
    #[must_use]
    pub fn get(&self, subject: Subject) -> Option<WitnessedPosition> {
        self.seen.get(&subject).copied()
    }

    /// All that was seen.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, WitnessedPosition)> {
        self.seen.iter().map(|(subject, seen)| (*subject, *seen))
    }

    /// Whether messages from this opening of a log are believed.
    #[must_use]
    pub fn believes(&self, subject: Subject, opening: Opening) -> bool {
        let seen = self.seen.get(&subject).map(|seen| seen.forced.opening);
        let known = seen.into_iter().chain(self.claimed.get(&subject).copied());
        known.max_by_key(|known| known.number).is_none_or(|known| believes(known, opening))
    }

    /// Notes that an opening was claimed: no earlier one is believed any more.
    ///
    /// The highest position that was seen stays what it is, because a claim may fail.
    pub fn note_claim(&mut self, subject: Subject, opening: Opening) {
        if self.believes(subject, opening) && (self.claimed.len() < MAX_SUBJECTS || self.claimed.contains_key(&subject))
        {
            self.claimed.insert(subject, opening);
        }
    }

    /// Notes a position. Returns whether it is higher than all before.
    ///
    /// A lower opening, another opening with the same number, and a lower position change nothing. Neither does another subject when
    /// there are [`MAX_SUBJECTS`].
    pub fn note(&mut self, subject: Subject, forced: ForcedPosition, at_us: u64) -> bool {
        let room = self.seen.len() < MAX_SUBJECTS;
        let before = self.seen.get(&subject).map(|seen| seen.forced);
        let is_higher = match before {
            None => room,
            Some(before) if before.opening == forced.opening => {
                forced.position > before.position || planted(Bug::WitnessForgotten)
            }
            Some(before) => forced.opening.number > before.opening.number,
        };
        if is_higher {
            self.seen.insert(subject, WitnessedPosition { forced, at_us });
            self.claimed.retain(|of, claimed| *of != subject || claimed.number > forced.opening.number);
        }
        is_higher
    }

    /// Forgets a log, such as that of a brick that was removed from the cluster.
    pub fn forget(&mut self, subject: Subject) {
        self.seen.remove(&subject);
        self.claimed.remove(&subject);
    }
}
