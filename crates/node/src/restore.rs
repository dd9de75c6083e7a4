//! Restores the archive of a cluster: a new lineage in a directory that `mortar dev` serves (K2).
//!
//! The archive of a cluster has a part for each brick (`cluster_archive`); that of a single store, with its catalogue, is restored, too. Either way
//! the result has the catalogue and the first brick in one store, and further bricks in directories below it. Bricks that join take over logical
//! nodes, so the restored cluster gets any number of bricks.
//!
//! A new lineage has another cluster number, and each brick goes on as after an accepted loss (`openings::BrickLoss`): no copy, witness or transaction
//! of the former cluster counts in it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use meta::catalog::{CatalogEditor, Follower};
use meta::{Embedded, MetaSnapshot, MetaStore};
use model::{Error, ErrorKind, Result};
use store::{Amount, Options, Progress, RestoreTarget, Store};

use crate::catalogue_archive;
use crate::cluster_archive::{ClusterArchiveReader, Item, MAGIC, PartName};
use crate::local_cluster::brick_directory_name;
use crate::member;
use crate::openings::BrickLoss;
use crate::purpose::Purpose;

/// Pieces of a part that wait for its restore.
const WAITING_PIECES: usize = 8;

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

/// Restores an archive into a directory that is empty or does not exist. After an error it is empty again; after a crash it says that a restore was
/// interrupted.
///
/// # Errors
/// As [`Store::restore`].
pub fn restore(dir: &Path, from: &mut dyn Read, options: &Options, progress: &dyn Progress) -> Result<RestoreSummary> {
    let mut target = RestoreTarget::begin(dir, options)?;
    let mut head = Vec::new();
    let read = (&mut *from).take(MAGIC.len() as u64).read_to_end(&mut head);
    read.map_err(|error| Error::new(ErrorKind::Io, "the archive cannot be read").caused_by(error))?;
    let mut restored = match head == *MAGIC {
        true => restore_parts(&mut target, from, options, progress)?,
        false => {
            let place = target.place(&first_place());
            let summary = Store::restore(&place, &mut (&head[..]).chain(from), options.clone(), progress)?;
            RestoredParts { bytes: summary.archive_bytes, places: vec![place], catalogue: None }
        }
    };
    let cluster = begin_lineage(&restored.places, restored.catalogue.take(), options)?;
    target.finish(&first_place())?;
    Ok(RestoreSummary { archive_bytes: restored.bytes, bricks: restored.places.len() as u64, cluster })
}

/// Where the store of the first brick is restored, before it becomes that of the directory itself.
fn first_place() -> String {
    brick_directory_name(1)
}

struct RestoredParts {
    bytes: u64,
    /// The stores, the first one first.
    places: Vec<PathBuf>,
    /// The catalogue, if it is not in the first store.
    catalogue: Option<MetaSnapshot>,
}

/// A part whose bytes come.
enum OpenPart {
    Catalogue(Vec<u8>),
    Brick { bytes: SyncSender<Bytes>, restore: JoinHandle<Result<()>> },
}

/// Restores the parts of an archive, all at a time.
fn restore_parts(
    target: &mut RestoreTarget,
    from: &mut dyn Read,
    options: &Options,
    progress: &dyn Progress,
) -> Result<RestoredParts> {
    let mut reader = ClusterArchiveReader::after_magic(from);
    let stopped = Arc::new(AtomicBool::new(false));
    let (mut open, mut places, mut catalogue) = (BTreeMap::new(), Vec::new(), None);
    let read = (|| {
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Begin(part, PartName::Catalogue) => drop(open.insert(part, OpenPart::Catalogue(Vec::new()))),
                Item::Begin(part, PartName::Brick(_)) => {
                    // There are at most 4,096 parts.
                    let place = target.place(&brick_directory_name(places.len() as u16 + 1));
                    places.push(place.clone());
                    open.insert(part, begin_brick(place, options.clone(), stopped.clone())?);
                }
                Item::Bytes(part, bytes) => match open.get_mut(&part).ok_or_else(not_open)? {
                    OpenPart::Catalogue(all) if all.len() + bytes.len() > catalogue_archive::MAX_BYTES => {
                        return Err(Error::new(ErrorKind::TooLarge, "the catalogue in the archive is too large"));
                    }
                    OpenPart::Catalogue(all) => all.extend_from_slice(&bytes),
                    // A restore that has failed says why when it is joined.
                    OpenPart::Brick { bytes: to, .. } => to.send(bytes).map_err(|_| failed())?,
                },
                Item::End(part) => match open.remove(&part).ok_or_else(not_open)? {
                    OpenPart::Catalogue(all) => catalogue = Some(catalogue_archive::decode(&all)?),
                    OpenPart::Brick { bytes, restore } => {
                        drop(bytes);
                        join(restore)?;
                    }
                },
            }
            let amount = Amount { bytes: reader.bytes_read(), ..Amount::default() };
            if progress.report(amount).is_break() {
                return Err(Error::new(ErrorKind::Unavailable, "the restore was stopped"));
            }
        }
        Ok(())
    })();
    stopped.store(read.is_err(), Ordering::Relaxed);
    // The first error of a part explains why its bytes were not taken.
    let mut of_parts = Ok(());
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
    match places.is_empty() {
        true => Err(Error::new(ErrorKind::Corrupt, "the archive has no brick")),
        false => Ok(RestoredParts { bytes: reader.bytes_read(), places, catalogue }),
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Internal, "the restore of a part has ended early")
}

fn join(restore: JoinHandle<Result<()>>) -> Result<()> {
    restore.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the restore of a part has panicked")))
}

/// The reader of the archive has checked that a part is open before it returns its bytes.
fn not_open() -> Error {
    Error::new(ErrorKind::Internal, "the archive has bytes of a part that is not open")
}

/// Restores the store of a brick on a thread of its own.
fn begin_brick(place: PathBuf, options: Options, stopped: Arc<AtomicBool>) -> Result<OpenPart> {
    let (bytes, pieces) = sync_channel(WAITING_PIECES);
    let run = move || {
        let progress = |_: Amount| match stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let mut from = PartBytes { pieces, piece: Bytes::new() };
        Store::restore(&place, &mut from, options, &progress).map(drop)
    };
    let spawned = std::thread::Builder::new().name("mortar-restore".to_owned()).spawn(run);
    let restore = spawned.map_err(|e| Error::new(ErrorKind::Io, "a thread cannot be started").caused_by(e))?;
    Ok(OpenPart::Brick { bytes, restore })
}

/// The bytes of a part as they come.
struct PartBytes {
    pieces: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for PartBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            // A part that was used up frees its memory before the next one is waited for.
            self.piece = Bytes::new();
            let Ok(next) = self.pieces.recv() else { return Ok(0) };
            self.piece = next;
        }
        let len = into.len().min(self.piece.len());
        bytes::Buf::copy_to_slice(&mut self.piece, &mut into[..len]);
        Ok(len)
    }
}

/// Makes the restored stores a cluster of its own. Returns its number.
fn begin_lineage(places: &[PathBuf], catalogue: Option<MetaSnapshot>, options: &Options) -> Result<String> {
    let opened = places.iter().map(|place| Store::open(place, options.clone()));
    let stores = opened.collect::<Result<Vec<_>>>()?;
    let [first, ..] = &stores[..] else { return Err(Error::new(ErrorKind::Internal, "no store was restored")) };
    if catalogue.is_none() && !Embedded::exists_in(first)? {
        return Err(Error::new(ErrorKind::Invalid, "the archive has no catalogue: it is not that of a cluster"));
    }
    if catalogue.is_some() {
        Purpose::mark_whole(first)?;
    }
    Embedded::begin_lineage(first, catalogue)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::new(ErrorKind::Io, "a runtime cannot be started").caused_by(e))?;
    let cluster = runtime.block_on(renumber(first, &stores))?;
    drop(runtime);
    stores.into_iter().try_for_each(Store::close)?;
    Ok(cluster)
}

async fn renumber(first: &Store, stores: &[Store]) -> Result<String> {
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
    for store in stores {
        let none = || Error::new(ErrorKind::Corrupt, "a part of the archive belongs to no brick");
        bricks.push((member::stored_brick(store)?.ok_or_else(none)?, store));
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
    Ok(cluster)
}
