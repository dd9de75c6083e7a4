//! What a transaction has made of the objects of a page, as a digest: with it an invalidation proves the update that a redirector has
//! retained (rule R2).

use std::hash::{Hash, Hasher};

use blake2::{Blake2s256, Digest};

use crate::page_cache::{ObjectState, SlotStates};
use crate::plant::{Bug, planted};

/// The BLAKE2s-256 digest of the new states of a page's objects. It is infeasible to find two updates with the same digest.
///
/// Processes of different builds may hash differently. Then an update is not recognized, and its readers fetch the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateDigest(pub [u8; 32]);

impl UpdateDigest {
    /// The digest of new states.
    #[must_use]
    pub fn of<T: Hash>(states: &SlotStates<T>) -> Self {
        let mut sink = Sink(Blake2s256::new());
        for (slot, state) in states {
            sink.write_u16(*slot);
            match state {
                _ if planted(Bug::StateNotDigested) => {}
                ObjectState::Value(object) => (0_u8, object).hash(&mut sink),
                ObjectState::Absent => sink.write_u8(1),
                ObjectState::Changed(change) => (2_u8, change).hash(&mut sink),
            }
        }
        Self(sink.0.finalize().into())
    }
}

/// Passes what is hashed on. Integers have the same bytes on all machines.
struct Sink(Blake2s256);

impl Hasher for Sink {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_u128(&mut self, value: u128) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        unreachable!("R2: the digest is taken whole")
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::plant;

    use super::*;

    type Slot = (u16, ObjectState<Vec<u8>>);

    #[test]
    fn digest_depends_on_slots_states_and_contents() {
        let states: [&[Slot]; 8] = [
            &[],
            &[(1, ObjectState::Value(vec![]))],
            &[(2, ObjectState::Value(vec![]))],
            &[(1, ObjectState::Absent)],
            &[(1, ObjectState::Changed(vec![]))],
            &[(1, ObjectState::Value(vec![0]))],
            &[(1, ObjectState::Value(vec![1]))],
            &[(1, ObjectState::Value(vec![])), (2, ObjectState::Absent)],
        ];
        let digest = |states: &[Slot]| UpdateDigest::of(&states.iter().cloned().collect());
        for (at, one) in states.iter().enumerate() {
            assert!(states.iter().enumerate().all(|(n, other)| (digest(one) == digest(other)) == (at == n)), "{one:?}");
        }
        let _planted = plant(Bug::StateNotDigested);
        assert_eq!(digest(states[5]), digest(states[6]));
    }
}
