//! One load generator for every server: a single thread, one epoll loop, requests made beforehand.
//!
//! All servers get the same loop, the same keys in the same random order and the same checks, so that a difference
//! between them is theirs. Each connection sends a batch of `pipelining` requests in one write, waits for all their
//! replies, and sends the next. In a batch, the key at slot *s* is congruent to *s*, so no key is asked for twice at a
//! time and replies may come in any order.

pub(crate) mod cluster;
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

/// What a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    /// Bytes of the whole reply.
    pub(crate) len: usize,
    /// The key that is answered, where the protocol says it; else replies come in the order of requests.
    pub(crate) key: Option<usize>,
    /// The value, of a reply to a get.
    pub(crate) value: Option<&'a [u8]>,
}

/// A server's side of the conversation.
pub(crate) trait Protocol {
    /// Says what must be said on a new connection, blocking.
    fn open(&self, connection: &mut Connection) -> Result<()>;

    /// Writes the request for a key to the connection of this number, counted from 0 in the order of their opening.
    fn request(&self, _connection: usize, requests: &Requests<'_>, key: usize, output: &mut Vec<u8>) -> Result<()> {
        requests.write(key, output);
        Ok(())
    }

    /// Reads the reply at the beginning of `input`; `None` if there is not all of it yet.
    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>>;
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each once, in order.
    Once,
    /// Random ones, for this long; a tenth of it before is not counted.
    Random(Duration),
}

/// How the server is driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlan {
    pub(crate) connections: usize,
    pub(crate) pipelining: usize,
    pub(crate) order: Order,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadResult {
    /// Operations after the warm-up.
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Operations, those of the warm-up among them.
    pub(crate) operations_with_warm_up: u64,
}

impl LoadResult {
    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// One in this many values is compared whole; of all others the length and the key that they begin with.
const COMPARE_EVERY: u64 = 64;

/// Drives the servers at `addresses`, over which the connections are spread.
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
        protocol.open(&mut connection)?;
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

/// The state that all connections share.
struct LoadGenerator<'a, P> {
    protocol: &'a P,
    requests: &'a Requests<'a>,
    plan: LoadPlan,
    random: SmallRng,
    /// The next key of [`Order::Once`].
    next: usize,
    operations: u64,
    checked: u64,
    /// Connections that have no more to ask.
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

    /// Takes what has come; a batch that is answered is followed by the next.
    fn receive(&mut self, poll: &Poll, index: usize, connection: &mut Connection) -> Result<()> {
        while connection.answered < connection.batch.len() && connection.fill()? {
            let mut taken = 0;
            while connection.answered < connection.batch.len() {
                let Some(reply) = self.protocol.reply(&connection.input()[taken..])? else { break };
                let in_order = connection.batch[connection.answered];
                let key = match reply.key {
                    Some(key) if connection.batch.get(key % self.plan.pipelining) == Some(&key) => key,
                    Some(key) => return Err(format!("a reply for key {key}, which was not asked for").into()),
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
