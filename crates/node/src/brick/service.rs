//! Answers the requests of one connection.
//!
//! What is quick is answered from the store at once, into the connection's outbox: no task, no lock of ours, no
//! allocation but the store's. What may block goes to threads that may ([`crate::blocking`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use meta::{Embedded, Prefix};
use model::{Error, ErrorKind, NodeId, Oid, Result};
use protocol::cut::{CutNumber, HoldReport};
use protocol::lease::Ms;
use tracing::warn;
use wire::cluster::{
    BuildIndex, CloneRows, CopyRows, EntryList, ListEntries, ListEntriesOf, ListNodeObjects, LookUp, Message,
    ReadContent, Reserve, ReservedPages, Scan, content_id, object_read_to_proto, read_to_proto, upload_place,
};
use wire::convert;
use wire::driving::PeerHandle;
use wire::frame::Raw;
use wire::link::{DeferredResponder, Incoming, Responder, Service};
use wire::outbox::Piece;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::backup_base::{self, BaseSender};
use super::content_reads::{FoundRange, MAX_COPIED, RangeBytes};
use super::cuts::{FollowerId, NotHeld, TakenPart};
use super::node_manager::DamagedNodes;
use super::nodes::Nodes;
use super::page_rows::StoredObject;
use super::resident::make_resident;
use super::{BrickRole, long_job};
use crate::blocking;
use crate::catalogue_archive;
use crate::server::{Kind, Thread};

/// Answers the requests of one connection.
pub(crate) struct BrickConnection {
    pub(crate) thread: Arc<Thread<BrickRole>>,
    /// The way to whoever is connected.
    pub(crate) post: PeerHandle,
    /// What a process of the cluster has been told of damaged logical nodes; `None` for other clients.
    pub(crate) told_damage: Option<Arc<DamagedNodes>>,
    /// For the index of the base of the incremental backup that this connection takes.
    pub(crate) base: Option<BaseSender>,
}

impl Service for BrickConnection {
    fn on_messages(&mut self, messages: impl Iterator<Item = Message>) -> Result<()> {
        self.tell_damage();
        let counters = &self.thread.counters;
        let counted = messages.inspect(|message| counters.count(Kind::of_message(message)));
        self.nodes().handle_messages(&self.post, counted)
    }

    fn on_received(&mut self, bytes: u64) {
        self.thread.counters.received.add(bytes);
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        let metrics = &self.thread.counters;
        metrics.count(Kind::of_request(&request));
        if !raw.is_empty() {
            metrics.received.add(raw.len() as u64);
        }
        self.tell_damage();
        match request {
            Request::AskWitness(asked) => match self.nodes().answer_witness(&asked) {
                Ok(seen) => reply.send(Response::Witnesses(seen)),
                Err(error) => reply.fail(&error),
            },
            Request::Witnesses(seen) => {
                self.told_damage.get_or_insert_default();
                self.tell_damage();
                if let Err(error) = self.nodes().note_witnesses(&seen) {
                    reply.refuse(&error);
                }
            }
            Request::ReadObject(look) => self.look(look, reply),
            Request::Reserve(reserve) => self.reserve(reserve, reply),
            Request::Scan(scan) => self.scan(scan, reply),
            Request::BuildIndex(build) => self.build_index(build, reply),
            Request::ReadContent(read) => self.read_content(read, reply),
            Request::BeginContent(begin) => self.begin_content(&begin, reply),
            Request::WriteContent(write) => self.write_content(write, &raw, reply),
            Request::AbortContent(abort) => {
                match content_id(abort.content).and_then(|id| self.nodes().abort_upload(id)) {
                    Ok(()) => reply.send(done_response()),
                    Err(error) => reply.fail(&error),
                }
            }
            Request::LookUp(look_up) => self.look_up(*look_up, reply),
            Request::ListEntries(list) => self.list_entries(*list, reply),
            Request::ListEntriesOf(list) => self.list_entries_of(*list, reply),
            Request::ListNodeObjects(list) => self.list_node_objects(list, reply),
            Request::CheckEmpty(check) => {
                let Some((check, nodes, deferred)) = self.defer_reply(Ok(check), reply) else { return };
                tasks::spawn(async move {
                    deferred.answer(nodes.check_empty(check).await.map(Response::Emptiness));
                });
            }
            Request::CopyRows(copy) => self.copy_rows(copy, reply),
            Request::CloneRows(clone) => self.clone_rows(clone, reply),
            Request::Backup(backup) => self.backup(&backup, reply),
            Request::BackupBase(piece) => match &self.base {
                Some(base) => base.send(raw.to_bytes(), piece.is_last, reply.defer()),
                None => reply.fail(&Error::new(ErrorKind::Invalid, "this connection takes no incremental backup")),
            },
            Request::Cut(cut) => self.take_cut(cut, reply),
            Request::ReleaseCut(release) => {
                let HoldReport { run, lasted } = self.thread.server.role.cuts.release(CutNumber(release.number));
                // A brick that was opened elsewhere meanwhile has shown something else.
                let lasted = lasted && self.nodes().is_current();
                reply.send(Response::CutReleased(proto::CutReleased { run: run.0, lasted }));
            }
            Request::Scrub(asked) => {
                let role = &self.thread.server.role;
                let scrubbed = (self.nodes().clone(), role.scrub.clone());
                long_job::scrub(asked, scrubbed, &role.long_jobs, reply);
            }
            request => match self.quick(request) {
                Ok(response) => reply.send(response),
                Err(error) => reply.fail(&error),
            },
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }

    /// A peer server's connection.
    fn holds_state(&self) -> bool {
        true
    }
}

impl BrickConnection {
    /// Tells a process of the cluster which logical nodes cannot be served because their rows are damaged, when others are than before.
    /// One that does not use them would not hear of it otherwise.
    fn tell_damage(&mut self) {
        let Some(told) = &mut self.told_damage else { return };
        let damaged = self.thread.server.role.nodes.damaged();
        if Arc::ptr_eq(told, &damaged) {
            return;
        }
        let concerned: BTreeSet<NodeId> = told.keys().chain(damaged.keys()).copied().collect();
        for node in concerned.into_iter().filter(|node| told.get(node) != damaged.get(node)) {
            self.post.send(Message::NotServedHere { node, epoch: 0, damage: damaged.get(&node).cloned() });
        }
        *told = Arc::clone(&damaged);
    }

    /// Streams an archive of the store as it is, of the part of a cut, or of the catalogue.
    fn backup(&mut self, backup: &proto::Backup, reply: Responder<'_>) {
        let role = &self.thread.server.role;
        if backup.catalogue {
            let store = self.nodes().cluster_view.editor().map(|editor| editor.store().clone());
            let deferred = reply.defer();
            tasks::spawn(async move {
                let read = async { catalogue_archive::encode(&store?.read(Prefix::all()).await?) };
                match read.await {
                    Ok(archive) => blocking::run(move || long_job::send_archive(&archive, deferred)),
                    Err(error) => deferred.fail(&error),
                }
            });
            return;
        }
        if let (Some(cut), Some(since)) = (backup.cut, backup.changes_since) {
            long_job::backup_changes((role.cuts.clone(), CutNumber(cut), CutNumber(since)), &role.followed, reply);
            return;
        }
        let part = match backup.cut {
            Some(number) => role.cuts.take_part(CutNumber(number)),
            None => self.check_backup().and_then(|()| self.nodes().store.snapshot()).map(TakenPart::from),
        };
        match part {
            Ok(part) => {
                let (base, received) = match backup.increment {
                    true => Some(backup_base::channel()).unzip(),
                    false => (None, None),
                };
                let served = self.nodes().served_epochs().into_iter().map(|(node, _)| node).collect();
                long_job::backup(part, served, received, &role.long_jobs, reply);
                self.base = base;
            }
            Err(error) => reply.fail(&error),
        }
    }

    /// Holds the store for a cut.
    fn take_cut(&self, proto::Cut { number, hold_ms, follower }: proto::Cut, reply: Responder<'_>) {
        let (nodes, cuts) = (self.nodes().clone(), self.thread.server.role.cuts.clone());
        let deferred = reply.defer();
        let held = move || {
            let has_catalogue = match nodes.check_current().and_then(|()| Embedded::exists_in(&nodes.store)) {
                Ok(has) => has,
                Err(error) => return deferred.fail(&error),
            };
            cuts.take(CutNumber(number), Ms::from(hold_ms), follower.map(FollowerId), move |part| match part {
                Ok(run) => {
                    let held = proto::CutHeld { run: run.0, has_catalogue };
                    deferred.send(Response::CutHeld(held), Vec::new());
                }
                Err(NotHeld::Refused(why)) => {
                    let last = why.last().unwrap_or_default();
                    let refused = proto::CutRefused { last: last.0, why: why.to_string() };
                    deferred.send(Response::CutRefused(refused), Vec::new());
                }
                Err(NotHeld::Failed(error)) => deferred.fail(&error),
            });
        };
        if let Err(error) = thread::Builder::new().name("mortar-cut".to_owned()).spawn(held) {
            // The request was answered with an error when it was dropped with the job.
            warn!(%error, "a thread for a cut cannot be started");
        }
    }

    /// A brick without the catalogue of its cluster would go back in time with a backup, and the cluster would not.
    fn check_backup(&self) -> Result<()> {
        if Embedded::exists_in(&self.nodes().store)? {
            return Ok(());
        }
        let what = "this brick cannot be backed up alone, because the catalogue of its cluster is elsewhere: connect to a peer server";
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// The hot path: the newest durable state of a small object goes from where the store keeps it straight into the outbox.
    fn look(&self, look: proto::ReadObject, reply: Responder<'_>) {
        let oid = match convert::oid(look.oid, "object") {
            Ok(oid) => oid,
            Err(error) => return reply.fail(&error),
        };
        if self.nodes().is_cold(oid) {
            return self.look_later(oid, reply);
        }
        let mut reply = Some(reply);
        let show = |stored: Option<StoredObject<'_>>| {
            let Some(reply) = reply.take() else { return };
            match stored {
                Some(StoredObject { code, checksum, bytes, buffer, .. }) => {
                    let response = Response::ObjectRead(object_read_to_proto(Some((code, bytes.len()))));
                    match buffer {
                        Some(buffer) => reply.send_shared(response, buffer.slice_ref(bytes), checksum),
                        None => reply.send_checked(response, bytes, checksum),
                    }
                }
                None => reply.send(Response::ObjectRead(object_read_to_proto(None))),
            }
        };
        match (self.nodes().cold_reads.measure(|| self.nodes().read_latest(oid, show)), reply) {
            (Ok(None), Some(reply)) => self.look_later(oid, reply),
            (Err(error), Some(reply)) => reply.fail(&error),
            _ => {}
        }
    }

    /// Sends an object when no transaction of which the client may have heard has yet to change it, and when it is in memory.
    fn look_later(&self, oid: Oid, reply: Responder<'_>) {
        let Some((oid, nodes, deferred)) = self.defer_reply(Ok(oid), reply) else { return };
        let show = |stored: Option<StoredObject<'_>>| {
            let found = stored.as_ref().map(|stored| (stored.code, stored.bytes.len()));
            let raw = stored.map(|stored| vec![stored.to_bytes()]).unwrap_or_default();
            (Response::ObjectRead(object_read_to_proto(found)), raw)
        };
        tasks::spawn(async move {
            loop {
                let read = async {
                    nodes.wait_settled(oid).await?;
                    nodes.read_latest_later(oid, show).await
                };
                match read.await {
                    Ok(Some((response, raw))) => return deferred.send(response, raw),
                    // Another transaction has come in between.
                    Ok(None) => {}
                    Err(error) => return deferred.fail(&error),
                }
            }
        });
    }

    /// What the logical nodes of this brick are asked, and the answer to come; refused, if they cannot be.
    fn defer_reply<T>(&self, wanted: Result<T>, reply: Responder<'_>) -> Option<(T, Arc<Nodes>, DeferredResponder)> {
        match wanted {
            Ok(wanted) => Some((wanted, self.nodes().clone(), reply.defer())),
            Err(error) => {
                reply.fail(&error);
                None
            }
        }
    }

    /// Gives page numbers that nobody else gets.
    fn reserve(&self, reserve: proto::Reserve, reply: Responder<'_>) {
        let Some((asked, nodes, deferred)) = self.defer_reply(Reserve::try_from(reserve), reply) else { return };
        let Reserve { space, node, pages, room: _ } = asked;
        nodes.reserve(node, space, u64::from(pages), move |reserved| {
            deferred.answer(reserved.map(|first| Response::Reserved(ReservedPages::empty(first, pages).into())));
        });
    }

    /// Reads a range of the bytes of a blob.
    fn read_content(&self, wanted: proto::contents::Read, reply: Responder<'_>) {
        let Some((read, nodes, deferred)) = self.defer_reply(ReadContent::try_from(wanted), reply) else { return };
        if !nodes.is_unsettled(read.oid) {
            if read.length <= MAX_COPIED && !nodes.is_range_cold(&read) {
                return nodes.cold_reads.measure(|| send_range(&nodes, &read, deferred));
            }
            return blocking::run(move || send_range(&nodes, &read, deferred));
        }
        tasks::spawn(async move {
            match nodes.wait_settled(read.oid).await {
                Ok(()) => blocking::run(move || send_range(&nodes, &read, deferred)),
                Err(error) => deferred.fail(&error),
            }
        });
    }

    /// Begins an upload of a content.
    fn begin_content(&self, begin: &proto::contents::Begin, reply: Responder<'_>) {
        match upload_place(begin).and_then(|(space, node)| self.nodes().begin_upload(space, node, &begin.user)) {
            Ok(id) => reply.send(Response::ContentBegun(proto::contents::Begun { content: Some(id.into()) })),
            Err(error) => reply.fail(&error),
        }
    }

    /// Adds bytes to an upload, and ends it with the last ones.
    fn write_content(&self, write: proto::contents::Write, raw: &Raw<'_>, reply: Responder<'_>) {
        let Some((id, nodes, deferred)) = self.defer_reply(content_id(write.content), reply) else { return };
        let bytes = raw.to_bytes();
        blocking::run(move || {
            let added = if bytes.is_empty() { Ok(()) } else { nodes.add_to_upload(id, write.offset, bytes) };
            let written = |size| Response::ContentWritten(proto::contents::Written { size });
            match added {
                Err(error) => deferred.fail(&error),
                Ok(()) if !write.last => deferred.send(written(None), Vec::new()),
                Ok(()) => nodes.finish_upload(id, move |size| deferred.answer(size.map(|size| written(Some(size))))),
            }
        });
    }

    /// Scans objects.
    fn scan(&self, wanted: proto::cluster::Scan, reply: Responder<'_>) {
        let Some((scan, nodes, deferred)) = self.defer_reply(Scan::from_proto(wanted), reply) else { return };
        blocking::run(move || match nodes.scan(&scan) {
            Ok(scanned) => {
                let (scanned, raw) = scanned.into_proto();
                deferred.send(Response::Scanned(scanned), raw);
            }
            Err(error) => deferred.fail(&error),
        });
    }

    /// Follows keys from a collection.
    fn look_up(&self, wanted: proto::entries::LookUp, reply: Responder<'_>) {
        let wanted = match LookUp::from_proto(wanted) {
            Ok(wanted) => wanted,
            Err(error) => return reply.fail(&error),
        };
        match self.nodes().look_up_now(&wanted) {
            Ok(Some(found)) => return reply.send(Response::LookedUp(found.into_proto())),
            Err(error) => return reply.fail(&error),
            // It would wait.
            Ok(None) => {}
        }
        let (nodes, deferred) = (self.nodes().clone(), reply.defer());
        tasks::spawn(async move {
            deferred.answer(nodes.look_up(wanted).await.map(|found| Response::LookedUp(found.into_proto())));
        });
    }

    /// Lists entries of a collection.
    fn list_entries(&self, wanted: proto::entries::ListEntries, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.defer_reply(ListEntries::from_proto(wanted), reply) else { return };
        let with_kinds = wanted.kinds;
        let send = move |found: Result<EntryList>| match found {
            Ok(found) => {
                let (list, raw) = found.into_proto(with_kinds);
                deferred.send(Response::EntryList(list), vec![raw]);
            }
            Err(error) => deferred.fail(&error),
        };
        if let Some(found) = nodes.list_entries_now(&wanted).transpose() {
            return send(found);
        }
        tasks::spawn(async move { send(nodes.list_entries(wanted).await) });
    }

    /// Lists the objects of a logical node.
    fn list_node_objects(&self, wanted: proto::entries::ListNodeObjects, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.defer_reply(ListNodeObjects::from_proto(wanted), reply) else {
            return;
        };
        blocking::run(move || {
            deferred.answer(nodes.list_objects(&wanted).map(|found| Response::NodeObjects(found.into_proto())));
        });
    }

    /// Lists the entries that have a target.
    fn list_entries_of(&self, wanted: proto::entries::ListEntriesOf, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.defer_reply(ListEntriesOf::from_proto(wanted), reply) else {
            return;
        };
        blocking::run(move || match nodes.list_entries_of(&wanted) {
            Ok(found) => {
                let (list, raw) = found.into_proto();
                deferred.send(Response::EntriesOf(list), vec![raw]);
            }
            Err(error) => deferred.fail(&error),
        });
    }

    /// Waits a moment for an index.
    fn build_index(&self, wanted: proto::BuildIndex, reply: Responder<'_>) {
        let only_report = wanted.only_report;
        let Some((wanted, nodes, deferred)) = self.defer_reply(BuildIndex::try_from(wanted), reply) else { return };
        if only_report {
            let report = |(done, total)| Response::Progress(proto::Progress { done, total });
            return deferred.answer(nodes.report_index(&wanted).map(report));
        }
        tasks::spawn(async move {
            deferred.answer(nodes.build_index(wanted).await.map(|progress| match progress {
                None => done_response(),
                Some((done, total)) => Response::Progress(proto::Progress { done, total }),
            }));
        });
    }

    /// Hands over rows of a logical node that moves.
    fn copy_rows(&self, wanted: proto::moves::CopyRows, reply: Responder<'_>) {
        let Some((copy, nodes, deferred)) = self.defer_reply(CopyRows::try_from(wanted), reply) else { return };
        blocking::run(move || match nodes.copy_rows(&copy) {
            Ok(copied) => {
                let (copied, raw) = copied.into_proto();
                deferred.send(Response::CopiedRows(copied), raw);
            }
            Err(error) => deferred.fail(&error),
        });
    }

    /// Makes rows of a clone from the part of a cut.
    fn clone_rows(&self, wanted: proto::moves::CloneRows, reply: Responder<'_>) {
        let Some((asked, nodes, deferred)) = self.defer_reply(CloneRows::try_from(wanted), reply) else { return };
        let cuts = self.thread.server.role.cuts.clone();
        blocking::run(move || {
            let cloned = cuts.use_part(CutNumber(asked.cut)).and_then(|part| nodes.clone_rows(&asked, &part));
            deferred.answer(cloned.map(Response::ClonedRows));
        });
    }

    fn quick(&self, request: Request) -> Result<Response> {
        Ok(match request {
            Request::Ping(_) => done_response(),
            Request::GetStatus(_) => Response::Status(self.thread.server.status()),
            Request::GetMoveIns(get) => {
                let nodes = get.nodes.into_iter().map(wire::cluster::node).collect::<Result<Vec<_>>>()?;
                Response::MoveIns(self.nodes().move_ins(&nodes)?)
            }
            Request::GetNodeUsages(get) => {
                let nodes = get.nodes.into_iter().map(wire::cluster::node).collect::<Result<Vec<_>>>()?;
                Response::NodeUsages(self.nodes().usage(nodes.into_iter()))
            }
            _ => {
                let what = "this is a brick, which keeps objects of a cluster: clients connect to a peer server";
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        })
    }

    fn nodes(&self) -> &Arc<Nodes> {
        &self.thread.server.role.nodes
    }
}

/// Reads a range of the bytes of a blob, and sends it.
fn send_range(nodes: &Nodes, read: &ReadContent, deferred: DeferredResponder) {
    let FoundRange { object, bytes } = match nodes.read_content(read) {
        Ok(found) => found,
        Err(error) => return deferred.fail(&error),
    };
    let (found, mut raw) = read_to_proto(object.as_ref(), bytes.is_some());
    let response = Response::ContentBytes(found);
    match bytes {
        None => deferred.send(response, raw),
        Some(RangeBytes::Bytes(bytes)) => {
            raw.push(bytes);
            deferred.send(response, raw);
        }
        Some(RangeBytes::Pieces(pieces)) => {
            let heads = raw.into_iter().map(Piece::Bytes);
            let parts: Vec<Piece> = heads.chain(pieces.pieces.iter().map(piece)).collect();
            make_resident(&parts);
            deferred.send_pieces(response, parts, Arc::new(pieces));
        }
    }
}

fn piece(piece: &store::Piece) -> Piece {
    match piece {
        store::Piece::Bytes(bytes) => Piece::Bytes(bytes.clone()),
        store::Piece::File { file, offset, len, crc32c } => {
            Piece::File { file: file.clone(), offset: *offset, len: *len as usize, checksum: *crc32c }
        }
    }
}

pub(crate) fn done_response() -> Response {
    Response::Done(proto::Done {})
}
