//! Ranges of contents that members have read, so that each crosses the link once.
//!
//! A range of a state of a content never changes: an identifier of a content is given once, and a change of a part of it makes another
//! generation. So a kept range needs no coherence. A reader names the state that it wants to read, which it has seen in the slot of
//! the blob or in its first piece, so it gets bytes of one state wherever they come from.
//!
//! The server above gives a range on the connection of the member that asked first, in its name. Members that ask for the same
//! range meanwhile wait for that answer, and ask in their own names if it is no range of that state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use model::{Result, SpaceId};
use protocol::eviction::EvictionPolicy;
use wire::cluster::ReadContent;
use wire::link::{Answer, Caller, DeferredResponder};
use wire::proto::contents;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::group::lock;
use super::plant::{ContentBug, planted};

/// Memory of a kept range besides its bytes.
const OVERHEAD_BYTES: usize = 256;

/// A member that reads a range.
struct Reader {
    /// To the server above, in its name.
    above: Caller,
    reply: DeferredResponder,
}

impl Reader {
    /// Asks the server above, and keeps nothing.
    fn forward(self, read: contents::Read) {
        self.above.forward(Request::ReadContent(read), Vec::new(), self.reply);
    }
}

/// A range of a content of a cluster. A cluster that was restored has the contents of another one, and changes them in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Range {
    /// The number of the cluster; 0 if the server above does not tell it.
    cluster: u128,
    read: ReadContent,
}

/// What the reader of a range gets.
enum Step<R> {
    /// It is kept.
    Reply(R, Answer),
    /// The server above has to be asked.
    Ask(R),
    /// It is asked already.
    Wait,
}

/// What it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentCounts {
    /// Ranges of a known state that members asked for.
    pub(super) reads: u64,
    /// Those of them that were kept, or that another member had asked for, and their bytes.
    pub(super) kept: u64,
    pub(super) kept_bytes: u64,
}

/// The ranges, and the readers that wait for them. `R` is a reader.
struct Ranges<R> {
    kept: HashMap<Range, Answer>,
    policy: EvictionPolicy<Range>,
    /// The readers that wait for the answer to the first one.
    asked: HashMap<Range, Vec<R>>,
    counts: ContentCounts,
}

impl<R> Ranges<R> {
    /// Keeps at most `bytes` bytes, but at least one range.
    fn new(bytes: usize) -> Self {
        let (policy, counts) = (EvictionPolicy::new(bytes), ContentCounts::default());
        Self { kept: HashMap::new(), policy, asked: HashMap::new(), counts }
    }

    fn look_up(&mut self, range: Range, reader: R) -> Step<R> {
        let range = key(range);
        self.counts.reads += 1;
        if let Some(answer) = self.kept.get(&range) {
            let answer = answer.clone();
            self.policy.record_use(range);
            self.count_kept(&answer, 1);
            return Step::Reply(reader, answer);
        }
        if let Some(waiting) = self.asked.get_mut(&range)
            && !planted(ContentBug::AskedAgain)
        {
            waiting.push(reader);
            return Step::Wait;
        }
        self.asked.insert(range, Vec::new());
        Step::Ask(reader)
    }

    /// The answer to the first reader has come. Returns the readers that wait for it.
    fn handle_answer(&mut self, range: Range, answer: Option<&Answer>) -> Vec<R> {
        let range = key(range);
        if answer.is_none() && planted(ContentBug::FailureRemembered) {
            return self.asked.get_mut(&range).map(std::mem::take).unwrap_or_default();
        }
        let mut waiting = self.asked.remove(&range).unwrap_or_default();
        if planted(ContentBug::WaitersForgotten) {
            waiting.clear();
        }
        if let Some(answer) = answer {
            self.count_kept(answer, waiting.len());
            self.kept.insert(range, answer.clone());
            self.policy.insert(range, answer.raw.len() + OVERHEAD_BYTES);
            self.policy.record_use(range);
            while !planted(ContentBug::NeverEvicted)
                && let Some(evicted) = self.policy.evict(range)
            {
                self.kept.remove(&evicted);
            }
        }
        waiting
    }

    fn count_kept(&mut self, answer: &Answer, readers: usize) {
        self.counts.kept += readers as u64;
        self.counts.kept_bytes += (readers * answer.raw.len()) as u64;
    }
}

/// The ranges that a redirector keeps, of all spaces.
pub(crate) struct ContentCache(Mutex<Ranges<Reader>>);

impl ContentCache {
    /// Keeps at most `bytes` bytes, but at least one range.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Ranges::new(bytes)))
    }

    pub(super) fn counts(&self) -> ContentCounts {
        lock(&self.0).counts
    }

    /// Answers a read of a member of a space of a cluster that may read it. `above` asks in its name.
    pub(super) fn read(
        self: &Arc<Self>,
        (cluster, space): (u128, SpaceId),
        read: contents::Read,
        above: &Caller,
        reply: DeferredResponder,
    ) {
        let reader = Reader { above: above.clone(), reply };
        // The server above refuses what is malformed, or of another space.
        let is_kept = |range: &ReadContent| range.expected.is_some() && range.oid.page().space == space;
        let Some(checked) = ReadContent::try_from(read).ok().filter(is_kept) else { return reader.forward(read) };
        let range = Range { cluster, read: checked };
        let step = lock(&self.0).look_up(range, reader);
        match step {
            Step::Reply(reader, answer) => reader.reply.forward_answer(Ok(answer)),
            Step::Ask(reader) => self.ask(range, reader),
            Step::Wait => {}
        }
    }

    fn ask(self: &Arc<Self>, range: Range, reader: Reader) {
        let Reader { above, reply } = reader;
        let cache = self.clone();
        above.ask(Request::ReadContent(range.read.into()), move |answer| cache.handle_answer(range, answer, reply));
    }

    fn handle_answer(&self, range: Range, answer: Result<Answer>, reply: DeferredResponder) {
        let kept = range_of(&answer);
        let waiting = lock(&self.0).handle_answer(range, kept.as_ref());
        reply.forward_answer(answer);
        for reader in waiting {
            match &kept {
                Some(answer) => reader.reply.forward_answer(Ok(answer.clone())),
                None => reader.forward(range.read.into()),
            }
        }
    }
}

/// The answer if it is nothing but bytes of the state that was asked for. What was damaged on the link is not kept; its reader finds that
/// by the checksum.
fn range_of(answer: &Result<Answer>) -> Option<Answer> {
    let answer = answer.as_ref().ok()?;
    let is_range = matches!(&answer.response, Response::ContentBytes(contents::Bytes { state: 0, is_read: true }));
    if !is_range && !planted(ContentBug::FailureKept) {
        return None;
    }
    answer.clone().check().ok()
}

/// The key of a range.
fn key(range: Range) -> Range {
    let ReadContent { expected, offset, .. } = range.read;
    let expected = expected.filter(|_| !planted(ContentBug::StateIgnored));
    let offset = if planted(ContentBug::PlaceIgnored) { 0 } else { offset };
    let cluster = if planted(ContentBug::ClusterIgnored) { 0 } else { range.cluster };
    Range { cluster, read: ReadContent { expected, offset, ..range.read } }
}

#[cfg(test)]
mod tests;
