//! The base of an incremental backup: the archive whose index the bricks compare with what they have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use client::Bytes;
use model::{Error, ErrorKind};
use node::cluster_archive::{ArchiveFormat, ArchiveHeader, ClusterArchiveReader, Item, Part, PartBytes, PartName};
use tokio::sync::mpsc;

use super::directory::damage_in;
use super::encryption::DecryptArgs;
use super::read_failure;
use crate::failure::{Failure, Result};

/// Pieces of a part that wait until they are read, and of an index until they are sent. A piece has about 256 KiB.
const WAITING_PIECES: usize = 4;

/// A piece of the index of a part; `None`: it is complete.
pub(super) type IndexPiece = Option<Bytes>;

/// Where the bytes of a part go, and the thread that reads them.
type OpenPart<'s> = (SyncSender<Bytes>, ScopedJoinHandle<'s, model::Result<()>>);

/// An archive that is read for its index.
pub(super) struct Base {
    pub(super) header: ArchiveHeader,
    pub(super) name: String,
    reader: ClusterArchiveReader<Box<dyn Read + Send>>,
}

impl Base {
    /// Opens an archive, and says whether it is encrypted.
    pub(super) fn open(path: &Path, decryption: &DecryptArgs) -> Result<(Self, bool)> {
        let file = File::open(path).map_err(|error| read_failure(format!("cannot read {}", path.display()), &error))?;
        let name = path.display().to_string();
        let opened = decryption.open(Box::new(file)).map_err(|failure| failure.context(&name))?;
        let begun = ClusterArchiveReader::begin(opened.bytes);
        match begun.map_err(|error| Failure::local(error).context(&name))? {
            ArchiveFormat::Cluster(reader, header) => Ok((Self { header, name, reader }, opened.is_encrypted)),
            ArchiveFormat::Other(..) => Err(Failure::usage(format!("{name} is not an archive of a cluster"))),
        }
    }

    /// What is damaged in an archive; `None` if nothing is. Reads it to its end, on a thread that may block.
    pub(super) fn damage_of(path: &Path, decryption: &DecryptArgs) -> Result<Option<String>> {
        damage_in(Self::open(path, decryption).and_then(|(base, _)| base.read(BTreeMap::new()).map_err(Failure::local)))
    }

    /// Reads the archive to its end, on a thread that may block: sends the index of each part to the one who wants it.
    ///
    /// An error means that the archive is damaged. A part whose brick takes no more of its index is skipped.
    pub(super) fn read(self, wanted: BTreeMap<PartName, mpsc::Sender<IndexPiece>>) -> model::Result<()> {
        let Self { mut reader, name, .. } = self;
        let read = thread::scope(|scope| {
            let mut open: BTreeMap<Part, OpenPart<'_>> = BTreeMap::new();
            while let Some(item) = reader.next_item()? {
                match item {
                    Item::Begin(part, name) => {
                        let Some(index) = wanted.get(&name).cloned() else { continue };
                        let (bytes, pieces) = sync_channel(WAITING_PIECES);
                        open.insert(part, (bytes, scope.spawn(move || read_index(PartBytes::new(pieces), &index))));
                    }
                    Item::Bytes(part, bytes) => {
                        if let Some((to, _)) = open.get(&part)
                            && to.send(bytes).is_err()
                            && let Some((_, reading)) = open.remove(&part)
                        {
                            join(reading)?;
                        }
                    }
                    Item::End(part) => {
                        if let Some((bytes, reading)) = open.remove(&part) {
                            drop(bytes);
                            join(reading)?;
                        }
                    }
                }
            }
            Ok(())
        });
        read.map_err(|error: Error| Error::new(error.kind(), format!("the base, {name}: {error}")))
    }
}

fn join(reading: ScopedJoinHandle<'_, model::Result<()>>) -> model::Result<()> {
    reading.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the reader of the base has panicked")))
}

/// Sends the index in the archive of a brick.
fn read_index(mut part: PartBytes, index: &mpsc::Sender<IndexPiece>) -> model::Result<()> {
    let mut is_wanted = true;
    store::read_archive_index(&mut part, &mut |piece| {
        is_wanted = is_wanted && index.blocking_send(Some(Bytes::copy_from_slice(piece))).is_ok();
        Ok(())
    })?;
    // All of it is right: only now the brick may rely on its end.
    let _ = index.blocking_send(None);
    Ok(())
}
