//! The connection of a client: to one peer server of its list, and to the next when that is lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::ident::{ClientId, HolderId};
use protocol::session::Session;
use tokio::time;
use tracing::{debug, info, warn};
use wire::cluster::{self, Message};
use wire::driving::{MonotonicClock, PeerHandle};
use wire::handshake::{self, Introduction};
use wire::link::{self, Caller, End, Incoming, Limits, Link, Mailbox, NoService, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream};

use super::ClusterOptions;
use super::core::{Core, PeerConnection};
use crate::Url;
use crate::link::credentials;

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How far the clocks of machines may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// Session numbers that a client has: bits below its own number.
const SESSION_BITS: u32 = 20;

/// The peer servers of a cluster, the space, and who connects.
struct Target {
    peers: Vec<Address>,
    space: String,
    user: Option<String>,
}

fn parse_target(url: &str) -> Result<Target> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (hosts, space) = rest.split_once('/').unwrap_or((rest, ""));
    if !matches!(scheme, "mortar" | "mortars") || !hosts.contains(',') {
        let Url { user, address, space } = url.parse()?;
        return Ok(Target { peers: vec![address], space, user });
    }
    let urls = hosts.split(',').map(|host| format!("{scheme}://{host}/{space}").parse::<Url>());
    let urls = urls.collect::<Result<Vec<_>>>()?;
    let space = urls.first().map(|url| url.space.clone()).unwrap_or_default();
    let user = urls.iter().find_map(|url| url.user.clone());
    Ok(Target { peers: urls.into_iter().map(|url| url.address).collect(), space, user })
}

/// Connects a new client.
pub(super) async fn connect(url: &str, options: ClusterOptions) -> Result<Arc<Core>> {
    let target = parse_target(url)?;
    let mut first_error = None;
    for (at, peer) in target.peers.iter().enumerate() {
        match fetch_setup(peer, &target, &options).await {
            Ok(beginning) => return Ok(start(target, at, beginning, options)),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "the address names no peer server")))
}

/// What a client needs to begin.
struct ClientSetup {
    space: SpaceId,
    nodes: Vec<NodeId>,
    number: u64,
}

/// Asks a peer server for what a client needs to begin, on a connection that ends then.
async fn fetch_setup(peer: &Address, target: &Target, options: &ClusterOptions) -> Result<ClientSetup> {
    let (stream, space, max_frame) = open_connection(peer, target, options).await?;
    let mailbox = Arc::new(Mailbox::default());
    let caller = Caller::new(mailbox.clone(), BUDGET);
    let link = Link::new(stream, NoService, Limits::default(), max_frame, mailbox);
    tokio::spawn(link::drive(link));
    let asked = time::timeout(options.connect_timeout, async {
        let numbers = caller.call(Request::GetNumbers(proto::GetNumbers { count: 1 }), Vec::new()).await?;
        let nodes = caller.call(Request::GetSpace(proto::GetSpace {}), Vec::new()).await?;
        Ok::<_, Error>((numbers.response, nodes.response))
    });
    let asked = asked.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "it does not answer")));
    let answers = asked.map_err(|error| match error.kind() {
        // A number that was lost on its way nobody misses: the client has not begun.
        ErrorKind::Unavailable | ErrorKind::Unknown => {
            Error::new(ErrorKind::Unavailable, format!("{peer} cannot take a client now")).caused_by(error)
        }
        _ => error,
    });
    let (Response::Numbers(numbers), Response::ConnectionSpace(of)) = answers? else {
        return Err(Error::new(ErrorKind::Internal, "the peer server has answered something else"));
    };
    caller.hang_up();
    let nodes = of.nodes.into_iter().map(cluster::node).collect::<Result<Vec<_>>>()?;
    Ok(ClientSetup { space, nodes, number: numbers.first })
}

fn start(target: Target, at: usize, beginning: ClientSetup, options: ClusterOptions) -> Arc<Core> {
    let ClientSetup { space, nodes, number } = beginning;
    let mut session = Session::new(ClientId(number), HolderId(number << SESSION_BITS), SKEW_MS);
    if options.snapshots {
        session.subscribe();
    }
    let core = Core::new(session, (space, nodes), MonotonicClock::begin(), options);
    tokio::spawn(Core::run_timers(Arc::downgrade(&core)));
    tokio::spawn(keep_connected(Arc::downgrade(&core), target, at));
    core
}

async fn open_connection(peer: &Address, target: &Target, options: &ClusterOptions) -> Result<(Stream, SpaceId, u32)> {
    let entering = async {
        let mut stream = Stream::dial(peer, options.tls.as_ref()).await?;
        let mut introduction = Introduction::new(&target.space, &options.agent);
        introduction.credentials = credentials(options.credentials.as_ref(), target.user.as_deref());
        introduction.insecure = options.insecure;
        let terms = handshake::introduce(&mut stream, &introduction).await?;
        Ok((stream, terms.space, terms.max_frame))
    };
    let patience = options.connect_timeout;
    time::timeout(patience, entering).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("{peer} does not answer within {patience:?}")))
    })
}

/// Keeps a client connected, as long as it lives.
async fn keep_connected(core: Weak<Core>, target: Target, mut at: usize) {
    let mut pause = FIRST_PAUSE;
    // Peer servers of this round that were tried in vain, and what the first said that does not let the client in.
    let (mut tried, mut denied) = (0, None);
    while let Some(client) = core.upgrade() {
        let peer = &target.peers[at % target.peers.len()];
        tried += 1;
        match open_connection(peer, &target, &client.options).await {
            Ok((_, space, _)) if space != client.space => {
                warn!(%peer, "this peer server is of another cluster: the space has another number");
            }
            Ok((stream, _, max_frame)) => {
                (pause, tried, denied) = (FIRST_PAUSE, 0, None);
                let mailbox = Arc::new(Mailbox::default());
                let post = PeerHandle::new(mailbox.clone());
                let caller = Caller::new(mailbox.clone(), BUDGET);
                let service = PeerService { core: core.clone(), handle: post.clone() };
                let link = Link::new(stream, service, Limits::default(), max_frame, mailbox);
                let up = PeerConnection { handle: post, caller, peer_address: Arc::from(peer.to_string()) };
                if client.work(|state, now| state.on_connected(up, now)).is_err() {
                    return;
                }
                drop(client);
                let end = link::drive(link).await;
                let Some(client) = core.upgrade() else { return };
                if client.work(|state, now| state.on_disconnected(&end.to_string(), now)).is_err() {
                    return;
                }
                match end {
                    End::Closed => debug!(%peer, "closed the connection"),
                    end => info!(%peer, %end, "the connection to a peer server ended"),
                }
            }
            Err(error) if error.kind() == ErrorKind::Denied => {
                warn!(%peer, %error, "a peer server does not let this client in");
                denied.get_or_insert(error);
            }
            Err(error) => debug!(%peer, %error, "a peer server cannot be reached"),
        }
        // Another one may: what is under way ends only when none of them does.
        if tried == target.peers.len() {
            tried = 0;
            if let Some(error) = denied.take() {
                let told = core.upgrade().map(|client| client.work(|state, _| state.set_refused(&error)));
                if !matches!(told, Some(Ok(()))) {
                    return;
                }
            }
        }
        at += 1;
        if at.is_multiple_of(target.peers.len()) {
            time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// What comes from the peer server.
struct PeerService {
    core: Weak<Core>,
    handle: PeerHandle,
}

impl Service for PeerService {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        let Some(core) = self.core.upgrade() else { return self.handle.hang_up() };
        let handled = Message::decode(request, raw)
            .and_then(|message| core.work(|state, now| state.handle_message(message, now)))
            .and_then(|handled| handled);
        if let Err(error) = handled {
            info!(%error, "the peer server breaks the protocol, or the client is closed");
            reply.refuse(&error);
        }
    }
}
