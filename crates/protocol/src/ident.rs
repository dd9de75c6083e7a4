//! Names and numbers: who takes part, what happened when, and how new a copy is.

use std::fmt;

/// A client, for as long as its session lasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Whoever holds copies of pages directly below a node: a peer server, a redirector or a client. A holder that comes back
/// after a crash or an expired lease has another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// A point in a history: hybrid logical time, 48 bits of milliseconds since 1970 and 16 that count (rule L1).
///
/// Timestamps order transactions. They are never versions: transactions on one page may be applied out of the order of
/// their timestamps.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HlcTimestamp(pub u64);

/// Bits of a timestamp that count within a millisecond.
const COUNTER_BITS: u32 = 16;

impl HlcTimestamp {
    /// Before all others.
    pub const ZERO: Self = Self(0);

    /// The first timestamp of a millisecond.
    #[must_use]
    pub const fn at(ms: u64) -> Self {
        Self(ms << COUNTER_BITS)
    }

    /// The millisecond that it is in.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The next larger one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A transaction. Its client chooses the number, so that it can ask for the outcome whatever is lost (rule C3).
///
/// Ordered by start, then client: the older of two transactions is the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// When it began, by its client's clock; a client begins no two at one time.
    pub start: HlcTimestamp,
    /// Who began it.
    pub client: ClientId,
}

/// How new a page is: how often its logical node has moved, and the log position of the record that last changed the page
/// (section 2 of the design).
///
/// The brick that serves the page applies records in the order of their positions, so of two versions the larger one
/// includes the smaller.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Moves of the logical node.
    pub moves: u32,
    /// Position in the log of the brick that has the node.
    pub position: u64,
}

impl Version {
    /// Of a page that was never changed.
    pub const ZERO: Self = Self { moves: 0, position: 0 };
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
