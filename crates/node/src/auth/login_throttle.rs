//! Bounds how often passwords can be guessed, and keeps known clients out of it.
//!
//! 1. A *known* client of a user is an address from which that user has logged in since the server started, or one with a
//!    certificate. Its attempts count towards a bucket of this client and this user alone. So guesses from elsewhere never
//!    delay it.
//! 2. All other attempts count towards a bucket of their address and towards a bucket of the user's name. An attacker with any
//!    number of addresses has 10 guesses at a name at once, and 10 in each further minute; one address has 30 at once, and 30
//!    in each further minute.
//! 3. An attempt takes its tokens before the password is checked, so attempts in parallel do not exceed a bucket. A right
//!    password gives them back. An attempt that finds a bucket empty waits while others that use the bucket are being checked;
//!    when none is, it is refused as `Unavailable`, and its password is not looked at.
//! 4. Names that no user has are counted like others, so a refusal does not tell who exists.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::transport::ConnectionSource;

use crate::plant::{Bug, planted};

/// Attempts at one name from unknown clients: a burst, and one more in each interval.
const NAME_RATE: Rate = Rate { burst: 10, interval: Duration::from_secs(6) };
/// Attempts from one unknown address.
const ADDRESS_RATE: Rate = Rate { burst: 30, interval: Duration::from_secs(2) };
/// Attempts of one known client of one user.
const KNOWN_RATE: Rate = NAME_RATE;
/// Buckets of each kind, and known clients.
const MAX_TRACKED: usize = 16 << 10;

/// By what a client is known again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientKey {
    Address(ConnectionSource),
    /// The subject of a certificate that a configured authority issued.
    Certificate(String),
}

/// What an attempt is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptKind {
    /// A user's password; there may be no such user.
    Password { user_exists: bool },
    /// The secret of the cluster: long and random, so there is no bucket of its name, which would keep processes out.
    ClusterSecret,
}

/// Counts attempts.
#[derive(Debug, Default)]
pub(super) struct LoginThrottle {
    state: Mutex<State>,
    /// Notified when an attempt has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    names: Buckets<String>,
    addresses: Buckets<ClientKey>,
    known: Buckets<(ClientKey, String)>,
    /// Addresses from which users have logged in, and when they did last.
    known_clients: HashMap<(ClientKey, String), Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    interval: Duration,
}

/// Tokens that come back one after the other.
#[derive(Debug, Default)]
struct Bucket {
    /// When all tokens are there.
    full_at: Option<Instant>,
    /// Attempts that have taken a token and have not ended.
    in_flight: u32,
}

impl Bucket {
    /// How long it is until there is a token.
    fn wait(&self, now: Instant, rate: Rate) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        (full_at + rate.interval).saturating_duration_since(now + rate.interval * rate.burst)
    }

    fn take(&mut self, now: Instant, rate: Rate) {
        if !planted(Bug::GuessNotCounted) {
            self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + rate.interval);
        }
        self.in_flight += 1;
    }

    fn end(&mut self, rate: Rate, gives_back: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if gives_back && let Some(full_at) = &mut self.full_at {
            *full_at -= rate.interval;
        }
    }
}

/// A bounded number of buckets. When there are too many, keys without one share one.
#[derive(Debug)]
struct Buckets<K> {
    buckets: HashMap<K, Bucket>,
    shared: Bucket,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self { buckets: HashMap::new(), shared: Bucket::default() }
    }
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// The bucket of a key, which is made if there is room or `always`.
    fn of(&mut self, key: &K, now: Instant, always: bool) -> &mut Bucket {
        if self.buckets.len() >= MAX_TRACKED && !self.buckets.contains_key(key) {
            self.buckets.retain(|_, bucket| bucket.in_flight > 0 || bucket.full_at.is_some_and(|at| at > now));
            if self.buckets.len() >= MAX_TRACKED && !always {
                return &mut self.shared;
            }
        }
        self.buckets.entry(key.clone()).or_default()
    }

    fn end(&mut self, key: &K, rate: Rate, gives_back: bool) {
        self.buckets.get_mut(key).unwrap_or(&mut self.shared).end(rate, gives_back);
    }
}

/// An attempt whose password may be checked. When it is dropped, it has failed if it was [checked](Self::begin_check), and has
/// not happened if not.
#[derive(Debug)]
pub(super) struct LoginAttempt<'a> {
    throttle: &'a LoginThrottle,
    key: (ClientKey, String),
    kind: AttemptKind,
    is_known: bool,
    gives_back: bool,
}

impl LoginThrottle {
    /// Admits an attempt of `client` at `name`, perhaps after others have ended.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], with when to try again, if too many have failed.
    pub(super) async fn begin(&self, client: ClientKey, name: &str, kind: AttemptKind) -> Result<LoginAttempt<'_>> {
        let key = (client, name.to_owned());
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // An attempt that ends from here on wakes this one.
            ended.as_mut().enable();
            match self.state.lock().try_begin(&key, kind) {
                Ok(is_known) => return Ok(LoginAttempt { throttle: self, key, kind, is_known, gives_back: true }),
                Err(Refused { in_flight: 0, wait }) => return Err(refusal(wait)),
                Err(_) => {}
            }
            ended.await;
        }
    }
}

fn refusal(wait: Duration) -> Error {
    let seconds = wait.as_millis().div_ceil(1000);
    let what = format!("too many logins with this name or from this address have failed: try again in {seconds} s");
    Error::new(ErrorKind::Unavailable, what)
}

struct Refused {
    /// Attempts that may yet give their token back.
    in_flight: u32,
    wait: Duration,
}

impl State {
    /// Takes the tokens of an attempt; returns whether its client is known.
    fn try_begin(&mut self, key: &(ClientKey, String), kind: AttemptKind) -> Result<bool, Refused> {
        let (now, (client, name)) = (Instant::now(), key);
        let check = |bucket: &Bucket, rate: Rate| match bucket.wait(now, rate) {
            Duration::ZERO => Ok(()),
            wait => Err(Refused { in_flight: bucket.in_flight, wait }),
        };
        let is_known = self.known_clients.contains_key(key) || matches!(client, ClientKey::Certificate(_));
        if is_known && !planted(Bug::KnownClientsThrottled) {
            let bucket = self.known.of(key, now, false);
            check(bucket, KNOWN_RATE)?;
            bucket.take(now, KNOWN_RATE);
            return Ok(true);
        }
        check(self.addresses.of(client, now, false), ADDRESS_RATE)?;
        if let AttemptKind::Password { user_exists } = kind {
            let bucket = self.names.of(name, now, user_exists);
            check(bucket, NAME_RATE)?;
            bucket.take(now, NAME_RATE);
        }
        self.addresses.of(client, now, false).take(now, ADDRESS_RATE);
        Ok(false)
    }

    fn end(&mut self, attempt: &LoginAttempt<'_>) {
        let LoginAttempt { key, kind, is_known, gives_back, .. } = attempt;
        if *is_known {
            return self.known.end(key, KNOWN_RATE, *gives_back);
        }
        self.addresses.end(&key.0, ADDRESS_RATE, *gives_back);
        if let AttemptKind::Password { .. } = kind {
            self.names.end(&key.1, NAME_RATE, *gives_back);
        }
    }

    /// Remembers a client, in place of the one that has not logged in for the longest time if there are too many.
    fn remember(&mut self, key: &(ClientKey, String)) {
        if self.known_clients.len() >= MAX_TRACKED && !self.known_clients.contains_key(key) {
            let oldest = self.known_clients.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.known_clients.remove(&oldest));
        }
        self.known_clients.insert(key.clone(), Instant::now());
        if !planted(Bug::SuccessKeepsFailures)
            && let Some(bucket) = self.known.buckets.get_mut(key)
        {
            bucket.full_at = None;
        }
    }
}

impl LoginAttempt<'_> {
    /// Whether the client is a known one of the user.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The password is checked now: unless it is right, the attempt has failed.
    pub(super) fn begin_check(&mut self) {
        self.gives_back = false;
    }

    /// The password was not checked, or was right although its user may not log in: the attempt does not count.
    pub(super) fn forgive(mut self) {
        self.gives_back = true;
    }

    /// The user has logged in: the client is known from now on, and its failures are forgotten.
    pub(super) fn succeed(mut self) {
        self.gives_back = true;
        self.throttle.state.lock().remember(&self.key);
    }
}

impl Drop for LoginAttempt<'_> {
    fn drop(&mut self) {
        self.throttle.state.lock().end(self);
        self.throttle.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
