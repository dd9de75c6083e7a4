//! What must hold of a history, whatever happened.

use std::collections::{BTreeMap, BTreeSet};

use model::Oid;
use protocol::commit::coordinator::CommitReply;

use crate::brick::{List, TestBrick};

/// What a client knows of its transaction.
#[derive(Clone, Debug)]
pub(crate) struct TxnRecord {
    pub(crate) reads: BTreeMap<Oid, List>,
    pub(crate) writes: BTreeSet<Oid>,
    pub(crate) began: u64,
    /// What it was told, and when.
    pub(crate) reply: Option<(CommitReply, u64)>,
}

/// All transactions, and what is stored in the end.
pub(crate) struct History<'a> {
    pub(crate) stories: &'a [TxnRecord],
    pub(crate) bricks: &'a [TestBrick],
}

impl History<'_> {
    /// Checks what has come of it all.
    pub(crate) fn check(&self) -> Result<usize, String> {
        let lists: BTreeMap<Oid, List> = self.bricks.iter().flat_map(|brick| brick.lists.clone()).collect();
        let list = |oid: &Oid| lists.get(oid).map_or(&[][..], |list| list);
        let mut committed = BTreeSet::new();
        for (number, story) in (0..).zip(self.stories) {
            let done: Vec<bool> = story.writes.iter().map(|oid| list(oid).contains(&number)).collect();
            if done.iter().any(|one| *one != done[0]) {
                return Err(format!("C1: transaction {number} happened in part"));
            }
            let told = story.reply.as_ref().map(|(reply, _)| matches!(reply, CommitReply::Committed(_)));
            if let (Some(told), Some(done)) = (told, done.first())
                && told != *done
            {
                return Err(format!("transaction {number} was told {told}, and {done} is what happened"));
            }
            if done.first().copied().or(told) == Some(true) {
                committed.insert(number);
            }
        }
        for (oid, list) in &lists {
            let once: BTreeSet<&u64> = list.iter().collect();
            if once.len() != list.len() {
                return Err(format!("C3: {oid} was written twice by one transaction: {list:?}"));
            }
        }
        self.check_order(&committed, &list).map(|()| committed.len())
    }

    /// Strict serializability: what depends on what, and what was over before something began, has no cycle.
    fn check_order<'a>(&self, committed: &BTreeSet<u64>, list: &dyn Fn(&Oid) -> &'a [u64]) -> Result<(), String> {
        let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for number in committed {
            let story = &self.stories[*number as usize];
            for (oid, read) in &story.reads {
                let all = list(oid);
                if !all.starts_with(read) {
                    return Err(format!("transaction {number} read {read:?} of {oid}, which became {all:?}"));
                }
                // Whoever wrote what it read comes before it; whoever wrote next comes after it.
                if let Some(writer) = read.last() {
                    after.entry(*writer).or_default().insert(*number);
                }
                if let Some(next) = all[read.len()..].iter().find(|next| *next != number) {
                    after.entry(*number).or_default().insert(*next);
                }
                if story.writes.contains(oid) && all.get(read.len()) != Some(number) {
                    return Err(format!("V1: transaction {number} wrote {oid} after {read:?}; it became {all:?}"));
                }
            }
            for other in committed {
                let over = self.stories[*other as usize].reply.as_ref().is_some_and(|(_, when)| *when < story.began);
                if over {
                    after.entry(*other).or_default().insert(*number);
                }
            }
        }
        let mut left = committed.clone();
        while !left.is_empty() {
            let behind: BTreeSet<u64> =
                after.iter().filter(|(from, _)| left.contains(from)).flat_map(|(_, to)| to.iter().copied()).collect();
            let free: Vec<u64> = left.difference(&behind).copied().collect();
            if free.is_empty() {
                return Err(format!("strict serializability: a cycle among {left:?}"));
            }
            left.retain(|number| !free.contains(number));
        }
        Ok(())
    }
}
