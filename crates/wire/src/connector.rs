//! Reconnecting: which address to try next, and how long to wait before it.
//!
//! A [`Connector`] belongs to one task that keeps one connection. It tries the addresses of its list in turn, limits each attempt
//! by [`ConnectPolicy::attempt_timeout`], and pauses after each round in which no address worked. Pauses double from
//! [`ConnectPolicy::min_backoff`] to [`ConnectPolicy::max_backoff`] and are shortened at random by up to half, so that processes that
//! lost the same server do not all return at the same moment.
//!
//! All futures here may be dropped: an attempt that is dropped counts as failed, so the next one uses the next address.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::time;

use crate::transport::Address;

/// Pauses between attempts: they double up to a limit, less a random part.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    /// The next pause before the random part is taken off.
    next: Duration,
    random: u64,
}

impl Backoff {
    /// Pauses from `min` to `max`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self::with_seed(min, max, RandomState::new().hash_one(0))
    }

    /// The same with random parts that follow from `seed`.
    #[must_use]
    pub fn with_seed(min: Duration, max: Duration, seed: u64) -> Self {
        assert!(min <= max, "a back-off from {min:?} to {max:?}");
        Self { min, max, next: min, random: seed | 1 }
    }

    /// The next pause: between half of the current step and all of it.
    pub fn next_pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.max);
        // xorshift64: any spread will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = step / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX - 1);
        step - Duration::from_nanos(self.random % (nanos + 1))
    }

    /// Begins again with the shortest pause.
    pub fn reset(&mut self) {
        self.next = self.min;
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        time::sleep(self.next_pause()).await;
    }
}

/// How a [`Connector`] tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectPolicy {
    /// The time limit of one attempt, from dialling to the end of the handshake.
    pub attempt_timeout: Duration,
    /// The first pause after a round without success.
    pub min_backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
}

/// Chooses addresses and pauses for one connection.
#[derive(Clone, Debug)]
pub struct Connector {
    addresses: Vec<Address>,
    /// The place in the list of the address to try next.
    next: usize,
    /// Attempts of this round that failed.
    failed: usize,
    attempt_timeout: Duration,
    backoff: Backoff,
}

impl Connector {
    /// Tries these addresses, the first one first.
    ///
    /// # Panics
    /// Without an address.
    #[must_use]
    pub fn new(addresses: Vec<Address>, policy: ConnectPolicy) -> Self {
        assert!(!addresses.is_empty(), "a connector needs an address");
        let ConnectPolicy { attempt_timeout, min_backoff, max_backoff } = policy;
        Self { addresses, next: 0, failed: 0, attempt_timeout, backoff: Backoff::new(min_backoff, max_backoff) }
    }

    /// Begins with the address at this place of the list, counted modulo its length.
    #[must_use]
    pub fn starting_at(mut self, place: usize) -> Self {
        self.next = place % self.addresses.len();
        self
    }

    /// All addresses.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The place in the list of the address of the next attempt.
    #[must_use]
    pub fn next_place(&self) -> usize {
        self.next
    }

    /// The address of the next attempt.
    #[must_use]
    pub fn next_address(&self) -> &Address {
        &self.addresses[self.next]
    }

    /// Whether every address failed since the last success or pause.
    #[must_use]
    pub fn is_round_over(&self) -> bool {
        self.failed >= self.addresses.len()
    }

    /// Makes one attempt with `dial`, at the next address.
    ///
    /// After a success the same address is used again and the back-off starts anew. After a failure the next attempt is at the
    /// next address.
    ///
    /// # Errors
    /// Those of `dial`; [`ErrorKind::Unavailable`], naming the address, after [`ConnectPolicy::attempt_timeout`].
    pub async fn attempt<T, F>(&mut self, dial: impl FnOnce(Address) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let place = self.next;
        // Counted before the attempt: it may be dropped while it waits.
        self.next = (place + 1) % self.addresses.len();
        self.failed += 1;
        let address = &self.addresses[place];
        let timeout = self.attempt_timeout;
        let dialled = time::timeout(timeout, dial(address.clone())).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("{address} does not answer within {timeout:?}")))
        });
        if dialled.is_ok() {
            (self.next, self.failed) = (place, 0);
            self.backoff.reset();
        }
        dialled
    }

    /// Tries the addresses one after the other, each once at most, until one works.
    ///
    /// # Errors
    /// The first error, if none works.
    pub async fn attempt_round<T, F>(&mut self, mut dial: impl FnMut(Address) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut first_error = None;
        for _ in 0..self.addresses.len() {
            match self.attempt(&mut dial).await {
                Ok(connection) => return Ok(connection),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::new(ErrorKind::Internal, "a connector without an address")))
    }

    /// The connection that the last attempt made has ended: its address is tried first, after a pause.
    pub fn on_disconnected(&mut self) {
        self.failed = self.addresses.len();
    }

    /// How long to wait before the next attempt; nothing while there are addresses left in this round.
    pub fn next_pause(&mut self) -> Duration {
        if !self.is_round_over() {
            return Duration::ZERO;
        }
        self.failed = 0;
        self.backoff.next_pause()
    }

    /// Waits for [`Connector::next_pause`].
    pub async fn pause(&mut self) {
        let pause = self.next_pause();
        if !pause.is_zero() {
            time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const POLICY: ConnectPolicy = ConnectPolicy {
        attempt_timeout: Duration::from_secs(4),
        min_backoff: Duration::from_millis(16),
        max_backoff: Duration::from_millis(100),
    };

    fn connector(count: usize) -> Connector {
        Connector::new((1..=count).map(|port| format!("127.0.0.1:{port}").parse().unwrap()).collect(), POLICY)
    }

    async fn fail(connector: &mut Connector) -> String {
        let refused = |address: Address| Error::new(ErrorKind::Unavailable, address.to_string());
        let failed = connector.attempt(|address| async move { Err::<(), _>(refused(address)) });
        failed.await.unwrap_err().message().to_owned()
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_differ_between_processes() {
        for seed in 0..100 {
            let mut backoff = Backoff::with_seed(Duration::from_millis(16), Duration::from_millis(100), seed);
            for step in [16, 32, 64, 100, 100] {
                let (pause, step) = (backoff.next_pause(), Duration::from_millis(step));
                assert!(pause >= step / 2 && pause <= step, "{pause:?} of {step:?}");
            }
            backoff.reset();
            assert!(backoff.next_pause() <= Duration::from_millis(16));
        }
        let of = |seed| Backoff::with_seed(POLICY.min_backoff, POLICY.max_backoff, seed).next_pause();
        assert_ne!(of(3), of(5));
    }

    #[tokio::test]
    async fn addresses_are_tried_in_turn_with_a_pause_after_each_round() {
        let mut connector = connector(2);
        for _ in 0..2 {
            assert_eq!(fail(&mut connector).await, "127.0.0.1:1");
            assert_eq!(connector.next_pause(), Duration::ZERO);
            assert_eq!(fail(&mut connector).await, "127.0.0.1:2");
            assert!(connector.is_round_over() && connector.next_pause() > Duration::ZERO);
        }
    }

    #[tokio::test]
    async fn address_that_worked_is_used_again_after_a_short_pause() {
        let mut connector = connector(3).starting_at(1);
        for _ in 0..9 {
            fail(&mut connector).await;
            connector.next_pause();
        }
        assert_eq!(connector.attempt(|address| async move { Ok(address.to_string()) }).await.unwrap(), "127.0.0.1:2");
        connector.on_disconnected();
        let pause = connector.next_pause();
        assert!(pause > Duration::ZERO && pause <= POLICY.min_backoff, "{pause:?}");
        assert_eq!(connector.next_address().to_string(), "127.0.0.1:2");
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_hangs_is_given_up_and_named() {
        let mut connector = connector(2);
        let late = connector.attempt(|_| pending::<Result<()>>()).await.unwrap_err();
        assert!(late.kind() == ErrorKind::Unavailable && late.message().contains("127.0.0.1:1"), "{late}");
        let found = connector.attempt_round(|address| async move {
            match address.to_string().ends_with('1') {
                true => pending().await,
                false => Ok(address.to_string()),
            }
        });
        assert_eq!(found.await.unwrap(), "127.0.0.1:2");
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_that_is_dropped_counts_as_failed() {
        let mut connector = connector(2);
        let attempt = connector.attempt(|_| pending::<Result<()>>());
        assert!(time::timeout(Duration::from_millis(1), attempt).await.is_err());
        assert_eq!(fail(&mut connector).await, "127.0.0.1:2");
        assert!(connector.is_round_over());
    }
}
