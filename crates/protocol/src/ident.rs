//! Identifiers of clients, holders and transactions; timestamps; versions.

use std::fmt;

/// A client; the number is valid for one session of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A node that holds copies directly below another one: a peer server, a redirector or a client. After a crash or an
/// expired lease it has another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// Hybrid logical time: 48 bits of milliseconds since 1970 and a counter of 16 bits (rule L1).
///
/// Timestamps order transactions. They are never versions: transactions on one page may be applied in another order
/// than that of their timestamps.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HlcTimestamp(pub u64);

/// Bits of the counter.
const COUNTER_BITS: u32 = 16;

impl HlcTimestamp {
    /// The smallest timestamp.
    pub const ZERO: Self = Self(0);

    /// The first timestamp of a millisecond.
    #[must_use]
    pub const fn at(ms: u64) -> Self {
        Self(ms << COUNTER_BITS)
    }

    /// Its milliseconds since 1970.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The next larger timestamp.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A transaction. Its client chooses the number, so that it can resolve the outcome after any failure (rule C3).
///
/// Ordered by start, then client: the older of two transactions is the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// When it began, by its client's clock; unique for each client.
    pub start: HlcTimestamp,
    /// Its client.
    pub client: ClientId,
}

/// The version of a page: the move count of its logical node and the log position of the record that last changed the
/// page.
///
/// The brick applies records in the order of their positions, so the larger of two versions includes the smaller.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Moves of the logical node.
    pub moves: u32,
    /// Position in the log of the brick that has the node.
    pub position: u64,
}

impl Version {
    /// The version of a page that was never changed.
    pub const ZERO: Self = Self { moves: 0, position: 0 };
    /// Later than every version of a page. It can be sent.
    pub const MAX: Self = Self { moves: u32::MAX, position: u64::MAX >> 1 };
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

impl fmt::Debug for HlcTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ms(), self.0 & ((1 << COUNTER_BITS) - 1))
    }
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.client, self.start)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.moves {
            0 => write!(f, "v{}", self.position),
            moves => write!(f, "v{moves}:{}", self.position),
        }
    }
}
