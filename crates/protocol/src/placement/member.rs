//! A brick's lease from the meta-server, and its map.
//!
//! One lease covers all logical nodes of a brick, so its cost is independent of their number. It counts from the time
//! of the request by the brick's own clock ([`crate::lease`]); each answer names its request, because links may lose,
//! repeat and reorder messages. The answer contains the decisions of the meantime, which the brick applies before the
//! lease (M1.5).

use model::NodeId;

use super::{Epoch, Group, GroupMap, Incarnation, MetaNotice, MetaRequest};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// An output of a member. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this to the meta-server.
    Send(MetaRequest),
    /// A node has a new group: configure its replica here, or create one if the brick is a member or wanted.
    Configure(NodeId, Group),
    /// The lease lasts until then: inform all replicas.
    Leased(Ms),
    /// The meta-server knows that this epoch has started: inform the replica.
    StartAcknowledged(NodeId, Epoch),
}

/// A brick as a member of groups.
#[derive(Clone, Debug)]
pub struct Member {
    incarnation: Incarnation,
    map: GroupMap,
    /// Whether the map is complete since the start.
    knows_all: bool,
    lease_until: Ms,
    /// When the next renewal is due.
    next_renewal: Ms,
    renew_ms: u64,
    out: Vec<Output>,
}

impl Member {
    /// A brick that has just started and renews its lease at this interval: several times during a lease.
    #[must_use]
    pub fn new(life: Incarnation, renew_ms: u64) -> Self {
        Self {
            incarnation: life,
            map: GroupMap::default(),
            knows_all: false,
            lease_until: 0,
            next_renewal: 0,
            renew_ms,
            out: Vec::new(),
        }
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> {
        self.out.drain(..)
    }

    /// Handles a message from the meta-server.
    pub fn handle(&mut self, notice: MetaNotice) {
        match notice {
            MetaNotice::Granted { incarnation: life, asked, lease_ms, epoch, mut news } if self.is_mine(life) => {
                if planted(Bug::LeaseWithoutNews) && self.knows_all {
                    news.clear();
                }
                news.into_iter().for_each(|(node, group)| self.learn(node, group));
                self.map.set_complete(epoch);
                self.knows_all = true;
                let until = asked + lease_ms;
                if until > self.lease_until {
                    self.lease_until = until;
                    self.out.push(Output::Leased(until));
                }
            }
            // An answer to an earlier process, which had another clock and may have known more.
            MetaNotice::Granted { .. } => {}
            // Before the map is complete, a group may be older than the one that this brick was a member of before its
            // restart.
            MetaNotice::Changed(node, group) if self.knows_all => self.learn(node, group),
            MetaNotice::Changed(..) => {}
            MetaNotice::StartAcknowledged(node, epoch) => self.out.push(Output::StartAcknowledged(node, epoch)),
        }
    }

    fn is_mine(&self, life: Incarnation) -> bool {
        life == self.incarnation || planted(Bug::LeaseOfLifeBefore) && life < self.incarnation
    }

    fn learn(&mut self, node: NodeId, group: Group) {
        if self.map.learn(node, &group) {
            self.out.push(Output::Configure(node, group));
        }
    }

    /// Renews the lease if it is due.
    pub fn poll(&mut self, now: Ms) {
        if now >= self.next_renewal {
            self.next_renewal = now + self.renew_ms;
            self.out.push(Output::Send(MetaRequest::Renew {
                incarnation: self.incarnation,
                asked: now,
                epoch: self.map.epoch(),
            }));
        }
    }

    /// When [`Member::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        self.next_renewal
    }

    /// The map of this brick.
    #[must_use]
    pub fn map(&self) -> &GroupMap {
        &self.map
    }

    /// Whether the brick has a lease.
    #[must_use]
    pub fn is_leased(&self, now: Ms) -> bool {
        now < self.lease_until
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GroupMember, MemberId};
    use super::*;

    fn granted_notice(life: u64, asked: Ms, news: Vec<(NodeId, Group)>) -> MetaNotice {
        MetaNotice::Granted {
            incarnation: Incarnation(life),
            asked,
            lease_ms: 100,
            epoch: Epoch(news.len() as u64),
            news,
        }
    }

    fn group(epoch: u64) -> Group {
        let members = vec![GroupMember { id: MemberId(1), incarnation: Incarnation(1) }];
        Group { epoch: Epoch(epoch), members, wanted: vec![MemberId(1)] }
    }

    #[test]
    fn repeated_old_answer_does_not_extend_the_lease() {
        let mut member = Member::new(Incarnation(1), 30);
        member.poll(1000);
        member.handle(granted_notice(1, 1000, Vec::new()));
        assert!(member.is_leased(1099) && !member.is_leased(1100));
        member.poll(1050);
        member.handle(granted_notice(1, 1000, Vec::new()));
        assert!(!member.is_leased(1100));
    }

    #[test]
    fn answer_to_an_earlier_start_is_ignored() {
        let mut member = Member::new(Incarnation(2), 30);
        member.handle(granted_notice(1, 5000, Vec::new()));
        assert!(!member.is_leased(10));
    }

    /// The histories rarely detect this bug.
    #[test]
    fn planted_bug_is_detected_by_its_test() {
        assert!(model::planted_bug::is_noticed(Bug::LeaseOfLifeBefore, answer_to_an_earlier_start_is_ignored));
    }

    #[test]
    fn decisions_are_applied_before_the_lease() {
        let mut member = Member::new(Incarnation(1), 30);
        member.handle(granted_notice(1, 0, vec![(NodeId(7), group(1))]));
        let outputs: Vec<Output> = member.outputs().collect();
        assert_eq!(outputs, [Output::Configure(NodeId(7), group(1)), Output::Leased(100)]);
        assert_eq!(member.map().epoch(), Epoch(1));
    }

    #[test]
    fn older_group_never_replaces_a_newer_one() {
        let mut member = Member::new(Incarnation(1), 30);
        member.handle(MetaNotice::Changed(NodeId(7), group(3)));
        assert_eq!(member.map().lookup(NodeId(7)), None, "the map is unknown before the first answer");
        member.handle(granted_notice(1, 0, Vec::new()));
        member.handle(MetaNotice::Changed(NodeId(7), group(5)));
        member.handle(MetaNotice::Changed(NodeId(7), group(4)));
        assert_eq!(member.map().lookup(NodeId(7)), Some(&group(5)));
        assert_eq!(member.map().epoch(), Epoch::default(), "one group does not make the map complete");
    }
}
