//! The connection of a client: to one peer server of its URL, and to the next one when that is lost or hangs.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::ident::{ClientId, HolderId};
use protocol::session::Session;
use tokio::task::JoinSet;
use tokio::time;
use tracing::{debug, info, warn};
use wire::cluster::{self, Message};
use wire::driving::{MonotonicClock, PeerHandle};
use wire::handshake::Introduction;
use wire::link::{
    self, Caller, End, Incoming, Limits, Link, Mailbox, NoService, Responder, SILENCE_TIMEOUT, Service,
    wait_until_silent,
};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream};

use super::ConnectOptions;
use super::client_core::{Core, PeerConnection, unexpected_answer_error};
use super::driver::closed_error;
use crate::Url;
use crate::dial::{credentials, dial};

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
/// The pause after a round of attempts without success: it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long one attempt to connect is waited for before the next peer server is tried, too.
const HEDGE_DELAY: Duration = Duration::from_millis(300);
/// How long the end of a connection to a server that hangs may take.
const HANG_UP_TIMEOUT: Duration = Duration::from_millis(100);
/// How far the clocks of machines may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// Bits of a session number below the client's number.
const SESSION_BITS: u32 = 20;

/// The peer servers of a cluster, the space, and the user that connects.
pub(super) struct Target {
    pub(super) peers: Vec<Address>,
    pub(super) space: String,
    pub(super) user: Option<String>,
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
pub(super) async fn connect(url: &str, options: ConnectOptions) -> Result<Arc<Core>> {
    connect_to(parse_target(url)?, options).await
}

/// Connects a new client to one of these peer servers.
pub(super) async fn connect_to(target: Target, options: ConnectOptions) -> Result<Arc<Core>> {
    let (target, options) = (Arc::new(target), Arc::new(options));
    let attempt = |place: usize| {
        let (target, options) = (target.clone(), options.clone());
        async move { fetch_setup(&target.peers[place], &target, &options).await }
    };
    match first_success(target.peers.len(), 0, attempt).await {
        Ok((place, setup)) => Ok(start(target.clone(), place, setup, ConnectOptions::clone(&options))),
        Err(errors) => {
            let none = || Error::new(ErrorKind::Invalid, "no peer server is named");
            Err(errors.into_iter().next().map_or_else(none, |(_, error)| error))
        }
    }
}

/// Tries `count` peer servers in turn, beginning at `first`. The next attempt starts when one has failed, or has not succeeded for
/// [`HEDGE_DELAY`]; the first success ends the others. So a peer server that hangs delays its client only by that.
///
/// # Errors
/// The place of each peer server and why it failed, in the order of the failures.
async fn first_success<T, F>(
    count: usize,
    first: usize,
    attempt: impl Fn(usize) -> F,
) -> Result<(usize, T), Vec<(usize, Error)>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (mut attempts, mut errors) = (JoinSet::new(), Vec::new());
    let mut places = (first..first + count).map(|place| place % count);
    loop {
        if let Some(place) = places.next() {
            let attempt = attempt(place);
            attempts.spawn(async move { (place, attempt.await) });
        }
        let done = match places.len() {
            0 => attempts.join_next().await,
            // After the delay, one more is tried.
            _ => match time::timeout(HEDGE_DELAY, attempts.join_next()).await {
                Ok(done) => done,
                Err(_) => continue,
            },
        };
        match done {
            Some(Ok((place, Ok(value)))) => return Ok((place, value)),
            Some(Ok((place, Err(error)))) => errors.push((place, error)),
            Some(Err(panicked)) => debug!(%panicked, "an attempt to connect ended early"),
            None => return Err(errors),
        }
    }
}

/// What a new client needs.
struct ClientSetup {
    space: SpaceId,
    nodes: Vec<NodeId>,
    /// The client's number.
    number: u64,
}

/// Asks a peer server for what a new client needs, on a connection for this alone.
async fn fetch_setup(peer: &Address, target: &Target, options: &ConnectOptions) -> Result<ClientSetup> {
    let timeout = options.connect_timeout;
    let asked = time::timeout(timeout, async {
        let (stream, space, max_frame) = open_connection(peer, target, options).await?;
        let mailbox = Arc::new(Mailbox::default());
        let caller = Caller::new(mailbox.clone(), BUDGET);
        let link = Link::new(stream, NoService, Limits::default(), max_frame, mailbox);
        let mut driving = JoinSet::new();
        driving.spawn(link::drive(link));
        let numbers = caller.call(Request::GetNumbers(proto::GetNumbers { count: 1 }), Vec::new()).await;
        let nodes = caller.call(Request::GetSpace(proto::GetSpace {}), Vec::new()).await;
        caller.hang_up();
        Ok::<_, Error>((space, numbers?.response, nodes?.response))
    });
    let answers = asked.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("{peer} does not answer within {timeout:?}")))
    });
    let answers = answers.map_err(|error| match error.kind() {
        // A client number that is lost on its way is never used.
        ErrorKind::Unknown => {
            Error::new(ErrorKind::Unavailable, format!("{peer} cannot take a client now")).caused_by(error)
        }
        _ => error,
    });
    let (space, Response::Numbers(numbers), Response::ConnectionSpace(of)) = answers? else {
        return Err(unexpected_answer_error());
    };
    let nodes = of.nodes.into_iter().map(cluster::node).collect::<Result<Vec<_>>>()?;
    Ok(ClientSetup { space, nodes, number: numbers.first })
}

fn start(target: Arc<Target>, place: usize, setup: ClientSetup, options: ConnectOptions) -> Arc<Core> {
    let ClientSetup { space, nodes, number } = setup;
    let mut session = Session::new(ClientId(number), HolderId(number << SESSION_BITS), SKEW_MS);
    if options.snapshots {
        session.subscribe();
    }
    let core = Core::new(session, (space, nodes), MonotonicClock::begin(), options);
    tokio::spawn(Core::run_timers(Arc::downgrade(&core)));
    tokio::spawn(keep_connected(Arc::downgrade(&core), target, place));
    core
}

async fn open_connection(peer: &Address, target: &Target, options: &ConnectOptions) -> Result<(Stream, SpaceId, u32)> {
    let mut introduction = Introduction::new(&target.space, &options.agent);
    introduction.credentials = credentials(options.credentials.as_ref(), target.user.as_deref());
    introduction.insecure = options.insecure;
    let (stream, terms) = dial(peer, options.tls.as_ref(), &introduction, options.connect_timeout).await?;
    Ok((stream, terms.space, terms.max_frame))
}

/// Opens a connection to a peer server of the client's space.
async fn reconnect(peer: &Address, target: &Target, options: &ConnectOptions, space: SpaceId) -> Result<(Stream, u32)> {
    match open_connection(peer, target, options).await? {
        (stream, of, max_frame) if of == space => Ok((stream, max_frame)),
        _ => {
            let what = format!(
                "the space of this client was removed, and {peer} has another one of its name, or is of another cluster"
            );
            Err(Error::new(ErrorKind::NotFound, what))
        }
    }
}

/// Keeps a client connected for its lifetime.
async fn keep_connected(core: Weak<Core>, target: Arc<Target>, mut place: usize) {
    let mut pause = FIRST_PAUSE;
    while let Some(client) = core.upgrade() {
        let (options, space) = (Arc::new(client.options.clone()), client.space);
        let attempt = |place: usize| {
            let (target, options) = (target.clone(), options.clone());
            async move { reconnect(&target.peers[place], &target, &options, space).await }
        };
        // The client may be dropped meanwhile.
        drop(client);
        match first_success(target.peers.len(), place, attempt).await {
            Ok((connected, (stream, max_frame))) => {
                pause = FIRST_PAUSE;
                place = connected + 1;
                if drive_connection(&core, &target, connected, stream, max_frame).await.is_err() {
                    return;
                }
            }
            Err(errors) => {
                for (place, error) in &errors {
                    match error.kind() {
                        ErrorKind::Unavailable => {
                            debug!(peer = %target.peers[*place], %error, "a peer server cannot be reached");
                        }
                        _ => warn!(peer = %target.peers[*place], %error, "a peer server does not admit this client"),
                    }
                }
                // Calls fail only if a peer server denied access, or the space is gone, and none admitted the client.
                let is_final = |error: &Error| matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotFound);
                if let Some((_, error)) = errors.into_iter().find(|(_, error)| is_final(error)) {
                    let told =
                        core.upgrade().map(|client| client.with_driver(|driver, now| driver.refused(&error, now)));
                    if !matches!(told, Some(Ok(()))) {
                        return;
                    }
                }
            }
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Drives a connection until it ends, or its peer server hangs and there is another one.
///
/// # Errors
/// If the client was closed.
async fn drive_connection(
    core: &Weak<Core>,
    target: &Target,
    place: usize,
    stream: Stream,
    max_frame: u32,
) -> Result<()> {
    let Some(client) = core.upgrade() else { return Err(closed_error()) };
    let peer = &target.peers[place];
    let mailbox = Arc::new(Mailbox::for_transactions());
    let (handle, caller) = (PeerHandle::new(mailbox.clone()), Caller::new(mailbox.clone(), BUDGET));
    let service = PeerService { core: core.clone(), handle: handle.clone() };
    let link = Link::new(stream, service, Limits::default(), max_frame, mailbox.clone());
    let connection = PeerConnection { handle, caller: caller.clone(), peer_address: Arc::from(peer.to_string()) };
    client.on_connected(connection)?;
    drop(client);
    let mut driving = pin!(link::drive(link));
    let why = tokio::select! {
        biased;
        end = &mut driving => match end {
            End::Closed => {
                debug!(%peer, "closed the connection");
                End::Closed.to_string()
            }
            end => {
                info!(%peer, %end, "the connection to a peer server ended");
                end.to_string()
            }
        },
        () = wait_until_silent(&mailbox, &caller, || has_calls(core)), if target.peers.len() > 1 => {
            warn!(%peer, "a peer server does not answer: another one is tried");
            caller.hang_up();
            // A server that hangs may take nothing more.
            let _ = time::timeout(HANG_UP_TIMEOUT, driving).await;
            format!("it has not answered for {SILENCE_TIMEOUT:?}")
        }
    };
    let Some(client) = core.upgrade() else { return Err(closed_error()) };
    client.on_disconnected(&why)
}

/// Whether a client waits for the end of calls.
fn has_calls(core: &Weak<Core>) -> bool {
    core.upgrade().is_some_and(|client| client.with_driver(|driver, _| driver.has_calls()).unwrap_or(false))
}

/// Handles what the peer server sends.
struct PeerService {
    core: Weak<Core>,
    handle: PeerHandle,
}

impl Service for PeerService {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&Error::new(ErrorKind::Unsupported, "a client answers no requests"));
    }

    fn on_messages(&mut self, messages: impl Iterator<Item = Message>) -> Result<()> {
        let Some(core) = self.core.upgrade() else {
            self.handle.hang_up();
            return Ok(());
        };
        let handled = core.handle_messages(messages);
        handled.inspect_err(|error| info!(%error, "the peer server breaks the protocol, or the client is closed"))
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    fn unavailable(place: usize) -> Error {
        Error::new(ErrorKind::Unavailable, place.to_string())
    }

    #[test]
    fn target_is_one_address_of_any_kind_or_several_hosts() {
        let peers = |url: &str| parse_target(url).unwrap().peers.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(peers("mortar://one:1,two:2/main"), ["one:1", "two:2"]);
        assert_eq!(peers("mortar://one:1/main"), ["one:1"]);
        assert!(matches!(parse_target("mortar+unix:///run/a,b/main").unwrap().peers[..], [Address::Unix(_)]));
    }

    #[tokio::test(start_paused = true)]
    async fn peer_server_that_hangs_delays_a_client_only_briefly() {
        let begun = time::Instant::now();
        let attempt = |place| async move { if place == 0 { future::pending().await } else { Ok(place) } };
        let found = first_success(3, 0, attempt).await;
        assert_eq!(found.map_err(|errors| errors.len()), Ok((1, 1)));
        assert_eq!(begun.elapsed(), HEDGE_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_peer_server_is_used_if_no_other_one_answers() {
        let attempt = |place| async move {
            if place == 0 {
                time::sleep(4 * HEDGE_DELAY).await;
                return Ok(place);
            }
            Err(unavailable(place))
        };
        assert_eq!(first_success(3, 0, attempt).await.map_err(|errors| errors.len()), Ok((0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn each_peer_server_is_tried_once_in_turn() {
        let begun = time::Instant::now();
        let attempt = |place| async move { Err::<(), _>(unavailable(place)) };
        let errors = first_success(3, 2, attempt).await.unwrap_err();
        assert_eq!(errors.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(begun.elapsed(), Duration::ZERO, "a failure is not waited for");
        assert!(first_success(0, 0, attempt).await.unwrap_err().is_empty());
    }
}
