//! Connections that fail. Each server has a relay in front of it, which delays, holds or cuts its connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{self, Instant};

use crate::message_tap::{ConnectionTap, Direction, MessageTap};

/// Bytes of one read: few, so that a cut often falls within a frame.
const CHUNK_BYTES: usize = 4 << 10;
/// Chunks in flight in one direction; more stay with their sender.
const MAX_QUEUED_CHUNKS: usize = 256;

/// The conditions of existing and new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkConditions {
    /// New connections end at once.
    pub(crate) refuses: bool,
    /// The delay in each direction.
    pub(crate) delay: Duration,
    /// Bytes to the server are held back.
    pub(crate) holds_upstream: bool,
    /// Bytes from the server are held back.
    pub(crate) holds_downstream: bool,
    /// Delays and holding affect one connection in this many; 0 and 1: all.
    pub(crate) one_in: u64,
    /// They affect only the connection with this number.
    pub(crate) only: Option<u64>,
}

impl NetworkConditions {
    fn applies_to(&self, connection: u64) -> bool {
        match self.only {
            Some(only) => connection == only,
            None => self.one_in < 2 || connection.is_multiple_of(self.one_in),
        }
    }
}

/// A thread that runs relays. Dropping it ends them.
pub(crate) struct RelayThread {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RelayThread {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let thread = thread::spawn(move || drop(runtime.block_on(ended)));
        Self { handle, end: Some(end), thread: Some(thread) }
    }

    /// Adds a relay to a server whose address is not known yet.
    pub(crate) fn add(&self) -> Relay {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::default(),
            conditions: watch::channel(NetworkConditions::default()).0,
            cuts: watch::channel((0, 1)).0,
            accepted: AtomicU64::new(0),
            tap: OnceLock::new(),
        });
        self.handle.spawn(accept(listener, shared.clone()));
        Relay { address, shared }
    }
}

impl Drop for RelayThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A relay in front of a server.
pub(crate) struct Relay {
    /// The address that clients use.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    conditions: watch::Sender<NetworkConditions>,
    /// Number of cuts so far, and that one in how many connections is cut.
    cuts: watch::Sender<(u64, u64)>,
    /// Number of connections so far; the next one has this number.
    accepted: AtomicU64,
    /// Records the messages of connections that begin after it was set.
    tap: OnceLock<Arc<MessageTap>>,
}

impl Relay {
    /// A handle by which the address of the server can be set.
    pub(crate) fn target(&self) -> RelayTarget {
        RelayTarget(self.shared.clone())
    }

    /// Number of connections so far; the next one has this number.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_conditions(&self, weather: NetworkConditions) {
        self.shared.conditions.send_replace(weather);
    }

    /// Records the messages of all connections that begin from now on.
    pub(crate) fn tap(&self) -> Arc<MessageTap> {
        self.shared.tap.get_or_init(Arc::default).clone()
    }

    /// Cuts one connection in this many.
    pub(crate) fn cut(&self, one_in: u64) {
        self.shared.cuts.send_modify(|cuts| *cuts = (cuts.0 + 1, one_in.max(1)));
    }
}

/// The target of a relay.
pub(crate) struct RelayTarget(Arc<Shared>);

impl RelayTarget {
    /// Sets the address of the server.
    pub(crate) fn set_address(&self, target: SocketAddr) {
        *self.0.target.lock().unwrap() = Some(target);
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        // Connections that end before they are accepted are ignored.
        let Ok((client, _)) = listener.accept().await else { continue };
        let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
        if !shared.conditions.borrow().refuses {
            tokio::spawn(connection(shared.clone(), number, client));
        }
    }
}

async fn connection(shared: Arc<Shared>, number: u64, client: TcpStream) {
    let target = *shared.target.lock().unwrap();
    let Some(target) = target else { return };
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let cut = async {
        while cuts.changed().await.is_ok() {
            let (_, one_in) = *cuts.borrow_and_update();
            if number.is_multiple_of(one_in) {
                return;
            }
        }
    };
    let tap = |direction| shared.tap.get().map(|tap| ConnectionTap::new(tap.clone(), number, direction));
    let (up, down) = (tap(Direction::Up), tap(Direction::Down));
    tokio::select! {
        () = pump(&shared, number, up, |weather| weather.holds_upstream, from_client, to_server) => {}
        () = pump(&shared, number, down, |weather| weather.holds_downstream, from_server, to_client) => {}
        () = cut => {}
    }
}

/// Forwards bytes in one direction until the connection ends.
async fn pump(
    shared: &Shared,
    number: u64,
    mut tap: Option<ConnectionTap>,
    holds: impl Fn(&NetworkConditions) -> bool,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(MAX_QUEUED_CHUNKS);
    let mut weather = shared.conditions.subscribe();
    let reading = async move {
        let mut bytes = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if let Some(tap) = &mut tap {
                tap.feed(&bytes[..count]);
            }
            let delay = { *shared.conditions.borrow() };
            let delay = Some(delay.delay).filter(|_| delay.applies_to(number)).unwrap_or_default();
            if sender.send((Instant::now() + delay, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            time::sleep_until(due).await;
            let held = weather.wait_for(|weather| !(weather.applies_to(number) && holds(weather))).await.is_err();
            if held || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
