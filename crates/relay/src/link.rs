//! Decides when a chunk that enters one direction of a link leaves it. Does no I/O and reads no clock.
//!
//! Times are durations since the start of the relay. Equal seeds and equal inputs in equal order give equal times.
//!
//! ```text
//!   enters      line is free      serialized                                arrives
//!     │   waits      │  bytes / rate   │   delay ± jitter, and each loss       │
//!     └──────────────┴─────────────────┴───────────────────────────────────────┘
//! ```

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::LinkConfig;

/// The largest chunk.
pub(crate) const MAX_CHUNK_BYTES: usize = 64 << 10;
/// The smallest limit of a chunk: the payload of a packet.
const MIN_CHUNK_BYTES: u64 = 1460;
/// A chunk of a link with a rate takes at most about this long to serialize, so that connections share the link smoothly.
const MAX_SERIALIZATION: Duration = Duration::from_millis(1);
/// The shortest time that a chunk may wait for the line.
const MIN_LINE_WAIT: Duration = Duration::from_millis(10);
/// The shortest time after which TCP sends lost bytes again.
const MIN_RETRANSMISSION_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a chunk is lost at most: Linux gives a connection up after 15 retransmissions.
const MAX_LOSSES: u32 = 15;

/// One direction of a link, shared by all connections.
#[derive(Debug)]
pub(crate) struct Link {
    config: LinkConfig,
    /// When the line has serialized everything that has entered it.
    free_at: Duration,
    rng: StdRng,
}

/// The way of a chunk over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmission {
    /// When it arrives.
    pub(crate) arrives_at: Duration,
    /// How often it was lost and sent again.
    pub(crate) losses: u32,
}

impl Link {
    pub(crate) fn new(config: LinkConfig, seed: u64) -> Self {
        Self { config, free_at: Duration::ZERO, rng: StdRng::seed_from_u64(seed) }
    }

    /// Changes the delay of chunks that enter from now on.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.config.delay = delay;
    }

    pub(crate) fn delay(&self) -> Duration {
        self.config.delay
    }

    /// How many bytes to read for one chunk.
    pub(crate) fn chunk_bytes(&self) -> usize {
        let Some(rate) = self.config.rate else { return MAX_CHUNK_BYTES };
        let bytes = u128::from(rate.get()) * MAX_SERIALIZATION.as_micros() / 1_000_000;
        bytes.clamp(u128::from(MIN_CHUNK_BYTES), MAX_CHUNK_BYTES as u128) as usize
    }

    /// When the next chunk may enter. Until then the buffer in front of the line is full.
    ///
    /// The buffer takes one round trip of bytes at the line's rate, and at least 10 ms: the bandwidth-delay product.
    pub(crate) fn accepts_at(&self) -> Duration {
        self.free_at.saturating_sub(MIN_LINE_WAIT.max(2 * self.config.delay))
    }

    /// Lets a chunk enter.
    pub(crate) fn transmit(&mut self, now: Duration, bytes: usize) -> Transmission {
        let serialized_at = self.serialize(now, bytes);
        let losses = self.draw_losses();
        let retransmission = MIN_RETRANSMISSION_TIMEOUT.max(2 * self.config.delay);
        let arrives_at = serialized_at + self.draw_delay() + losses * retransmission;
        Transmission { arrives_at, losses }
    }

    /// When the line has serialized this chunk, which waits until the line is free.
    fn serialize(&mut self, now: Duration, bytes: usize) -> Duration {
        let Some(rate) = self.config.rate else { return now };
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.get()));
        let duration = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now) + duration;
        self.free_at
    }

    fn draw_losses(&mut self) -> u32 {
        let mut losses = 0;
        while losses < MAX_LOSSES && self.config.loss > 0.0 && self.rng.random_bool(self.config.loss) {
            losses += 1;
        }
        losses
    }

    fn draw_delay(&mut self) -> Duration {
        let LinkConfig { delay, jitter, .. } = self.config;
        if jitter.is_zero() {
            return delay;
        }
        // The delay may have become shorter than the jitter.
        self.rng.random_range(delay.saturating_sub(jitter)..=delay + jitter)
    }
}

#[cfg(test)]
mod tests;
