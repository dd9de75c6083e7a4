//! Answers the requests of one connection to a meta-server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use meta::{Key, Prefix, Revision, SessionId, Watch, Watched, meta_store};
use model::{Error, ErrorKind, Result};
use tokio::task::JoinSet;
use tokio::time;
use wire::cluster::policy_to_proto;
use wire::frame::Raw;
use wire::link::{Deferred, Incoming, Reply, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::once::{self, Begun};
use super::{Role, codec};
use crate::doors::{Who, administer, set_space, space_options};
use crate::realm;
use crate::server::{Thread, kind, later};

/// How often a watch that has nothing to say says that it is there.
pub(super) const SIGN: Duration = Duration::from_secs(5);

/// The requests of one connection.
pub(crate) struct Desk {
    thread: Arc<Thread<Role>>,
    /// A process of the cluster, an administrator, or anybody while the doors are open.
    who: Who,
    /// Watches, which end with the connection.
    watches: JoinSet<()>,
}

impl Desk {
    pub(super) fn new(thread: Arc<Thread<Role>>, who: Who) -> Self {
        Self { thread, who, watches: JoinSet::new() }
    }

    fn role(&self) -> &Role {
        &self.thread.server.role
    }

    fn state(&self, reply: Reply<'_>, asked: Result<Asked>) {
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return reply.fail(&error),
        };
        let (store, deferred) = (self.role().store.clone(), reply.defer());
        tokio::spawn(async move {
            let state = match asked {
                Asked::Prefix(prefix) => store.read(prefix).await,
                Asked::Keys(keys) => store.get(keys).await,
            };
            match state {
                Ok(state) => answer_all(deferred, codec::state_to_proto(state)),
                Err(error) => deferred.fail(&error),
            }
        });
    }

    fn write(&self, write: proto::meta::Write, raw: Raw<'_>, reply: Reply<'_>) {
        let checked = || {
            let writer: [u8; 16] =
                write.writer.as_ref().try_into().map_err(|_| {
                    Error::new(ErrorKind::Invalid, "who writes to the catalogue has a number of 16 bytes")
                })?;
            let (expects, changes) = (codec::expects(write.expects)?, codec::changes(write.changes, raw)?);
            meta_store::check_write(&expects, &changes)?;
            Ok((writer, expects, changes))
        };
        let (writer, expects, changes) = match checked() {
            Ok(checked) => checked,
            Err(error) => return reply.fail(&error),
        };
        let written = |written| Response::MetaWritten(codec::written_to_proto(written));
        match self.role().once.begin(writer, write.number, write.again) {
            Begun::First(done) => {
                let store = self.role().store.clone();
                later(reply, async move {
                    let ended = once::ended(store.write(expects, changes).await);
                    let known = done.subscribe();
                    done.send_replace(Some(ended));
                    once::wait(known).await.map(written)
                });
            }
            Begun::Known(known) => later(reply, async move { once::wait(known).await.map(written) }),
            Begun::Forgotten => reply.fail(&once::unknown()),
        }
    }

    fn watch(&mut self, watch: proto::meta::Watch, reply: Reply<'_>) {
        let prefix = match Prefix::new(watch.prefix) {
            Ok(prefix) => prefix,
            Err(error) => return reply.fail(&error),
        };
        let (store, deferred) = (self.role().store.clone(), reply.defer());
        // Those that have ended.
        while self.watches.try_join_next().is_some() {}
        self.watches.spawn(async move {
            let deferred = Arc::new(deferred);
            let watched = match store.watch(prefix, Revision(watch.after)).await {
                Ok(watch) => run_watch(watch, &deferred).await,
                Err(error) => Err(error),
            };
            if let Some(deferred) = Arc::into_inner(deferred) {
                deferred.answer(watched.map(|()| Response::MetaCompacted(proto::meta::Compacted {})));
            }
        });
    }

    fn space(&self, request: Request, reply: Reply<'_>) {
        match request {
            Request::CreateSpace(create) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                later(reply, async move {
                    let (name, options) = space_options(create)?;
                    let made = editor.create_space(&name, options).await?;
                    follower.reach(made.revision).await?;
                    Ok(Response::SpaceCreated(proto::SpaceCreated { space: made.value.id.0.into() }))
                });
            }
            Request::SetSpace(set) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                let who = self.who.clone();
                later(reply, async move {
                    let changed = set_space(&editor, &follower.catalog(), &who, set).await?;
                    follower.reach(changed).await?;
                    Ok(Response::Done(proto::Done {}))
                });
            }
            _ => {
                let catalog = self.role().follower.catalog();
                let spaces = catalog.spaces();
                let entries = spaces.map(|space| proto::Space {
                    space: space.id.0.into(),
                    name: space.name.clone(),
                    policy: Some(policy_to_proto(space.policy) as i32),
                });
                reply.send(Response::Spaces(proto::Spaces { entries: entries.collect() }));
            }
        }
    }
}

enum Asked {
    Prefix(Prefix),
    Keys(Vec<Key>),
}

impl Service for Desk {
    fn request(&mut self, incoming: Incoming<'_>, reply: Reply<'_>) {
        let Incoming { request, raw } = incoming;
        self.thread.metrics.requests.0[kind(&request)].add(1);
        self.thread.metrics.received.add(raw.len() as u64);
        let store = self.role().store.clone();
        match request {
            Request::MetaGreet(_) => {
                reply.send(Response::MetaGreeted(proto::meta::Greeted { run: self.role().once.run }));
            }
            Request::MetaRead(read) => self.state(reply, Prefix::new(read.prefix).map(Asked::Prefix)),
            Request::MetaGet(get) => {
                let keys: Result<Vec<Key>> = get.keys.into_iter().map(Key::new).collect();
                let keys = keys.and_then(|keys| meta_store::check_get(&keys).map(|()| keys));
                self.state(reply, keys.map(Asked::Keys));
            }
            Request::MetaWrite(write) => self.write(write, raw, reply),
            Request::MetaWatch(watch) => self.watch(watch, reply),
            Request::MetaOpenSession(open) => later(reply, async move {
                let session = store.open_session(Duration::from_millis(open.ttl_ms)).await?;
                Ok(Response::MetaSession(codec::session_to_proto(session)))
            }),
            Request::MetaKeep(keep) => later(reply, async move {
                store.keep(SessionId(keep.session)).await?;
                Ok(Response::Done(proto::Done {}))
            }),
            Request::MetaEndSession(end) => later(reply, async move {
                store.end_session(SessionId(end.session)).await?;
                Ok(Response::Done(proto::Done {}))
            }),
            Request::CreateSpace(_) | Request::SetSpace(_) | Request::ListSpaces(_) => self.space(request, reply),
            Request::Describe(describe) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                later(reply, async move {
                    let proto::query::Describe { space, request } = describe;
                    realm::describe(&editor, &follower, &space, &request, Ok(())).await.map(Response::Described)
                });
            }
            Request::Move(wanted) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                later(reply, async move {
                    let answer = realm::moves::answer(&editor, &follower, &wanted).await?;
                    realm::moves::encode(&answer).map(Response::Moved)
                });
            }
            Request::AskMembers(asked) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                later(
                    reply,
                    async move { realm::members::answer(&editor, &follower, &asked).await.map(Response::Members) },
                );
            }
            Request::Administer(wanted) => {
                let (editor, follower) = (self.role().editor.clone(), self.role().follower.clone());
                let who = self.who.clone();
                later(reply, async move {
                    let catalog = follower.catalog();
                    let (accounts, revision) = administer(&editor, &catalog, &who, wanted).await?;
                    follower.reach(revision).await?;
                    Ok(Response::Accounts(accounts))
                });
            }
            Request::Ping(_) => reply.send(Response::Done(proto::Done {})),
            Request::GetStatus(_) => reply.send(Response::Status(self.thread.server.status())),
            _ => {
                let what = "this is a meta-server: it knows the cluster, and has no objects; connect to a peer server";
                reply.fail(&Error::new(ErrorKind::Unsupported, what));
            }
        }
    }

    fn sent(&mut self, bytes: u64) {
        self.thread.metrics.sent.add(bytes);
    }
}

/// Tells all that a watch sees; ends well when it sees no more.
async fn run_watch(mut watch: Box<dyn Watch>, deferred: &Arc<Deferred>) -> Result<()> {
    loop {
        let answers = match time::timeout(SIGN, watch.next()).await {
            Ok(Ok(Watched::Changed(batch))) => codec::batch_to_proto(batch),
            Ok(Ok(Watched::Compacted)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => vec![(Response::MetaBatch(proto::meta::Batch::default()), Vec::new())],
        };
        for (response, raw) in answers {
            // It waits for a reader that is behind, which must not keep others waiting.
            let deferred = deferred.clone();
            let told = tokio::task::spawn_blocking(move || deferred.more(response, raw)).await;
            if !told.unwrap_or(false) {
                return Err(Error::new(ErrorKind::Unavailable, "nobody watches any more"));
            }
        }
    }
}

/// Answers with several messages.
fn answer_all(deferred: Deferred, mut answers: Vec<(Response, Vec<Bytes>)>) {
    let Some((last, last_raw)) = answers.pop() else { return };
    if answers.is_empty() {
        return deferred.send(last, last_raw);
    }
    tokio::task::spawn_blocking(move || {
        for (response, raw) in answers {
            if !deferred.more(response, raw) {
                return;
            }
        }
        deferred.send(last, last_raw);
    });
}
