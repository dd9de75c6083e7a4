//! Restores the archive of a cluster: a new lineage in a directory that `mortar dev` serves (K2).
//!
//! The archive of a cluster has a part for each brick (`cluster_archive`); that of a single store, with its catalogue, is restored, too. Either way
//! the result has the catalogue and the first brick in one store, and further bricks in directories below it. Bricks that join take over logical
//! nodes, so the restored cluster gets any number of bricks.
//!
//! A new lineage has another cluster number, and each brick goes on as after an accepted loss (`openings::BrickLoss`): no copy, witness or transaction
//! of the former cluster counts in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use meta::catalog::{CatalogEditor, Follower};
use meta::{Embedded, MetaSnapshot, MetaStore};
use model::{Error, ErrorKind, Result};
use store::{Amount, Options, Progress, RestoreTarget, Store};

use crate::catalogue_archive;
use crate::cluster_archive::{ArchiveFormat, ClusterArchiveReader, Item, PartBytes, PartName};
use crate::local_cluster::{brick_directory_name, record_bricks};
use crate::member;
use crate::openings::BrickLoss;
use crate::purpose::Purpose;

mod changes;
mod increments;

pub use changes::{ChangesChain, ChangesInput};
use changes::{ChangesFile, KeptChanges};
use increments::Increments;

/// Pieces of a part that wait for its restore.
const WAITING_PIECES: usize = 8;
/// How often the end of the restores is looked for.
const END_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Stores that are opened at a time.
const OPENED_AT_A_TIME: usize = 16;

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Bricks.
    pub bricks: u64,
    /// The number of the new cluster.
    pub cluster: String,
}

/// An archive to restore.
pub struct ArchiveInput<'a> {
    /// Its name, for errors.
    pub name: String,
    /// Its bytes.
    pub bytes: Box<dyn Read + 'a>,
}

/// Restores an archive, or a full one and the increments after it, and rolls it forward by the archives of changes after the last one, into a
/// directory that is empty or does not exist. After an error it is empty again, or removed if it did not exist; after a crash it says that a restore
/// was interrupted.
///
/// # Errors
/// As [`Store::restore`]; [`ErrorKind::Invalid`] if an archive is not the base of the next one.
pub fn restore(
    dir: &Path,
    (mut archives, changes): (Vec<ArchiveInput<'_>>, ChangesInput<'_>),
    options: &Options,
    progress: &dyn Progress,
) -> Result<RestoreSummary> {
    let mut target = RestoreTarget::begin(dir, options)?;
    let increments = archives.split_off(1.min(archives.len()));
    let first = archives.pop().ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no archive"))?;
    let begun = ClusterArchiveReader::begin(first.bytes).map_err(|error| of_archive(&first.name, error))?;
    let mut restored = match begun {
        ArchiveFormat::Cluster(reader, head) => {
            if let Some(base) = head.base {
                let what =
                    format!("{} is an increment: the archive before it, {base}, must be named first", first.name);
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            let (increments, last) = Increments::read(&mut target, (&first.name, head), increments, progress)?;
            let changes = KeptChanges::read(&mut target, (&last.0, last.1), changes, progress)?;
            restore_parts(&mut target, (&first.name, reader), (&increments, &changes), options, progress)?
        }
        ArchiveFormat::Other(head, from) if increments.is_empty() => {
            let place = target.place(&first_place());
            let restored = Store::restore(&place, &mut (&head[..]).chain(from), options.clone(), progress);
            let summary = restored.map_err(|error| match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Unsupported => of_archive(&first.name, error),
                // It is about the directory.
                _ => error,
            })?;
            RestoredParts { bytes: summary.archive_bytes, places: vec![(1, place)], catalogue: None }
        }
        ArchiveFormat::Other(..) => return Err(no_cluster_archive(&first.name)),
    };
    let cluster = begin_lineage(&restored.places, restored.catalogue.take(), options)?;
    increments::remove(dir)?;
    changes::remove(dir)?;
    target.finish(&first_place())?;
    Ok(RestoreSummary { archive_bytes: restored.bytes, bricks: restored.places.len() as u64, cluster })
}

/// An error of reading the archive with this name.
fn of_archive(name: &str, error: Error) -> Error {
    Error::new(error.kind(), format!("{name}: {error}")).with_source(error)
}

fn no_cluster_archive(name: &str) -> Error {
    let what = "is not an archive of a cluster, or its first bytes are damaged: a chain has a full archive of a cluster and its increments";
    Error::new(ErrorKind::Invalid, format!("{name} {what}"))
}

/// Where the store of the first brick is restored, before it becomes that of the directory itself.
fn first_place() -> String {
    brick_directory_name(1)
}

struct RestoredParts {
    bytes: u64,
    /// The directories of the stores with their numbers, the first one first.
    places: Vec<(u16, PathBuf)>,
    /// The catalogue, if it is not in the first store.
    catalogue: Option<MetaSnapshot>,
}

/// A part whose bytes come.
enum OpenPart {
    Catalogue(Vec<u8>),
    Brick {
        bytes: SyncSender<Bytes>,
        restore: JoinHandle<Result<()>>,
    },
    /// An increment does not have it any more.
    Gone,
}

impl OpenPart {
    fn add(&mut self, bytes: Bytes) -> Result<()> {
        match self {
            Self::Catalogue(all) if all.len() + bytes.len() > catalogue_archive::MAX_BYTES => {
                Err(Error::new(ErrorKind::TooLarge, "the catalogue in the archive is too large"))
            }
            Self::Catalogue(all) => {
                all.extend_from_slice(&bytes);
                Ok(())
            }
            // A restore that has failed says why when it is joined.
            Self::Brick { bytes: to, .. } => to.send(bytes).map_err(|_| early_end_error()),
            Self::Gone => Ok(()),
        }
    }
}

/// The restores of the bricks.
struct BrickRestores<'a> {
    target: &'a mut RestoreTarget,
    options: &'a Options,
    increments: &'a Increments,
    changes: &'a KeptChanges,
    stopped: Arc<AtomicBool>,
    /// The directories of the stores, with their numbers.
    places: Vec<(u16, PathBuf)>,
    /// Restores that have got all bytes.
    ending: Vec<JoinHandle<Result<()>>>,
}

impl BrickRestores<'_> {
    fn begin(&mut self, name: PartName, has_base: bool) -> Result<OpenPart> {
        let Some(increments) = self.increments.of_part(name, has_base)? else { return Ok(OpenPart::Gone) };
        // The first brick has the catalogue: the order is that of the last archive. There are at most 4,096 parts.
        let number = self.increments.order_of(name).unwrap_or(self.places.len()) as u16 + 1;
        let place = self.target.place(&brick_directory_name(number));
        self.places.push((number, place.clone()));
        let changes = self.changes.of_part(name)?;
        begin_brick(place, (increments, changes), has_base, self.options.clone(), self.stopped.clone())
    }
}

/// Restores the parts of an archive, all at a time, each with its increments.
fn restore_parts(
    target: &mut RestoreTarget,
    (name, mut reader): (&str, ClusterArchiveReader<impl Read>),
    (increments, changes): (&Increments, &KeptChanges),
    options: &Options,
    progress: &dyn Progress,
) -> Result<RestoredParts> {
    let stopped = Arc::new(AtomicBool::new(false));
    let (places, ending) = (Vec::new(), Vec::new());
    let mut bricks = BrickRestores { target, options, increments, changes, stopped: stopped.clone(), places, ending };
    let spooled = increments.bytes() + changes.bytes();
    let (mut open, mut catalogue) = (BTreeMap::new(), None);
    let mut known = Vec::new();
    let report = |read: u64| match progress.report(Amount { bytes: spooled + read, ..Amount::default() }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::new(ErrorKind::Unavailable, "the restore was stopped")),
    };
    let read = (|| {
        while let Some(item) = reader.next_item().map_err(|error| of_archive(name, error))? {
            match item {
                Item::Begin(part, PartName::Catalogue) => drop(open.insert(part, OpenPart::Catalogue(Vec::new()))),
                Item::Begin(part, name) => {
                    known.push(name);
                    open.insert(part, bricks.begin(name, true)?);
                }
                Item::Bytes(part, bytes) => open.get_mut(&part).ok_or_else(not_open)?.add(bytes)?,
                Item::End(part) => match open.remove(&part).ok_or_else(not_open)? {
                    OpenPart::Catalogue(all) => {
                        let decoded = catalogue_archive::decode(&all);
                        catalogue = Some(decoded.map_err(|error| of_archive(name, error))?);
                    }
                    OpenPart::Brick { bytes, restore } => {
                        drop(bytes);
                        bricks.ending.push(restore);
                    }
                    OpenPart::Gone => {}
                },
            }
            report(reader.bytes_read())?;
        }
        // Bricks that joined after the first archive.
        for name in increments.bricks() {
            if known.contains(name) {
                continue;
            }
            if let OpenPart::Brick { bytes, restore } = bricks.begin(*name, false)? {
                drop(bytes);
                bricks.ending.push(restore);
            }
            known.push(*name);
        }
        changes.check_bricks(&known)?;
        // What takes long after the last bytes: increments and changes.
        wait_until_finished(&bricks.ending, || report(reader.bytes_read()))
    })();
    stopped.store(read.is_err(), Ordering::Relaxed);
    // The first error of a part explains why its bytes were not taken.
    let mut of_parts = Ok(());
    for restore in std::mem::take(&mut bricks.ending) {
        of_parts = of_parts.and(join(restore));
    }
    for part in open.into_values() {
        if let OpenPart::Brick { bytes, restore } = part {
            drop(bytes);
            of_parts = of_parts.and(join(restore));
        }
    }
    match read {
        Err(error) if error.kind() == ErrorKind::Internal => of_parts.and(Err(error))?,
        read => read.and(of_parts)?,
    }
    let mut places = bricks.places;
    places.sort();
    match places.is_empty() {
        true => Err(Error::new(ErrorKind::Corrupt, format!("{name} has no brick"))),
        false => {
            let catalogue = changes.catalogue_or(increments.catalogue_or(catalogue)?)?;
            Ok(RestoredParts { bytes: spooled + reader.bytes_read(), places, catalogue })
        }
    }
}

/// Waits until these threads have ended. Meanwhile it calls `report`, which may end that.
fn wait_until_finished<T>(threads: &[JoinHandle<T>], report: impl Fn() -> Result<()>) -> Result<()> {
    while threads.iter().any(|thread| !thread.is_finished()) {
        report()?;
        std::thread::sleep(END_POLL_INTERVAL);
    }
    Ok(())
}

fn early_end_error() -> Error {
    Error::new(ErrorKind::Internal, "the restore of a part has ended early")
}

fn join(restore: JoinHandle<Result<()>>) -> Result<()> {
    restore.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the restore of a part has panicked")))
}

/// The reader of the archive has checked that a part is open before it returns its bytes.
fn not_open() -> Error {
    Error::new(ErrorKind::Internal, "the archive has bytes of a part that is not open")
}

/// Restores the store of a brick on a thread of its own: from the bytes that come, and from its increments and changes. A brick that joined later has
/// no bytes.
fn begin_brick(
    place: PathBuf,
    (increments, changes): (Vec<PathBuf>, Option<PathBuf>),
    has_base: bool,
    options: Options,
    stopped: Arc<AtomicBool>,
) -> Result<OpenPart> {
    let (bytes, pieces) = sync_channel(WAITING_PIECES);
    let run = move || {
        let progress = |_: Amount| match stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let mut archives: Vec<Box<dyn Read>> = Vec::new();
        if has_base {
            archives.push(Box::new(PartBytes::new(pieces)));
        }
        for increment in increments {
            let file = File::open(&increment).map_err(|e| increments::unreadable(&increment, e))?;
            archives.push(Box::new(BufReader::with_capacity(1 << 18, file)));
        }
        let changes = changes.map(ChangesFile::check).transpose()?;
        let position = changes.as_ref().map_or(0, |changes| changes.position);
        Store::restore_chain(&place, archives, position, options.clone(), &progress)?;
        match changes {
            Some(changes) => changes.apply(&place, &options, || !stopped.load(Ordering::Relaxed)),
            None => Ok(()),
        }
    };
    let spawned = std::thread::Builder::new().name("mortar-restore".to_owned()).spawn(run);
    let restore = spawned.map_err(|e| Error::new(ErrorKind::Io, "a thread cannot be started").with_source(e))?;
    Ok(OpenPart::Brick { bytes, restore })
}

/// Makes the restored stores a cluster of its own. Returns its number.
fn begin_lineage(places: &[(u16, PathBuf)], catalogue: Option<MetaSnapshot>, options: &Options) -> Result<String> {
    let stores = open_stores(places, options)?;
    let [(_, first), ..] = &stores[..] else { return Err(Error::new(ErrorKind::Internal, "no store was restored")) };
    if catalogue.is_none() && !Embedded::exists_in(first)? {
        return Err(Error::new(ErrorKind::Invalid, "the archive has no catalogue: it is not that of a cluster"));
    }
    if catalogue.is_some() {
        Purpose::mark_whole(first)?;
    }
    Embedded::begin_lineage(first, catalogue)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::new(ErrorKind::Io, "a runtime cannot be started").with_source(e))?;
    let cluster = runtime.block_on(renumber(first, &stores))?;
    drop(runtime);
    stores.into_iter().try_for_each(|(_, store)| store.close())?;
    Ok(cluster)
}

/// Opens stores, several at a time: each opening waits for its disk and reads its log. Returns them with the numbers of their directories.
fn open_stores(places: &[(u16, PathBuf)], options: &Options) -> Result<Vec<(u16, Store)>> {
    let mut stores = Vec::new();
    for some in places.chunks(OPENED_AT_A_TIME) {
        std::thread::scope(|scope| {
            let opening: Vec<_> = some
                .iter()
                .map(|(number, place)| (*number, scope.spawn(move || Store::open(place, options.clone()))))
                .collect();
            for (number, store) in opening {
                let panicked = |_| Err(Error::new(ErrorKind::Internal, "the opening of a store has panicked"));
                stores.push((number, store.join().unwrap_or_else(panicked)?));
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(stores)
}

async fn renumber(first: &Store, stores: &[(u16, Store)]) -> Result<String> {
    let embedded: Arc<dyn MetaStore> = Arc::new(Embedded::open(first)?);
    let editor = CatalogEditor::new(embedded.clone());
    let cluster = editor.begin_lineage().await?.value.cluster;
    let before = Follower::start(embedded.clone()).await?.catalog();
    for (node, placed) in before.placement_map().nodes() {
        // The brick that served the node has all that is durable.
        if placed.moving.is_some() {
            editor.cancel_move(node).await?;
        }
    }
    for (peer, _) in before.peers() {
        editor.remove_peer(peer.id).await?;
    }
    let mut bricks = Vec::new();
    for (brick, _) in before.bricks() {
        // At its address is a brick of the former cluster, or none.
        editor.remove_brick_addresses(brick.id).await?;
    }
    let mut directories = BTreeMap::new();
    for (number, store) in stores {
        let none = || Error::new(ErrorKind::Corrupt, "a part of the archive belongs to no brick");
        let brick = member::stored_brick(store)?.ok_or_else(none)?;
        directories.insert(*number, brick);
        bricks.push((brick, store));
    }
    let placed = || before.placement_map().nodes();
    if let Some((_, lacking)) = placed().find(|(_, placed)| bricks.iter().all(|(brick, _)| *brick != placed.brick)) {
        let what = format!("the archive lacks the part of brick {}: use another backup", lacking.brick);
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    for (brick, store) in bricks {
        let nodes = placed().filter(|(_, placed)| placed.brick == brick).map(|(node, _)| node).collect();
        BrickLoss::of_copy(&editor, store, brick, nodes).await?.accept(&editor, store).await?;
        member::set_cluster(store, &cluster, brick)?;
    }
    // Under the number of the new cluster: a directory that is lost before the first start is noticed, too.
    record_bricks(first, directories)?;
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use meta::catalog::{Catalog, Parameters, Storage};

    use super::*;
    use crate::local_cluster::BrickDirectories;

    #[test]
    fn a_restored_cluster_knows_its_directories_and_no_addresses_before_its_first_start() {
        let data = tempfile::tempdir().unwrap();
        let places = [1, 2].map(|number| (number, data.path().join(brick_directory_name(number))));
        let open = |place: &PathBuf| Store::open(place, Options::default()).unwrap();
        let stores = places.each_ref().map(|(_, place)| open(place));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let editor = CatalogEditor::new(Arc::new(Embedded::open(&stores[0]).unwrap()));
            editor.set_up(&Parameters::generate()).await.unwrap();
            for store in &stores {
                let brick = editor.add_brick(&["127.0.0.1:1".to_owned()], Storage::Durable).await.unwrap().value.id;
                member::set_cluster(store, "former", brick).unwrap();
            }
        });
        stores.into_iter().for_each(|store| store.close().unwrap());
        begin_lineage(&places, None, &Options::default()).unwrap();
        let first = open(&places[0].1);
        let catalog = Catalog::load(&Embedded::snapshot_of(&first).unwrap());
        assert!(catalog.bricks().count() == 2 && catalog.bricks().all(|(brick, _)| brick.addresses.is_empty()));
        let check = || BrickDirectories::find(data.path(), &first, 1).unwrap().check_complete();
        check().unwrap();
        std::fs::remove_dir_all(&places[1].1).unwrap();
        let missing = check().unwrap_err();
        assert!(
            missing.kind() == ErrorKind::Corrupt && missing.message().contains("of brick 2 is missing"),
            "{missing}"
        );
    }

    #[test]
    fn restores_of_bricks_are_reported_until_the_last_one_has_ended() {
        let stop = || Err(Error::new(ErrorKind::Unavailable, "stopped"));
        let wait_for = |thread: &JoinHandle<()>| {
            while !thread.is_finished() {
                thread::yield_now()
            }
        };
        let (end, ends) = channel::<()>();
        let until_ended = move || assert!(ends.recv().is_err());
        let threads = [thread::spawn(|| {}), thread::spawn(until_ended)];
        wait_for(&threads[0]);
        assert!(wait_until_finished(&threads, stop).is_err(), "the second one works");
        drop(end);
        wait_for(&threads[1]);
        wait_until_finished(&threads, stop).unwrap();
    }
}
