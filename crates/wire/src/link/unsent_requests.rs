//! The requests of this side that are not sent yet.
//!
//! Only unsent answers stop a side from reading, not unsent requests: otherwise two sides with many requests would each wait for the
//! other to read.

use std::collections::VecDeque;

use crate::outbox::Outbox;

/// The requests of this side in an outbox.
#[derive(Debug, Default)]
pub(super) struct UnsentRequests {
    spans: VecDeque<Span>,
    bytes: usize,
}

/// Consecutive frames.
#[derive(Debug)]
struct Span {
    /// Their start and end, counted as by [`Outbox::total_added`].
    start: u64,
    end: u64,
    /// Bytes of one-way requests among them.
    one_way_bytes: usize,
}

impl UnsentRequests {
    /// Number of bytes that were not sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds everything in the outbox after `start`, which are requests of this side.
    pub(super) fn push(&mut self, outbox: &Outbox, start: u64, one_way_bytes: usize) {
        let end = outbox.total_added();
        self.bytes += (end - start) as usize;
        match self.spans.back_mut() {
            // Spans are short, so that sent bytes are soon counted as sent.
            Some(last) if last.end == start && end - last.start < 64 << 10 => {
                last.end = end;
                last.one_way_bytes += one_way_bytes;
            }
            _ => self.spans.push_back(Span { start, end, one_way_bytes }),
        }
    }

    /// Removes what was sent, and returns its bytes of one-way requests.
    pub(super) fn remove_sent(&mut self, outbox: &Outbox) -> usize {
        let left = outbox.total_sent();
        let mut one_way_bytes = 0;
        while let Some(span) = self.spans.pop_front_if(|span| span.end <= left) {
            self.bytes -= (span.end - span.start) as usize;
            one_way_bytes += span.one_way_bytes;
        }
        one_way_bytes
    }
}
