//! What a process remembers of the logs of others.

use std::collections::BTreeMap;

use super::plant::{Bug, planted};
use super::{ForcedPosition, Opening, believes};

/// Subjects that a process remembers: all bricks of a cluster, and the catalogue.
pub const MAX_SUBJECTS: usize = crate::limits::MEMBERS + 1;

/// Openings of one log of which a process remembers positions.
pub const MAX_WITNESSED_OPENINGS: usize = 8;

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

/// The highest positions that a process saw of other logs, under their last openings.
///
/// A position under an earlier opening is kept until the log has been compared with it: a process that was away when a log was opened
/// may be the only one that knows what is missing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witnesses {
    /// At least one for each log, with rising numbers of openings.
    seen: BTreeMap<Subject, Vec<WitnessedPosition>>,
    /// Openings that were claimed and are not known to have served. They say what to believe, and are no positions of the log.
    claimed: BTreeMap<Subject, Opening>,
}

impl Witnesses {
    /// What was seen of a log: the highest position under each opening, the last opening last.
    #[must_use]
    pub fn of(&self, subject: Subject) -> &[WitnessedPosition] {
        self.seen.get(&subject).map_or(&[], Vec::as_slice)
    }

    /// All that was seen.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, WitnessedPosition)> {
        self.seen.iter().flat_map(|(subject, seen)| seen.iter().map(|seen| (*subject, *seen)))
    }

    /// Whether messages from this opening of a log are believed.
    #[must_use]
    pub fn believes(&self, subject: Subject, opening: Opening) -> bool {
        let seen = self.of(subject).last().map(|seen| seen.forced.opening);
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

    /// Notes a position. Returns whether it is higher than all before under its opening.
    ///
    /// An earlier opening counts as well: a process may learn of a later one before it notes what it saw last. Another opening with the
    /// same number changes nothing. Neither does another subject when there are [`MAX_SUBJECTS`]. Of more than
    /// [`MAX_WITNESSED_OPENINGS`], the first and the last ones are kept.
    pub fn note(&mut self, subject: Subject, forced: ForcedPosition, at_us: u64) -> bool {
        if !self.seen.contains_key(&subject) && self.seen.len() >= MAX_SUBJECTS {
            return false;
        }
        let seen = self.seen.entry(subject).or_default();
        let noted = WitnessedPosition { forced, at_us };
        let number = forced.opening.number;
        let is_higher = match seen.binary_search_by_key(&number, |seen| seen.forced.opening.number) {
            Ok(at) if seen[at].forced.opening == forced.opening => {
                let is_higher = forced.position > seen[at].forced.position || planted(Bug::WitnessForgotten);
                if is_higher {
                    seen[at] = noted;
                }
                is_higher
            }
            Ok(_) => false,
            Err(at) if at < seen.len() && planted(Bug::EarlierOpeningForgotten) => false,
            Err(at) => {
                let forgotten = if planted(Bug::EarlierOpeningForgotten) { at } else { 0 };
                seen.insert(at, noted);
                seen.drain(..forgotten);
                if seen.len() > MAX_WITNESSED_OPENINGS {
                    seen.remove(1);
                }
                true
            }
        };
        if is_higher {
            self.claimed.retain(|of, claimed| *of != subject || claimed.number > number);
        }
        is_higher
    }

    /// Drops what was seen of a log under openings before this one, as far as a process that serves it under this opening has `compared`
    /// it. What was seen meanwhile, by another connection, is kept for the next comparison.
    pub fn drop_compared(&mut self, subject: Subject, opening: Opening, compared: &[WitnessedPosition]) {
        let Some(seen) = self.seen.get_mut(&subject) else { return };
        // The last one says what to believe, so it is kept.
        let Some(last) = seen.last().copied() else { return };
        seen.retain(|one| {
            let is_covered = |by: &WitnessedPosition| {
                by.forced.opening == one.forced.opening && by.forced.position >= one.forced.position
            };
            let is_earlier = one.forced.opening.number < opening.number;
            let is_compared = compared.iter().any(is_covered) || planted(Bug::ComparedUnseen);
            *one == last || !is_earlier || !is_compared
        });
    }

    /// Forgets a log, such as that of a brick that was removed from the cluster.
    pub fn forget(&mut self, subject: Subject) {
        self.seen.remove(&subject);
        self.claimed.remove(&subject);
    }
}
