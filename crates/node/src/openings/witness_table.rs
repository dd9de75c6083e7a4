//! What this process saw of the logs of others.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use meta::catalog::Catalog;
use meta::opening::{ForcedPosition, Opening, Subject, WitnessedPosition, Witnesses};
use model::{Error, ErrorKind, Result, limits};
use store::Store;
use wire::handshake::Witnessed;
use wire::proto::cluster;

use super::kept_rows;
use crate::member;

/// The highest openings and positions that this process saw, for all its threads, and the cluster of which they are.
#[derive(Debug, Default)]
pub struct WitnessTable {
    witnesses: Mutex<Witnesses>,
    cluster: OnceLock<String>,
}

impl WitnessTable {
    /// A table with nothing in it.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the number of the cluster, if it is not known yet.
    pub(crate) fn set_cluster(&self, cluster: String) {
        self.cluster.get_or_init(|| cluster);
    }

    /// The number of the cluster of which the logs are; empty if that is not known.
    pub(crate) fn cluster(&self) -> &str {
        self.cluster.get().map_or("", String::as_str)
    }

    /// Adds what a brick kept in its store, with the number of its cluster.
    ///
    /// # Errors
    /// If a row cannot be read: see [`Witnesses::decode`].
    pub fn add_kept(&self, store: &Store) -> Result<()> {
        if let Some(cluster) = member::stored_cluster(store)? {
            self.set_cluster(cluster);
        }
        let Some(kept) = kept_rows::witnesses(store)? else { return Ok(()) };
        let mut witnesses = self.lock();
        for (subject, seen) in kept.iter() {
            witnesses.note(subject, seen.forced, seen.at_us);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Witnesses> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.witnesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a position.
    pub(crate) fn note(&self, subject: Subject, forced: ForcedPosition) {
        self.lock().note(subject, forced, now_us());
    }

    /// Notes a claimed opening: no earlier one is believed any more.
    pub(crate) fn note_claim(&self, subject: Subject, opening: Opening) {
        self.lock().note_claim(subject, opening);
    }

    /// Notes the openings of bricks that the catalogue knows.
    pub(crate) fn note_catalog(&self, catalog: &Catalog) {
        let now = now_us();
        let mut witnesses = self.lock();
        for (brick, _) in catalog.bricks() {
            let Some(known) = catalog.opening(brick.id) else { continue };
            let subject = Subject::Brick(brick.id.0);
            if let Some(opening) = known.record.base {
                witnesses.note(subject, ForcedPosition { opening, position: known.record.position }, now);
            }
            if let Some(claimed) = known.record.claimed {
                witnesses.note_claim(subject, claimed);
            }
        }
    }

    /// Notes what another process saw.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if an entry names no opening.
    pub(crate) fn note_all(&self, seen: &cluster::Witnesses) -> Result<()> {
        for one in &seen.seen {
            let (subject, seen) = witnessed_from_proto(one)?;
            self.lock().note(subject, seen.forced, seen.at_us);
        }
        Ok(())
    }

    /// See [`Witnesses::drop_compared`].
    pub(crate) fn drop_compared(&self, subject: Subject, opening: Opening, compared: &[WitnessedPosition]) {
        self.lock().drop_compared(subject, opening, compared);
    }

    /// What was seen of a log: the highest position under each opening, the last opening last.
    pub(crate) fn of(&self, subject: Subject) -> Vec<WitnessedPosition> {
        self.lock().of(subject).to_vec()
    }

    /// The same, for the wire.
    pub(crate) fn witnessed_positions(&self, subject: Subject) -> Vec<Witnessed> {
        self.lock().of(subject).iter().map(|seen| witnessed_to_proto(subject, *seen)).collect()
    }

    /// Whether messages from this opening of a brick are believed.
    pub(crate) fn believes(&self, brick: u32, opening: Opening) -> bool {
        self.lock().believes(Subject::Brick(brick), opening)
    }

    /// All that was seen.
    pub(crate) fn snapshot(&self) -> Witnesses {
        self.lock().clone()
    }

    /// What was seen and is not in `known`, for the wire.
    pub(crate) fn news_since(&self, known: &Witnesses) -> cluster::Witnesses {
        let witnesses = self.lock();
        let news = witnesses.iter().filter(|(subject, seen)| !known.of(*subject).contains(seen));
        let seen = news.map(|(subject, seen)| witnessed_to_proto(subject, seen)).collect();
        cluster::Witnesses { seen, transactions: None }
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// What was seen of a log, for the wire.
pub(crate) fn witnessed_to_proto(subject: Subject, seen: WitnessedPosition) -> Witnessed {
    let brick = if let Subject::Brick(brick) = subject { brick } else { 0 };
    let ForcedPosition { opening: Opening { number, nonce }, position } = seen.forced;
    Witnessed { brick, number, nonce, position, at_us: seen.at_us }
}

/// The opening that a message names.
///
/// # Errors
/// [`ErrorKind::Invalid`] for number 0, and for one so large that no other could follow.
pub(crate) fn opening_of(seen: &Witnessed) -> Result<Opening> {
    match seen.number {
        0 => Err(Error::new(ErrorKind::Invalid, "an opening without a number")),
        limits::COUNT.. => Err(Error::new(ErrorKind::Invalid, "an opening with a number of 2^62 or more")),
        number => Ok(Opening { number, nonce: seen.nonce }),
    }
}

/// What a message says about a log.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it names no opening.
pub(crate) fn witnessed_from_proto(seen: &Witnessed) -> Result<(Subject, WitnessedPosition)> {
    let subject = if seen.brick == 0 { Subject::Catalogue } else { Subject::Brick(seen.brick) };
    let forced = ForcedPosition { opening: opening_of(seen)?, position: seen.position };
    Ok((subject, WitnessedPosition { forced, at_us: if seen.at_us == 0 { now_us() } else { seen.at_us } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_after_which_none_could_follow_is_refused() {
        let seen = |number| Witnessed { brick: 1, number, nonce: 2, position: 3, at_us: 4 };
        assert_eq!(opening_of(&seen(7)).unwrap(), Opening { number: 7, nonce: 2 });
        for number in [0, limits::COUNT, u64::MAX] {
            assert_eq!(witnessed_from_proto(&seen(number)).unwrap_err().kind(), ErrorKind::Invalid, "{number}");
        }
    }
}
