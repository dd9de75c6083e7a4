//! Connections to bricks: made again when they break.
//!
//! A brick that is killed closes its connection. One that hangs does not, so somebody looks ([`Uplinks::look`]): a brick that has
//! said nothing for a while is asked whether it is there, and is heard no more if it does not answer in time. It may be at
//! work again soon, so the connection stays for some seconds; then it is made anew, and what waited for answers is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time;
use tracing::{debug, info, warn};
use wire::cluster::Message;
use wire::handshake::Role;
use wire::link::{self, Answer, Caller, Deferred, Incoming, Limits, Link, Mailbox, Reply, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::transport::{Address, Stream};

use crate::doors::Membership;
use crate::placement::BrickId;
use wire::driving::Post;

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long one attempt to connect may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks in which a brick has said nothing, after which it is asked whether it is there. Leases make it say something more often
/// than not.
const QUIET: u32 = 4;
/// Looks after which a brick that was asked whether it is there, and has said nothing, is not heard any more.
const UNHEARD: u32 = 3;
/// Looks after which its connection is given up.
const GIVEN_UP: u32 = 15;

/// Whoever has connections to bricks.
pub(crate) trait Below: Send + Sync + 'static {
    /// There is a connection to a brick.
    fn connected(&self, brick: BrickId);

    /// A brick says something.
    ///
    /// # Errors
    /// If no brick says that: the connection ends.
    fn message(&self, brick: BrickId, message: Message) -> Result<()>;

    /// The connection to a brick is gone.
    fn disconnected(&self, brick: BrickId);
}

/// A connection that there is.
struct Up {
    post: Post,
    caller: Caller,
    mailbox: Arc<Mailbox>,
    /// Looks since it has said something.
    quiet: u32,
    /// Looks since it was asked whether it is there, if it has said nothing since.
    asked: Option<u32>,
}

impl Up {
    /// Somebody looks whether it has said something.
    fn look(&mut self) {
        if self.mailbox.take_heard() {
            (self.quiet, self.asked) = (0, None);
        } else {
            (self.quiet, self.asked) = (self.quiet.saturating_add(1), self.asked.map(|looks| looks.saturating_add(1)));
        }
    }

    /// Asks whether it is there.
    fn ask(&mut self) {
        self.asked = Some(0);
        // Any answer will do.
        self.caller.ask(Request::Ping(proto::Ping {}), drop);
    }

    fn is_given_up(&self) -> bool {
        self.asked.is_some_and(|looks| looks >= GIVEN_UP)
    }

    fn is_heard(&self) -> bool {
        self.mailbox.has_heard() || self.asked.is_none_or(|looks| looks < UNHEARD)
    }
}

struct Uplink {
    address: Address,
    task: AbortHandle,
    up: Option<Up>,
}

/// The connections to bricks.
pub(crate) struct Uplinks {
    membership: Membership,
    links: Mutex<BTreeMap<BrickId, Uplink>>,
}

impl Uplinks {
    /// Those of a process that is known so.
    pub(crate) fn new(membership: Membership) -> Arc<Self> {
        Arc::new(Self { membership, links: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BrickId, Uplink>> {
        // A map that is whole between any two statements: a panic elsewhere spoils nothing.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps connections to these bricks, and to no others. Called on the runtime that drives them.
    pub(crate) fn keep(self: &Arc<Self>, bricks: &BTreeMap<BrickId, Address>, below: &Arc<impl Below>) {
        let mut gone = Vec::new();
        self.lock().retain(|brick, link| {
            let same = bricks.get(brick) == Some(&link.address);
            if !same {
                link.task.abort();
                if let Some(up) = link.up.take() {
                    up.post.hang_up();
                }
                gone.push(*brick);
            }
            same
        });
        gone.into_iter().for_each(|brick| below.disconnected(brick));
        let mut links = self.lock();
        for (brick, address) in bricks {
            links.entry(*brick).or_insert_with(|| {
                let (uplinks, below) = (self.clone(), Arc::downgrade(below));
                let task = tokio::spawn(run(uplinks, *brick, address.clone(), below)).abort_handle();
                Uplink { address: address.clone(), task, up: None }
            });
        }
    }

    /// The way to a brick, if there is a connection.
    pub(crate) fn post(&self, brick: BrickId) -> Option<Post> {
        self.lock().get(&brick)?.up.as_ref().map(|up| up.post.clone())
    }

    /// Looks which bricks have said something: to be called once a second. Of those that have not, the quietest is asked whether it
    /// is there, so this says one small thing a second at most; so are those that somebody doubts.
    pub(crate) fn look(&self, doubted: &BTreeSet<BrickId>) {
        let mut links = self.lock();
        let mut quiet: Vec<(BrickId, &mut Up)> =
            links.iter_mut().filter_map(|(brick, link)| Some((*brick, link.up.as_mut()?))).collect();
        quiet.iter_mut().for_each(|(_, up)| up.look());
        quiet.iter().filter(|(_, up)| up.is_given_up()).for_each(|(_, up)| up.post.hang_up());
        quiet.retain(|(_, up)| up.quiet > 0 && up.asked.is_none());
        let quietest =
            quiet.iter().filter(|(_, up)| up.quiet >= QUIET).max_by_key(|(_, up)| up.quiet).map(|(brick, _)| *brick);
        for (brick, up) in quiet {
            if Some(brick) == quietest || doubted.contains(&brick) {
                up.ask();
            }
        }
    }

    /// Whether there is a connection to a brick, and it says something when it is asked to.
    pub(crate) fn hears(&self, brick: BrickId) -> bool {
        self.lock().get(&brick).and_then(|link| link.up.as_ref()).is_some_and(Up::is_heard)
    }

    /// Asks a brick something that it answers once; `then` takes the answer where it arrives.
    pub(crate) fn ask(&self, brick: BrickId, request: Request, then: impl FnOnce(Result<Answer>) + Send + 'static) {
        match self.caller(brick) {
            Ok(caller) => caller.ask(request, |answer| then(answer.and_then(Answer::check))),
            Err(error) => then(Err(error)),
        }
    }

    /// Passes a request on to a brick, and its answer back. Whoever has asked checks its bytes.
    pub(crate) fn pass_on(&self, brick: BrickId, request: Request, deferred: Deferred) {
        match self.caller(brick) {
            Ok(caller) => caller.pass_on(request, deferred),
            Err(error) => deferred.fail(&error),
        }
    }

    fn caller(&self, brick: BrickId) -> Result<Caller> {
        let links = self.lock();
        let link = links.get(&brick);
        if let Some(up) = link.and_then(|link| link.up.as_ref()) {
            return Ok(up.caller.clone());
        }
        let at = link.map(|link| format!(" ({})", link.address)).unwrap_or_default();
        let what = format!("brick {}{at} cannot be reached now: try again", brick.0);
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// Asks a brick something, and waits for its answer.
    ///
    /// # Errors
    /// What the brick answers; [`ErrorKind::Unavailable`] if it cannot be asked, and [`ErrorKind::Unknown`] if the connection ends
    /// before it has answered.
    pub(crate) async fn answer(&self, brick: BrickId, request: Request) -> Result<Answer> {
        let (tell, answer) = oneshot::channel();
        // Whoever waited may wait no more.
        self.ask(brick, request, |answer| drop(tell.send(answer)));
        let lost = |_| Error::new(ErrorKind::Unknown, format!("brick {} has not answered", brick.0));
        answer.await.map_err(lost)?
    }

    fn set(&self, brick: BrickId, up: Option<Up>) {
        if let Some(link) = self.lock().get_mut(&brick) {
            link.up = up;
        }
    }
}

/// Keeps one connection.
async fn run<B: Below>(uplinks: Arc<Uplinks>, brick: BrickId, address: Address, below: Weak<B>) {
    let (mut pause, mut told) = (FIRST_PAUSE, None);
    while let Some(user) = below.upgrade() {
        match time::timeout(PATIENCE, open(&uplinks, brick, &address)).await.unwrap_or_else(|_| Err(silent(&address))) {
            Ok((stream, max_frame)) => {
                told = None;
                pause = FIRST_PAUSE;
                let mailbox = Arc::new(Mailbox::default());
                let post = Post::new(mailbox.clone());
                let service = FromBrick { brick, below: below.clone(), post: post.clone() };
                let link = Link::new(stream, service, Limits::default(), max_frame, mailbox.clone());
                let caller = Caller::new(mailbox.clone(), BUDGET);
                uplinks.set(brick, Some(Up { post, caller, mailbox, quiet: 0, asked: None }));
                info!(brick = brick.0, %address, "connected to a brick");
                user.connected(brick);
                drop(user);
                let end = link::drive(link).await;
                info!(brick = brick.0, %address, %end, "the connection to a brick ended");
                uplinks.set(brick, None);
                if let Some(user) = below.upgrade() {
                    user.disconnected(brick);
                }
            }
            // That a brick is away passes; this somebody has to mend.
            Err(error) if error.kind() != ErrorKind::Unavailable => {
                let message = error.to_string();
                if told.as_ref() != Some(&message) {
                    warn!(brick = brick.0, %address, %error, "a brick cannot be reached until somebody mends it");
                    told = Some(message);
                }
            }
            Err(error) => debug!(brick = brick.0, %address, %error, "a brick cannot be reached"),
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects to a brick, if that is who answers: another one may have been started where it was.
async fn open(uplinks: &Uplinks, brick: BrickId, address: &Address) -> Result<(Stream, u32)> {
    let (stream, terms) = uplinks.membership.dial(address, Role::Peer).await?;
    match terms.brick {
        found if found == brick.0 => Ok((stream, terms.max_frame)),
        0 => Err(Error::new(ErrorKind::Invalid, format!("what answers at {address} is no brick of a cluster"))),
        other => {
            let what =
                format!("brick {other} answers at {address}, where brick {} was: start that with its data", brick.0);
            Err(Error::new(ErrorKind::Invalid, what))
        }
    }
}

fn silent(address: &Address) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{address} does not answer within {PATIENCE:?}"))
}

/// What comes from a brick.
struct FromBrick<B> {
    brick: BrickId,
    below: Weak<B>,
    post: Post,
}

impl<B: Below> Service for FromBrick<B> {
    fn request(&mut self, incoming: Incoming<'_>, reply: Reply<'_>) {
        let Incoming { request, raw } = incoming;
        let Some(below) = self.below.upgrade() else { return self.post.hang_up() };
        let handled = Message::decode(request, raw).and_then(|message| below.message(self.brick, message));
        if let Err(error) = handled {
            warn!(brick = self.brick.0, %error, "a brick breaks the protocol");
            reply.refuse(&error);
        }
    }
}
