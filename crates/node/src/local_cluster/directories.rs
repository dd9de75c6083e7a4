//! The directories of the bricks of a whole cluster.
//!
//! ```text
//! mortar-data            the catalogue and the first brick
//! mortar-data/brick-2    the second brick, …
//! ```
//!
//! The first store records which brick each directory has. So a directory that is missing is noticed: without the record, its brick would only be
//! unreachable, or a new one would be made in its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use meta::Embedded;
use meta::catalog::{BrickId, Catalog};
use model::{Error, ErrorKind, Result};
use store::{DirectoryContents, RowChanges, Store};

use crate::member;

/// The row of the first store that records the bricks of the directories: `CLUSTER 1 FIRST 2 SECOND`, the cluster, and pairs of a
/// directory's number and a brick's. A restored cluster has another number, and its directories may have other bricks.
pub(crate) const BRICKS_ROW: &[u8] = b"directories";

/// The name of the directory of a brick, within the data directory: from 2 on, as the data directory is that of the first one.
pub(crate) fn brick_directory_name(number: u16) -> String {
    format!("brick-{number}")
}

fn brick_directory(data: &Path, number: u16) -> PathBuf {
    data.join(brick_directory_name(number))
}

/// The number of a further brick whose directory has this name.
fn brick_number(name: &str) -> Option<u16> {
    let number = name.strip_prefix("brick-")?.parse().ok()?;
    (number >= 2 && name == brick_directory_name(number)).then_some(number)
}

/// The directories of further bricks that are below a data directory, in the order of their numbers, also if some between are missing.
#[must_use]
pub fn brick_directories(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let mut numbers: Vec<u16> = entries.filter_map(|entry| brick_number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| brick_directory(data, number)).collect()
}

/// The data directory of the whole cluster, of which this is the directory of a further brick; `None` if it is none.
#[must_use]
pub fn data_directory_of(brick: &Path) -> Option<PathBuf> {
    let brick = std::path::absolute(brick).ok()?;
    brick_number(brick.file_name()?.to_str()?)?;
    let data = brick.parent()?;
    matches!(DirectoryContents::of(data), Ok(DirectoryContents::Store)).then(|| data.to_owned())
}

/// The directories of the bricks of a cluster, apart from the first, which has the record of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrickDirectories {
    data: PathBuf,
    /// The numbers of the directories that exist or may be made.
    numbers: Vec<u16>,
    /// Recorded directories that do not exist, and their bricks.
    missing: Vec<(u16, BrickId)>,
}

impl BrickDirectories {
    /// Finds the directories below a data directory whose first store is open: those that exist, and new ones as far as `bricks` is more than there are, with
    /// those that are missing. A recorded directory whose brick was removed from the cluster is not made again because later ones exist.
    ///
    /// # Errors
    /// Those of the store; [`ErrorKind::Corrupt`] if its record cannot be read.
    pub fn find(data: &Path, first: &Store, bricks: u16) -> Result<Self> {
        let exists = |number: u16| {
            !matches!(DirectoryContents::of(&brick_directory(data, number)), Ok(DirectoryContents::Missing))
        };
        let recorded = recorded_bricks(first)?;
        let is_missing = |(number, _): &(u16, BrickId)| *number > 1 && !exists(*number);
        let mut missing: Vec<_> = recorded.iter().map(|(number, brick)| (*number, *brick)).filter(is_missing).collect();
        if !missing.is_empty() {
            // The directory of a brick that was removed from the cluster may be gone.
            let catalog = Catalog::load(&Embedded::snapshot_of(first)?);
            missing.retain(|(_, brick)| catalog.brick(*brick).is_some());
        }
        let in_a_row = (2..=u16::MAX).take_while(|number| exists(*number)).last().unwrap_or(1);
        let last_recorded = recorded.into_keys().rfind(|number| exists(*number)).unwrap_or(1);
        let mut numbers: Vec<u16> = (2..=in_a_row.max(last_recorded)).filter(|number| exists(*number)).collect();
        // The first brick is one of all.
        let new = usize::from(bricks).saturating_sub(1 + numbers.len() + missing.len());
        // The lowest numbers: directories in a row are found also if the process ends before it has recorded them.
        let is_free = |number: &u16| !numbers.contains(number) && missing.iter().all(|(lost, _)| lost != number);
        let made: Vec<u16> = (2..=u16::MAX).filter(is_free).take(new).collect();
        numbers.extend(made);
        numbers.sort_unstable();
        Ok(Self { data: data.to_owned(), numbers, missing })
    }

    /// Checks that no directory of a brick of the cluster is missing.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] naming the directories.
    pub fn check_complete(&self) -> Result<()> {
        let name = |(number, brick): &(u16, BrickId)| {
            format!("{} of brick {brick}", brick_directory(&self.data, *number).display())
        };
        match self.missing.iter().map(name).collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            [one] => Err(Error::new(ErrorKind::Corrupt, format!("the directory {one} is missing"))),
            several => {
                Err(Error::new(ErrorKind::Corrupt, format!("the directories {} are missing", several.join(" and "))))
            }
        }
    }

    /// The number and the path of each directory.
    pub fn directories(&self) -> impl Iterator<Item = (u16, PathBuf)> {
        self.numbers.iter().map(|number| (*number, brick_directory(&self.data, *number)))
    }
}

/// Records the bricks of these directories, beside those that are recorded already.
pub(crate) fn record_bricks(first: &Store, started: BTreeMap<u16, BrickId>) -> Result<()> {
    let recorded = recorded_bricks(first)?;
    let mut all = recorded.clone();
    all.extend(started);
    if all == recorded || first.is_in_memory() {
        return Ok(());
    }
    let cluster = member::stored_cluster(first)?.unwrap_or_default();
    let text = all.iter().fold(cluster, |text, (number, brick)| format!("{text} {number} {brick}"));
    let mut changes = RowChanges::new();
    changes.put(BRICKS_ROW, Bytes::from(text));
    first.commit_rows(changes).map(drop)
}

/// The bricks of the directories, as the first store records them; none in a store of an earlier version, or in one that an earlier version has
/// restored.
fn recorded_bricks(first: &Store) -> Result<BTreeMap<u16, BrickId>> {
    let Some(row) = first.row(BRICKS_ROW)? else { return Ok(BTreeMap::new()) };
    let unreadable = || {
        let text = String::from_utf8_lossy(&row);
        let what = format!("the store records the directories of its bricks as {text:?}, which cannot be read");
        Error::new(ErrorKind::Corrupt, what)
    };
    let mut words = str::from_utf8(&row).unwrap_or_default().split(' ');
    if words.next() != Some(&member::stored_cluster(first)?.unwrap_or_default()) {
        return Ok(BTreeMap::new());
    }
    let pair = |pair: &[&str]| match pair {
        [number, brick] => Some((number.parse().ok()?, BrickId(brick.parse().ok()?))),
        _ => None,
    };
    words.collect::<Vec<_>>().chunks(2).map(pair).collect::<Option<_>>().ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    fn create(data: &Path, number: u16) {
        fs::create_dir(brick_directory(data, number)).unwrap();
    }

    fn numbers(places: &BrickDirectories) -> Vec<u16> {
        places.directories().map(|(number, _)| number).collect()
    }

    #[test]
    fn directories_that_exist_are_found_and_new_ones_follow() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path(), Options::default()).unwrap();
        let find = |bricks| BrickDirectories::find(dir.path(), &first, bricks).unwrap();
        assert!(numbers(&find(1)).is_empty());
        create(dir.path(), 2);
        assert_eq!(numbers(&find(1)), [2]);
        assert_eq!(numbers(&find(4)), [2, 3, 4]);
        create(dir.path(), 9);
        assert_eq!(numbers(&find(1)), [2], "a directory that no brick was recorded for");
        let below = brick_directories(dir.path());
        assert_eq!(below, [brick_directory(dir.path(), 2), brick_directory(dir.path(), 9)]);
    }

    #[test]
    fn directory_of_a_removed_brick_is_made_again_only_if_more_bricks_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path(), Options::default()).unwrap();
        record_bricks(&first, BTreeMap::from([(1, BrickId(1)), (2, BrickId(2)), (3, BrickId(3))])).unwrap();
        create(dir.path(), 3);
        // The catalogue has no brick 2: it was removed, and its directory is gone.
        let find = |bricks| numbers(&BrickDirectories::find(dir.path(), &first, bricks).unwrap());
        assert_eq!([1, 2, 3, 4].map(find), [vec![3], vec![3], vec![2, 3], vec![2, 3, 4]]);
    }

    #[test]
    fn record_of_directories_grows_and_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path(), Options::default()).unwrap();
        record_bricks(&first, BTreeMap::from([(1, BrickId(1)), (2, BrickId(5))])).unwrap();
        record_bricks(&first, BTreeMap::from([(3, BrickId(7))])).unwrap();
        let expected = BTreeMap::from([(1, BrickId(1)), (2, BrickId(5)), (3, BrickId(7))]);
        assert_eq!(recorded_bricks(&first).unwrap(), expected);
        // The catalogue has none of these bricks: they were removed.
        let places = BrickDirectories::find(dir.path(), &first, 1).unwrap();
        assert!(places.check_complete().is_ok() && numbers(&places).is_empty());
    }

    #[test]
    fn record_does_not_count_in_another_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path(), Options::default()).unwrap();
        member::set_cluster(&first, "original", BrickId(1)).unwrap();
        record_bricks(&first, BTreeMap::from([(1, BrickId(1)), (2, BrickId(5))])).unwrap();
        assert_eq!(recorded_bricks(&first).unwrap().len(), 2);
        member::set_cluster(&first, "restored", BrickId(1)).unwrap();
        assert_eq!(recorded_bricks(&first).unwrap(), BTreeMap::new());
    }

    #[test]
    fn directory_of_a_further_brick_is_known_by_its_name_and_the_store_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let brick = brick_directory(dir.path(), 2);
        assert_eq!(data_directory_of(&brick), None, "there is no store above it");
        let _first = Store::open(dir.path(), Options::default()).unwrap();
        create(dir.path(), 2);
        assert_eq!(data_directory_of(&brick).as_deref(), Some(dir.path()));
        for other in ["brick-1", "brick-02", "brick-x", "log"] {
            assert_eq!(data_directory_of(&dir.path().join(other)), None, "{other}");
        }
    }
}
