//! Where lists were appended to without being read: the offsets that clients are told, and the final lists (C3).

use std::collections::BTreeMap;

use client::CommitReceipt;

use super::client::KEPT_MS;
use super::net::Pid;
use super::process::ProcessMachine;
use super::{RunFailure, World};
use crate::object::Content;
use crate::plan::Key;
use check::history::Outcome;

/// An append of which a client was told the offset.
#[derive(Debug)]
pub(super) struct ReportedAppend {
    operation: u64,
    list: Key,
    element: i64,
    offset: u64,
}

impl World {
    /// The transaction of a client has committed. The client must be told where it has appended.
    pub(super) fn finish_committed(&mut self, pid: Pid, receipt: &CommitReceipt) {
        let now = self.local_time(pid);
        if let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine
            && let Some((operation, txn)) = client.current_txn()
        {
            for (list, element) in client.blind_appends() {
                match receipt.offset(list.oid()) {
                    Some(offset) => {
                        self.appends.push(ReportedAppend { operation, list: *list, element: *element, offset })
                    }
                    None if now.saturating_sub(txn.start.ms()) < KEPT_MS => {
                        self.oracle.report(format!("C3: T{operation} was not told where it has appended to {list}"));
                    }
                    None => {}
                }
            }
        }
        self.finish(pid, Outcome::Ok, Some(receipt.timestamp.0));
    }

    /// Each element is in its list at the offset that its client was told.
    ///
    /// # Errors
    /// The first one that is not.
    pub(super) fn check_appends(&self) -> Result<(), RunFailure> {
        if self.appends.is_empty() {
            return Ok(());
        }
        let lists: BTreeMap<Key, Vec<i64>> =
            self.objects().into_iter().filter_map(|(key, state)| Some((key, Content::list(&state)?))).collect();
        for ReportedAppend { operation, list, element, offset } in &self.appends {
            let actual = lists.get(list).and_then(|elements| Content::offset_in_list(elements, *element));
            if actual != Some(*offset) {
                return Err(RunFailure::Rule(format!(
                    "C3: T{operation} was told that {element} is in {list} at offset {offset}, and it is at {actual:?}"
                )));
            }
        }
        Ok(())
    }
}
