//! What one connection has under way in one direction, in order. Does no I/O and reads no clock.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

/// Bytes of a connection that may be under way in a direction.
const MAX_BYTES: usize = 64 << 20;
/// What an entry takes beside its bytes, so that many small chunks are bounded, too.
const ENTRY_BYTES: usize = 128;

/// What crosses the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A chunk of bytes.
    Data(Bytes),
    /// The end of the direction, as TCP's FIN.
    End,
    /// The connection has broken, as TCP's RST.
    Reset,
}

/// Segments under way, with the times at which they arrive.
#[derive(Debug, Default)]
pub(crate) struct DelayQueue {
    entries: VecDeque<(Duration, Segment)>,
    bytes: usize,
    last_arrival: Duration,
}

impl DelayQueue {
    /// Adds a segment that arrives at this time, but not before those that were added earlier.
    pub(crate) fn push(&mut self, arrives_at: Duration, segment: Segment) {
        self.last_arrival = self.last_arrival.max(arrives_at);
        self.bytes += ENTRY_BYTES + segment.len();
        self.entries.push_back((self.last_arrival, segment));
    }

    /// When the next segment arrives.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.entries.front().map(|(arrives_at, _)| *arrives_at)
    }

    /// Removes the next segment if it has arrived.
    pub(crate) fn pop_arrived(&mut self, now: Duration) -> Option<Segment> {
        let (_, segment) = self.entries.pop_front_if(|(arrives_at, _)| *arrives_at <= now)?;
        self.bytes -= ENTRY_BYTES + segment.len();
        Some(segment)
    }

    /// Whether another chunk may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }
}

impl Segment {
    /// The number of its bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data(bytes) => bytes.len(),
            Self::End | Self::Reset => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(len: usize) -> Segment {
        Segment::Data(Bytes::from(vec![0; len]))
    }

    proptest! {
        #[test]
        fn segments_arrive_in_order_and_never_early(arrivals in prop::collection::vec(0_u64..1000, 1..50)) {
            let mut queue = DelayQueue::default();
            for (index, arrival) in arrivals.iter().enumerate() {
                queue.push(Duration::from_micros(*arrival), chunk(index));
            }
            let mut arrived = Vec::new();
            for now in 0..1000 {
                while let Some(segment) = queue.pop_arrived(Duration::from_micros(now)) {
                    prop_assert!(arrivals[arrived.len()] <= now);
                    arrived.push(segment);
                }
            }
            prop_assert_eq!(arrived, (0..arrivals.len()).map(chunk).collect::<Vec<_>>());
            prop_assert_eq!(queue.bytes, 0);
        }
    }

    #[test]
    fn a_segment_waits_for_the_one_before() {
        let mut queue = DelayQueue::default();
        queue.push(Duration::from_millis(5), chunk(1));
        queue.push(Duration::from_millis(3), Segment::End);
        assert_eq!(queue.next_arrival(), Some(Duration::from_millis(5)));
        assert_eq!(queue.pop_arrived(Duration::from_millis(4)), None);
        assert_eq!(queue.pop_arrived(Duration::from_millis(5)), Some(chunk(1)));
        assert_eq!(queue.pop_arrived(Duration::from_millis(5)), Some(Segment::End));
        assert_eq!(queue.next_arrival(), None);
    }

    #[test]
    fn a_full_queue_has_room_again_when_segments_have_arrived() {
        let mut queue = DelayQueue::default();
        queue.push(Duration::ZERO, chunk(MAX_BYTES / 2));
        assert!(queue.has_room());
        queue.push(Duration::ZERO, chunk(MAX_BYTES / 2));
        assert!(!queue.has_room());
        queue.pop_arrived(Duration::ZERO);
        assert!(queue.has_room());
    }

    #[test]
    fn many_small_chunks_fill_a_queue() {
        let mut queue = DelayQueue::default();
        let mut chunks = 0;
        while queue.has_room() {
            queue.push(Duration::ZERO, chunk(1));
            chunks += 1;
        }
        assert!(chunks <= MAX_BYTES / ENTRY_BYTES, "{chunks}");
    }
}
