//! Chains of archives of a backup that follows a cluster: a full archive, then increments, each of which needs the archive before it.

use std::fs;
use std::time::UNIX_EPOCH;

use node::cluster_archive::ArchiveHeader;

use super::directory::{StateFile, StateKind, check_end_of, header_of, is_damage};
use super::encryption::DecryptArgs;
use crate::failure::{Exit, Failure, Result};

/// Checks that a restore finds the chain of the last of these archives, back to its full one. Of archives the heads and the ends are read. As in a
/// restore, archives between that no later one needs are passed over.
///
/// If an archive before the last is missing or cannot be read, that is damage: an increment of the last one could not be restored.
pub(super) fn check(states: &[StateFile], encryption: &DecryptArgs) -> Result {
    let mut after: Option<ArchiveHeader> = None;
    for state in states.iter().rev() {
        let header = header_of(&state.path, encryption).map_err(|failure| match after {
            Some(_) if is_damage(&failure) => Failure::corrupt(failure.message()),
            _ => failure,
        })?;
        if after.is_some_and(|after| after.base != Some(header.id)) {
            continue;
        }
        check_end_of(&state.path, encryption)?;
        if header.base.is_none() {
            return Ok(());
        }
        after = Some(header);
    }
    match after.and_then(|after| after.base) {
        Some(base) => Err(Failure::corrupt(format!("archive {base}, which later ones need, is missing"))),
        None => Ok(()),
    }
}

/// The number of the full archive from which on archives are needed for the moments since a time, in microseconds since 1970: the last one that was
/// taken at or before that time. `None` if all are needed.
///
/// A damaged archive is none from which on others could be restored, so nothing is removed because of it; it goes with those before a sound one.
pub(super) fn first_needed(states: &[StateFile], since_us: i64, encryption: &DecryptArgs) -> Result<Option<u32>> {
    let mut first = None;
    for state in states.iter().filter(|state| state.kind == StateKind::Full) {
        let header = header_of(&state.path, encryption);
        let time_us = match header.and_then(|header| check_end_of(&state.path, encryption).map(|()| header)) {
            Ok(header) => Some(header.id.time_us),
            // Without the secret key the times in the archives cannot be read. Their files were not changed after that.
            Err(failure) if failure.exit() == Exit::Denied => Some(modified_us(state)?),
            Err(failure) if failure.exit() == Exit::Corrupt => None,
            Err(failure) => return Err(failure),
        };
        if time_us.is_some_and(|time_us| time_us <= since_us) {
            first = Some(state.number);
        }
    }
    Ok(first)
}

fn modified_us(state: &StateFile) -> Result<i64> {
    let modified = fs::metadata(&state.path).and_then(|about| about.modified());
    let modified = modified.map_err(|error| Failure::file(format!("cannot read {}", state.path.display()), &error))?;
    Ok(modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use node::cluster_archive::{ArchiveId, ClusterArchiveWriter};

    use super::*;

    /// Writes the archive with this number, whose time it is, too. Its base has the number `base`.
    fn write(dir: &Path, number: u32, base: Option<u32>) -> StateFile {
        let id = |number: u32| ArchiveId { number: number.into(), time_us: number.into() };
        let header = ArchiveHeader { cluster: 5, id: id(number), base: base.map(id), is_changes: false };
        let (_, archive) = ClusterArchiveWriter::begin(Vec::new(), &header).unwrap().end().unwrap();
        let path = dir.join(number.to_string());
        fs::write(&path, archive).unwrap();
        StateFile { number, kind: if base.is_some() { StateKind::Increment } else { StateKind::Full }, path }
    }

    /// Alters a byte of the head of an archive, or cuts its end off. Returns what it was.
    fn damage(state: &StateFile, cuts: bool) -> Vec<u8> {
        let whole = fs::read(&state.path).unwrap();
        let mut damaged = whole.clone();
        damaged[20] ^= 1;
        fs::write(&state.path, if cuts { &whole[..whole.len() - 1] } else { &damaged[..] }).unwrap();
        whole
    }

    #[test]
    fn a_chain_with_a_missing_or_damaged_archive_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let bases = [(1, None), (2, Some(1)), (3, Some(2)), (4, None), (5, Some(4)), (7, Some(5)), (8, Some(7))];
        let mut states: Vec<_> = bases.into_iter().map(|(number, base)| write(dir.path(), number, base)).collect();
        let refused = |states: &[StateFile]| check(states, &DecryptArgs::default()).err();
        assert!((1..=states.len()).all(|len| refused(&states[..len]).is_none()));
        for at in 3..states.len() {
            for cuts in [false, true] {
                let whole = damage(&states[at], cuts);
                let failure = refused(&states).unwrap();
                let name = states[at].path.display().to_string();
                assert!(failure.exit() == Exit::Corrupt && failure.message().contains(&name), "{failure:?}");
                fs::write(&states[at].path, whole).unwrap();
            }
        }
        // Those before the last full archive are not needed.
        let whole = damage(&states[0], false);
        assert!(refused(&states).is_none());
        fs::write(&states[0].path, whole).unwrap();
        // One that no later one needs is passed over.
        states.insert(5, write(dir.path(), 6, Some(1)));
        assert!(refused(&states).is_none());
        states.remove(4);
        let failure = refused(&states).unwrap();
        assert!(failure.exit() == Exit::Corrupt && failure.message().contains("is missing"), "{failure:?}");
    }

    #[test]
    fn archives_are_removed_before_a_sound_one_only() {
        let dir = tempfile::tempdir().unwrap();
        let states =
            [(1, None), (2, Some(1)), (3, None), (4, None)].map(|(number, base)| write(dir.path(), number, base));
        let first = |since| first_needed(&states, since, &DecryptArgs::default()).unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(first), [None, Some(1), Some(1), Some(3), Some(4)]);
        for cuts in [false, true] {
            let whole = damage(&states[2], cuts);
            assert_eq!([0, 1, 2, 3, 9].map(first), [None, Some(1), Some(1), Some(1), Some(4)]);
            fs::write(&states[2].path, whole).unwrap();
        }
    }
}
