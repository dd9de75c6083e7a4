//! The checks of a history.

use std::collections::{BTreeMap, BTreeSet};

use model::Oid;
use protocol::commit::coordinator::CommitReply;

use crate::brick::{List, TestBrick};

/// A transaction as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct TxnRecord {
    pub(crate) reads: BTreeMap<Oid, List>,
    pub(crate) writes: BTreeSet<Oid>,
    pub(crate) began: u64,
    /// The reply to the client, and its time.
    pub(crate) reply: Option<(CommitReply, u64)>,
}

/// All transactions, and the stored objects at the end.
pub(crate) struct History<'a> {
    pub(crate) records: &'a [TxnRecord],
    pub(crate) bricks: &'a [TestBrick],
}

impl History<'_> {
    /// Checks the history. Returns the number of committed transactions.
    pub(crate) fn check(&self) -> Result<usize, String> {
        let lists: BTreeMap<Oid, List> = self.bricks.iter().flat_map(|brick| brick.lists.clone()).collect();
        let list = |oid: &Oid| lists.get(oid).map_or(&[][..], |list| list);
        let mut committed = BTreeSet::new();
        for (number, record) in (0..).zip(self.records) {
            let done: Vec<bool> = record.writes.iter().map(|oid| list(oid).contains(&number)).collect();
            if done.iter().any(|one| *one != done[0]) {
                return Err(format!("C1: transaction {number} was applied in part"));
            }
            let replied = record.reply.as_ref().map(|(reply, _)| matches!(reply, CommitReply::Committed(_)));
            if let (Some(replied), Some(done)) = (replied, done.first())
                && replied != *done
            {
                return Err(format!(
                    "transaction {number}: committed according to its reply: {replied}; applied: {done}"
                ));
            }
            if done.first().copied().or(replied) == Some(true) {
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

    /// Checks strict serializability: dependencies and the real-time order together have no cycle.
    fn check_order<'a>(&self, committed: &BTreeSet<u64>, list: &dyn Fn(&Oid) -> &'a [u64]) -> Result<(), String> {
        let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for number in committed {
            let record = &self.records[*number as usize];
            for (oid, read) in &record.reads {
                let all = list(oid);
                if !all.starts_with(read) {
                    return Err(format!("transaction {number} read {read:?} of {oid}, whose history is {all:?}"));
                }
                // The writer of the state that it read precedes it; the next writer follows it.
                if let Some(writer) = read.last() {
                    after.entry(*writer).or_default().insert(*number);
                }
                if let Some(next) = all[read.len()..].iter().find(|next| *next != number) {
                    after.entry(*number).or_default().insert(*next);
                }
                if record.writes.contains(oid) && all.get(read.len()) != Some(number) {
                    return Err(format!(
                        "V1: transaction {number} wrote {oid} after {read:?}, but its history is {all:?}"
                    ));
                }
            }
            for other in committed {
                let over = self.records[*other as usize].reply.as_ref().is_some_and(|(_, when)| *when < record.began);
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
