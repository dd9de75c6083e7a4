//! The connection of a client: to one server of its URL, and to the next one when that is lost or hangs.
//!
//! A client of a group connects to a redirector of the group, and to a peer server if none answers. The peer servers know the
//! redirectors. When one that comes before the client's server in their order lives again, the client returns to it, so that the
//! members of a group meet.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::clock::ClusterTime;
use protocol::ident::{ClientId, HolderId};
use protocol::session::Session;
use tokio::task::JoinSet;
use tokio::time;
use tracing::{debug, info, warn};
use wire::cluster::{self, Message};
use wire::driving::{MonotonicClock, PeerHandle};
use wire::handshake::{ClientNumber, Introduction};
use wire::link::{
    self, CallConnection, Caller, End, Incoming, Limits, Link, Liveness, Mailbox, Responder, Service, wait_until_silent,
};
use wire::proto;
use wire::proto::groups::{GetGroups, Groups};
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;
use wire::transport::{Address, Stream};

use super::ConnectOptions;
use super::client_core::{Core, PeerConnection, unexpected_answer_error};
use super::driver::closed_error;
use crate::Url;
use crate::dial::{credentials, dial};
use crate::url::split_group;

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
/// The pause after a round of attempts without success: it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// A connection that ends earlier counts as a failed attempt.
const LASTING: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long one attempt to connect is waited for before the next peer server is tried, too.
const HEDGE_DELAY: Duration = Duration::from_millis(300);
/// How long redirectors are waited for before a peer server is tried, too. The first member of a group needs about twice as many round
/// trips over the link through a redirector as without one.
const REDIRECTOR_HEDGE_DELAY: Duration = Duration::from_secs(2);
/// How long the end of a connection to a server that hangs may take.
pub(super) const HANG_UP_TIMEOUT: Duration = Duration::from_millis(100);
/// How far the clocks of machines may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// Bits of a session number below the client's number.
const SESSION_BITS: u32 = 20;

/// How often a client of a group asks for the redirectors of the group, and how long it waits for the end of its calls before it goes
/// to a better one.
const GROUP_INTERVAL: Duration = Duration::from_secs(5);
const GROUP_PATIENCE: Duration = Duration::from_secs(5);
const IDLE_POLL: Duration = Duration::from_millis(5);

/// The peer servers of a cluster, the space, and the user that connects.
pub(super) struct Target {
    pub(super) peers: Vec<Address>,
    pub(super) space: String,
    pub(super) user: Option<String>,
    /// The group, if the client is of one.
    pub(super) group: Option<Group>,
}

/// A group of clients.
pub(super) struct Group {
    name: String,
    /// Its redirectors in the order in which members try them, as far as they are known.
    redirectors: Mutex<Vec<Address>>,
}

impl Group {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), redirectors: Mutex::default() }
    }

    fn redirectors(&self) -> Vec<Address> {
        // The list is consistent between any two statements.
        self.redirectors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_redirectors(&self, found: Groups) {
        let addresses = found.redirectors.into_iter().flat_map(|redirector| redirector.addresses);
        let addresses = addresses.filter_map(|text| text.parse().ok()).collect();
        *self.redirectors.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

impl Target {
    /// The servers in the order in which they are tried. The one that was lost is the last; without a group, those that follow it
    /// are the first.
    fn servers(&self, lost: Option<&Address>) -> Vec<Address> {
        let mut servers = self.group.as_ref().map(Group::redirectors).unwrap_or_default();
        servers.extend(self.peers.iter().cloned());
        if let Some(place) = servers.iter().position(|server| Some(server) == lost) {
            match self.group {
                Some(_) => servers[place..].rotate_left(1),
                None => servers.rotate_left(place + 1),
            }
        }
        servers
    }

    /// How long the servers before this one are waited for before it is tried, too.
    fn hedge_delay(&self, server: &Address) -> Duration {
        let has_redirectors = self.group.as_ref().is_some_and(|group| !group.redirectors().is_empty());
        if has_redirectors && self.peers.first() == Some(server) { REDIRECTOR_HEDGE_DELAY } else { HEDGE_DELAY }
    }

    /// The redirectors that come before a server.
    fn better_than(&self, server: &Address) -> Vec<Address> {
        let redirectors = self.group.as_ref().map(Group::redirectors).unwrap_or_default();
        redirectors.into_iter().take_while(|redirector| redirector != server).collect()
    }
}

fn parse_target(url: &str) -> Result<Target> {
    let (url, group) = split_group(url)?;
    let group = group.map(Group::new);
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (hosts, space) = rest.split_once('/').unwrap_or((rest, ""));
    if !matches!(scheme, "mortar" | "mortars") || !hosts.contains(',') {
        let Url { user, address, space } = url.parse()?;
        return Ok(Target { peers: vec![address], space, user, group });
    }
    let urls = hosts.split(',').map(|host| format!("{scheme}://{host}/{space}").parse::<Url>());
    let urls = urls.collect::<Result<Vec<_>>>()?;
    let space = urls.first().map(|url| url.space.clone()).unwrap_or_default();
    let user = urls.iter().find_map(|url| url.user.clone());
    Ok(Target { peers: urls.into_iter().map(|url| url.address).collect(), space, user, group })
}

/// Connects a new client.
pub(super) async fn connect(url: &str, options: ConnectOptions) -> Result<Arc<Core>> {
    connect_to(parse_target(url)?, options).await
}

/// Connects a new client to one of these servers.
pub(super) async fn connect_to(target: Target, options: ConnectOptions) -> Result<Arc<Core>> {
    let (target, options) = (Arc::new(target), Arc::new(options));
    if let Some(group) = &target.group {
        let attempt = |peer: Address| {
            let (target, options) = (target.clone(), options.clone());
            async move { fetch_group(&peer, &target, &options).await }
        };
        // Peer servers that refuse the client, or that do not answer, do the same below.
        if let Ok((_, found)) = first_success(&target.peers, |_| HEDGE_DELAY, attempt).await {
            group.set_redirectors(found);
        }
    }
    let attempt = |server: Address| {
        let (target, options) = (target.clone(), options.clone());
        async move { fetch_setup(&server, &target, &options).await }
    };
    match first_success(&target.servers(None), |server| target.hedge_delay(server), attempt).await {
        Ok((server, setup)) => Ok(start(target.clone(), server, setup, ConnectOptions::clone(&options))),
        Err(errors) => {
            let none = || Error::new(ErrorKind::Invalid, "no peer server is named");
            Err(errors.into_iter().next().map_or_else(none, |(_, error)| error))
        }
    }
}

/// Tries servers in turn. The next attempt starts when one has failed, or none has succeeded for the `hedge_delay` of that server; the first
/// success ends the others. So a server that hangs delays its client only by that.
///
/// # Errors
/// Each server and why it failed, in the order of the failures.
async fn first_success<T, F>(
    servers: &[Address],
    hedge_delay: impl Fn(&Address) -> Duration,
    attempt: impl Fn(Address) -> F,
) -> Result<(Address, T), Vec<(Address, Error)>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (mut attempts, mut errors) = (JoinSet::new(), Vec::new());
    let mut servers = servers.iter().cloned().peekable();
    loop {
        if let Some(server) = servers.next() {
            let attempt = attempt(server.clone());
            tasks::spawn_in(&mut attempts, async move { (server, attempt.await) });
        }
        let done = match servers.peek() {
            None => attempts.join_next().await,
            // After the delay, one more is tried.
            Some(next) => match time::timeout(hedge_delay(next), attempts.join_next()).await {
                Ok(done) => done,
                Err(_) => continue,
            },
        };
        match done {
            Some(Ok((server, Ok(value)))) => return Ok((server, value)),
            Some(Ok((server, Err(error)))) => errors.push((server, error)),
            Some(Err(panicked)) => debug!(%panicked, "an attempt to connect ended early"),
            None => return Err(errors),
        }
    }
}

/// A space, wherever it is served. A restored cluster is another one than that of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SpaceIdentity {
    /// The number of the cluster; empty if the server does not tell it.
    cluster: String,
    space: SpaceId,
}

/// What a client keeps when it connects again.
struct ClientIdentity {
    space: SpaceIdentity,
    client: ClientNumber,
}

/// What a new client needs.
struct ClientSetup {
    space: SpaceIdentity,
    nodes: Vec<NodeId>,
    client: ClientNumber,
    time: ClusterTime,
}

/// Asks a server for what a new client needs.
async fn fetch_setup(server: &Address, target: &Target, options: &ConnectOptions) -> Result<ClientSetup> {
    let requests = [Request::GetNumbers(proto::GetNumbers { count: 1 }), Request::GetSpace(proto::GetSpace {})];
    let ((space, time), [numbers, of]) = ask(server, target, options, requests).await?;
    let (Response::Numbers(numbers), Response::ConnectionSpace(of)) = (numbers, of) else {
        return Err(unexpected_answer_error());
    };
    let nodes = of.nodes.into_iter().map(cluster::node).collect::<Result<Vec<_>>>()?;
    Ok(ClientSetup { space, nodes, client: ClientNumber::first(numbers)?, time })
}

/// Asks a peer server for the redirectors of the client's group.
async fn fetch_group(peer: &Address, target: &Target, options: &ConnectOptions) -> Result<Groups> {
    match ask(peer, target, options, [group_request(target)]).await? {
        (_, [Response::Groups(found)]) => Ok(found),
        _ => Err(unexpected_answer_error()),
    }
}

fn group_request(target: &Target) -> Request {
    let group = target.group.as_ref().map(|group| group.name.clone()).unwrap_or_default();
    Request::GetGroups(GetGroups { group })
}

/// Sends requests to a server, on a connection for these alone. Returns the number of the client's space, the time of the cluster, and the
/// answers.
async fn ask<const N: usize>(
    server: &Address,
    target: &Target,
    options: &ConnectOptions,
    requests: [Request; N],
) -> Result<((SpaceIdentity, ClusterTime), [Response; N])> {
    let timeout = options.connect_timeout;
    let asked = time::timeout(timeout, async {
        let Opened { stream, space, max_frame, time } = open_connection(server, target, options, None).await?;
        let connection = CallConnection::open(stream, max_frame);
        let mut answers = Vec::with_capacity(N);
        for request in requests {
            answers.push(connection.ask(request).await?);
        }
        Ok(((space, time), answers.try_into().map_err(|_| unexpected_answer_error())?))
    });
    asked.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, format!("{server} does not answer within {timeout:?}")))
    })
}

fn start(target: Arc<Target>, server: Address, setup: ClientSetup, options: ConnectOptions) -> Arc<Core> {
    let ClientSetup { space, nodes, client, time } = setup;
    let mut session = Session::new(ClientId(client.number), HolderId(client.number << SESSION_BITS), SKEW_MS);
    session.set_time(time);
    if options.snapshots {
        session.subscribe();
    }
    let core = Core::new(session, (space.space, nodes), MonotonicClock::of_process(), options);
    tasks::spawn(Core::run_timers(Arc::downgrade(&core)));
    let identity = Arc::new(ClientIdentity { space, client });
    core.set_link(tasks::spawn(keep_connected(Arc::downgrade(&core), target, server, identity)));
    core
}

/// An open connection to a server.
struct Opened {
    stream: Stream,
    space: SpaceIdentity,
    max_frame: u32,
    /// The time of the cluster. The client goes by it, not by its own clock (L2).
    time: ClusterTime,
}

async fn open_connection(
    peer: &Address,
    target: &Target,
    options: &ConnectOptions,
    client: Option<ClientNumber>,
) -> Result<Opened> {
    let mut introduction = Introduction::new(&target.space, &options.agent);
    introduction.credentials = credentials(options.credentials.as_ref(), target.user.as_deref());
    (introduction.insecure, introduction.client) = (options.insecure, client);
    let (stream, terms) = dial(peer, options.tls.as_ref(), &introduction, options.connect_timeout).await?;
    let clock = MonotonicClock::of_process();
    let time = match terms.time_ms {
        // An older server does not say what time it is.
        0 => ClusterTime { offset_ms: clock.wall_offset_ms(), is_trusted: true },
        time_ms => ClusterTime::from_message(time_ms, clock.now()),
    };
    let space = SpaceIdentity { cluster: terms.cluster, space: terms.space };
    Ok(Opened { stream, space, max_frame: terms.max_frame, time })
}

/// Opens a connection to a peer server of the client's space.
async fn reconnect(peer: &Address, target: &Target, options: &ConnectOptions, own: &ClientIdentity) -> Result<Opened> {
    let ClientIdentity { space, client } = own;
    let (opened, refused) = match open_connection(peer, target, options, Some(client.clone())).await {
        // That the space or the cluster is another one says more than that the number is not known there.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            (open_connection(peer, target, options, None).await?, Some(error))
        }
        opened => (opened?, None),
    };
    let what = match &opened.space {
        found if found == space => return refused.map_or(Ok(opened), Err),
        found if found.cluster != space.cluster => {
            format!("{peer} is of another cluster than this client, or of a restored one: connect again")
        }
        _ => format!("the space of this client was removed, and {peer} has another one of its name"),
    };
    Err(Error::new(ErrorKind::NotFound, what))
}

/// Keeps a client connected for its lifetime, at first to the server that it was set up by.
async fn keep_connected(core: Weak<Core>, target: Arc<Target>, first: Address, own: Arc<ClientIdentity>) {
    let mut pause = FIRST_PAUSE;
    let mut servers = target.servers(None);
    if let Some(place) = servers.iter().position(|server| *server == first) {
        servers.rotate_left(place);
    }
    while let Some(client) = core.upgrade() {
        let options = Arc::new(client.options.clone());
        let attempt = |server: Address| {
            let (target, options, own) = (target.clone(), options.clone(), own.clone());
            async move { reconnect(&server, &target, &options, &own).await }
        };
        // The client may be dropped meanwhile.
        drop(client);
        match first_success(&servers, |server| target.hedge_delay(server), attempt).await {
            Ok((server, opened)) => {
                let begun = Instant::now();
                match drive_connection(&core, &target, &server, opened, &own).await {
                    Ok(ConnectionEnd::Lost) => {
                        servers = target.servers(Some(&server));
                        // A server that ends each connection soon is not asked again and again at once.
                        pause = if begun.elapsed() >= LASTING { FIRST_PAUSE } else { pause };
                    }
                    Ok(ConnectionEnd::Left) => {
                        servers = target.servers(None);
                        continue;
                    }
                    Err(_) => return,
                }
            }
            Err(errors) => {
                servers = target.servers(None);
                if report_refusals(&core, errors).is_err() {
                    return;
                }
            }
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Has calls fail if a server denied access, or the space is gone, and none admitted the client.
///
/// # Errors
/// If the client was closed.
fn report_refusals(core: &Weak<Core>, errors: Vec<(Address, Error)>) -> Result<()> {
    for (server, error) in &errors {
        match error.kind() {
            ErrorKind::Unavailable => debug!(%server, %error, "a server cannot be reached"),
            _ => warn!(%server, %error, "a server does not admit this client"),
        }
    }
    let is_final = |error: &Error| matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotFound);
    let Some((_, error)) = errors.into_iter().find(|(_, error)| is_final(error)) else { return Ok(()) };
    let client = core.upgrade().ok_or_else(closed_error)?;
    client.with_driver(|driver, now| driver.handle_refused(&error, now))
}

/// How a connection has ended.
enum ConnectionEnd {
    /// It is lost, or its server hangs.
    Lost,
    /// The client has left for a redirector that comes before its server.
    Left,
}

/// Drives a connection until it ends, or its server hangs and there is another one, or there is a better one.
///
/// # Errors
/// If the client was closed.
async fn drive_connection(
    core: &Weak<Core>,
    target: &Arc<Target>,
    server: &Address,
    opened: Opened,
    own: &ClientIdentity,
) -> Result<ConnectionEnd> {
    let Some(client) = core.upgrade() else { return Err(closed_error()) };
    let Opened { stream, max_frame, time, .. } = opened;
    let options = client.options.clone();
    let mailbox = Arc::new(Mailbox::for_transactions());
    let (handle, caller) = (PeerHandle::new(mailbox.clone()), Caller::new(mailbox.clone(), BUDGET));
    let service = PeerService { core: core.clone(), handle: handle.clone() };
    let link = Link::new(stream, service, Limits::default(), max_frame, mailbox.clone());
    let connection = PeerConnection { handle, caller: caller.clone(), peer_address: Arc::from(server.to_string()) };
    client.on_connected(connection, time)?;
    drop(client);
    let mut driving = pin!(link::drive(link));
    let has_others = target.group.is_some() || target.peers.len() > 1;
    // A redirector is near, and answers for itself.
    let is_near = !target.peers.contains(server);
    let patience = if is_near { Liveness::NEAR } else { Liveness::FAR };
    let mut ended = ConnectionEnd::Lost;
    let why = tokio::select! {
        biased;
        end = &mut driving => match end {
            End::Closed => {
                debug!(%server, "closed the connection");
                End::Closed.to_string()
            }
            end => {
                info!(%server, %end, "the connection to a server ended");
                end.to_string()
            }
        },
        () = wait_until_silent(&mailbox, &caller, patience, || has_calls(core)), if has_others => {
            warn!(%server, "a server does not answer: another one is tried");
            caller.hang_up();
            // A server that hangs may take nothing more.
            let _ = time::timeout(HANG_UP_TIMEOUT, driving).await;
            format!("it has not answered for {:?}", patience.in_all())
        }
        better = wait_for_better(core, target, (server, own), &options, &caller), if target.group.is_some() => {
            info!(%server, %better, "a redirector that comes before this server answers");
            ended = ConnectionEnd::Left;
            caller.hang_up();
            let _ = time::timeout(HANG_UP_TIMEOUT, driving).await;
            format!("the redirector at {better} is nearer")
        }
    };
    let Some(client) = core.upgrade() else { return Err(closed_error()) };
    client.on_disconnected(&why).map(|()| ended)
}

/// Asks for the redirectors of the client's group from time to time. Returns one that comes before the client's server and admits the
/// client, when the client has no calls or has waited for their end for some time.
async fn wait_for_better(
    core: &Weak<Core>,
    target: &Target,
    (server, own): (&Address, &ClientIdentity),
    options: &ConnectOptions,
    caller: &Caller,
) -> Address {
    loop {
        time::sleep(GROUP_INTERVAL).await;
        // The server may not answer now, or be about to hang.
        if let Ok(answer) = caller.call(group_request(target), Vec::new()).await
            && let (Some(group), Response::Groups(found)) = (&target.group, answer.response)
        {
            group.set_redirectors(found);
        }
        for better in target.better_than(server) {
            if reconnect(&better, target, options, own).await.is_ok() {
                let idle = async {
                    while has_calls(core) {
                        time::sleep(IDLE_POLL).await;
                    }
                };
                // Calls that go on longer are continued there.
                let _ = time::timeout(GROUP_PATIENCE, idle).await;
                return better;
            }
        }
    }
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

    use wire::proto::groups::Redirector;

    use super::*;

    fn unavailable(server: &Address) -> Error {
        Error::new(ErrorKind::Unavailable, server.to_string())
    }

    fn servers(count: usize) -> Vec<Address> {
        (0..count).map(|number| format!("host-{number}:1").parse().unwrap()).collect()
    }

    #[test]
    fn target_is_one_address_of_any_kind_or_several_hosts() {
        let peers = |url: &str| parse_target(url).unwrap().peers.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(peers("mortar://one:1,two:2/main"), ["one:1", "two:2"]);
        assert_eq!(peers("mortar://one:1/main"), ["one:1"]);
        assert!(matches!(parse_target("mortar+unix:///run/a,b/main").unwrap().peers[..], [Address::Unix(_)]));
        let target = parse_target("mortar://one:1,two:2/photos?group=shed").unwrap();
        assert_eq!((target.group.unwrap().name.as_str(), target.space.as_str()), ("shed", "photos"));
    }

    fn order(target: &Target, lost: Option<&str>) -> Vec<String> {
        let lost = lost.map(|text| text.parse().unwrap());
        target.servers(lost.as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn servers_behind_the_lost_one_are_tried_first() {
        let target = parse_target("mortar://one:1,two:2,three:3/main").unwrap();
        assert_eq!(order(&target, None), ["one:1", "two:2", "three:3"]);
        assert_eq!(order(&target, Some("two:2")), ["three:3", "one:1", "two:2"]);
    }

    #[test]
    fn members_of_a_group_try_its_redirectors_in_order_and_the_lost_one_last() {
        let target = parse_target("mortar://one:1,two:2/main?group=shed").unwrap();
        assert_eq!(order(&target, None), ["one:1", "two:2"], "no redirector is known");
        let redirector = |address: &str| Redirector { addresses: vec![address.to_owned()], ..Redirector::default() };
        let found = Groups { redirectors: ["a:1", "b:1", "no address"].map(redirector).into() };
        target.group.as_ref().unwrap().set_redirectors(found);
        assert_eq!(order(&target, None), ["a:1", "b:1", "one:1", "two:2"]);
        assert_eq!(order(&target, Some("a:1")), ["b:1", "one:1", "two:2", "a:1"]);
        assert_eq!(order(&target, Some("b:1")), ["a:1", "one:1", "two:2", "b:1"]);
        let better = |server: &str| target.better_than(&server.parse().unwrap()).len();
        assert_eq!((better("a:1"), better("b:1"), better("two:2")), (0, 1, 2));
        let delays = ["b:1", "one:1", "two:2"].map(|server| target.hedge_delay(&server.parse().unwrap()));
        assert_eq!(delays, [HEDGE_DELAY, REDIRECTOR_HEDGE_DELAY, HEDGE_DELAY]);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_hangs_delays_a_client_only_briefly() {
        let (begun, servers) = (time::Instant::now(), servers(3));
        let hanging = servers[0].clone();
        let attempt = move |server: Address| {
            let is_hanging = server == hanging;
            async move { if is_hanging { future::pending().await } else { Ok(server) } }
        };
        let found = first_success(&servers, |_| HEDGE_DELAY, attempt).await;
        assert_eq!(found.map_err(|errors| errors.len()), Ok((servers[1].clone(), servers[1].clone())));
        assert_eq!(begun.elapsed(), HEDGE_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_is_used_if_no_other_one_answers() {
        let servers = servers(3);
        let slow = servers[0].clone();
        let attempt = move |server: Address| {
            let is_slow = server == slow;
            async move {
                if is_slow {
                    time::sleep(4 * HEDGE_DELAY).await;
                    return Ok(());
                }
                Err(unavailable(&server))
            }
        };
        let found = first_success(&servers, |_| HEDGE_DELAY, attempt).await;
        assert_eq!(found.map_err(|errors| errors.len()), Ok((servers[0].clone(), ())));
    }

    #[tokio::test(start_paused = true)]
    async fn each_server_is_tried_once_in_turn() {
        let (begun, servers) = (time::Instant::now(), servers(3));
        let attempt = |server: Address| async move { Err::<(), _>(unavailable(&server)) };
        let errors = first_success(&servers, |_| HEDGE_DELAY, attempt).await.unwrap_err();
        assert_eq!(errors.into_iter().map(|(server, _)| server).collect::<Vec<_>>(), servers);
        assert_eq!(begun.elapsed(), Duration::ZERO, "a failure is not waited for");
        assert!(first_success(&[], |_| HEDGE_DELAY, attempt).await.unwrap_err().is_empty());
    }
}
