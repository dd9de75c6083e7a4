//! The steps of transactions: what each reads, and then writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use check::history;
use client::IsolationLevel;
use client::driver::{CallId, ClientCall, ClientDriver, ReadRequest};
use model::{ContentId, ErrorKind, Object, Oid};
use protocol::ident::TxnId;
use protocol::locks::LockMode;
use protocol::page_cache::{DerivedValue, ObjectState};
use wire::cluster::ReadContent;

use super::OperationStage;
use super::contents::read_of;
use crate::object::Content;
use crate::plan::{Key, Step};

/// Elements of a list from which on some transactions append by a change of a part; shorter lists are replaced.
const MIN_PATCHED_LEN: usize = 5;

/// What becomes of a step.
pub(super) enum StepProgress {
    Done,
    Waits,
    /// The transaction cannot commit any more, with an error of this kind.
    Fails(ErrorKind),
    Until(OperationStage),
    /// The bytes of a content have to be read first.
    Reads(ReadContent),
}

/// Why a step is not taken.
enum Stop {
    /// The transaction cannot commit any more, with an error of this kind.
    Rejected(ErrorKind),
    /// The bytes of a content have to be read first.
    Reads(ReadContent),
}

/// Reads objects in a transaction, at hand or by calls that finish later.
pub(super) struct Reader<'a> {
    pub(super) driver: &'a mut ClientDriver<Object>,
    pub(super) txn: TxnId,
    pub(super) isolation: IsolationLevel,
    pub(super) calls: &'a mut BTreeSet<CallId>,
    /// The time that the client's clock shows.
    pub(super) shown: u64,
    /// The objects of classes that the transaction has written.
    pub(super) own_writes: &'a mut BTreeMap<Oid, Option<Object>>,
    /// The member that the step inserts.
    pub(super) member: Option<Object>,
    /// Contents that were read, by their states.
    pub(super) contents: &'a BTreeMap<(ContentId, u64), Bytes>,
    /// Whether it appends to a list by a change of a part of its bytes.
    pub(super) is_patching: bool,
    /// Whether it does so without reading those that it knows.
    pub(super) is_blind: bool,
    /// Whether it writes and creates objects without reading them.
    pub(super) writes_unread: bool,
    pub(super) known_lists: &'a mut BTreeSet<Key>,
    /// What it appends so.
    pub(super) blind_appends: &'a mut Vec<(Key, i64)>,
}

impl Reader<'_> {
    /// An object, or `Some(None)` if there is none; `None` if a call waits for it.
    fn read(&mut self, key: Key, mode: LockMode) -> Result<Option<Option<Object>>, Stop> {
        self.read_object(key.oid(), mode)
    }

    /// The same; the bytes of a content are in the object.
    fn read_object(&mut self, oid: Oid, mode: LockMode) -> Result<Option<Option<Object>>, Stop> {
        let Some(found) = self.look_up(oid, mode)? else { return Ok(None) };
        let Some(content) = found.as_ref().and_then(Object::content) else { return Ok(Some(found)) };
        let state = (content.id, content.generation);
        match self.contents.get(&state) {
            Some(bytes) => Ok(Some(found.map(|object| object.with_data(bytes.clone())))),
            None => Err(Stop::Reads(read_of(oid, content))),
        }
    }

    fn look_up(&mut self, oid: Oid, mode: LockMode) -> Result<Option<Option<Object>>, Stop> {
        let read = ReadRequest { txn: self.txn, level: self.isolation, oid, mode };
        // What was derived from an object stands for the object, as a decoded struct does, so that the checkers see whether it is current.
        if let Some(derived) =
            self.driver.read_derived(&read, self.shown).map_err(|error| Stop::Rejected(error.kind()))?
            && let Some(object) = derived.downcast_ref::<Object>()
        {
            return Ok(Some(Some(object.clone())));
        }
        match self.driver.read(&read, self.shown) {
            Ok(Some(Some(found))) => {
                let derived = DerivedValue { value: Arc::new(found.clone()), bytes: 0 };
                self.driver.attach(oid, |object| *object == found, derived, self.shown);
                Ok(Some(Some(found)))
            }
            Ok(Some(None)) => Ok(Some(None)),
            Ok(None) => {
                self.calls.insert(self.driver.start(ClientCall::Read(read), self.shown));
                Ok(None)
            }
            Err(error) => Err(Stop::Rejected(error.kind())),
        }
    }

    /// Appends an element to a list by a change of a part of its bytes.
    fn patch(&mut self, key: Key, list: Option<&[u8]>, element: i64) {
        let patch = Content::append_patch(list, element).encode();
        let written = self.driver.write(self.txn, key.oid(), ObjectState::Changed(patch));
        assert_eq!(written, Ok(()), "{:?} runs, and knows the list {key}", self.txn);
    }

    fn write(&mut self, key: Key, content: Content) {
        let oid: Oid = key.oid();
        let written = self.driver.write(self.txn, oid, ObjectState::Value(content.encode()));
        assert_eq!(written, Ok(()), "{:?} runs, and has read {key} to write it", self.txn);
    }
}

/// As a history has it.
pub(super) fn history_value(state: Option<&Object>) -> history::Value {
    match state.and_then(Content::decode) {
        None => history::Value::Nothing,
        Some(Content::Number(number)) => history::Value::Integer(number),
        Some(Content::List(list)) => history::Value::List(list),
    }
}

fn number(state: &Option<Object>) -> i64 {
    state.as_ref().and_then(Content::number).unwrap_or_default()
}

/// Takes a step of a transaction: reads all that it needs, or waits; then it writes.
pub(super) fn take(reader: &mut Reader<'_>, step: Step, record: &mut history::Operation, now: u64) -> StepProgress {
    match try_step(reader, step, record, now) {
        Ok(progress) => progress,
        Err(Stop::Rejected(kind)) => StepProgress::Fails(kind),
        Err(Stop::Reads(read)) => StepProgress::Reads(read),
    }
}

fn try_step(
    reader: &mut Reader<'_>,
    step: Step,
    record: &mut history::Operation,
    now: u64,
) -> Result<StepProgress, Stop> {
    let element = record.number as i64;
    let steps = &mut record.steps;
    match step {
        Step::Think(ms) => return Ok(StepProgress::Until(OperationStage::Thinking(now + ms))),
        Step::Pause => return Ok(StepProgress::Until(OperationStage::Pausing)),
        Step::Read(key) => {
            let Some(state) = reader.read(key, LockMode::Shared)? else { return Ok(StepProgress::Waits) };
            steps.push(history::Step::Read(key.to_string(), history_value(state.as_ref())));
        }
        Step::Append(key) if reader.is_blind && reader.known_lists.contains(&key) => {
            reader.patch(key, None, element);
            reader.blind_appends.push((key, element));
            steps.push(history::Step::append(key.to_string(), element));
        }
        Step::Append(key) => {
            let Some(state) = reader.read(key, LockMode::Exclusive)? else { return Ok(StepProgress::Waits) };
            match &state {
                Some(object)
                    if reader.is_patching
                        && Content::list(object).is_some_and(|list| list.len() >= MIN_PATCHED_LEN) =>
                {
                    reader.patch(key, Some(&object.data), element);
                    reader.known_lists.insert(key);
                }
                _ => {
                    let mut list = state.as_ref().and_then(Content::list).unwrap_or_default();
                    list.push(element);
                    reader.write(key, Content::List(list));
                }
            }
            steps.push(history::Step::Read(key.to_string(), history_value(state.as_ref())));
            steps.push(history::Step::append(key.to_string(), element));
        }
        Step::Insert(guard) => {
            let member = guard.member(record.number);
            if let Some(object) = reader.member.clone() {
                let oid = Oid::new(object.class, member.page(), member.slot);
                if !reader.writes_unread && reader.read_object(oid, LockMode::Exclusive)?.is_none() {
                    return Ok(StepProgress::Waits);
                }
                reader.own_writes.insert(oid, Some(object.clone()));
                let written = reader.driver.write(reader.txn, oid, ObjectState::Value(object));
                assert_eq!(written, Ok(()), "{:?} runs, and has read {oid} to write it", reader.txn);
                steps.push(history::Step::append(guard.to_string(), element));
                return Ok(StepProgress::Done);
            }
            let touched = reader.driver.touch(reader.txn, guard.oid(), reader.shown);
            let touched = touched.map_err(|error| Stop::Rejected(error.kind()))?;
            if !touched || !reader.writes_unread && reader.read(member, LockMode::Exclusive)?.is_none() {
                return Ok(StepProgress::Waits);
            }
            reader.write(member, Content::Number(element));
            steps.push(history::Step::append(guard.to_string(), element));
        }
        // It is asked for at the brick.
        Step::Count(_) => return Ok(StepProgress::Waits),
        // Bricks without a driver know no classes, no unique values and no entries of collections.
        Step::Note(_) | Step::Sift(_) | Step::Renew(_) | Step::Replace(_) | Step::Reuse(_) => {}
        Step::Claim(..) | Step::Bind(..) | Step::List(_) => {}
        Step::Write(key, value) => {
            if !reader.writes_unread && reader.read(key, LockMode::Exclusive)?.is_none() {
                return Ok(StepProgress::Waits);
            }
            reader.write(key, Content::Number(value));
            steps.push(history::Step::write(key.to_string(), value));
        }
        Step::Move(from, to, amount) => {
            let (before, after) = (reader.read(from, LockMode::Exclusive)?, reader.read(to, LockMode::Exclusive)?);
            let (Some(before), Some(after)) = (before, after) else { return Ok(StepProgress::Waits) };
            let (less, more) = (number(&before) - amount, number(&after) + amount);
            steps.push(history::Step::Read(from.to_string(), history_value(before.as_ref())));
            steps.push(history::Step::Read(to.to_string(), history_value(after.as_ref())));
            for (key, value) in [(from, less), (to, more)] {
                reader.write(key, Content::Number(value));
                steps.push(history::Step::write(key.to_string(), value));
            }
        }
        Step::Rotate(key) => {
            let mut ring = Vec::new();
            let mut next = key;
            for _ in 0..3 {
                let Some(state) = reader.read(next, LockMode::Exclusive)? else { return Ok(StepProgress::Waits) };
                steps.push(history::Step::Read(next.to_string(), history_value(state.as_ref())));
                ring.push((next, number(&state)));
                next = Key::in_ring(number(&state));
            }
            let [(a, to_b), (b, to_c), (c, to_d)] = ring[..] else { return Ok(StepProgress::Waits) };
            // a → b → c → d becomes a → c → b → d.
            for (key, value) in [(a, to_c), (c, to_b), (b, to_d)] {
                reader.write(key, Content::Number(value));
                steps.push(history::Step::write(key.to_string(), value));
            }
        }
    }
    Ok(StepProgress::Done)
}
