//! One load generator for every server: a single thread with one epoll loop, and requests that are encoded in advance.
//!
//! All servers get the same loop, the same keys in the same random order and the same checks, so a difference between
//! results is a difference between servers. Each connection sends a batch of `pipelining` requests in one write, waits
//! for all replies, and sends the next batch. In a batch, the key at position *s* is congruent to *s*, so no key is
//! requested twice at a time and replies may arrive in any order.

mod connection;
pub(crate) mod memcached;
pub(crate) mod mortar;
pub(crate) mod postgres;
pub(crate) mod redis;
mod requests;

use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

pub(crate) use self::connection::Connection;
pub(crate) use self::requests::{Data, Requests};
use crate::Result;
use crate::process::Address;

/// A reply of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// Number of bytes of the reply.
    pub(crate) len: usize,
    /// The key, if the protocol contains it; otherwise replies arrive in the order of requests.
    pub(crate) key: Option<usize>,
    /// The value, in a reply to a get.
    pub(crate) value: Option<&'a [u8]>,
}

/// The protocol of a server.
pub(crate) trait Protocol {
    /// Opens a new connection, blocking. The connections of each run are numbered from 0 in the order of their opening.
    fn open(&self, number: usize, connection: &mut Connection) -> Result<()>;

    /// Encodes the request for a key on the connection with this number.
    fn request(&self, _number: usize, requests: &Requests<'_>, key: usize, output: &mut Vec<u8>) -> Result<()> {
        requests.write(key, output);
        Ok(())
    }

    /// Decodes the reply at the beginning of `input`; returns `None` if it is incomplete.
    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>>;
}

/// The order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each once, in order.
    Once,
    /// Random keys for this long, after a warm-up of a tenth of it that is not counted.
    Random(Duration),
}

/// The parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) connections: usize,
    pub(crate) pipelining: usize,
    pub(crate) order: Order,
}

/// The results of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadResult {
    /// Operations after the warm-up.
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Operations, including the warm-up.
    pub(crate) operations_with_warm_up: u64,
}

impl LoadResult {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// One value in this many is compared completely; for all others only the length and the first bytes are.
const COMPARE_EVERY: u64 = 64;

/// Applies the load to the servers at `addresses`, over which the connections are spread.
pub(crate) fn drive<P: Protocol>(
    protocol: &P,
    addresses: &[Address],
    requests: &Requests<'_>,
    plan: LoadPlan,
) -> Result<LoadResult> {
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for index in 0..plan.connections {
        let mut connection = Connection::dial(&addresses[index % addresses.len()])?;
        protocol.open(index, &mut connection)?;
        connection.make_nonblocking()?;
        poll.registry().register(&mut SourceFd(&connection.fd()), Token(index), Interest::READABLE)?;
        connections.push(connection);
    }
    let mut loading = LoadGenerator::new(protocol, requests, plan);
    for (index, connection) in connections.iter_mut().enumerate() {
        loading.send(&poll, index, connection)?;
    }
    let mut events = Events::with_capacity(plan.connections);
    let mut begun = Instant::now();
    let (mut warm, mut discarded) = (false, 0);
    loop {
        poll.poll(&mut events, Some(Duration::from_secs(10)))?;
        if events.is_empty() {
            return Err(format!("no reply for 10 s after {} operations", loading.operations).into());
        }
        for event in &events {
            let index = event.token().0;
            let connection = &mut connections[index];
            if event.is_writable() && connection.has_unsent() {
                loading.flush(&poll, index, connection)?;
            }
            if event.is_readable() {
                loading.receive(&poll, index, connection)?;
            }
        }
        let elapsed = begun.elapsed();
        match plan.order {
            Order::Once if loading.finished == plan.connections => {
                return Ok(LoadResult {
                    operations: loading.operations,
                    elapsed,
                    operations_with_warm_up: loading.operations,
                });
            }
            Order::Random(duration) if !warm && elapsed >= duration / 10 => {
                (warm, begun, discarded) = (true, Instant::now(), loading.operations);
            }
            Order::Random(duration) if warm && elapsed >= duration => {
                return Ok(LoadResult {
                    operations: loading.operations - discarded,
                    elapsed,
                    operations_with_warm_up: loading.operations,
                });
            }
            _ => {}
        }
    }
}

/// The state shared by all connections.
struct LoadGenerator<'a, P> {
    protocol: &'a P,
    requests: &'a Requests<'a>,
    plan: LoadPlan,
    random: SmallRng,
    /// The next key of [`Order::Once`].
    next: usize,
    operations: u64,
    checked: u64,
    /// Connections that have sent all their requests.
    finished: usize,
}

impl<'a, P: Protocol> LoadGenerator<'a, P> {
    fn new(protocol: &'a P, requests: &'a Requests<'a>, plan: LoadPlan) -> Self {
        let random = SmallRng::seed_from_u64(1);
        Self { protocol, requests, plan, random, next: 0, operations: 0, checked: 0, finished: 0 }
    }

    /// Sends the next batch.
    fn send(&mut self, poll: &Poll, index: usize, connection: &mut Connection) -> Result<()> {
        let (keys, batch) = (self.requests.keys(), self.plan.pipelining);
        connection.begin_batch();
        for slot in 0..batch {
            let key = match self.plan.order {
                Order::Random(_) => self.random.random_range(0..keys / batch) * batch + slot,
                Order::Once if self.next < keys => {
                    self.next += 1;
                    self.next - 1
                }
                Order::Once => break,
            };
            connection.batch.push(key);
            self.protocol.request(index, self.requests, key, &mut connection.output)?;
        }
        if connection.batch.is_empty() {
            self.finished += 1;
            return Ok(());
        }
        self.flush(poll, index, connection)
    }

    fn flush(&mut self, poll: &Poll, index: usize, connection: &mut Connection) -> Result<()> {
        let waits = connection.wants_write;
        connection.wants_write = !connection.flush()?;
        if waits != connection.wants_write {
            let writable = Interest::READABLE | Interest::WRITABLE;
            let interest = if connection.wants_write { writable } else { Interest::READABLE };
            poll.registry().reregister(&mut SourceFd(&connection.fd()), Token(index), interest)?;
        }
        Ok(())
    }

    /// Handles received bytes. When a batch is answered, the next one is sent.
    fn receive(&mut self, poll: &Poll, index: usize, connection: &mut Connection) -> Result<()> {
        while connection.answered < connection.batch.len() && connection.fill()? {
            let mut taken = 0;
            while connection.answered < connection.batch.len() {
                let Some(reply) = self.protocol.reply(&connection.input()[taken..])? else { break };
                let in_order = connection.batch[connection.answered];
                let key = match reply.key {
                    Some(key) if connection.batch.get(key % self.plan.pipelining) == Some(&key) => key,
                    Some(key) => return Err(format!("a reply for key {key}, which was not requested").into()),
                    None => in_order,
                };
                if let Some(value) = reply.value {
                    self.checked += 1;
                    self.requests.data().check(key, value, self.checked.is_multiple_of(COMPARE_EVERY))?;
                }
                taken += reply.len;
                connection.answered += 1;
                self.operations += 1;
            }
            connection.consume(taken);
        }
        if connection.answered == connection.batch.len() && !connection.batch.is_empty() {
            self.send(poll, index, connection)?;
        }
        Ok(())
    }
}
