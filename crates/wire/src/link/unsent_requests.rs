//! What a side itself asks and tells, on its way out.
//!
//! It does not keep the side from reading: if it did, two sides with much to ask or tell would each wait for the other to
//! read. Only unsent answers do.

use std::collections::VecDeque;

use crate::outbox::Outbox;

/// The requests of this side in an outbox.
#[derive(Debug, Default)]
pub(super) struct UnsentRequests {
    spans: VecDeque<Span>,
    bytes: usize,
}

/// Frames that follow one another.
#[derive(Debug)]
struct Span {
    /// Where they begin and end, counted as [`Outbox::added`] does.
    start: u64,
    end: u64,
    /// What they count for in the mailbox: bytes of requests that want no answer.
    one_way_bytes: usize,
}

impl UnsentRequests {
    /// Bytes that have not left.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Everything in the outbox behind `start` is a request of this side.
    pub(super) fn push(&mut self, outbox: &Outbox, start: u64, told: usize) {
        let end = outbox.total_added();
        self.bytes += (end - start) as usize;
        match self.spans.back_mut() {
            // Short, so that what has left is soon counted so.
            Some(last) if last.end == start && end - last.start < 64 << 10 => {
                last.end = end;
                last.one_way_bytes += told;
            }
            _ => self.spans.push_back(Span { start, end, one_way_bytes: told }),
        }
    }

    /// Forgets what has left, and says how much of it was told.
    pub(super) fn remove_sent(&mut self, outbox: &Outbox) -> usize {
        let left = outbox.total_sent();
        let mut told = 0;
        while let Some(span) = self.spans.pop_front_if(|span| span.end <= left) {
            self.bytes -= (span.end - span.start) as usize;
            told += span.one_way_bytes;
        }
        told
    }
}
