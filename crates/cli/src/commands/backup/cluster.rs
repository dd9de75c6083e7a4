//! The archive of a cluster: the parts of one cut, which come from all bricks at the same time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{AdminClient, ArchivePiece, ArchiveStream, Bytes, CutPart};
use meta::catalog::BrickId;
use model::{Error, ErrorKind};
use node::cluster_archive::{ArchiveHeader, ArchiveId, ClusterArchiveWriter, PartName};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use wire::tasks;

use super::base::{Base, IndexPiece};
use super::encryption::ArchiveOutput;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};

/// Pieces that wait until they are written, of all parts together. A piece has 256 KiB and a row or chunk more.
const QUEUED_PIECES: usize = 64;

/// Pieces of the index of a base that wait for a brick.
const QUEUED_INDEX_PIECES: usize = 4;

/// More of the part with this place in the archive; `None`: it is complete.
type Piece = (usize, Option<ArchivePiece>);

/// The bricks of a cluster.
pub(super) struct Bricks {
    /// The number of the cluster.
    pub(super) cluster: u128,
    pub(super) names: Vec<PartName>,
    pub(super) clients: Vec<AdminClient>,
}

/// What an archive has.
pub(super) enum ArchiveContents {
    Full,
    /// What has changed since a base.
    Increment(Base),
    /// What a follower has not read yet: what has changed since the archive that it has read last.
    Changes(TakenArchive),
}

impl ArchiveContents {
    /// Checks that a base is an archive of the cluster.
    pub(super) fn check_cluster(&self, bricks: &Bricks) -> Result {
        match self {
            Self::Increment(base) => check_cluster(&base.name, base.header.cluster, bricks.cluster),
            Self::Full | Self::Changes(_) => Ok(()),
        }
    }
}

/// An archive that was written.
#[derive(Clone, Copy)]
pub(super) struct TakenArchive {
    pub(super) id: ArchiveId,
    pub(super) bytes: u64,
    /// The number of its cut. A brick in memory takes none.
    pub(super) cut: Option<u64>,
}

/// A backup that follows the cluster: the bricks note what changes for it.
pub(super) struct Follower {
    id: u64,
    /// The catalogue in its last archive, if that is not in the store of a brick.
    catalogue: Option<Bytes>,
}

impl Follower {
    /// One that the bricks know by this number.
    pub(super) fn new(id: u64) -> Self {
        Self { id, catalogue: None }
    }
}

impl Bricks {
    /// Connects to all bricks of a cluster.
    pub(super) async fn connect(session: &CommandContext) -> Result<Self> {
        let (numbers, clients): (Vec<Option<BrickId>>, Vec<AdminClient>) = session.bricks().await?.into_iter().unzip();
        let names = numbers.iter().flatten().map(|brick| PartName::Brick(brick.0)).collect::<Vec<_>>();
        if names.len() == clients.len() {
            let number = clients.iter().find_map(|client| u128::from_str_radix(&client.identity().cluster, 16).ok());
            let unknown = || Error::new(ErrorKind::Unavailable, "no brick knows the number of its cluster: try again");
            return Ok(Self { cluster: number.ok_or_else(unknown)?, names, clients });
        }
        let what = "this is a brick, and its cluster has to be backed up as one";
        let hint = "Name a peer server with --server: it knows all bricks.";
        Err(Failure::from(Error::new(ErrorKind::Unsupported, what)).hint(hint))
    }
}

/// Checks that a backup of one cluster is continued with this one. `of` names the backup.
pub(super) fn check_cluster(of: &str, former: u128, cluster: u128) -> Result {
    if former == cluster {
        return Ok(());
    }
    let what = format!("{of} is a backup of cluster {former:032x}, and the server belongs to cluster {cluster:032x}");
    let hint = "Check --server. A cluster that was restored has another number, too: begin with a full archive, in a directory of its own.";
    Err(Failure::conflict(what).hint(hint))
}

/// Writes an archive of a cluster. It becomes complete only if `confirm` agrees after all parts were read. Reports the bytes so far, and about those
/// of all (0 if that is not known). `name` is that of what it is written to, for messages.
pub(super) async fn backup(
    bricks: &Bricks,
    contents: ArchiveContents,
    follower: Option<&mut Follower>,
    (name, out): (&str, ArchiveOutput),
    confirm: impl AsyncFnOnce() -> Result,
    report: impl Fn(u64, u64) + Send + 'static,
) -> Result<TakenArchive> {
    let Bricks { cluster, names, clients } = bricks;
    let (parts, newest_catalogue) = match take_cut(clients, follower.as_ref().map(|follower| follower.id)).await {
        Ok((parts, catalogue)) => (parts.into_iter().map(Some).collect(), catalogue.map(Bytes::from)),
        // A brick in memory holds no log. If it has the catalogue, its snapshot is of one moment.
        Err(error) if error.kind() == ErrorKind::Unsupported && clients.len() == 1 && follower.is_none() => {
            (vec![None], None)
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let hint = "Bricks in memory keep nothing; a cluster of several can be backed up only if all are on disk.";
            return Err(Failure::from(error).hint(hint));
        }
        Err(error) => return Err(backup_failure(error)),
    };
    let (base, since) = match contents {
        ArchiveContents::Full => (None, None),
        ArchiveContents::Increment(base) => (Some(base), None),
        ArchiveContents::Changes(last) => (None, Some(last)),
    };
    let head = match (&base, since) {
        (_, Some(last)) => ArchiveHeader::of_changes(*cluster, last.id),
        (base, None) => ArchiveHeader::new(*cluster, base.as_ref().map(|base| base.header.id)),
    };
    // Archives of changes have the catalogue only if it has changed.
    let is_known = since.is_some() && follower.as_ref().is_some_and(|follower| follower.catalogue == newest_catalogue);
    let catalogue = newest_catalogue.clone().filter(|_| !is_known);
    // The first brick of an archive gets the catalogue at its restore.
    let mut order: Vec<usize> = (0..clients.len()).collect();
    order.sort_by_key(|brick| !parts[*brick].is_some_and(|part: CutPart| part.has_catalogue));
    let names: Vec<PartName> = order.iter().map(|brick| names[*brick]).collect();
    let (pieces, queue) = mpsc::channel(QUEUED_PIECES);
    let total = Arc::new(AtomicU64::new(0));
    let known_total = total.clone();
    let report = move |bytes| report(bytes, known_total.load(Ordering::Relaxed));
    let parts_written = names.clone();
    let (complete, confirmed) = oneshot::channel();
    let come = Incoming { queue, confirmed };
    let writing = tasks::spawn_blocking(move || write(out, &head, &parts_written, catalogue.as_deref(), come, &report));
    let mut streams = JoinSet::new();
    let mut wanted = BTreeMap::new();
    let since = since.and_then(|last| last.cut);
    for (place, brick) in order.into_iter().enumerate() {
        let (client, part) = (clients[brick].clone(), parts[brick]);
        let name = names[place];
        let to = PartWriter { place, name, pieces: pieces.clone(), total: total.clone() };
        match (part, since) {
            (Some(part), Some(since)) => tasks::spawn_in(&mut streams, async move {
                let archive = client.read_changes(part, since).await.map_err(|error| of_brick(name, error));
                to.write(archive.map_err(backup_failure)?).await.map_err(backup_failure)
            }),
            (part, _) if base.is_none() => tasks::spawn_in(&mut streams, async move {
                let archive = client.read_part(part).await.map_err(|error| of_brick(name, error));
                to.write(archive.map_err(backup_failure)?).await.map_err(backup_failure)
            }),
            (part, _) => {
                let (index, received) = mpsc::channel(QUEUED_INDEX_PIECES);
                wanted.insert(name, index);
                tasks::spawn_in(&mut streams, async move {
                    write_increment(client, part, received, to).await.map_err(backup_failure)
                })
            }
        };
    }
    drop(pieces);
    if let Some(base) = base {
        tasks::spawn_in(&mut streams, async move {
            let read = tasks::spawn_blocking(move || base.read(wanted)).await;
            // A file of this machine, which no server mends.
            read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the reader of the base has panicked")))
                .map_err(Failure::local)
        });
    }
    let mut streamed = Ok(());
    while let Some(ended) = streams.join_next().await {
        let panicked = |_| Err(Error::new(ErrorKind::Internal, "a part of the backup has panicked").into());
        streamed = streamed.and(ended.unwrap_or_else(panicked));
        if streamed.is_err() {
            streams.abort_all();
        }
    }
    let streamed = match streamed {
        Ok(()) => confirm().await,
        failed => failed,
    };
    // Without this word the archive stays incomplete. A writer that has failed says why below.
    match streamed.is_ok() {
        true => drop(complete.send(())),
        false => drop(complete),
    }
    let written = writing.await.unwrap_or_else(|_| Err(io::Error::other("the writer of the archive has panicked")));
    // If the writer fails, the streams of the parts fail, too: its error is the cause.
    let written = written.map_err(|error| Failure::file(format!("cannot write {name}"), &error))?;
    streamed?;
    let bytes = written.ok_or_else(|| Error::new(ErrorKind::Internal, "a part of the archive is not complete"))?;
    if let Some(follower) = follower {
        follower.catalogue = newest_catalogue;
    }
    Ok(TakenArchive { id: head.id, bytes, cut: parts.iter().flatten().next().map(|part| part.number) })
}

/// An error of a brick, with its name.
fn of_brick(name: PartName, error: Error) -> Error {
    match name {
        PartName::Brick(number) => Error::new(error.kind(), format!("brick {number}: {error}")).with_source(error),
        PartName::Catalogue => error,
    }
}

/// Why a backup failed. Whether a brick has got a request does not matter: a backup changes nothing there.
fn backup_failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Unknown => Failure::from(Error::new(ErrorKind::Unavailable, error.to_string()))
            .hint("Begin the backup again. It changes nothing at the cluster."),
        _ => error.into(),
    }
}

/// Takes a cut, and reads the catalogue at its moment unless a brick's part has it.
async fn take_cut(clients: &[AdminClient], follower: Option<u64>) -> model::Result<(Vec<CutPart>, Option<Vec<u8>>)> {
    let read_catalogue = async |parts: &[CutPart]| match clients.first() {
        Some(first) if parts.iter().all(|part| !part.has_catalogue) => first.read_catalogue().await.map(Some),
        _ => Ok(None),
    };
    client::take_cut(clients, follower, read_catalogue).await
}

/// Sends the archive of a brick to the writer of the whole archive.
struct PartWriter {
    place: usize,
    name: PartName,
    pieces: mpsc::Sender<Piece>,
    /// About the bytes of all parts.
    total: Arc<AtomicU64>,
}

impl PartWriter {
    async fn write(self, mut archive: ArchiveStream) -> model::Result<()> {
        let gone = |_| Error::new(ErrorKind::Io, "the archive is not written any more");
        let mut known = 0;
        while let Some(piece) = archive.next().await.map_err(|error| of_brick(self.name, error))? {
            let now = archive.estimated_bytes();
            self.total.fetch_add(now - known, Ordering::Relaxed);
            known = now;
            self.pieces.send((self.place, Some(piece))).await.map_err(gone)?;
        }
        self.pieces.send((self.place, None)).await.map_err(gone)
    }
}

/// Sends what has changed at a brick to the writer; `index` is that of its part in the base. A brick that the base does not have is sent whole.
async fn write_increment(
    client: AdminClient,
    part: Option<CutPart>,
    mut index: mpsc::Receiver<IndexPiece>,
    to: PartWriter,
) -> model::Result<()> {
    let (archive, upload) = client.read_increment(part).await.map_err(|error| of_brick(to.name, error))?;
    let send = async {
        loop {
            match index.recv().await {
                Some(Some(piece)) => upload.send(piece, false).await?,
                // The sender has gone without a piece: the base does not have the brick, or the reader of the base says what is wrong.
                Some(None) | None => return upload.send(Bytes::new(), true).await,
            }
        }
    };
    tokio::try_join!(send, to.write(archive)).map(|_| ())
}

/// What the writer gets: the bytes of the parts, and then the word that the archive is to be completed.
struct Incoming {
    queue: mpsc::Receiver<Piece>,
    confirmed: oneshot::Receiver<()>,
}

/// Writes what comes. Returns the bytes of the archive; `None` if it is not to be completed.
fn write(
    out: ArchiveOutput,
    head: &ArchiveHeader,
    names: &[PartName],
    catalogue: Option<&[u8]>,
    mut come: Incoming,
    report: &impl Fn(u64),
) -> io::Result<Option<u64>> {
    let mut archive = ClusterArchiveWriter::begin(out, head)?;
    if let Some(catalogue) = catalogue {
        let part = archive.begin_part(PartName::Catalogue)?;
        archive.write(part, catalogue)?;
        archive.end_part(part)?;
    }
    let parts = names.iter().map(|name| archive.begin_part(*name)).collect::<io::Result<Vec<_>>>()?;
    let mut open = parts.len();
    while let Some((place, piece)) = come.queue.blocking_recv() {
        match piece {
            Some(piece) => archive.write_checked(parts[place], &piece.bytes, piece.checksum)?,
            None => {
                archive.end_part(parts[place])?;
                open -= 1;
            }
        }
        report(archive.bytes());
    }
    if open > 0 || come.confirmed.blocking_recv().is_err() {
        return Ok(None);
    }
    let (bytes, out) = archive.end()?;
    out.finish().map(|()| Some(bytes))
}
