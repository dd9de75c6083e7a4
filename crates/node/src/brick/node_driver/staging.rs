//! Contents that clients upload before the transactions that use them.
//!
//! ```text
//!   begin ─▶ receiving ── finish ─▶ finishing ── durable ─▶ staged ── commit ─▶ live: an object's head names it
//!                │                                          │   ▲ │
//!                │ lease                             prepare│   │ └ lease ─▶ freed
//!                └─▶ aborted                                ▼   │ abort
//!                                                         prepared
//! ```
//!
//! 1. A staged content is durable, with a row that marks it, before a transaction can name it. The commit removes the mark in the
//!    batch of rows that writes the head. So at every moment a content has a mark or a head, and after a restart the marks tell what
//!    to free.
//! 2. Only the outcome of the transaction that named it, or the end of its lease before any transaction did, frees a staged content.
//! 3. A transaction that is aborted leaves its contents staged: it can be repeated without uploading them again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{ContentId, ContentOrigin, Error, ErrorKind, NodeId, Result, SpaceId, UploadId};
use protocol::ident::TxnId;
use protocol::lease::Ms;
use store::{ContentChange, RowChanges};

use super::rows;
use crate::brick::page_rows::Rows;
use crate::brick::plant::{Bug, planted};

/// How long an upload lasts after its last bytes, and a staged content without a transaction, by default, in milliseconds.
pub(crate) const STAGING_LEASE_MS: Ms = 60_000;

/// How far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bytes arrive, and so many have come.
    Receiving(u64),
    /// Its rows are with the store.
    Finishing(u64),
    /// It is durable, has this size, and this transaction has prepared with it.
    Staged(u64, Option<TxnId>),
}

#[derive(Clone, Copy, Debug)]
struct StagedUpload {
    stage: Stage,
    expires: Ms,
}

impl StagedUpload {
    fn size(&self) -> u64 {
        match self.stage {
            Stage::Receiving(size) | Stage::Finishing(size) | Stage::Staged(size, _) => size,
        }
    }

    /// Whether its lease may end.
    fn can_expire(&self) -> bool {
        match self.stage {
            Stage::Receiving(_) | Stage::Staged(_, None) => true,
            Stage::Staged(_, Some(_)) => planted(Bug::PreparedContentExpires),
            Stage::Finishing(_) => false,
        }
    }
}

/// The uploads and staged contents of a logical node.
#[derive(Debug)]
pub(super) struct Staging {
    node: NodeId,
    moves: u32,
    /// How long an upload lasts after its last bytes, and a staged content without a transaction.
    lease_ms: Ms,
    uploads: BTreeMap<ContentId, StagedUpload>,
    /// Bytes of all of them. Sparse ones have more together than a smaller number holds.
    bytes: u128,
    /// When those expire that can.
    expiries: BTreeSet<(Ms, ContentId)>,
    /// How many uploads have their rows with the store.
    in_flight: usize,
}

impl Staging {
    fn new(node: NodeId, moves: u32, lease_ms: Ms) -> Self {
        let (uploads, bytes, expiries, in_flight) = Default::default();
        Self { node, moves, lease_ms, uploads, bytes, expiries, in_flight }
    }

    /// An upload is in this state now. Returns the one before.
    fn insert(&mut self, id: ContentId, upload: StagedUpload) -> Option<StagedUpload> {
        let before = self.remove(id);
        self.bytes += u128::from(upload.size());
        if upload.can_expire() {
            self.expiries.insert((upload.expires, id));
        }
        self.uploads.insert(id, upload);
        before
    }

    fn remove(&mut self, id: ContentId) -> Option<StagedUpload> {
        let upload = self.uploads.remove(&id)?;
        self.bytes -= u128::from(upload.size());
        self.expiries.remove(&(upload.expires, id));
        Some(upload)
    }

    /// The staged contents that the store has. Their leases begin anew.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn open(node: NodeId, moves: u32, lease_ms: Ms, reader: &impl Rows, now: Ms) -> Result<Self> {
        let mut staging = Self::new(node, moves, lease_ms);
        let (from, to) = rows::staged_range(node);
        let mut failed = None;
        reader.each(&from, &to, |key, row| match rows::parse_staged(key, row) {
            Ok((id, size)) => {
                let stage = Stage::Staged(size, None);
                staging.insert(id, StagedUpload { stage, expires: now + lease_ms });
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(staging), Err)
    }

    /// An upload begins: the identifier of its content, which an object of `space` can have.
    pub(super) fn begin(&mut self, space: SpaceId, upload: UploadId, now: Ms) -> ContentId {
        let id = ContentId::new(space, self.node, self.moves, ContentOrigin::Upload, upload.0);
        let upload = StagedUpload { stage: Stage::Receiving(0), expires: now + self.lease_ms };
        let before = self.insert(id, upload);
        assert!(before.is_none(), "K3: upload {id} began twice");
        id
    }

    /// More bytes of an upload have come. Returns its number in the store.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload, or it has ended.
    pub(super) fn receive(&mut self, id: ContentId, now: Ms) -> Result<UploadId> {
        match self.uploads.get(&id) {
            Some(StagedUpload { stage: stage @ Stage::Receiving(_), .. }) => {
                self.insert(id, StagedUpload { stage: *stage, expires: now + self.lease_ms });
                Ok(upload_of(id))
            }
            _ => Err(unknown_upload_error(id)),
        }
    }

    /// How many bytes of an upload have come.
    pub(super) fn received_bytes(&self, id: ContentId) -> u64 {
        match self.uploads.get(&id) {
            Some(StagedUpload { stage: Stage::Receiving(received), .. }) => *received,
            _ => 0,
        }
    }

    /// An upload has this many bytes now.
    pub(super) fn set_received(&mut self, id: ContentId, size: u64) {
        if let Some(StagedUpload { stage: Stage::Receiving(_), expires }) = self.uploads.get(&id).copied() {
            self.insert(id, StagedUpload { stage: Stage::Receiving(size), expires });
        }
    }

    /// Bytes of all uploads and staged contents.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// All bytes of an upload have come: the rows that make it a staged content of `size` bytes.
    ///
    /// # Errors
    /// As [`Staging::receive`].
    pub(super) fn finish(&mut self, id: ContentId, size: u64, now: Ms) -> Result<RowChanges> {
        let upload = self.receive(id, now)?;
        let mut changes = RowChanges::new();
        if !planted(Bug::StagedUnmarked) {
            changes.put(&rows::staged_key(id), rows::encode_number(size));
        }
        changes.content(ContentChange::CreateFromUpload { id, upload });
        self.insert(id, StagedUpload { stage: Stage::Finishing(size), expires: now + self.lease_ms });
        self.in_flight += 1;
        Ok(changes)
    }

    /// The rows of a finished upload are durable, or were refused: then it has ended. Returns the size.
    ///
    /// # Panics
    /// If the upload was not finishing.
    pub(super) fn complete(&mut self, id: ContentId, is_durable: bool, now: Ms) -> u64 {
        let Some(StagedUpload { stage: Stage::Finishing(size), .. }) = self.remove(id) else {
            panic!("K3: upload {id} has finished and was not finishing");
        };
        assert!(self.in_flight > 0, "K3: upload {id} has finished, and none was finishing");
        self.in_flight -= 1;
        if is_durable {
            let stage = Stage::Staged(size, None);
            self.insert(id, StagedUpload { stage, expires: now + self.lease_ms });
        }
        size
    }

    /// The client gives an upload up. Returns its number in the store, which has to abort it, if its bytes are still arriving. A
    /// staged content that no transaction has named is freed soon.
    pub(super) fn abort(&mut self, id: ContentId, now: Ms) -> Option<UploadId> {
        match *self.uploads.get(&id)? {
            StagedUpload { stage: Stage::Receiving(_), .. } => {
                self.remove(id);
                Some(upload_of(id))
            }
            upload => {
                self.insert(id, StagedUpload { expires: upload.expires.min(now), ..upload });
                None
            }
        }
    }

    /// The size of a staged content that a transaction may take: no other one has prepared with it.
    pub(super) fn size(&self, id: ContentId, txn: TxnId) -> Option<u64> {
        match self.uploads.get(&id)?.stage {
            Stage::Staged(size, used_by) if used_by.is_none_or(|other| other == txn) => Some(size),
            Stage::Staged(size, _) if planted(Bug::StagedUsedTwice) => Some(size),
            _ => None,
        }
    }

    /// The size of a staged content, whatever transaction has prepared with it.
    pub(super) fn staged_size(&self, id: ContentId) -> Option<u64> {
        match self.uploads.get(&id)?.stage {
            Stage::Staged(size, _) => Some(size),
            Stage::Receiving(_) | Stage::Finishing(_) => None,
        }
    }

    /// The size of a content whose bytes have all come, whether it is staged already or its rows are with the store.
    pub(super) fn finished_size(&self, id: ContentId) -> Option<u64> {
        match self.uploads.get(&id)?.stage {
            Stage::Finishing(size) | Stage::Staged(size, _) => Some(size),
            Stage::Receiving(_) => None,
        }
    }

    /// A transaction has prepared with a staged content.
    pub(super) fn prepare(&mut self, id: ContentId, txn: TxnId) {
        if let Some(StagedUpload { stage: Stage::Staged(size, _), expires }) = self.uploads.get(&id).copied() {
            self.insert(id, StagedUpload { stage: Stage::Staged(size, Some(txn)), expires });
        }
    }

    /// A transaction has committed with a staged content: an object's head names it now. Says whether there was one.
    pub(super) fn commit(&mut self, id: ContentId, changes: &mut RowChanges) -> bool {
        let was_staged = self.remove(id).is_some();
        if was_staged && !planted(Bug::StagedMarkKept) {
            changes.remove(&rows::staged_key(id));
        }
        was_staged
    }

    /// There is no such content, though there is a mark of it.
    pub(super) fn forget(&mut self, id: ContentId) {
        self.remove(id);
    }

    /// A transaction was aborted: its contents are staged again.
    pub(super) fn release(&mut self, txn: TxnId, now: Ms) {
        let is_used = |upload: &StagedUpload| matches!(upload.stage, Stage::Staged(_, Some(used_by)) if used_by == txn);
        let used = self.uploads.iter().filter(|(_, upload)| is_used(upload));
        for (id, size) in used.map(|(id, upload)| (*id, upload.size())).collect::<Vec<_>>() {
            self.insert(id, StagedUpload { stage: Stage::Staged(size, None), expires: now + self.lease_ms });
        }
    }

    /// Ends what has expired: adds the rows that free staged contents, and returns the uploads that the store has to abort.
    pub(super) fn expire(&mut self, now: Ms, changes: &mut RowChanges) -> Vec<UploadId> {
        let mut aborted = Vec::new();
        while let Some((expires, id)) = self.expiries.first().copied()
            && expires <= now
        {
            self.expiries.pop_first();
            match self.remove(id) {
                Some(StagedUpload { stage: Stage::Receiving(_), .. }) => aborted.push(upload_of(id)),
                _ => {
                    changes.remove(&rows::staged_key(id));
                    changes.content(ContentChange::Delete { id });
                }
            }
        }
        aborted
    }

    /// When something expires.
    pub(super) fn due(&self) -> Ms {
        self.expiries.first().map_or(Ms::MAX, |(expires, _)| *expires)
    }

    /// Ends all uploads whose bytes are still arriving: the logical node is closed.
    pub(super) fn close(&mut self) -> Vec<UploadId> {
        let is_receiving = |upload: &StagedUpload| matches!(upload.stage, Stage::Receiving(_));
        let receiving: Vec<ContentId> =
            self.uploads.iter().filter(|(_, upload)| is_receiving(upload)).map(|(id, _)| *id).collect();
        for id in &receiving {
            self.remove(*id);
        }
        receiving.into_iter().map(upload_of).collect()
    }

    /// Whether no upload has its rows with the store.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}

/// The number of an upload in the store.
fn upload_of(id: ContentId) -> UploadId {
    UploadId(id.0 as u64)
}

fn unknown_upload_error(id: ContentId) -> Error {
    let what = format!("there is no upload {id} here: its lease has ended, or the brick was restarted: begin another");
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;
    use protocol::ident::{ClientId, HlcTimestamp};

    use super::*;

    const TXN: TxnId = TxnId { start: HlcTimestamp(9), client: ClientId(1) };
    const OTHER: TxnId = TxnId { start: HlcTimestamp(9), client: ClientId(2) };

    fn empty() -> Staging {
        Staging::new(NodeId(3), 1, STAGING_LEASE_MS)
    }

    /// A node with one staged content of 5 bytes.
    fn staging_with_content() -> (Staging, ContentId) {
        let mut staging = empty();
        let id = staging.begin(SpaceId(1), UploadId(7), 0);
        assert_eq!(staging.receive(id, 1).unwrap(), UploadId(7));
        staging.finish(id, 5, 2).unwrap();
        assert!(!staging.is_idle() && staging.size(id, OTHER).is_none());
        staging.complete(id, true, 3);
        assert!(staging.is_idle());
        (staging, id)
    }

    #[test]
    fn content_is_used_by_one_transaction() {
        let (mut staging, id) = staging_with_content();
        assert_eq!(staging.size(id, OTHER), Some(5));
        staging.prepare(id, TXN);
        assert_eq!((staging.size(id, TXN), staging.size(id, OTHER)), (Some(5), None));
        staging.release(TXN, 4);
        assert_eq!(staging.size(id, OTHER), Some(5), "the transaction can be repeated");
        let mut changes = RowChanges::new();
        assert!(staging.commit(id, &mut changes));
        assert_eq!(changes.keys().collect::<Vec<_>>(), [&rows::staged_key(id)[..]]);
        assert!(staging.size(id, OTHER).is_none() && !staging.commit(id, &mut changes));
    }

    #[test]
    fn staged_contents_are_marked() {
        let mut staging = empty();
        let id = staging.begin(SpaceId(1), UploadId(7), 0);
        let changes = staging.finish(id, 5, 2).unwrap();
        assert_eq!(changes.keys().collect::<Vec<_>>(), [&rows::staged_key(id)[..]]);
        assert_eq!(changes.contents(), [ContentChange::CreateFromUpload { id, upload: UploadId(7) }]);
        assert!(staging.receive(id, 3).is_err(), "no bytes come behind the end");
        staging.complete(id, false, 3);
        assert!(staging.size(id, OTHER).is_none(), "the store had no room");
    }

    #[test]
    fn lease_ends_what_no_transaction_has_named() {
        let (mut staging, id) = staging_with_content();
        let mut changes = RowChanges::new();
        let late = staging.due();
        assert_eq!(late, 3 + STAGING_LEASE_MS);
        staging.prepare(id, TXN);
        assert_eq!(staging.due(), Ms::MAX);
        assert!(staging.expire(late, &mut changes).is_empty() && changes.is_empty(), "it is prepared");
        staging.release(TXN, late);
        assert!(staging.expire(late, &mut changes).is_empty() && changes.is_empty(), "the lease begins anew");
        staging.expire(late + STAGING_LEASE_MS, &mut changes);
        assert_eq!(changes.contents(), [ContentChange::Delete { id }]);
        let receiving = staging.begin(SpaceId(1), UploadId(8), 0);
        assert_eq!(staging.expire(STAGING_LEASE_MS, &mut changes), [UploadId(8)]);
        assert!(staging.receive(receiving, STAGING_LEASE_MS).is_err());
    }

    #[test]
    fn abort_ends_an_upload_and_frees_a_staged_content_soon() {
        let (mut staging, id) = staging_with_content();
        let receiving = staging.begin(SpaceId(1), UploadId(8), 0);
        assert_eq!(staging.abort(receiving, 4), Some(UploadId(8)));
        assert_eq!(staging.abort(id, 4), None);
        assert_eq!(staging.due(), 4);
        let open = staging.begin(SpaceId(1), UploadId(9), 0);
        assert_eq!(staging.close(), [UploadId(9)]);
        assert!(staging.receive(open, 5).is_err());
    }

    /// What is kept beside the uploads is what they say.
    #[test]
    fn bytes_and_the_next_expiry_are_those_of_the_uploads() {
        let check = |staging: &Staging| {
            let bytes: u64 = staging.uploads.values().map(StagedUpload::size).sum();
            let expiring = staging.uploads.values().filter(|upload| upload.can_expire());
            let due = expiring.map(|upload| upload.expires).min().unwrap_or(Ms::MAX);
            assert_eq!((staging.bytes(), staging.due()), (bytes, due), "{staging:?}");
            (bytes, due)
        };
        let (mut staging, id) = staging_with_content();
        assert_eq!(check(&staging), (5, 3 + STAGING_LEASE_MS));
        let other = staging.begin(SpaceId(1), UploadId(8), 1);
        staging.set_received(other, 70);
        assert_eq!(check(&staging), (75, 1 + STAGING_LEASE_MS));
        staging.receive(other, 9).unwrap();
        staging.prepare(id, TXN);
        assert_eq!(check(&staging), (75, 9 + STAGING_LEASE_MS));
        staging.finish(other, 80, 10).unwrap();
        assert_eq!(check(&staging), (85, Ms::MAX));
        staging.complete(other, true, 11);
        staging.release(TXN, 20);
        assert_eq!(check(&staging), (85, 11 + STAGING_LEASE_MS));
        staging.abort(id, 12);
        assert_eq!(check(&staging), (85, 12));
        let mut changes = RowChanges::new();
        staging.expire(12, &mut changes);
        assert_eq!(check(&staging), (80, 11 + STAGING_LEASE_MS));
        staging.commit(other, &mut changes);
        assert_eq!(check(&staging), (0, Ms::MAX));
        let last = staging.begin(SpaceId(1), UploadId(9), 1);
        staging.set_received(last, 7);
        staging.close();
        assert_eq!(check(&staging), (0, Ms::MAX));
        // Sparse contents.
        for upload in 10..10 + (1 << 14) + 1 {
            let id = staging.begin(SpaceId(1), UploadId(upload), 1);
            staging.set_received(id, model::limits::BLOB);
        }
        assert_eq!(staging.bytes(), u64::MAX);
    }

    #[test]
    fn planted_bugs_are_noticed() {
        let checks: [(Bug, fn()); 4] = [
            (Bug::StagedUnmarked, staged_contents_are_marked),
            (Bug::StagedUsedTwice, content_is_used_by_one_transaction),
            (Bug::StagedMarkKept, content_is_used_by_one_transaction),
            (Bug::PreparedContentExpires, lease_ends_what_no_transaction_has_named),
        ];
        for (bug, check) in checks {
            assert_noticed(&[bug], check);
        }
    }
}
