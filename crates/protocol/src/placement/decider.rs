//! The meta-server's decisions: which bricks are alive, and which group serves each logical node from which epoch on
//! (M1).
//!
//! Only this machine begins epochs. Its decisions depend on the leases that it has granted and measures by its own
//! clock, on the starts of bricks, and on the reports of first members. Each decision is an [`Output::Persist`], which
//! must be durable before later outputs are carried out. After a restart the machine continues from there, and waits
//! for the leases that it may have granted before.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use super::{Epoch, Group, GroupMap, GroupMember, GroupReport, Incarnation, MemberId, MetaNotice, MetaRequest};
use crate::lease::{Ms, holder_expiry};
use crate::plant::{Bug, planted};

/// The durable state of a logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistedNode {
    /// The group that serves it.
    pub group: Group,
    /// The members that hold everything that was ever reported durable (M1.3): one of them will be the next first
    /// member.
    pub holders: BTreeSet<MemberId>,
}

/// An output of the decider. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this durable before carrying out later outputs.
    Persist(NodeId, PersistedNode),
    /// Send this to a brick.
    Send(MemberId, MetaNotice),
}

/// The decider.
#[derive(Clone, Debug)]
pub struct Decider {
    lease_ms: u64,
    /// The last known start of each brick.
    incarnations: BTreeMap<MemberId, Incarnation>,
    /// When each lease ends, by this clock.
    leases: BTreeMap<MemberId, Ms>,
    map: GroupMap,
    holders: BTreeMap<NodeId, BTreeSet<MemberId>>,
    /// Bricks that have almost everything of a node, in its current epoch.
    caught_up: BTreeMap<NodeId, BTreeSet<GroupMember>>,
    out: Vec<Output>,
}

impl Decider {
    /// A decider that continues from its durable state. `lease_ms` is the length of leases, now and before the restart:
    /// it waits for those that may have been granted before.
    #[must_use]
    pub fn new(lease_ms: u64, kept: impl IntoIterator<Item = (NodeId, PersistedNode)>, now: Ms) -> Self {
        let (lives, leases, map) = (BTreeMap::new(), BTreeMap::new(), GroupMap::default());
        let (holders, caught_up) = (BTreeMap::new(), BTreeMap::new());
        let mut decider = Self { lease_ms, incarnations: lives, leases, map, holders, caught_up, out: Vec::new() };
        for (node, kept) in kept {
            for seat in &kept.group.members {
                let life = decider.incarnations.entry(seat.id).or_default();
                *life = seat.incarnation.max(*life);
                let expires = if planted(Bug::LeasesForgotten) { now + 1 } else { holder_expiry(now, lease_ms) };
                decider.leases.insert(seat.id, expires);
            }
            decider.map.set_complete(kept.group.epoch);
            decider.map.learn(node, &kept.group);
            let all = || kept.group.members.iter().map(|seat| seat.id).collect();
            decider.holders.insert(node, if planted(Bug::HoldersForgotten) { all() } else { kept.holders });
        }
        decider
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.out.drain(..)
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> &GroupMap {
        &self.map
    }

    // ------------------------------------------------------------------------------------------ requests

    /// Creates a logical node on these bricks; it starts with those that are alive when the first of them is. Returns
    /// false if the number is not new.
    pub fn create(&mut self, node: NodeId, wanted: Vec<MemberId>, now: Ms) -> bool {
        let is_new = self.map.lookup(node).is_none() && !wanted.is_empty();
        if is_new {
            let group = Group { epoch: self.next_epoch(), members: Vec::new(), wanted };
            self.begin(node, group, BTreeSet::new());
            self.step(node, now);
        }
        is_new
    }

    // ------------------------------------------------------------------------------------------ messages

    /// Handles a message from a brick.
    pub fn handle(&mut self, from: MemberId, ask: MetaRequest, now: Ms) {
        match ask {
            MetaRequest::Renew { incarnation: life, asked, epoch } => self.renew(from, life, asked, epoch, now),
            MetaRequest::Report { node, epoch, report } => {
                let is_current = self.map.lookup(node).is_some_and(|group| group.epoch == epoch);
                if is_current {
                    self.report(from, node, epoch, report);
                }
                self.step(node, now);
            }
        }
    }

    /// Renews the lease of a brick. If it has restarted, its previous process has no lease any more, and its groups
    /// continue in new epochs. The answer is sent afterwards, so that the brick learns these with its lease (M1.5).
    fn renew(&mut self, from: MemberId, life: Incarnation, asked: Ms, epoch: Epoch, now: Ms) {
        let known = self.incarnations.get(&from).copied();
        if known.is_some_and(|known| life < known) {
            return;
        }
        self.incarnations.insert(from, life);
        let expires = self.leases.entry(from).or_default();
        let was_gone = *expires <= now;
        let waited = if planted(Bug::LeaseNotWaitedFor) {
            now + self.lease_ms / 2
        } else if planted(Bug::LeaseWithoutDrift) {
            now + self.lease_ms
        } else {
            holder_expiry(now, self.lease_ms)
        };
        *expires = waited.max(*expires);
        if was_gone || known != Some(life) {
            self.poll(now);
        }
        let (lease_ms, news) = (self.lease_ms, self.map.changes_since(epoch));
        let granted = MetaNotice::Granted { incarnation: life, asked, lease_ms, epoch: self.map.epoch(), news };
        self.out.push(Output::Send(from, granted));
    }

    fn report(&mut self, from: MemberId, node: NodeId, epoch: Epoch, report: GroupReport) {
        let Some(group) = self.map.lookup(node).cloned() else { return };
        match report {
            GroupReport::Started => {
                self.mark_started(node, &group);
                self.out.push(Output::Send(from, MetaNotice::StartAcknowledged(node, epoch)));
            }
            GroupReport::CaughtUp(seat) => {
                self.caught_up.entry(node).or_default().insert(seat);
            }
        }
    }

    /// Records that all members of an epoch hold everything: each of them may be the next first one.
    fn mark_started(&mut self, node: NodeId, group: &Group) {
        let all: BTreeSet<MemberId> = group.members.iter().map(|seat| seat.id).collect();
        if self.holders.get(&node) != Some(&all) {
            self.begin(node, group.clone(), all);
        }
    }

    // ------------------------------------------------------------------------------------------ decisions

    /// Makes the decisions that are due.
    pub fn poll(&mut self, now: Ms) {
        let nodes: Vec<NodeId> = self.map.groups().map(|(node, _)| node).collect();
        nodes.into_iter().for_each(|node| self.step(node, now));
    }

    /// When [`Decider::poll`] may be due.
    #[must_use]
    pub fn deadline(&self, now: Ms) -> Option<Ms> {
        self.leases.values().copied().filter(|expires| *expires > now).min()
    }

    /// The process of a brick that has a lease. [`Decider::step`] has removed expired leases.
    fn live_member(&self, id: MemberId) -> Option<GroupMember> {
        let life = self.incarnations.get(&id).filter(|_| self.leases.contains_key(&id));
        life.map(|life| GroupMember { id, incarnation: *life })
    }

    fn has_started(&self, node: NodeId) -> bool {
        let Some(group) = self.map.lookup(node) else { return false };
        let holds = |seat: &GroupMember| self.holders.get(&node).is_some_and(|holders| holders.contains(&seat.id));
        !group.members.is_empty() && group.members.iter().all(holds)
    }

    /// Begins the next epoch of a node if necessary.
    fn step(&mut self, node: NodeId, now: Ms) {
        // An expired lease is removed (M1.2).
        self.leases.retain(|_, expires| *expires > now);
        let Some(group) = self.map.lookup(node).cloned() else { return };
        if group.members.is_empty() {
            return self.step_first(node, &group);
        }
        let is_lost = |seat: &GroupMember| match self.live_member(seat.id) {
            Some(living) => living != *seat && !planted(Bug::RestartUnnoticed),
            None => true,
        };
        if group.members.iter().any(is_lost) {
            return self.step_lost(node, &group);
        }
        if self.has_started(node) {
            self.step_join(node, &group);
        }
    }

    /// The first epoch of a node: the log is empty, so every live brick holds all of it.
    fn step_first(&mut self, node: NodeId, group: &Group) {
        let members: Vec<GroupMember> = group.wanted.iter().filter_map(|id| self.live_member(*id)).collect();
        if members.first().map(|seat| seat.id) == group.wanted.first().copied() {
            let holders = members.iter().map(|seat| seat.id).collect();
            self.announce(group, node, Group { epoch: self.next_epoch(), members, ..group.clone() }, holders);
        }
    }

    /// Continues without members that are gone or have restarted, with a first member that holds everything. If no such
    /// member is alive, the node waits.
    fn step_lost(&mut self, node: NodeId, group: &Group) {
        let holders = self.holders.get(&node);
        let holds = |id| planted(Bug::AnyoneFirst) || holders.is_some_and(|holders| holders.contains(&id));
        let mut members = Vec::new();
        for seat in &group.members {
            match self.live_member(seat.id) {
                Some(living) if living == *seat || holds(seat.id) => members.push(living),
                _ => {}
            }
        }
        // A member that has not restarted knows more about transactions under way.
        members.sort_by_key(|seat| (!holds(seat.id), !group.members.contains(seat)));
        if members.first().is_some_and(|seat| holds(seat.id)) {
            self.change(node, Group { epoch: self.next_epoch(), members, ..group.clone() });
        }
    }

    /// Lets a wanted brick join that has almost everything.
    fn step_join(&mut self, node: NodeId, group: &Group) {
        let caught_up = self.caught_up.get(&node);
        let is_ripe = |seat: &GroupMember| caught_up.is_some_and(|caught_up| caught_up.contains(seat));
        let joining: Vec<GroupMember> = group.joining().filter_map(|id| self.live_member(id)).filter(is_ripe).collect();
        if !joining.is_empty() {
            let members = group.members.iter().copied().chain(joining).collect();
            self.change(node, Group { epoch: self.next_epoch(), members, ..group.clone() });
        }
    }

    fn next_epoch(&self) -> Epoch {
        Epoch(self.map.epoch().0 + 1)
    }

    /// Begins an epoch with other members: the remaining holders are its holders (M1.3).
    fn change(&mut self, node: NodeId, group: Group) {
        let before = self.map.lookup(node).cloned();
        let holders = self.holders.get(&node).cloned().unwrap_or_default();
        let holders = if planted(Bug::JoinerHoldsAtOnce) {
            group.members.iter().map(|seat| seat.id).collect()
        } else {
            holders.into_iter().filter(|id| group.member(*id).is_some()).collect()
        };
        self.announce(before.as_ref().unwrap_or(&group), node, group.clone(), holders);
    }

    /// Begins an epoch and informs the bricks concerned; a brick that misses the message learns it with its next lease.
    fn announce(&mut self, before: &Group, node: NodeId, group: Group, holders: BTreeSet<MemberId>) {
        let unchanged = self.map.lookup(node).filter(|now| now.epoch >= group.epoch);
        assert!(unchanged.is_none(), "M1.1: {node:?} goes from {unchanged:?} to {group:?}");
        let first = group.first().filter(|first| !holders.contains(&first.id));
        assert!(
            first.is_none() || planted(Bug::AnyoneFirst),
            "M1.3: {first:?} becomes the first member of {node:?} but may not hold everything: {holders:?}"
        );
        let distinct: BTreeSet<MemberId> = group.members.iter().map(|seat| seat.id).collect();
        assert!(distinct.len() == group.members.len(), "M1.1: a brick is a member of {node:?} twice: {group:?}");
        let ids = |group: &Group| group.members.iter().map(|seat| seat.id).chain(group.joining()).collect::<Vec<_>>();
        let concerned: BTreeSet<MemberId> = ids(before).into_iter().chain(ids(&group)).collect();
        self.begin(node, group.clone(), holders);
        for id in concerned {
            self.out.push(Output::Send(id, MetaNotice::Changed(node, group.clone())));
        }
    }

    fn begin(&mut self, node: NodeId, group: Group, holders: BTreeSet<MemberId>) {
        self.map.set_complete(group.epoch);
        if self.map.learn(node, &group) {
            self.caught_up.remove(&node);
        }
        self.holders.insert(node, holders.clone());
        self.out.push(Output::Persist(node, PersistedNode { group, holders }));
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (node, group) in self.map.groups() {
            if group.epoch > self.map.epoch() {
                return Err(format!("M1.1: {node:?} is in {:?}, but the map in {:?}", group.epoch, self.map.epoch()));
            }
            let holders = self.holders.get(&node).cloned().unwrap_or_default();
            if let Some(first) = group.first()
                && !holders.contains(&first.id)
            {
                return Err(format!(
                    "M1.3: {first:?} is the first member of {node:?} but may not hold everything: {holders:?}"
                ));
            }
            if let Some(other) = holders.iter().find(|id| group.member(**id).is_none()) {
                return Err(format!("M1.3: {other:?} counts as a holder but is not a member of {node:?} any more"));
            }
            let ids: BTreeSet<MemberId> = group.members.iter().map(|seat| seat.id).collect();
            if ids.len() != group.members.len() {
                return Err(format!("M1.1: a brick is a member of {node:?} twice: {:?}", group.members));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
