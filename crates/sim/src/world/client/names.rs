//! Steps of transactions on directories: clients bind names that are free, and list.

use client::IsolationLevel;
use model::Entry;
use protocol::entries::{collection_guard, key_guard};
use protocol::ident::TxnId;
use protocol::locks::LockMode;

use super::sets::RESCAN_MS;
use crate::plan::Key;
use crate::world::World;
use crate::world::net::Pid;
use crate::world::process::ProcessMachine;
use check::history;

impl World {
    /// Looks a name up in a directory and binds it to a new object if it is free, or lists the directory. A transaction with locks locks
    /// the guards first. Says whether that is done.
    pub(super) fn take_entry_step(&mut self, pid: Pid, txn: TxnId, directory: Key, name: Option<i64>) -> bool {
        let collection = directory.directory();
        let key = name.map(Key::name);
        let guards = match &key {
            Some(key) => {
                vec![(key_guard(collection, key), LockMode::Exclusive), (collection_guard(collection), LockMode::Touch)]
            }
            None => vec![(collection_guard(collection), LockMode::Shared)],
        };
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return false };
        let Some(current) = &client.current else { return false };
        let locked = if current.isolation == IsolationLevel::Locks { &guards[..] } else { &[] };
        match self.read_all(pid, txn, locked) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let life = self.processes[pid].incarnation;
        let found = match &key {
            Some(key) => self.look_up_entry(collection, key),
            None => self.list_directory(collection),
        };
        let Some(found) = found else {
            // The brick is down.
            self.push_timer(self.now + RESCAN_MS, pid, life);
            return false;
        };
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
        let Some(current) = &mut client.current else { return false };
        if let Err(error) = client.driver.rely_on(txn, found.reads, found.seen) {
            self.give_up(pid, error.kind());
            return true;
        }
        let own = current.own_entries.range(Entry { collection, key: Key::name(0) }..);
        let own = own.take_while(|(entry, _)| entry.collection == collection);
        let own = own.filter(|(entry, _)| key.as_ref().is_none_or(|key| entry.key == *key));
        let mut numbers = found.numbers;
        numbers.extend(own.map(|(_, number)| *number));
        let (is_free, element) = (numbers.is_empty(), current.record.number as i64);
        let set = name.map_or_else(|| directory.directory_name(), |name| directory.bound_name(name));
        current.record.steps.push(history::Step::Read(set.clone(), history::Value::List(numbers)));
        if let Some(key) = key.filter(|_| is_free) {
            let entry = Entry { collection, key };
            let changed = client.driver.change_entry(txn, entry.clone(), Some(Key::target(element)));
            assert_eq!(changed, Ok(()), "{txn:?} runs, and has looked {entry:?} up to change it");
            current.own_entries.insert(entry, element);
            current.record.steps.push(history::Step::append(set, element));
            current.record.steps.push(history::Step::append(directory.directory_name(), element));
        }
        current.at += 1;
        true
    }
}
