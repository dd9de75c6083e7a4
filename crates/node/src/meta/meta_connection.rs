//! Answers the requests of one connection to a meta-server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta::{Key, MetaSessionId, MetaStore, Prefix, Revision, Watch, WatchEvent, meta_store};
use model::{Error, ErrorKind, Result};
use tokio::task::JoinSet;
use tokio::time;
use wire::frame::Raw;
use wire::link::{DeferredResponder, Incoming, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::write_deduplicator::{self, WriteStatus};
use super::{MetaRole, codec};
use crate::auth::{Principal, administer, remove_space, set_space, space_options, space_to_proto};
use crate::catalog_messages::{job_answer_to_proto, move_answer_to_proto};
use crate::cluster_view;
use crate::server::{Kind, Thread, spawn_reply};

/// The interval in which a watch without changes sends a keep-alive.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Handles the requests of one connection.
pub(crate) struct MetaConnection {
    thread: Arc<Thread<MetaRole>>,
    /// A process of the cluster, an administrator, or an anonymous caller while there are no users.
    principal: Principal,
    /// Watches, which end with the connection.
    watches: JoinSet<()>,
}

impl MetaConnection {
    pub(super) fn new(thread: Arc<Thread<MetaRole>>, who: Principal) -> Self {
        Self { thread, principal: who, watches: JoinSet::new() }
    }

    fn role(&self) -> &MetaRole {
        &self.thread.server.role
    }

    fn handle_read(&self, reply: Responder<'_>, asked: Result<ReadRequest>) {
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return reply.fail(&error),
        };
        let (store, deferred) = (self.role().store.clone(), reply.defer());
        tasks::spawn(async move {
            let state = match asked {
                ReadRequest::Prefix(prefix) => store.read(prefix).await,
                ReadRequest::Keys(keys) => store.get(keys).await,
            };
            match state {
                Ok(state) => answer_all(deferred, codec::state_to_proto(state)),
                Err(error) => deferred.fail(&error),
            }
        });
    }

    fn handle_write(&self, write: proto::meta::Write, raw: Raw<'_>, reply: Responder<'_>) {
        let checked = || {
            let writer: [u8; 16] = write
                .writer
                .as_ref()
                .try_into()
                .map_err(|_| Error::new(ErrorKind::Invalid, "the number of a writer has 16 bytes"))?;
            let (expects, changes) = (codec::expects(write.expects)?, codec::changes(write.changes, raw)?);
            meta_store::check_write(&expects, &changes)?;
            Ok((writer, expects, changes))
        };
        let (writer, expects, changes) = match checked() {
            Ok(checked) => checked,
            Err(error) => return reply.fail(&error),
        };
        let written = |written| Response::MetaWritten(codec::write_outcome_to_proto(written));
        match self.role().deduplicator.begin(writer, write.number, write.again) {
            WriteStatus::First(done) => {
                let store = self.role().store.clone();
                spawn_reply(reply, async move {
                    let ended = write_deduplicator::write_outcome(store.write(expects, changes).await);
                    let known = done.subscribe();
                    done.send_replace(Some(ended));
                    write_deduplicator::wait_for_outcome(known).await.map(written)
                });
            }
            WriteStatus::Known(known) => {
                spawn_reply(reply, async move { write_deduplicator::wait_for_outcome(known).await.map(written) })
            }
            WriteStatus::Forgotten => reply.fail(&write_deduplicator::unknown_outcome_error()),
        }
    }

    fn handle_watch(&mut self, watch: proto::meta::Watch, reply: Responder<'_>) {
        let prefix = match Prefix::new(watch.prefix) {
            Ok(prefix) => prefix,
            Err(error) => return reply.fail(&error),
        };
        let (store, deferred) = (self.role().store.clone(), reply.defer());
        // Forget watches that have ended.
        while self.watches.try_join_next().is_some() {}
        tasks::spawn_in(&mut self.watches, async move {
            let deferred = Arc::new(deferred);
            let watched = watch_from(&*store, prefix, Revision(watch.after), &deferred).await;
            if let Some(deferred) = Arc::into_inner(deferred) {
                deferred.answer(watched.map(|()| Response::MetaCompacted(proto::meta::Compacted {})));
            }
        });
    }

    fn create_space(&self, create: proto::CreateSpace, reply: Responder<'_>) {
        let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
        spawn_reply(reply, async move {
            let (name, options) = space_options(create)?;
            let made = editor.create_space(&name, options).await?;
            follower.wait_for_revision(made.revision).await?;
            Ok(Response::SpaceCreated(proto::SpaceCreated { space: made.value.id.0.into() }))
        });
    }

    fn remove_space(&self, remove: proto::RemoveSpace, reply: Responder<'_>) {
        let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
        let who = self.principal.clone();
        spawn_reply(reply, async move {
            let removed = remove_space(&editor, &follower.catalog(), &who, remove).await?;
            follower.wait_for_revision(removed).await?;
            Ok(Response::Done(proto::Done {}))
        });
    }

    fn set_space(&self, set: proto::SetSpace, reply: Responder<'_>) {
        let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
        let who = self.principal.clone();
        spawn_reply(reply, async move {
            let changed = set_space(&editor, &follower.catalog(), &who, set).await?;
            follower.wait_for_revision(changed).await?;
            Ok(Response::Done(proto::Done {}))
        });
    }

    fn list_spaces(&self) -> Response {
        let catalog = self.role().follower.catalog();
        let entries = catalog.spaces().map(|space| space_to_proto(space));
        Response::Spaces(proto::Spaces { entries: entries.collect() })
    }
}

/// Runs a watch; returns when it is to be begun again after a read. That is so at once if the catalogue has not reached the revision
/// after which the watcher asks: the read shows the watcher that the catalogue went back.
async fn watch_from(
    store: &dyn MetaStore,
    prefix: Prefix,
    after: Revision,
    deferred: &Arc<DeferredResponder>,
) -> Result<()> {
    match store.get(Vec::new()).await?.revision < after {
        true => Ok(()),
        false => {
            let send = |answers| send_all(deferred.clone(), answers);
            run_watch(store.watch(prefix, after).await?, send).await
        }
    }
}

enum ReadRequest {
    Prefix(Prefix),
    Keys(Vec<Key>),
}

impl Service for MetaConnection {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        self.thread.counters.count(Kind::of_request(&request));
        self.thread.counters.received.add(raw.len() as u64);
        let store = self.role().store.clone();
        match request {
            Request::MetaGetRun(_) => {
                reply.send(Response::MetaRun(proto::meta::Run { run: self.role().deduplicator.run }));
            }
            Request::MetaRead(read) => self.handle_read(reply, Prefix::new(read.prefix).map(ReadRequest::Prefix)),
            Request::MetaGet(get) => {
                let keys: Result<Vec<Key>> = get.keys.into_iter().map(Key::new).collect();
                let keys = keys.and_then(|keys| meta_store::check_get(&keys).map(|()| keys));
                self.handle_read(reply, keys.map(ReadRequest::Keys));
            }
            Request::MetaWrite(write) => self.handle_write(write, raw, reply),
            Request::MetaWatch(watch) => self.handle_watch(watch, reply),
            Request::MetaOpenSession(open) => spawn_reply(reply, async move {
                let session = store.open_session(Duration::from_millis(open.ttl_ms)).await?;
                Ok(Response::MetaSession(codec::session_to_proto(session)))
            }),
            Request::MetaKeepSession(keep) => spawn_reply(reply, async move {
                store.renew_session(MetaSessionId(keep.session)).await?;
                Ok(Response::Done(proto::Done {}))
            }),
            Request::MetaEndSession(end) => spawn_reply(reply, async move {
                store.end_session(MetaSessionId(end.session)).await?;
                Ok(Response::Done(proto::Done {}))
            }),
            Request::MetaCompareClocks(report) => {
                let answer = self.role().clock.handle_report(report);
                match answer {
                    Ok(clocks) => reply.send(Response::MetaClocks(clocks)),
                    Err(error) => reply.fail(&error),
                }
            }
            Request::CreateSpace(create) => self.create_space(create, reply),
            Request::SetSpace(set) => self.set_space(set, reply),
            Request::RemoveSpace(remove) => self.remove_space(remove, reply),
            Request::ListSpaces(_) => reply.send(self.list_spaces()),
            Request::Describe(describe) => {
                let follower = self.role().follower.clone();
                let editor = self.role().editor.with_caller(self.principal.user_name());
                spawn_reply(reply, async move {
                    let proto::schema::Describe { space, request } = *describe;
                    cluster_view::handle_schema_request(&editor, &follower, &space, request, Ok(()))
                        .await
                        .map(Response::Described)
                });
            }
            Request::Move(wanted) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                spawn_reply(reply, async move {
                    let answer = cluster_view::moves::handle_move_request(&editor, &follower, &wanted).await?;
                    Ok(Response::Moved(move_answer_to_proto(&answer)))
                });
            }
            Request::MemberRequest(asked) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                spawn_reply(reply, async move {
                    cluster_view::members::handle_member_request(&editor, &follower, &asked)
                        .await
                        .map(Response::MemberAnswer)
                });
            }
            Request::JobRequest(asked) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                let who = self.principal.clone();
                spawn_reply(reply, async move {
                    let answer = cluster_view::jobs::handle_job_request(&editor, &follower, &who, &asked).await?;
                    Ok(Response::JobAnswer(job_answer_to_proto(answer)))
                });
            }
            Request::Administer(wanted) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                let who = self.principal.clone();
                spawn_reply(reply, async move {
                    let catalog = follower.catalog();
                    let (accounts, revision) = administer(&editor, &catalog, &who, wanted).await?;
                    follower.wait_for_revision(revision).await?;
                    Ok(Response::Accounts(accounts))
                });
            }
            Request::Ping(_) => reply.send(Response::Done(proto::Done {})),
            Request::GetStatus(_) => reply.send(Response::Status(self.thread.server.status())),
            // Every kind is listed, so that a new request of the schema does not compile before it is handled.
            Request::Backup(_)
            | Request::Cut(_)
            | Request::ReleaseCut(_)
            | Request::BackupBase(_)
            | Request::Scrub(_)
            | Request::Up(_)
            | Request::Down(_)
            | Request::Call(_)
            | Request::Reply(_)
            | Request::Ask(_)
            | Request::Answer(_)
            | Request::NotServedHere(_)
            | Request::Deferred(_)
            | Request::Watch(_)
            | Request::SpaceStatus(_)
            | Request::Time(_)
            | Request::Reserve(_)
            | Request::ReturnPages(_)
            | Request::ReadObject(_)
            | Request::GetNumbers(_)
            | Request::GetSpace(_)
            | Request::Scan(_)
            | Request::LookUp(_)
            | Request::ListEntries(_)
            | Request::ListEntriesOf(_)
            | Request::ListNodeObjects(_)
            | Request::BuildIndex(_)
            | Request::AskWitness(_)
            | Request::Witnesses(_)
            | Request::BeginContent(_)
            | Request::WriteContent(_)
            | Request::AbortContent(_)
            | Request::ReadContent(_)
            | Request::Query(_)
            | Request::FetchRows(_)
            | Request::EndQuery(_)
            | Request::GetSchema(_)
            | Request::Define(_)
            | Request::CopyRows(_)
            | Request::CloneRows(_)
            | Request::GetMoveIns(_)
            | Request::GetNodeUsages(_)
            | Request::GetSpaceUsages(_)
            | Request::RegisterRedirector(_)
            | Request::GetGroups(_)
            | Request::CheckEmpty(_) => {
                let what = "this is a meta-server: it keeps the catalogue and no objects; connect to a peer server";
                reply.fail(&Error::new(ErrorKind::Unsupported, what));
            }
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }
}

/// Sends the changes of a watch, and keep-alives while there are none. Returns `Ok` if later changes are no longer known.
pub(super) async fn run_watch<Sent: Future<Output = Result<()>>>(
    mut watch: Box<dyn Watch>,
    send: impl Fn(Vec<(Response, Vec<Bytes>)>) -> Sent,
) -> Result<()> {
    loop {
        // Waits on over keep-alives: the watch has time limits of its own, which would begin again with each call.
        let mut next = watch.next();
        let event = loop {
            match time::timeout(KEEPALIVE_INTERVAL, &mut next).await {
                Ok(event) => break event?,
                Err(_) => send(vec![(Response::MetaBatch(proto::meta::Batch::default()), Vec::new())]).await?,
            }
        };
        match event {
            WatchEvent::Changed(batch) => send(codec::batch_to_proto(batch)).await?,
            WatchEvent::Compacted => return Ok(()),
        }
    }
}

/// Sends messages of a stream of answers.
async fn send_all(deferred: Arc<DeferredResponder>, answers: Vec<(Response, Vec<Bytes>)>) -> Result<()> {
    // Blocks while the reader is slow, so it runs on a blocking thread.
    let send = move || answers.into_iter().all(|(response, raw)| deferred.send_more(response, raw));
    match tasks::spawn_blocking(send).await {
        Ok(true) => Ok(()),
        _ => Err(Error::new(ErrorKind::Unavailable, "the connection of the watch has ended")),
    }
}

/// Answers with several messages.
fn answer_all(deferred: DeferredResponder, mut answers: Vec<(Response, Vec<Bytes>)>) {
    let Some((last, last_raw)) = answers.pop() else { return };
    if answers.is_empty() {
        return deferred.send(last, last_raw);
    }
    tasks::spawn_blocking(move || {
        for (response, raw) in answers {
            if !deferred.send_more(response, raw) {
                return;
            }
        }
        deferred.send(last, last_raw);
    });
}
