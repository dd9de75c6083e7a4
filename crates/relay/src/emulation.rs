//! What the connections of a relay share: the link, its cuts, the clock and the counters.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as FairMutex;
use tokio::sync::watch;

use crate::counters::TrafficCounter;
use crate::link::Link;
use crate::outages::Outages;
use crate::timer::Timer;
use crate::{Address, Config, Counters, LinkConfig};

/// What the connections of a relay share.
#[derive(Debug)]
pub(crate) struct Emulation {
    pub(crate) target: Address,
    /// From the clients to the target.
    pub(crate) upstream: Direction,
    /// From the target to the clients.
    pub(crate) downstream: Direction,
    started: Instant,
    timer: Timer,
    outages: Mutex<Outages>,
    /// Whether the link is cut.
    cut: watch::Sender<bool>,
    connections: ConnectionCounter,
}

/// One direction of the link.
#[derive(Debug)]
pub(crate) struct Direction {
    link: Mutex<Link>,
    /// Held by the connection that is the next to enter the link. The others wait for it in the order in which they came.
    turn: FairMutex<()>,
    pub(crate) traffic: TrafficCounter,
}

#[derive(Debug, Default)]
struct ConnectionCounter {
    accepted: AtomicU64,
    open: AtomicU64,
    failed: AtomicU64,
    last_failure: Mutex<Option<String>>,
}

impl Direction {
    fn new(config: LinkConfig, seed: u64) -> Self {
        Self { link: Mutex::new(Link::new(config, seed)), turn: FairMutex::new(()), traffic: TrafficCounter::default() }
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Emulation {
    pub(crate) fn start(config: Config) -> io::Result<Self> {
        let seed = config.seed.unwrap_or_else(rand::random);
        Ok(Self {
            target: config.target,
            // The directions make different choices.
            upstream: Direction::new(config.link.clone(), seed),
            downstream: Direction::new(config.link.clone(), seed ^ u64::MAX),
            started: Instant::now(),
            timer: Timer::start()?,
            outages: Mutex::new(Outages::new(config.link.cuts)),
            cut: watch::Sender::new(false),
            connections: ConnectionCounter::default(),
        })
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) async fn sleep_until(&self, at: Duration) {
        self.timer.sleep_until(self.started + at).await;
    }

    /// The delay of each direction.
    pub(crate) fn delay(&self) -> Duration {
        self.upstream.link().delay()
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.upstream.link().set_delay(delay);
        self.downstream.link().set_delay(delay);
    }

    /// Lets a chunk enter the link. Returns when it arrives.
    pub(crate) fn transmit(&self, direction: &Direction, bytes: usize) -> Duration {
        let transmission = direction.link().transmit(self.now(), bytes);
        direction.traffic.count_losses(transmission.losses);
        transmission.arrives_at
    }

    /// Waits until the link accepts a chunk, in turn with the other connections.
    pub(crate) async fn wait_accepted(&self, direction: &Direction) {
        let _turn = direction.turn.lock().await;
        loop {
            let accepts_at = direction.link().accepts_at();
            if accepts_at <= self.now() {
                return;
            }
            self.sleep_until(accepts_at).await;
        }
    }

    /// Waits until a signal without bytes, which enters now, has crossed the link.
    pub(crate) async fn cross<T>(&self, direction: &Direction, signal: T) -> T {
        let arrives_at = self.transmit(direction, 0);
        self.sleep_until(arrives_at).await;
        self.wait_open().await;
        signal
    }

    /// Waits until the link is not cut.
    pub(crate) async fn wait_open(&self) {
        if *self.cut.borrow() {
            // The sender lives as long as `self`.
            let _ = self.cut.subscribe().wait_for(|is_cut| !is_cut).await;
        }
    }

    pub(crate) fn set_cut(&self, cut: bool) {
        self.outages().set_by_hand(cut);
        self.update_cut();
    }

    /// Follows the schedules of cuts.
    pub(crate) async fn follow_schedules(&self) {
        while let Some(next_change) = self.update_cut() {
            self.sleep_until(next_change).await;
        }
    }

    /// Cuts the link or ends the cut. Returns when a schedule changes that.
    fn update_cut(&self) -> Option<Duration> {
        let outages = self.outages();
        let now = self.now();
        let is_cut = outages.is_cut(now);
        self.cut.send_if_modified(|before| std::mem::replace(before, is_cut) != is_cut);
        outages.next_change(now)
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_accepted_connection(&self) {
        self.connections.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_closed_connection(&self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed_connection(&self, why: String) {
        self.connections.failed.fetch_add(1, Ordering::Relaxed);
        *self.last_failure() = Some(why);
    }

    pub(crate) fn last_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.connections.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counters(&self) -> Counters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            seconds: self.now().as_secs_f64(),
            connections: load(&self.connections.accepted),
            open_connections: load(&self.connections.open),
            failed_connections: load(&self.connections.failed),
            cut: *self.cut.borrow(),
            upstream: self.upstream.traffic.traffic(),
            downstream: self.downstream.traffic.traffic(),
            last_failure: self.last_failure().clone(),
        }
    }
}
