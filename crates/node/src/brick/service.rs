//! Answers the requests of one connection.
//!
//! What is quick is answered from the store at once, into the connection's outbox: no task, no lock of ours, no
//! allocation but the store's. What may block goes to threads that may ([`crate::blocking`]).

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta::Embedded;
use model::{Error, ErrorKind, Oid, Op, Outcome, Result, Stat, Transaction, UploadId};
use store::{Snapshot, Store};
use wire::cluster::{
    BuildIndex, CopyRows, ListEntries, ListEntriesOf, ListNodeObjects, LookUp, Message, ReadContent, Reserve, Scan,
    content_id, object_read_to_proto, read_to_proto, upload_place,
};
use wire::convert;
use wire::driving::PeerHandle;
use wire::frame::Raw;
use wire::link::{DeferredResponder, Incoming, Responder, Service};
use wire::outbox::Piece;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::brick_session::BrickSession;
use super::completions::Completion;
use super::content_reads::{FoundRange, RangeBytes};
use super::listing::Listing;
use super::nodes::Nodes;
use super::page_rows::StoredObject;
use super::resident::{is_resident, make_resident};
use super::{BrickRole, long_job};
use crate::blocking;
use crate::server::{Config, Thread, kind_index};

/// Bytes of content that one `Read` may ask for.
pub(crate) const MAX_READ: u32 = 4 << 20;
/// Bytes up to which content is read at once, into memory; more is sent from where it lies.
const AT_ONCE: u32 = 64 << 10;
/// Bytes of a transaction's data from which on the store writes to its files before it takes the transaction.
const STAGED: usize = 64 << 10;

/// Commits in memory of which one is timed and stands for all: to look at the clock for each would take 3 % of them.
const TIMED: u32 = 16;

/// Answers the requests of one connection.
pub(crate) struct BrickConnection {
    pub(crate) store: Store,
    pub(crate) in_memory: bool,
    pub(crate) config: Arc<Config>,
    pub(crate) session: Arc<BrickSession>,
    pub(crate) thread: Arc<Thread<BrickRole>>,
    pub(crate) timing: Timing,
    /// The way to whoever is connected.
    pub(crate) post: PeerHandle,
}

/// How long commits in memory take.
#[derive(Default)]
pub(crate) struct Timing {
    /// How many there were.
    count: u32,
    took: Duration,
}

impl Timing {
    fn of<T>(&mut self, work: impl FnOnce() -> T) -> (Duration, T) {
        let begun = self.count.is_multiple_of(TIMED).then(Instant::now);
        self.count = self.count.wrapping_add(1);
        let done = work();
        if let Some(begun) = begun {
            self.took = begun.elapsed();
        }
        (self.took, done)
    }
}

/// What is read: the newest state, or a snapshot.
#[derive(Clone)]
pub(crate) enum View {
    Newest(Store),
    Snapshot(Arc<Snapshot>),
}

/// Calls the same method of whichever is read.
macro_rules! on {
    ($view:expr, $read:ident => $call:expr) => {
        match $view {
            crate::brick::service::View::Newest($read) => $call,
            crate::brick::service::View::Snapshot($read) => $call,
        }
    };
}
pub(crate) use on;

impl Service for BrickConnection {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        let metrics = &self.thread.counters;
        metrics.requests.0[kind_index(&request)].add(1);
        if !raw.is_empty() {
            metrics.received.add(raw.len() as u64);
        }
        if self.thread.server.role.nodes.is_some() && is_of_one_store(&request) {
            return reply.fail(&self.not_here());
        }
        match request {
            Request::Up(_) | Request::Ask(_) => {
                let nodes = self.thread.server.role.nodes();
                let handled = nodes.and_then(|nodes| nodes.handle_message(&self.post, Message::decode(request, raw)?));
                if let Err(error) = handled {
                    reply.refuse(&error);
                }
            }
            Request::AskWitness(asked) => {
                match self.thread.server.role.nodes().and_then(|nodes| nodes.answer_witness(&asked)) {
                    Ok(seen) => reply.send(Response::Witnesses(seen)),
                    Err(error) => reply.fail(&error),
                }
            }
            Request::Witnesses(seen) => {
                if let Err(error) = self.thread.server.role.nodes().and_then(|nodes| nodes.note_witnesses(&seen)) {
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
                let nodes = self.thread.server.role.nodes();
                let aborted = content_id(abort.content).and_then(|id| nodes?.abort_upload(id));
                match aborted {
                    Ok(()) => reply.send(done()),
                    Err(error) => reply.fail(&error),
                }
            }
            Request::LookUp(look_up) => self.look_up(*look_up, reply),
            Request::ListEntries(list) => self.list_entries(*list, reply),
            Request::ListEntriesOf(list) => self.list_entries_of(*list, reply),
            Request::ListNodeObjects(list) => self.list_node_objects(list, reply),
            Request::CopyRows(copy) => self.copy_rows(copy, reply),
            Request::Get(get) => self.get(get, reply),
            Request::Commit(commit) => self.commit(commit, &raw, reply),
            Request::Read(read) => self.read(read, reply),
            Request::Upload(upload) => self.upload(&upload, &raw, reply),
            Request::CloseSnapshot(close) => {
                self.session.close_snapshot(close.snapshot);
                reply.send(done());
            }
            Request::AbortUpload(abort) => {
                self.session.abort_upload(UploadId(abort.upload));
                reply.send(done());
            }
            Request::ListAttributes(_) | Request::ListMembers(_) | Request::ListNames(_) | Request::ListObjects(_) => {
                self.list(request, reply);
            }
            Request::ListNamesOf(_) | Request::ListCollectionsOf(_) => self.list(request, reply),
            Request::CreateSpace(create) => {
                let store = self.store.clone();
                blocking::answer(reply, move || {
                    let space = u32::from(store.create_space(&create.name)?.0);
                    Ok((Response::SpaceCreated(proto::SpaceCreated { space }), Bytes::new()))
                });
            }
            Request::Backup(_) => match self.check_backup() {
                Ok(()) => long_job::backup(self.store.clone(), &self.thread.server.role.long_jobs, reply),
                Err(error) => reply.fail(&error),
            },
            Request::Scrub(_) => {
                let role = &self.thread.server.role;
                long_job::scrub(self.store.clone(), role.nodes.is_some(), &role.long_jobs, reply);
            }
            request => match self.quick(request) {
                Ok((response, raw)) => self.send(response, &raw, reply),
                Err(error) => reply.fail(&error),
            },
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }

    /// A peer server's connection, or one that may have snapshots and uploads.
    fn holds_state(&self) -> bool {
        true
    }
}

impl Drop for BrickConnection {
    fn drop(&mut self) {
        // Files may have to be given back, which may block.
        let session = self.session.clone();
        blocking::run(move || session.end());
    }
}

impl BrickConnection {
    /// A brick without the catalogue of its cluster would go back in time with a backup, and the cluster would not.
    fn check_backup(&self) -> Result<()> {
        if self.thread.server.role.nodes.is_none() || Embedded::exists_in(&self.store)? {
            return Ok(());
        }
        let what = "this brick cannot be backed up alone, because the catalogue of its cluster is elsewhere";
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    fn view(&self, snapshot: u64) -> Result<View> {
        if snapshot == 0 {
            return Ok(View::Newest(self.store.clone()));
        }
        self.session.snapshot(snapshot).map(View::Snapshot)
    }

    fn send(&self, response: Response, raw: &Bytes, reply: Responder<'_>) {
        if raw.is_empty() {
            return reply.send(response);
        }
        reply.send_bytes(response, std::slice::from_ref(raw));
    }

    /// The hot path: a small object goes from where the store keeps it straight into the outbox.
    fn get(&self, get: proto::Get, reply: Responder<'_>) {
        let max = get.max.min(MAX_READ) as usize;
        let mut reply = Some(reply);
        let show = |stat: &Stat, content: Option<store::ContentRef<'_>>| {
            let Some(reply) = reply.take() else { return };
            let got = proto::Got { stat: Some(stat.clone().into()), with_content: content.is_some() };
            let Some(content) = content else { return reply.send(Response::Got(got)) };
            match content.crc32c {
                Some(checksum) => reply.send_checked(Response::Got(got), content.bytes, checksum),
                None => reply.send_slice(Response::Got(got), content.bytes),
            }
        };
        let found = convert::oid(get.oid, "object").and_then(|oid| match get.snapshot {
            0 => self.store.get_with(oid, max, show),
            id => self.get_at(id, oid, max, show),
        });
        match (found, reply) {
            (Err(error), Some(reply)) => reply.fail(&error),
            (_, Some(reply)) => reply.send(Response::Got(proto::Got { stat: None, with_content: false })),
            (_, None) => {}
        }
    }

    fn get_at(
        &self,
        id: u64,
        oid: Oid,
        max: usize,
        mut show: impl FnMut(&Stat, Option<store::ContentRef<'_>>),
    ) -> Result<bool> {
        let found = self.session.snapshot(id)?.get(oid, max)?;
        if let Some((stat, content)) = &found {
            show(stat, content.as_deref().map(|bytes| store::ContentRef { bytes, crc32c: None }));
        }
        Ok(found.is_some())
    }

    /// The newest durable state of an object of a cluster, on the same way.
    fn look(&self, look: proto::ReadObject, reply: Responder<'_>) {
        let oid = match convert::oid(look.oid, "object") {
            Ok(oid) => oid,
            Err(error) => return reply.fail(&error),
        };
        let mut reply = Some(reply);
        let show = |stored: Option<StoredObject<'_>>| {
            let Some(reply) = reply.take() else { return };
            match stored {
                Some(StoredObject { code, checksum, bytes, .. }) => {
                    let response = Response::ObjectRead(object_read_to_proto(Some((code, bytes.len()))));
                    reply.send_checked(response, bytes, checksum);
                }
                None => reply.send(Response::ObjectRead(object_read_to_proto(None))),
            }
        };
        let shown = self.thread.server.role.nodes().and_then(|nodes| nodes.read_latest(oid, show));
        match (shown, reply) {
            (Ok(None), Some(reply)) => self.look_settled(oid, reply),
            (Err(error), Some(reply)) => reply.fail(&error),
            _ => {}
        }
    }

    /// Sends an object when no transaction of which the client may have heard has yet to change it.
    fn look_settled(&self, oid: Oid, reply: Responder<'_>) {
        let Some((oid, nodes, deferred)) = self.asked(Ok(oid), reply) else { return };
        let show = |stored: Option<StoredObject<'_>>| {
            let found = stored.as_ref().map(|stored| (stored.code, stored.bytes.len()));
            let raw = stored.map(|stored| vec![Bytes::copy_from_slice(stored.bytes)]).unwrap_or_default();
            (Response::ObjectRead(object_read_to_proto(found)), raw)
        };
        tokio::spawn(async move {
            loop {
                match nodes.wait_settled(oid).await.and_then(|()| nodes.read_latest(oid, show)) {
                    Ok(Some((response, raw))) => return deferred.send(response, raw),
                    // Another transaction has come in between.
                    Ok(None) => {}
                    Err(error) => return deferred.fail(&error),
                }
            }
        });
    }

    /// What the logical nodes of this brick are asked, and the answer to come; refused, if they cannot be.
    fn asked<T>(&self, wanted: Result<T>, reply: Responder<'_>) -> Option<(T, Arc<Nodes>, DeferredResponder)> {
        match wanted.and_then(|wanted| Ok((wanted, self.thread.server.role.nodes()?.clone()))) {
            Ok((wanted, nodes)) => Some((wanted, nodes, reply.defer())),
            Err(error) => {
                reply.fail(&error);
                None
            }
        }
    }

    /// Gives page numbers that nobody else gets.
    fn reserve(&self, reserve: proto::Reserve, reply: Responder<'_>) {
        let Some((asked, nodes, deferred)) = self.asked(Reserve::try_from(reserve), reply) else { return };
        let Reserve { space, node, pages } = asked;
        nodes.reserve(node, space, u64::from(pages), move |reserved| {
            deferred.answer(reserved.map(|first| Response::Reserved(proto::Reserved { first })));
        });
    }

    /// Reads a range of the bytes of a blob.
    fn read_content(&self, wanted: proto::contents::Read, reply: Responder<'_>) {
        let Some((read, nodes, deferred)) = self.asked(ReadContent::try_from(wanted), reply) else { return };
        if !nodes.is_unsettled(read.oid) {
            return blocking::run(move || send_range(&nodes, &read, deferred));
        }
        tokio::spawn(async move {
            match nodes.wait_settled(read.oid).await {
                Ok(()) => blocking::run(move || send_range(&nodes, &read, deferred)),
                Err(error) => deferred.fail(&error),
            }
        });
    }

    /// Begins an upload of a content.
    fn begin_content(&self, begin: &proto::contents::Begin, reply: Responder<'_>) {
        let begun =
            upload_place(begin).and_then(|(space, node)| self.thread.server.role.nodes()?.begin_upload(space, node));
        match begun {
            Ok(id) => reply.send(Response::ContentBegun(proto::contents::Begun { content: Some(id.into()) })),
            Err(error) => reply.fail(&error),
        }
    }

    /// Adds bytes to an upload, and ends it with the last ones.
    fn write_content(&self, write: proto::contents::Write, raw: &Raw<'_>, reply: Responder<'_>) {
        let Some((id, nodes, deferred)) = self.asked(content_id(write.content), reply) else { return };
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

    /// Looks through objects of a cluster.
    fn scan(&self, wanted: proto::cluster::Scan, reply: Responder<'_>) {
        let Some((scan, nodes, deferred)) = self.asked(Scan::from_proto(wanted), reply) else { return };
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
        let Some((wanted, nodes, deferred)) = self.asked(LookUp::from_proto(wanted), reply) else { return };
        tokio::spawn(async move {
            deferred.answer(nodes.look_up(wanted).await.map(|found| Response::LookedUp(found.into_proto())));
        });
    }

    /// Lists entries of a collection.
    fn list_entries(&self, wanted: proto::entries::ListEntries, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.asked(ListEntries::from_proto(wanted), reply) else { return };
        let with_kinds = wanted.kinds;
        tokio::spawn(async move {
            match nodes.list_entries(wanted).await {
                Ok(found) => {
                    let (list, raw) = found.into_proto(with_kinds);
                    deferred.send(Response::EntryList(list), vec![raw]);
                }
                Err(error) => deferred.fail(&error),
            }
        });
    }

    /// Lists the objects of a logical node.
    fn list_node_objects(&self, wanted: proto::entries::ListNodeObjects, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.asked(ListNodeObjects::from_proto(wanted), reply) else { return };
        blocking::run(move || {
            deferred.answer(nodes.list_objects(&wanted).map(|found| Response::NodeObjects(found.into_proto())));
        });
    }

    /// Lists the entries that have a target.
    fn list_entries_of(&self, wanted: proto::entries::ListEntriesOf, reply: Responder<'_>) {
        let Some((wanted, nodes, deferred)) = self.asked(ListEntriesOf::from_proto(wanted), reply) else { return };
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
        let Some((wanted, nodes, deferred)) = self.asked(BuildIndex::try_from(wanted), reply) else { return };
        tokio::spawn(async move {
            deferred.answer(nodes.build_index(wanted).await.map(|progress| match progress {
                None => done(),
                Some((done, total)) => Response::Progress(proto::Progress { done, total }),
            }));
        });
    }

    /// Hands over rows of a logical node that moves.
    fn copy_rows(&self, wanted: proto::moves::CopyRows, reply: Responder<'_>) {
        let Some((copy, nodes, deferred)) = self.asked(CopyRows::try_from(wanted), reply) else { return };
        blocking::run(move || match nodes.copy_rows(&copy) {
            Ok(copied) => {
                let (copied, raw) = copied.into_proto();
                deferred.send(Response::CopiedRows(copied), raw);
            }
            Err(error) => deferred.fail(&error),
        });
    }

    fn read(&self, read: proto::Read, reply: Responder<'_>) {
        match self.try_read(&read) {
            Ok(Content::Bytes(bytes)) => self.send(content(), &bytes, reply),
            Ok(Content::Pieces(pieces)) => {
                let parts: Vec<Piece> = pieces.pieces.iter().map(piece).collect();
                if is_resident(&parts) {
                    return reply.send_pieces(content(), parts, Arc::new(pieces));
                }
                let deferred = reply.defer();
                blocking::run(move || {
                    make_resident(&parts);
                    deferred.send_pieces(content(), parts, Arc::new(pieces));
                });
            }
            Err(error) => reply.fail(&error),
        }
    }

    fn try_read(&self, read: &proto::Read) -> Result<Content> {
        let oid = convert::oid(read.oid, "object")?;
        if read.length > MAX_READ {
            let what = format!("a read of {} bytes at once; the limit is {MAX_READ}: read in pieces", read.length);
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let (offset, len) = (read.offset, u64::from(read.length));
        let view = self.view(read.snapshot)?;
        if read.length <= AT_ONCE {
            return on!(&view, state => state.read(oid, offset, len)).map(Content::Bytes);
        }
        on!(&view, state => state.pieces(oid, offset, len)).map(Content::Pieces)
    }

    fn commit(&mut self, commit: proto::Commit, raw: &Raw<'_>, reply: Responder<'_>) {
        let transaction = match convert::transaction_from_proto(commit, raw) {
            Ok(transaction) => transaction,
            Err(error) => return reply.fail(&error),
        };
        let uploads = uploads_of(&transaction);
        if let Some(error) = uploads.iter().find_map(|id| self.session.check_upload(*id).err()) {
            return reply.fail(&error);
        }
        if self.in_memory && uploads.is_empty() {
            let (took, result) = self.timing.of(|| commit_in_memory(&self.store, transaction));
            self.thread.counters.record_commit(took, &result);
            let (response, raw) = decided(result);
            return reply.send_slice(response, &raw);
        }
        let (thread, session) = (self.thread.clone(), self.session.clone());
        let (deferred, begun) = (reply.defer(), Instant::now());
        let done = move |result: Result<Outcome>| {
            if matches!(result, Ok(Outcome::Committed(_))) {
                uploads.iter().for_each(|id| session.forget_upload(*id));
            }
            thread.local.push(Completion { deferred, result, begun });
        };
        if raw.len() < STAGED {
            self.store.submit(transaction, done);
        } else {
            let store = self.store.clone();
            blocking::run(move || store.submit(transaction, done));
        }
    }

    fn upload(&self, upload: &proto::Upload, raw: &Raw<'_>, reply: Responder<'_>) {
        let id = UploadId(upload.upload);
        if self.session.add_piece(id, raw.to_bytes(), reply.defer()) {
            let session = self.session.clone();
            blocking::run(move || session.write_pieces(id));
        }
    }

    /// Short listings at once, long ones elsewhere: they look at as many rows as they have entries.
    fn list(&self, request: Request, reply: Responder<'_>) {
        let listing = Listing::asked_by(request).and_then(|(snapshot, listing)| Ok((self.view(snapshot)?, listing)));
        match listing {
            Ok((view, listing)) if listing.is_short() => match listing.read(&view) {
                Ok((response, raw)) => self.send(response, &raw, reply),
                Err(error) => reply.fail(&error),
            },
            Ok((view, listing)) => blocking::answer(reply, move || listing.read(&view)),
            Err(error) => reply.fail(&error),
        }
    }

    fn quick(&self, request: Request) -> Result<(Response, Bytes)> {
        let response = match request {
            Request::Ping(_) => done(),
            Request::GetStat(get) => {
                let oid = convert::oid(get.oid, "object")?;
                let stat = on!(&self.view(get.snapshot)?, state => state.stat(oid))?;
                Response::Stated(proto::Stated { stat: stat.map(Into::into) })
            }
            Request::GetAttribute(get) => {
                let oid = convert::oid(get.oid, "object")?;
                let value = on!(&self.view(get.snapshot)?, state => state.attribute(oid, &get.key))?;
                let found = proto::AttributeValue { found: value.is_some() };
                return Ok((Response::AttributeValue(found), value.unwrap_or_default()));
            }
            Request::Contains(contains) => {
                let collection = convert::oid(contains.collection, "collection")?;
                let member = convert::oid(contains.member, "member")?;
                let found = on!(&self.view(contains.snapshot)?, state => state.contains(collection, member))?;
                Response::Contained(proto::Contained { found })
            }
            Request::Resolve(resolve) => {
                let name = convert::name(resolve.name)?;
                let oid = on!(&self.view(resolve.snapshot)?, state => state.resolve(&name))?;
                Response::Resolved(proto::Resolved { oid: oid.map(Into::into) })
            }
            Request::OpenSnapshot(_) => {
                let snapshot = self.session.hold(self.store.snapshot()?, self.config.max_snapshots)?;
                Response::SnapshotOpened(proto::SnapshotOpened { snapshot })
            }
            Request::BeginUpload(_) => {
                Response::UploadBegun(proto::UploadBegun { upload: self.session.begin_upload()?.0 })
            }
            Request::ListSpaces(_) => {
                let entries = self.store.spaces()?.into_iter();
                let entries = entries
                    .map(|(space, name)| proto::Space { space: u32::from(space.0), name, policy: None })
                    .collect();
                Response::Spaces(proto::Spaces { entries })
            }
            Request::GetStatus(_) => Response::Status(self.thread.server.status()),
            Request::GetMoveIns(get) => {
                let nodes = get.nodes.into_iter().map(wire::cluster::node).collect::<Result<Vec<_>>>()?;
                Response::MoveIns(self.thread.server.role.nodes()?.move_ins(&nodes)?)
            }
            _ => return Err(self.not_here()),
        };
        Ok((response, Bytes::new()))
    }
}

/// Whether a request is about the objects of a store of its own. The objects of a cluster are elsewhere in a brick's store.
fn is_of_one_store(request: &Request) -> bool {
    use Request::{
        BeginUpload, Commit, Contains, CreateSpace, Get, GetAttribute, GetStat, ListAttributes, ListCollectionsOf,
        ListMembers, ListNames, ListNamesOf, ListObjects, ListSpaces, OpenSnapshot, Read, Resolve, Upload,
    };
    matches!(
        request,
        Commit(_)
            | Get(_)
            | Read(_)
            | GetStat(_)
            | GetAttribute(_)
            | Contains(_)
            | Resolve(_)
            | ListAttributes(_)
            | ListMembers(_)
            | ListNames(_)
            | ListNamesOf(_)
            | ListCollectionsOf(_)
            | ListObjects(_)
            | ListSpaces(_)
            | CreateSpace(_)
            | OpenSnapshot(_)
            | BeginUpload(_)
            | Upload(_)
    )
}

impl BrickConnection {
    /// What was asked is for another kind of server.
    fn not_here(&self) -> Error {
        let what = match self.thread.server.role.nodes() {
            Ok(_) => "this is a brick, which keeps objects of a cluster: clients connect to a peer server",
            Err(_) => "this is a store of its own, and this is for clusters: connect to a peer server of one",
        };
        Error::new(ErrorKind::Unsupported, what)
    }
}

enum Content {
    Bytes(Bytes),
    Pieces(store::Pieces),
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

fn uploads_of(transaction: &Transaction) -> Vec<UploadId> {
    let used = transaction.ops.iter().filter_map(|op| match op {
        Op::PutUpload { upload, .. } => Some(*upload),
        _ => None,
    });
    used.collect()
}

thread_local! {
    static DECIDED: Cell<Option<Result<Outcome>>> = const { Cell::new(None) };
}

/// Commits to a store in memory, which calls back before `submit` returns: so the outcome can wait where it takes no
/// allocation and no lock.
fn commit_in_memory(store: &Store, transaction: Transaction) -> Result<Outcome> {
    store.submit(transaction, |result| DECIDED.set(Some(result)));
    let silent = || Err(Error::new(ErrorKind::Internal, "the store in memory did not decide at once"));
    DECIDED.take().unwrap_or_else(silent)
}

pub(crate) fn decided(result: Result<Outcome>) -> (Response, Bytes) {
    match result {
        Ok(outcome) => {
            let (decided, raw) = convert::outcome_to_proto(outcome);
            (Response::Decided(decided), raw)
        }
        Err(error) => (Response::Error((&error).into()), Bytes::new()),
    }
}

pub(crate) fn done() -> Response {
    Response::Done(proto::Done {})
}

fn content() -> Response {
    Response::Content(proto::Content {})
}
