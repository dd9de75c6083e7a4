//! Steps of transactions on sets: clients count members by queries, and claim unique values.

use std::collections::BTreeMap;

use client::IsolationLevel;
use client::driver::{ClientCall, ReadRequest};
use model::{Error, ErrorKind, NodeId, Oid};
use protocol::entries::{key_guard, unique_question};
use protocol::ident::{HlcTimestamp, TxnId};
use protocol::locks::LockMode;
use protocol::page_cache::ObjectState;
use protocol::validate::{Read, ReadVersion};
use wire::cluster::Scanned;

use super::Current;
use super::members::Sift;
use crate::object::Content;
use crate::plan::{Key, SPACE};
use crate::world::World;
use crate::world::net::Pid;
use crate::world::process::ProcessMachine;
use crate::world::query::{QueryAnswer, SetQuery};
use crate::world::rejections::Rejection;
use check::history;

/// How soon a query of a brick that is down is tried again, in milliseconds.
pub(super) const RESCAN_MS: u64 = 50;
/// When a query counts as lost, in milliseconds: longer than a peer server waits for bricks.
const QUERY_TIMEOUT_MS: u64 = 15_000;
/// The chance that a query is for all logical nodes, as 1 in this number.
const WIDE_QUERY_ODDS: u64 = 4;

/// A query that a client has sent to its peer server.
pub(super) enum ClientQuery {
    /// It was sent, and counts as lost at this time.
    Asked {
        query: u64,
        until: u64,
    },
    Answered(QueryAnswer),
}

/// The members of sets by the names of the sets, and what a transaction relies on that has read them.
struct SetMembers {
    sets: BTreeMap<String, Vec<i64>>,
    guards: Vec<Read>,
    found: Vec<Read>,
    seen: HlcTimestamp,
    /// Whether what the transaction itself has written is among them.
    has_own: bool,
}

impl SetMembers {
    fn of_scan((name, members): (String, Vec<i64>), Scanned { found, guards, seen, .. }: Scanned) -> Self {
        let found = found.into_iter().map(|(oid, version, _)| Read { oid, seen: ReadVersion::At(version) }).collect();
        Self { sets: BTreeMap::from([(name, members)]), guards, found, seen, has_own: false }
    }
}

impl World {
    /// Reads the guard of a set, and asks the brick what is in it; what the transaction itself has put there is behind that. Says
    /// whether that is done.
    pub(super) fn count_members(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        match self.read_all(pid, txn, &[(guard.oid(), LockMode::Shared)]) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let Some(mut members) = self.members(guard) else { return false };
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
        let Some(current) = &mut client.current else { return false };
        let name = guard.to_string();
        members.extend(current.record.appends().filter(|(key, _)| *key == name).map(|(_, element)| element));
        current.record.steps.push(history::Step::Read(name, history::Value::List(members)));
        current.at += 1;
        true
    }

    /// The members of the sets of a page, from the peer server; `None` while its answer is awaited. Some optimistic transactions query
    /// the sets at all logical nodes.
    fn query_members(&mut self, pid: Pid, guard: Key, sift: Option<&Sift>) -> Option<SetMembers> {
        let bricks = self.plan.cluster.bricks as u32;
        let current = self.current_mut(pid)?;
        let is_wide = current.isolation != IsolationLevel::Locks && current.record.number % WIDE_QUERY_ODDS == 0;
        let nodes: Vec<u32> = if is_wide { (1..=bricks).collect() } else { vec![guard.node] };
        let own_writes = current.own_writes.clone();
        let request = SetQuery { guard, condition: sift.map(Sift::condition), only_guards: false, own_writes };
        let answer = self.await_answer(pid, request, nodes.iter().copied().map(NodeId).collect())?;
        if let (Some(sift), Some(schema)) = (sift, &answer.schema)
            && !sift.is_answered_by(&schema.classes)
        {
            // The name is that of another field there: the peer server or the client will hear of newer classes.
            self.ask_for_classes(pid);
            return None;
        }
        if answer.found_changed {
            self.current_mut(pid)?.must_conflict = true;
        }
        let guards = nodes.into_iter().map(|node| Key { node, ..guard });
        let mut sets = BTreeMap::new();
        for one in guards {
            match sift {
                Some(sift) => sets.insert(sift.name(one), self.sifted(pid, sift, &answer, one.node)?),
                None => sets.insert(one.to_string(), answer.numbers(NodeId(one.node))),
            };
        }
        let QueryAnswer { reads, seen, .. } = answer;
        Some(SetMembers { sets, guards: reads, found: Vec::new(), seen, has_own: true })
    }

    /// The answer of the peer server to a query, which is sent if none is under way; `None` while it is awaited.
    fn await_answer(&mut self, pid: Pid, request: SetQuery, nodes: Vec<NodeId>) -> Option<QueryAnswer> {
        self.update_index_states();
        let now = self.now;
        let current = self.current_mut(pid)?;
        match current.query.take() {
            Some(ClientQuery::Asked { query, until }) if now < until => {
                current.query = Some(ClientQuery::Asked { query, until });
                None
            }
            Some(ClientQuery::Answered(answer)) => Some(answer),
            Some(ClientQuery::Asked { .. }) | None => {
                let query = self.begin_query(pid, request, nodes)?;
                let until = now + QUERY_TIMEOUT_MS;
                self.current_mut(pid)?.query = Some(ClientQuery::Asked { query, until });
                None
            }
        }
    }

    /// Locks the guards of a query before it is sent, as the client that ships: the peer server says first which those are. Results
    /// as those of [`World::read_all`].
    fn lock_guards(&mut self, pid: Pid, txn: TxnId, guard: Key, condition: Option<String>) -> Option<bool> {
        let known = self.current_mut(pid).and_then(|current| current.guards.clone());
        let guards = match known {
            Some(guards) => guards,
            None => {
                let request = SetQuery { guard, condition, only_guards: true, own_writes: BTreeMap::new() };
                let Some(answer) = self.await_answer(pid, request, vec![NodeId(guard.node)]) else {
                    let life = self.processes[pid].incarnation;
                    self.push_timer(self.now + RESCAN_MS, pid, life);
                    return Some(false);
                };
                let guards: Vec<_> = answer.reads.iter().map(|read| (read.oid, LockMode::Shared)).collect();
                self.current_mut(pid)?.guards = Some(guards.clone());
                guards
            }
        };
        self.read_all(pid, txn, &guards)
    }

    pub(super) fn current_mut(&mut self, pid: Pid) -> Option<&mut Current> {
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Client(client)) => client.current.as_mut(),
            _ => None,
        }
    }

    /// The peer server has ended a query.
    pub(in crate::world) fn end_client_query(
        &mut self,
        pid: Pid,
        ended: u64,
        result: Result<QueryAnswer, (ErrorKind, String)>,
    ) {
        let Some(current) = self.current_mut(pid) else { return };
        if !matches!(current.query, Some(ClientQuery::Asked { query, .. }) if query == ended) {
            return;
        }
        match result {
            Err((kind @ (ErrorKind::Denied | ErrorKind::Stopped), _)) => self.give_up(pid, kind),
            // One that has failed is sent again.
            result => {
                if let Err((kind, _)) = &result {
                    let rejection = Rejection::of_query(*kind);
                    if rejection == Rejection::OldClasses && self.has_old_program(pid) {
                        self.ask_for_classes(pid);
                    } else {
                        self.check_rejection(pid, rejection);
                    }
                }
                let Some(current) = self.current_mut(pid) else { return };
                current.query = result.ok().map(ClientQuery::Answered);
                self.resume(pid);
            }
        }
    }

    /// Reads objects without contents in a transaction: guards that it locks, and places that it writes. Says whether all are read; `None`
    /// if the transaction cannot commit any more and was given up.
    pub(super) fn read_all(&mut self, pid: Pid, txn: TxnId, reads: &[(Oid, LockMode)]) -> Option<bool> {
        let shown = self.local_time(pid);
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return Some(false) };
        let Some(current) = &mut client.current else { return Some(false) };
        let mut are_read = true;
        for &(oid, mode) in reads {
            let read = ReadRequest { txn, level: current.isolation, oid, mode };
            match client.driver.read(&read, shown) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    current.calls.insert(client.driver.start(ClientCall::Read(read), shown));
                    are_read = false;
                }
                Err(error) => {
                    self.give_up(pid, error.kind());
                    return None;
                }
            }
        }
        Some(are_read)
    }

    /// Scans a set as a query does: the transaction relies on the guards and on the objects that it has seen. A transaction with locks
    /// locks the guards first. Says whether that is done.
    pub(super) fn scan_members(&mut self, pid: Pid, txn: TxnId, guard: Key, sift: Option<&Sift>) -> bool {
        let life = self.processes[pid].incarnation;
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return false };
        let Some(current) = &client.current else { return false };
        let (number, isolation, sends_queries) = (current.record.number, current.isolation, self.sends_queries());
        if sends_queries && isolation == IsolationLevel::Locks {
            match self.lock_guards(pid, txn, guard, sift.map(Sift::condition)) {
                Some(true) => {}
                Some(false) => return false,
                None => return true,
            }
        }
        let members = match sends_queries {
            true => self.query_members(pid, guard, sift),
            false => {
                let scanned = self.scan_set(guard, number);
                match scanned.map(|scanned| self.members_of_scan(guard, sift, scanned)).transpose() {
                    Ok(members) => members,
                    Err(unread) => {
                        if let Some(sift) = sift {
                            self.handle_unread(pid, sift.program, unread);
                        }
                        return false;
                    }
                }
            }
        };
        let Some(members) = members else {
            // The brick is down, or the peer server has not answered yet.
            self.push_timer(self.now + RESCAN_MS, pid, life);
            return false;
        };
        let locked = members.guards.iter().filter(|_| isolation == IsolationLevel::Locks && !sends_queries);
        let locked: Vec<_> = locked.map(|read| (read.oid, LockMode::Shared)).collect();
        match self.read_all(pid, txn, &locked) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
        let Some(current) = &mut client.current else { return false };
        let SetMembers { mut sets, guards, found, seen, has_own } = members;
        if let Err(error) = client.driver.rely_on(txn, guards.into_iter().chain(found).collect(), seen) {
            self.give_up(pid, error.kind());
            return true;
        }
        if !has_own {
            let name = sift.map_or_else(|| guard.to_string(), |sift| sift.name(guard));
            let set = sets.entry(name.clone()).or_default();
            set.retain(|one| current.record.appends().all(|(key, _)| key != history::member(&name, *one)));
            set.extend(current.record.appends().filter(|(key, _)| *key == name).map(|(_, element)| element));
        }
        for (name, members) in sets {
            current.record.steps.push(history::Step::Read(name, history::Value::List(members)));
        }
        (current.at, current.guards) = (current.at + 1, None);
        true
    }

    /// What a scan of a set has found.
    ///
    /// # Errors
    /// The first member that the program cannot read.
    fn members_of_scan(&self, guard: Key, sift: Option<&Sift>, scanned: Scanned) -> Result<SetMembers, (Oid, Error)> {
        let named = match sift {
            Some(sift) => (sift.name(guard), sift.of_scan(&self.member_journal, &scanned)?),
            None => {
                let members = scanned.found.iter().filter_map(|(.., member)| Content::number(member));
                (guard.to_string(), members.collect())
            }
        };
        Ok(SetMembers::of_scan(named, scanned))
    }

    /// Looks a unique value up, and binds it to a new object if no object has it, as the client that ships does before a commit. Says
    /// whether that is done.
    pub(super) fn claim_value(&mut self, pid: Pid, txn: TxnId, guard: Key, value: i64) -> bool {
        let life = self.processes[pid].incarnation;
        let nodes: Vec<NodeId> = (1..=self.plan.cluster.bricks as u32).map(NodeId).collect();
        let entry = guard.claim_entry(&nodes, value);
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return false };
        let Some(current) = &client.current else { return false };
        let (number, is_locking) = (current.record.number, current.isolation == IsolationLevel::Locks);
        let (place, class) = (guard.claim(number), guard.claim_class());
        let oid = Oid::new(class, place.page(), place.slot);
        let locked = is_locking.then(|| (key_guard(entry.collection, &entry.key), LockMode::Exclusive));
        let reads: Vec<_> = locked.into_iter().chain([(oid, LockMode::Exclusive)]).collect();
        match self.read_all(pid, txn, &reads) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let Some((bound, reads, seen)) = self.look_up_target(&entry) else {
            // The brick is down.
            self.push_timer(self.now + RESCAN_MS, pid, life);
            return false;
        };
        // Who has the value is read, too.
        match self.read_all(pid, txn, &bound.map(|holder| (holder, LockMode::Shared)).into_iter().collect::<Vec<_>>()) {
            Some(true) => {}
            Some(false) => return false,
            None => return true,
        }
        let shown = self.local_time(pid);
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
        let Some(current) = &mut client.current else { return false };
        let questions = [oid, entry.collection].map(|oid| unique_question(SPACE, oid.page().node, guard.claim_index()));
        if let Err(error) = client.driver.rely_on(txn, reads.into_iter().chain(questions).collect(), seen) {
            self.give_up(pid, error.kind());
            return true;
        }
        let mut holders: Vec<i64> = current.own_entries.get(&entry).copied().into_iter().collect();
        if let Some(holder) = bound {
            let read = ReadRequest { txn, level: current.isolation, oid: holder, mode: LockMode::Shared };
            let state = client.driver.read(&read, shown).ok().flatten().flatten();
            let state = state.filter(|state| Content::unique_value(state) == Some(value));
            holders.extend(state.as_ref().and_then(Content::number));
        }
        let (is_free, name, element) = (holders.is_empty(), guard.claim_name(value), number as i64);
        current.record.steps.push(history::Step::Read(name.clone(), history::Value::List(holders)));
        if is_free {
            let object = Content::encode_claim(element, value, class);
            current.own_writes.insert(oid, Some(object.clone()));
            let written = client.driver.write(txn, oid, ObjectState::Value(object));
            assert_eq!(written, Ok(()), "{txn:?} runs, and has read {oid} to write it");
            let bound = client.driver.change_entry(txn, entry.clone(), Some(oid));
            assert_eq!(bound, Ok(()), "{txn:?} runs, and has looked {entry:?} up to change it");
            current.own_entries.insert(entry, element);
            current.record.steps.push(history::Step::append(name, element));
        }
        current.at += 1;
        true
    }
}
