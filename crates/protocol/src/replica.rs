//! A logical node's replica group: several bricks that are *one* participant.
//!
//! The epoch's first member validates, orders and logs; a record counts as durable when every member of the epoch holds
//! it durably. There is no voting and no majority: only the meta-server decides the membership ([`crate::placement`]),
//! so a group of two survives the loss of one. This is a primary with backups and an external configuration master (as
//! in PacificA). A design that counted the votes of members instead committed refused transactions.
//!
//! The parts of **M1** that concern a member; the others are in [`crate::placement`]:
//!
//! 8. Only the first member appends: the process that the epoch names, in this epoch only. So a point (epoch and
//!    position) identifies one record for ever; see [`log`].
//! 9. A record is durable when every member of the epoch holds it durably. A member acknowledges only what it has
//!    forced, and only in its current epoch.
//! 10. An epoch has *started* when all its members hold everything that its first member had at the beginning. Before
//!     that, no further record is reported durable, no member leads unless it led already, and no other member serves
//!     reads. So everything that was ever served stays available in later epochs.
//! 11. A member that takes part in an epoch first truncates its log after the last point that it has in common with the
//!     log of the first member. Records that were reported durable are never truncated: the first member has them.
//! 12. A member whose lease has ended reports nothing durable as first, and serves nothing.
//! 13. Reads return the state that all members are known to hold. Its position never decreases, within one process and
//!     from one to the next (by 10).
//!
//! ```text
//!   Outside ──▶ Copying ── Hello, Append … ──▶ Member ── named first ──▶ First, starting ── all hold all ──▶ First, leading
//!                  ▲  wanted                     │ a new epoch: Hello again, cut, follow
//!                  └────────── dropped ──────────┘
//! ```
//!
//! The driver passes the records of the participant to [`Replica::append`], and [`Output::Durable`] to
//! `Participant::handle_forced`. On [`Output::Lead`] it builds a participant from the records of the log with
//! `Participant::recover`; all of them are valid, because all members hold them. While [`Output::Serving`] is not
//! [`Serving::All`], it passes no requests to the participant. On [`Output::Resign`] it drops the participant.

use std::collections::BTreeMap;

use model::NodeId;

use crate::lease::Ms;
use crate::placement::{Epoch, Group, GroupMember, GroupReport, Incarnation, MemberId, NotServing};
use crate::plant::{Bug, planted};
use log::{LogPoint, ReplicaLog};
use message::{LogId, Message};
use peer::Peer;

pub mod log;
pub mod message;
mod peer;

/// What a member may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Nothing.
    Nothing,
    /// Reads of what all members hold.
    Reads,
    /// Everything: it is the first member, and leads.
    All,
}

/// An output of a member. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<R> {
    /// Append this to the local log, with the epoch.
    Append(LogPoint, R),
    /// Truncate the local log after this position, before later records are appended.
    Truncate(u64),
    /// Send this to a member.
    Send(MemberId, Message<R>),
    /// Report this to the meta-server, in this epoch.
    Report(NodeId, Epoch, GroupReport),
    /// All members hold the log up to here: its effects may become visible.
    Durable(u64),
    /// This is the participant from now on: build it from the log, which all members hold.
    Lead,
    /// This is no longer the participant.
    Resign,
    /// What may be served from now on. A lease may end meanwhile: call [`Replica::admit`] for each request.
    Serving(Serving),
    /// Copy the whole state of this member, up to any point of its log that it has reported durable; then call
    /// [`Replica::handle_copied`]. The output is repeated until then.
    CopyFrom(MemberId),
}

/// The settings of a replica.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSettings {
    /// The logical node.
    pub node: NodeId,
    /// This process of the brick.
    pub me: GroupMember,
    /// The delay before an unanswered message is repeated, in milliseconds.
    pub retry_ms: u64,
    /// Records in one message.
    pub batch: usize,
    /// The maximum number of records under way to one member. A copying brick that lacks at most this many may join.
    pub window: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberRole {
    Outside,
    Copying,
    Member,
    First,
}

/// One member of the group of one logical node. `R` is a record.
#[derive(Clone, Debug)]
pub struct Replica<R> {
    settings: ReplicaSettings,
    log: ReplicaLog<R>,
    /// How often a copy has replaced the log since the start of this process.
    copies: u32,
    group: Option<Group>,
    role: MemberRole,
    /// The time at which the lease ends.
    lease_until: Ms,
    /// When unanswered messages are repeated.
    next_retry: Ms,
    /// The end of the log when the epoch began, at the first member.
    start_position: u64,
    /// The position up to which all members hold the log, as far as it is known in this epoch; `None` until the epoch
    /// is known to have started.
    held_by_all: Option<u64>,
    /// The position that was reported durable since the start of this process.
    announced: u64,
    /// At the first member: all others that take part.
    peers: BTreeMap<MemberId, Peer>,
    /// Whether the log continues that of the first member, in this epoch.
    synced: bool,
    /// Whether the log of the first member begins after the end of this one.
    behind: bool,
    /// Whether this process has the participant.
    leads: bool,
    /// Whether the meta-server knows that the epoch has started.
    start_acknowledged: bool,
    serving: Serving,
    out: Vec<Output<R>>,
}

impl<R: Clone + PartialEq + std::fmt::Debug> Replica<R> {
    /// A member that has just started with its durable log. It takes part in no epoch until one names this process.
    #[must_use]
    pub fn new(settings: ReplicaSettings, log: ReplicaLog<R>) -> Self {
        Self {
            settings,
            log,
            copies: 0,
            group: None,
            role: MemberRole::Outside,
            lease_until: 0,
            next_retry: 0,
            start_position: 0,
            held_by_all: None,
            announced: 0,
            peers: BTreeMap::new(),
            synced: false,
            behind: false,
            leads: false,
            start_acknowledged: false,
            serving: Serving::Nothing,
            out: Vec::new(),
        }
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<R>> {
        self.out.drain(..)
    }

    fn epoch(&self) -> Epoch {
        self.group.as_ref().map_or(Epoch::default(), |group| group.epoch)
    }

    fn first(&self) -> Option<GroupMember> {
        self.group.as_ref().and_then(Group::first)
    }

    // ------------------------------------------------------------------------------------------ the meta-server

    /// Handles a new epoch.
    pub fn configure(&mut self, group: &Group, now: Ms) {
        if group.epoch <= self.epoch() {
            return;
        }
        let me = self.settings.me;
        let role = match group.member(me.id) {
            Some(seat) if seat != me && !planted(Bug::RestartUnnoticed) => MemberRole::Outside,
            Some(seat) if group.first() == Some(seat) => MemberRole::First,
            Some(_) => MemberRole::Member,
            None if group.wanted.contains(&me.id) => MemberRole::Copying,
            None => MemberRole::Outside,
        };
        if self.leads && role != MemberRole::First {
            self.leads = false;
            self.out.push(Output::Resign);
        }
        self.role = role;
        self.peers.clear();
        if role == MemberRole::First {
            let seats = group.members.iter().map(|seat| (seat.id, seat.incarnation));
            let joining = group.joining().map(|id| (id, Incarnation::default()));
            let others = seats.chain(joining).filter(|(id, _)| *id != me.id);
            self.peers = others.map(|(id, life)| (id, Peer::new(life))).collect();
        }
        (self.start_position, self.held_by_all) = (self.log.end(), None);
        (self.synced, self.behind) = (false, false);
        self.start_acknowledged = false;
        self.group = Some(group.clone());
        self.next_retry = now;
        self.poll(now);
    }

    /// Extends the lease to this time.
    pub fn extend_lease(&mut self, until: Ms, now: Ms) {
        self.lease_until = self.lease_until.max(until);
        self.settle(now);
    }

    /// Records that the meta-server knows that this epoch has started.
    pub fn handle_start_acknowledged(&mut self, epoch: Epoch) {
        self.start_acknowledged |= epoch == self.epoch();
    }

    // ------------------------------------------------------------------------------------------ records

    /// Appends a record; returns its position.
    ///
    /// # Errors
    /// If this is no longer the participant: forget the participant that appended the record.
    pub fn append(&mut self, record: R, now: Ms) -> Result<u64, NotServing> {
        if !self.leads || self.role != MemberRole::First {
            return Err(NotServing::Elsewhere);
        }
        let point = self.log.append(self.epoch(), record.clone());
        self.out.push(Output::Append(point, record));
        self.send_all();
        self.settle(now);
        Ok(point.position)
    }

    /// Handles that the local log is durable up to this point, which is that of the last forced record. Has no effect
    /// if the record was truncated meanwhile.
    pub fn handle_forced(&mut self, point: LogPoint, now: Ms) {
        self.log.force(point);
        self.acknowledge();
        self.settle(now);
    }

    /// Handles a complete copy of the state of the first member up to this point. Returns whether the copy must replace
    /// the local state; then the local log begins after that point. Otherwise the copy is not needed any more.
    pub fn handle_copied(&mut self, point: LogPoint, now: Ms) -> bool {
        // Records that were acknowledged in this epoch are kept.
        let is_newer = point.position >= if self.synced { self.log.end() } else { self.announced };
        let needed =
            matches!(self.role, MemberRole::Copying | MemberRole::Member) && (self.behind || !self.synced) && is_newer;
        if needed {
            self.log = ReplicaLog::new(point, []);
            self.copies += 1;
            (self.synced, self.behind) = (false, false);
            self.next_retry = now;
            self.poll(now);
        }
        needed
    }

    /// Forgets records up to a position that are installed elsewhere, as far as they were reported durable.
    pub fn trim(&mut self, position: u64) {
        self.log.trim(position.min(self.announced));
    }

    /// The part of the log that is in memory.
    #[must_use]
    pub fn log(&self) -> &ReplicaLog<R> {
        &self.log
    }

    // ------------------------------------------------------------------------------------------ messages

    /// Handles a message from another member. Messages of another epoch, or about another log, are ignored.
    pub fn handle(&mut self, from: MemberId, message: Message<R>, now: Ms) {
        match message {
            Message::Hello { epoch, log, runs } if epoch == self.epoch() => self.handle_hello(from, log, &runs),
            Message::Append { epoch, log, previous, records, durable } if self.is_for_me(from, epoch, log) => {
                self.handle_append(previous, records, durable);
            }
            Message::Copy { epoch, log, base } if self.is_for_me(from, epoch, log) => self.handle_copy(from, base, now),
            Message::Appended { epoch, log, position, durable }
                if epoch == self.epoch() || planted(Bug::AckOfAnyEpoch) =>
            {
                self.handle_appended(from, log, position, durable);
            }
            _ => {}
        }
        self.settle(now);
    }

    fn log_id(&self) -> LogId {
        LogId { incarnation: self.settings.me.incarnation, copies: self.copies }
    }

    fn is_for_me(&self, from: MemberId, epoch: Epoch, log: LogId) -> bool {
        let follows = matches!(self.role, MemberRole::Copying | MemberRole::Member);
        let is_first = self.first().is_some_and(|first| first.id == from) && epoch == self.epoch();
        follows && (is_first || planted(Bug::AppendOfAnyEpoch)) && log == self.log_id()
    }

    /// Handles a member's report of its log, and sends it the missing records.
    fn handle_hello(&mut self, from: MemberId, log: LogId, runs: &[LogPoint]) {
        let (common, base, epoch) = (self.log.common_point(runs).position, self.log.base().position, self.epoch());
        let is_member = self.group.as_ref().is_some_and(|group| group.member(from).is_some());
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.is_new(log, is_member)) else { return };
        if common < base {
            return self.out.push(Output::Send(from, Message::Copy { epoch, log, base }));
        }
        *peer = Peer::with(log, common);
        self.send(from, true);
    }

    /// Handles that the first member does not have the missing records any more. If this log follows already, this is
    /// true only if the first member has trimmed its log beyond the end of this one.
    fn handle_copy(&mut self, from: MemberId, base: u64, now: Ms) {
        if !self.synced || self.log.end() < base {
            self.behind = self.synced;
            self.next_retry = now + self.settings.retry_ms;
            self.out.push(Output::CopyFrom(from));
        }
    }

    /// Handles records from the first member.
    fn handle_append(&mut self, previous: LogPoint, records: Vec<(Epoch, R)>, durable: Option<u64>) {
        let known = if previous.position == 0 { Some(LogPoint::default()) } else { self.log.point(previous.position) };
        if known != Some(previous) && (known.is_none() || !planted(Bug::PreviousUnchecked)) {
            // An earlier message was lost, or this one is so old that its records are trimmed here.
            return self.acknowledge();
        }
        let mut at = previous.position;
        for (epoch, record) in records {
            at += 1;
            match self.log.get(at) {
                Some((mine, same)) if *mine == epoch => {
                    assert!(*same == record, "M1.8: {epoch:?} {at} is both {same:?} and {record:?}");
                    continue;
                }
                Some(_) => self.truncate(at - 1),
                None if at <= self.log.base().position => continue,
                None => {}
            }
            let point = self.log.append(epoch, record.clone());
            self.out.push(Output::Append(point, record));
        }
        let is_sync = !std::mem::replace(&mut self.synced, true);
        if is_sync && at < self.log.end() && !planted(Bug::TailKept) {
            self.truncate(at);
        }
        self.held_by_all = self.held_by_all.max(durable);
        if self.log.forced_position() == self.log.end() || planted(Bug::AckBeforeForce) {
            self.acknowledge();
        }
    }

    /// Discards the tail (M1.11).
    fn truncate(&mut self, position: u64) {
        assert!(
            position >= self.announced,
            "M1.11: the log is truncated at {position}, but {} was reported durable",
            self.announced
        );
        self.log.truncate(position);
        self.out.push(Output::Truncate(position));
    }

    /// Reports the durable position of this log to the first member (M1.9).
    fn acknowledge(&mut self) {
        let (true, Some(first)) = (self.synced, self.first()) else { return };
        let (epoch, log) = (self.epoch(), self.log_id());
        let position = if planted(Bug::AckBeforeForce) { self.log.end() } else { self.log.forced_position() };
        let message = Message::Appended { epoch, log, position, durable: self.held_by_all };
        self.out.push(Output::Send(first.id, message));
    }

    fn handle_appended(&mut self, from: MemberId, log: LogId, position: u64, durable: Option<u64>) {
        let (base, end) = (self.log.base().position, self.log.end());
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.log == log && (peer.common.is_some() || peer.behind) && position <= end {
            peer.acknowledged = peer.acknowledged.max(position);
            if peer.acknowledged >= base {
                (peer.common, peer.behind) = (Some(peer.acknowledged), false);
            }
            peer.sent = peer.sent.max(peer.acknowledged);
            peer.durable = peer.durable.max(durable);
            self.send(from, false);
        }
    }

    /// The durable position for other members: the one that this member has reported itself, so that no member shows
    /// more (M1.13).
    fn durable_for_peers(&self) -> Option<u64> {
        if planted(Bug::FollowersToldMore) {
            return self.held_by_all;
        }
        self.held_by_all.filter(|_| self.announced >= self.start_position).map(|_| self.announced)
    }

    fn send_all(&mut self) {
        let ids: Vec<MemberId> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.send(id, false));
    }

    /// Sends a peer the records that it lacks, up to the window. Without such records, sends a message only if `must`
    /// is set.
    fn send(&mut self, to: MemberId, must: bool) {
        let (epoch, end, settings, mut must) = (self.epoch(), self.log.end(), self.settings, must);
        let durable = self.durable_for_peers();
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let Some(common) = peer.common else { return };
        while must || (peer.sent < end && peer.sent - common < settings.window) {
            must = false;
            let Some(previous) = self.log.point(peer.sent) else {
                // The log was trimmed while the peer copied: the peer will report its log again.
                (peer.common, peer.behind) = (None, true);
                let (log, base) = (peer.log, self.log.base().position);
                return self.out.push(Output::Send(to, Message::Copy { epoch, log, base }));
            };
            let records: Vec<_> = self.log.after(peer.sent).take(settings.batch).cloned().collect();
            peer.sent += records.len() as u64;
            assert!(peer.sent <= end, "M1.11: {to:?} is sent {} of {end} records", peer.sent);
            let message = Message::Append { epoch, log: peer.log, previous, records, durable };
            self.out.push(Output::Send(to, message));
        }
    }

    // ------------------------------------------------------------------------------------------ durability

    /// Determines what all members hold, and reports the consequences.
    fn settle(&mut self, now: Ms) {
        match self.role {
            MemberRole::First => self.settle_first(now),
            MemberRole::Member | MemberRole::Copying => {
                if let Some(held) = self.held_by_all {
                    let own = if planted(Bug::TellsUnforced) { self.log.end() } else { self.log.forced_position() };
                    self.announce_durable(held.min(own));
                }
            }
            MemberRole::Outside => {}
        }
        let serving = self.serving(now);
        if serving != self.serving {
            self.serving = serving;
            self.out.push(Output::Serving(serving));
        }
    }

    fn settle_first(&mut self, now: Ms) {
        let held = self.common_durable_position();
        if held >= self.start_position {
            if self.held_by_all.is_none() {
                self.next_retry = now;
            }
            self.held_by_all = self.held_by_all.max(Some(held));
        }
        let has_started = self.held_by_all.is_some() || planted(Bug::LeadsBeforeStarted);
        let is_leased = now < self.lease_until || planted(Bug::TellsWithoutLease);
        if !has_started || !is_leased {
            return;
        }
        self.announce_durable(held);
        if !self.leads {
            self.leads = true;
            let (start, announced) = (self.start_position, self.announced);
            assert!(
                announced >= start || planted(Bug::LeadsBeforeStarted),
                "M1.10: the epoch began at {start}, but all members hold only {announced}"
            );
            self.out.push(Output::Lead);
        }
    }

    /// The position up to which every member of the epoch holds the log durably (M1.9).
    fn common_durable_position(&self) -> u64 {
        let members = self.group.iter().flat_map(|group| &group.members);
        let others = members.filter(|seat| **seat != self.settings.me);
        let acked = others.map(|seat| self.peers.get(&seat.id).map_or(0, |peer| peer.acknowledged));
        let held = acked.chain([self.log.forced_position()]);
        if planted(Bug::DurableByMajority) {
            let mut held: Vec<u64> = held.collect();
            held.sort_unstable();
            return held[(held.len() - 1) / 2];
        }
        held.min().unwrap_or(0)
    }

    fn announce_durable(&mut self, position: u64) {
        if position > self.announced {
            let forced = self.log.forced_position();
            let is_planted = planted(Bug::TellsUnforced) || planted(Bug::DurableByMajority);
            assert!(
                position <= forced || is_planted,
                "M1.9: {position} is reported durable, but only {forced} is forced here"
            );
            self.announced = position;
            self.out.push(Output::Durable(position));
        }
    }

    // ------------------------------------------------------------------------------------------ time

    /// Repeats unanswered messages, and handles the end of the lease.
    pub fn poll(&mut self, now: Ms) {
        self.settle(now);
        if now < self.next_retry || !self.is_busy() {
            return;
        }
        self.next_retry = now + self.settings.retry_ms;
        match self.role {
            MemberRole::First => {
                let ids: Vec<MemberId> = self.peers.keys().copied().collect();
                for id in ids {
                    self.send_again(id);
                }
                self.report();
            }
            MemberRole::Member | MemberRole::Copying => {
                if let Some(first) = self.first() {
                    let (epoch, log, runs) = (self.epoch(), self.log_id(), self.log.last_points());
                    self.out.push(Output::Send(first.id, Message::Hello { epoch, log, runs }));
                }
            }
            MemberRole::Outside => {}
        }
    }

    fn send_again(&mut self, to: MemberId) {
        let (epoch, end, news, base) =
            (self.epoch(), self.log.end(), self.durable_for_peers(), self.log.base().position);
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.behind {
            let log = peer.log;
            self.out.push(Output::Send(to, Message::Copy { epoch, log, base }));
        } else if let Some(common) = peer.common
            && peer.lacks(end, news)
        {
            peer.sent = common;
            self.send(to, true);
        }
    }

    fn report(&mut self) {
        let Some(group) = &self.group else { return };
        if self.held_by_all.is_none() {
            return;
        }
        let (node, epoch, end) = (self.settings.node, group.epoch, self.log.end());
        let mut reports = Vec::new();
        if !self.start_acknowledged {
            reports.push(GroupReport::Started);
        }
        for id in group.joining() {
            let peer = self.peers.get(&id).filter(|peer| peer.common.is_some());
            if let Some(peer) = peer.filter(|peer| peer.acknowledged + self.settings.window >= end) {
                reports.push(GroupReport::CaughtUp(GroupMember { id, incarnation: peer.log.incarnation }));
            }
        }
        self.out.extend(reports.into_iter().map(|report| Output::Report(node, epoch, report)));
    }

    /// Whether unanswered messages may have to be repeated.
    fn is_busy(&self) -> bool {
        match self.role {
            MemberRole::Outside => false,
            MemberRole::Member | MemberRole::Copying => !self.synced || self.behind,
            MemberRole::First => {
                let (end, news) = (self.log.end(), self.durable_for_peers());
                let joins = |id| self.peers.get(&id).is_some_and(|peer| peer.common.is_some());
                let joining = self.group.iter().any(|group| group.joining().any(joins));
                let unheard = self.held_by_all.is_some() && !self.start_acknowledged;
                unheard || joining || self.peers.values().any(|peer| peer.lacks(end, news))
            }
        }
    }

    /// When [`Replica::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let again = self.is_busy().then_some(self.next_retry);
        let lease = (self.serving != Serving::Nothing).then_some(self.lease_until);
        again.into_iter().chain(lease).min()
    }

    // ------------------------------------------------------------------------------------------ requests

    /// The requests that may be served now (M1.10, M1.12).
    #[must_use]
    pub fn serving(&self, now: Ms) -> Serving {
        let is_leased = now < self.lease_until || planted(Bug::ServesWithoutLease);
        if !is_leased {
            return Serving::Nothing;
        }
        match self.role {
            MemberRole::First if self.leads => Serving::All,
            MemberRole::Member if self.held_by_all.is_some() || planted(Bug::ReadsBeforeStarted) => Serving::Reads,
            _ => Serving::Nothing,
        }
    }

    /// Checks whether a request may be served that was sent for this epoch of the node and needs this level.
    ///
    /// # Errors
    /// The reason of the refusal: see [`NotServing::remedy`].
    pub fn admit(&self, epoch: Epoch, needs: Serving, now: Ms) -> Result<(), NotServing> {
        if epoch < self.epoch() {
            return Err(NotServing::StaleRequester(self.epoch()));
        }
        if epoch > self.epoch() {
            return Err(NotServing::StaleBrick);
        }
        let can = match self.role {
            MemberRole::First => true,
            MemberRole::Member => needs != Serving::All,
            MemberRole::Copying | MemberRole::Outside => false,
        };
        if !can {
            return Err(NotServing::Elsewhere);
        }
        if now >= self.lease_until {
            return Err(NotServing::LeaseExpired);
        }
        match self.serving(now) {
            Serving::Nothing => Err(NotServing::Starting),
            Serving::Reads | Serving::All => Ok(()),
        }
    }

    /// The position up to which the log was reported durable. Reads return this state (M1.13).
    #[must_use]
    pub fn announced_position(&self) -> u64 {
        self.announced
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        let (end, forced, me) = (self.log.end(), self.log.forced_position(), self.settings.me);
        if self.announced > forced || forced > end {
            return Err(format!("M1.9: {me:?} has reported {} and forced {forced}, but ends at {end}", self.announced));
        }
        let runs = self.log.last_points();
        // A copying brick may have received records of a later epoch.
        let takes_part = matches!(self.role, MemberRole::First | MemberRole::Member);
        let is_ahead = takes_part && runs.last().is_some_and(|run| run.epoch > self.epoch());
        if is_ahead || !runs.is_sorted_by_key(|run| run.epoch) {
            return Err(format!("M1.8: the log of {me:?} in {:?} is {runs:?}", self.epoch()));
        }
        if self.leads && self.role != MemberRole::First {
            return Err(format!("M1.8: {me:?} leads but is {:?}", self.role));
        }
        if self.role == MemberRole::First {
            if let Some(held) = self.held_by_all
                && (held < self.start_position || held > self.common_durable_position())
            {
                return Err(format!(
                    "M1.10: {me:?} began at {}, but counts {held} as held by all",
                    self.start_position
                ));
            }
            if let Some((id, peer)) = self.peers.iter().find(|(_, peer)| peer.acknowledged > end || peer.sent > end) {
                return Err(format!("M1.11: {id:?} has {peer:?}, but the first member ends at {end}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
