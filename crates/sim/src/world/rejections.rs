//! Which rejections are legitimate: an operation of a client that does not happen, or of which the client does not learn the outcome, must
//! have a cause in the run ([`Rejection::causes`]).
//!
//! - **J.** A cause was there when the operation began, or later, or had ended shortly before. So what was refused once is accepted when its cause
//!   is over: a user that is admitted again is not denied, and a disk that has room again is not full.

use std::collections::{BTreeMap, BTreeSet};

use check::history::{self, Kind};
use model::ErrorKind;
use protocol::ident::TxnId;

use super::World;
use super::net::Pid;
use super::process::{Process, ProcessMachine};
use crate::plan::{Action, DiskWork, Noise, Operation, ProcessName, Step};

/// How an operation of a client ends that does not happen, or of which the client does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Its user may not do this.
    Denied,
    /// The space is stopped.
    Stopped,
    /// The disk of a brick is full.
    Full,
    /// A transaction has conflicted, or was aborted, or is over.
    Conflict,
    /// A transaction was still running after a long time.
    Late,
    /// A request has failed, or an outcome is not known.
    Unavailable,
    /// A peer server refuses a query for a class or a field that it does not know.
    OldClasses,
    /// Rows that it needs are damaged.
    Damaged,
    /// Nothing in a run explains this error: no message is invalid or too large, and nothing is missing that is asked for.
    Unexplained(ErrorKind),
}

/// What happens in a run that may cause rejections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A peer server knew that the user of the client could not write.
    Permission,
    /// No peer server admitted the client.
    Refusal,
    /// The space was stopped for a peer server: by its policy, while a brick was away.
    Stop,
    /// The disk of a brick took a limited number of bytes.
    DiskSpace,
    /// A page of the B-tree of a brick could not be read.
    Damage,
    /// A transaction, or a write, of another client about the same pages was running.
    OtherWriter,
    /// An earlier transaction of the client had changed what the operation reads at bricks: a list on the same page, as a change of a part of a
    /// blob, or a set. Its reply comes before all bricks show what it has changed, and the client has no copy of that, so the next transaction
    /// may have read the state before.
    OwnChange,
    /// A process or a connection failed or was slow, a message was lost, a logical node moved, or a wall clock was wrong; or the client itself
    /// breaks the rules.
    Failure,
    /// The indexes of sets, or their classes, were changed.
    Schema,
    /// A cut was taken, for which bricks hold.
    Cut,
    /// It is a group snapshot: there may be no moment at which all that it has read was current.
    Snapshot,
}

/// A lease and its grace: how long a failed process, or what it has begun, may be waited for. In milliseconds, as all times here.
const LEASE_MS: u64 = 12_000;
/// How long the connection of a user stays, at most, that may do less or more.
const RECONNECT_MS: u64 = 1_500;
/// How long a peer server may know classes that are not the newest.
const NEWS_MS: u64 = 500;
/// How long a brick may take to notice that its disk has room again, and its clients to hear of that.
const ROOM_MS: u64 = 2_000;
/// How long after the reply to a transaction bricks may show the state before it.
const DECISION_MS: u64 = 2_000;

impl Rejection {
    /// The rejection by an error.
    pub(super) const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Stopped => Self::Stopped,
            ErrorKind::Full => Self::Full,
            // A transaction that has conflicted is over: its next call is invalid.
            ErrorKind::Conflict | ErrorKind::Invalid => Self::Conflict,
            ErrorKind::Unavailable | ErrorKind::Unknown => Self::Unavailable,
            ErrorKind::Corrupt => Self::Damaged,
            // Not found, too large, unsupported, exists, over the quota, or a failure of a device.
            other => Self::Unexplained(other),
        }
    }

    /// The rejection of a query by an error.
    pub(super) const fn of_query(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound | ErrorKind::Invalid => Self::OldClasses,
            other => Self::of(other),
        }
    }

    /// The causes, of which there must be one; and how long each may have been over when the operation began.
    pub(super) const fn causes(self) -> &'static [(Cause, u64)] {
        use Cause::{
            Cut, Damage, DiskSpace, Failure, OtherWriter, OwnChange, Permission, Refusal, Schema, Snapshot, Stop,
        };
        match self {
            Self::Denied => &[(Permission, RECONNECT_MS), (Refusal, 0)],
            // A message that the space serves again may be late.
            Self::Stopped => &[(Stop, LEASE_MS)],
            Self::Full => &[(DiskSpace, ROOM_MS)],
            Self::Conflict => &[
                (OtherWriter, LEASE_MS),
                (OwnChange, DECISION_MS),
                (Failure, LEASE_MS),
                (DiskSpace, ROOM_MS),
                (Damage, LEASE_MS),
                (Schema, LEASE_MS),
                (Cut, LEASE_MS),
                (Permission, LEASE_MS),
                (Stop, LEASE_MS),
                (Snapshot, 0),
            ],
            Self::Late => &[
                (OtherWriter, 0),
                (Failure, LEASE_MS),
                (DiskSpace, ROOM_MS),
                (Damage, LEASE_MS),
                (Cut, 0),
                (Permission, LEASE_MS),
                (Refusal, 0),
                (Stop, LEASE_MS),
            ],
            Self::Unavailable => &[
                (Failure, LEASE_MS),
                (DiskSpace, ROOM_MS),
                (Damage, LEASE_MS),
                (Cut, 0),
                (Permission, LEASE_MS),
                (Refusal, 0),
                (Stop, LEASE_MS),
            ],
            Self::OldClasses => &[(Schema, NEWS_MS)],
            Self::Damaged => &[(Damage, LEASE_MS)],
            Self::Unexplained(_) => &[],
        }
    }
}

/// A cause that goes on until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    Down(ProcessName),
    Held(ProcessName, ProcessName),
    Stalled(usize, DiskWork),
    WrongClock(ProcessName),
    Muted(usize),
    Lossy,
    LimitedRoom(usize),
    Damaged(usize),
    /// For a peer server.
    StoppedSpace(Pid),
    /// Of a client.
    Refused(Pid),
}

impl Condition {
    const fn cause(self) -> Cause {
        match self {
            Self::Down(_) | Self::Held(..) | Self::Stalled(..) | Self::WrongClock(_) | Self::Muted(_) | Self::Lossy => {
                Cause::Failure
            }
            Self::LimitedRoom(_) => Cause::DiskSpace,
            Self::Damaged(_) => Cause::Damage,
            Self::StoppedSpace(_) => Cause::Stop,
            Self::Refused(_) => Cause::Refusal,
        }
    }

    /// Whether it ends when faults are healed. The others end by themselves then.
    const fn is_fault(self) -> bool {
        matches!(self.cause(), Cause::Failure | Cause::DiskSpace | Cause::Damage)
    }
}

/// The pages that an operation of a client is about.
struct Footprint {
    client: u64,
    /// When it ended, if it has.
    returned: Option<u64>,
    /// Whether it may be in the way of others.
    bars_others: bool,
    /// Whether it appends to a list by a change of a part of a blob.
    appends: bool,
    /// Whether it reads or changes sets, whose state is read at bricks.
    has_sets: bool,
    pages: BTreeSet<StepPage>,
}

/// The page of a step, by its logical node and its number. Queries, unique values and names have guards at other nodes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StepPage {
    node: Option<u32>,
    number: u64,
}

impl StepPage {
    fn of(step: &Step) -> Vec<Self> {
        match step {
            Step::Read(key) | Step::Append(key) | Step::Write(key, _) => {
                vec![Self { node: Some(key.node), number: key.page }]
            }
            Step::Move(from, to, _) => {
                [from, to].map(|key| Self { node: Some(key.node), number: key.page }).into_iter().collect()
            }
            Step::Rotate(key)
            | Step::Count(key)
            | Step::Insert(key)
            | Step::Note(key)
            | Step::Sift(key)
            | Step::Renew(key)
            | Step::Replace(key)
            | Step::Reuse(key)
            | Step::Claim(key, _)
            | Step::Bind(key, _)
            | Step::List(key) => vec![Self { node: None, number: key.page }],
            Step::Think(_) | Step::Pause => Vec::new(),
        }
    }

    fn meets(self, other: Self) -> bool {
        let is_same_node = self.node.is_none() || other.node.is_none() || self.node == other.node;
        self.number == other.number && is_same_node
    }
}

impl Footprint {
    fn meets(&self, other: &Self) -> bool {
        self.pages.iter().any(|page| other.pages.iter().any(|one| page.meets(*one)))
    }
}

/// The causes of rejections in a run, and the operations that may be causes.
#[derive(Default)]
pub(super) struct RejectionJournal {
    conditions: BTreeSet<Condition>,
    /// When each cause was there last; in the future, if it is known how long it goes on.
    last: BTreeMap<Cause, u64>,
    /// When each client was refused last.
    refused: BTreeMap<Pid, u64>,
    operations: BTreeMap<u64, Footprint>,
}

impl RejectionJournal {
    /// The network of a run loses or repeats messages.
    pub(super) fn note_noise(&mut self, noise: Noise) {
        self.set(Condition::Lossy, noise.loss + noise.duplicate > 0, 0);
    }

    /// A condition begins, or ends.
    pub(super) fn set(&mut self, condition: Condition, is_there: bool, now: u64) {
        match is_there {
            true => drop(self.conditions.insert(condition)),
            false if self.conditions.remove(&condition) => self.note_ended(condition, now),
            false => {}
        }
    }

    fn note_ended(&mut self, condition: Condition, now: u64) {
        match condition {
            Condition::Refused(client) => drop(self.refused.insert(client, now)),
            other => self.note(other.cause(), now),
        }
    }

    /// A cause is there until this time.
    fn note(&mut self, cause: Cause, until: u64) {
        let last = self.last.entry(cause).or_default();
        *last = until.max(*last);
    }

    /// All faults are healed.
    pub(super) fn heal(&mut self, now: u64) {
        let ended: Vec<Condition> = self.conditions.extract_if(.., |one| one.is_fault()).collect();
        ended.into_iter().for_each(|condition| self.note_ended(condition, now));
    }

    /// An action of the plan happens.
    pub(super) fn note_action(&mut self, action: &Action, now: u64) {
        use Condition::{Damaged, Down, Held, LimitedRoom, Muted, Stalled, WrongClock};
        match *action {
            Action::Crash(place, _) => self.set(Down(place), true, now),
            Action::Restart(place) => self.set(Down(place), false, now),
            Action::Cut(..) | Action::Drop(..) | Action::Move(..) | Action::CancelMove(_) => {
                self.note(Cause::Failure, now);
            }
            Action::Block(_, _, ms) | Action::Freeze(_, ms) => self.note(Cause::Failure, now + ms),
            Action::Hold(from, to) => self.set(Held(from, to), true, now),
            Action::Release(from, to, None) => self.set(Held(from, to), false, now),
            Action::Stall(brick, work) => self.set(Stalled(brick, work), true, now),
            Action::Unstall(brick, work) => self.set(Stalled(brick, work), false, now),
            Action::Room(brick, bytes) => self.set(LimitedRoom(brick), bytes.is_some(), now),
            Action::Damage(brick, None) => self.set(Damaged(brick), false, now),
            Action::SetClock(place, wrong_ms) => self.set(WrongClock(place), wrong_ms != 0, now),
            Action::Mute(client) => self.set(Muted(client), true, now),
            Action::Reindex(_) | Action::Evolve(_) | Action::AddField(_) | Action::ChangeClass(_) => {
                self.note(Cause::Schema, now);
            }
            Action::Backup(hold_ms) => self.note(Cause::Cut, now + hold_ms),
            // Permissions and stops are known of each peer server. A client that breaks the rules, a clock that is wrong by less than it may be
            // and a slow disk are no causes.
            Action::Permit(..)
            | Action::SetPolicy(_)
            | Action::Deceive(..)
            | Action::Clock(..)
            | Action::Disk(..)
            | Action::Do(..)
            | Action::Go(_)
            | Action::Release(..)
            | Action::Evict(..)
            | Action::Install(_)
            // If there is something to damage, the brick says so.
            | Action::Damage(..)
            | Action::Upgrade(_)
            | Action::Wait(_) => {}
        }
    }

    /// An operation of a client begins.
    pub(super) fn note_begun(&mut self, record: &history::Operation, operation: &Operation, steps: &[Step]) {
        let mut pages: BTreeSet<StepPage> = steps.iter().flat_map(StepPage::of).collect();
        if let Operation::Put(key) | Operation::Get(key) = operation {
            pages.extend(StepPage::of(&Step::Read(*key)));
        }
        let bars_others = !matches!(record.kind, Kind::ReadOnly | Kind::Snapshot | Kind::Read);
        // Those with even numbers append without a new state of the whole list.
        let appends = record.number.is_multiple_of(2) && steps.iter().any(|step| matches!(step, Step::Append(_)));
        let has_sets = pages.iter().any(|page| page.node.is_none());
        let footprint = Footprint { client: record.client, returned: None, bars_others, appends, has_sets, pages };
        self.operations.insert(record.number, footprint);
    }

    /// It has ended.
    pub(super) fn note_ended_operation(&mut self, number: u64, now: u64) {
        if let Some(operation) = self.operations.get_mut(&number) {
            operation.returned = Some(now);
        }
    }

    /// A page of this brick is damaged.
    pub(super) fn note_damage(&mut self, brick: usize, now: u64) {
        self.set(Condition::Damaged(brick), true, now);
    }

    /// Whether a page of this brick is damaged.
    pub(super) fn is_damaged(&self, brick: usize) -> bool {
        self.conditions.contains(&Condition::Damaged(brick))
    }

    fn was_there(&self, cause: Cause, since: u64) -> bool {
        self.conditions.iter().any(|condition| condition.cause() == cause)
            || self.last.get(&cause).is_some_and(|last| *last >= since)
    }

    fn was_refused(&self, client: Pid, since: u64) -> bool {
        self.conditions.contains(&Condition::Refused(client))
            || self.refused.get(&client).is_some_and(|last| *last >= since)
    }

    fn has_other_writer(&self, number: u64, since: u64) -> bool {
        let Some(operation) = self.operations.get(&number) else { return false };
        let is_other = |one: &Footprint| {
            let is_in_time = one.returned.is_none_or(|at| at >= since);
            one.bars_others && one.client != operation.client && is_in_time && one.meets(operation)
        };
        self.operations.values().any(is_other)
    }

    fn has_own_change(&self, number: u64, since: u64) -> bool {
        let Some(operation) = self.operations.get(&number) else { return false };
        let is_before = |one: &Footprint| {
            let is_in_time = one.returned.is_some_and(|at| at >= since);
            let is_read_at_bricks = one.appends || one.bars_others && one.has_sets && operation.has_sets;
            is_read_at_bricks && one.client == operation.client && is_in_time && one.meets(operation)
        };
        self.operations.values().any(is_before)
    }
}

impl World {
    /// What a client does was rejected: checks that there is a cause.
    pub(super) fn check_rejection(&mut self, pid: Pid, rejection: Rejection) {
        let Some(operation) = self.current_operation(pid) else { return };
        let (number, causes) = (operation.number, rejection.causes());
        if causes.iter().any(|(cause, lasts_ms)| self.has_cause(pid, operation, *cause, *lasts_ms)) {
            return;
        }
        let (name, kinds) = (self.name(pid), causes.iter().map(|(cause, _)| *cause).collect::<Vec<_>>());
        self.oracle
            .report(format!("J: operation {number} of {name} ends as {rejection:?}, and none of {kinds:?} was there"));
    }

    /// A client hears why its transaction, or its write, is deferred or refused: checks that there is a cause. A delay is judged by what comes of
    /// it.
    pub(super) fn check_deferral(&mut self, pid: Pid, txn: TxnId, kind: ErrorKind) {
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return };
        let is_current = match client.current_txn() {
            Some((_, current)) => current == txn,
            None => client.current_record().is_some_and(|record| record.kind == Kind::Write),
        };
        if is_current && kind != ErrorKind::Unavailable {
            self.check_rejection(pid, Rejection::of(kind));
        }
    }

    fn current_operation(&self, pid: Pid) -> Option<&history::Operation> {
        match &self.processes[pid].machine {
            Some(ProcessMachine::Client(client)) => client.current_record(),
            _ => None,
        }
    }

    fn has_cause(&self, pid: Pid, operation: &history::Operation, cause: Cause, lasts_ms: u64) -> bool {
        // One that was frozen until then acts on messages of the time before.
        let Process { frozen_from, frozen_until, .. } = self.processes[pid];
        let was_frozen = (frozen_from..=frozen_until).contains(&operation.invoked);
        let since = if was_frozen { frozen_from } else { operation.invoked }.saturating_sub(lasts_ms);
        match cause {
            Cause::Permission => self.user_could_not(pid, since),
            Cause::Refusal => self.rejections.was_refused(pid, since),
            Cause::OtherWriter => self.rejections.has_other_writer(operation.number, since),
            Cause::OwnChange => self.rejections.has_own_change(operation.number, since),
            Cause::Snapshot => operation.kind == Kind::Snapshot,
            Cause::Failure => self.rejections.was_there(cause, since) || self.is_wicked(pid),
            Cause::Stop | Cause::DiskSpace | Cause::Damage | Cause::Schema | Cause::Cut => {
                self.rejections.was_there(cause, since)
            }
        }
    }
}
