use super::*;

const LEASE_MS: u64 = 100;
const NODE: NodeId = NodeId(7);

fn id(number: u32) -> MemberId {
    MemberId(number)
}

fn member(number: u32, life: u64) -> GroupMember {
    GroupMember { id: id(number), incarnation: Incarnation(life) }
}

/// A meta-server and its durable state.
struct Meta {
    decider: Decider,
    kept: BTreeMap<NodeId, PersistedNode>,
    sent: Vec<(MemberId, MetaNotice)>,
}

impl Meta {
    /// One node that these bricks serve, in its first epoch.
    fn serving(numbers: &[u32]) -> Self {
        let mut meta = Self { decider: Decider::new(LEASE_MS, [], 0), kept: BTreeMap::new(), sent: Vec::new() };
        numbers.iter().rev().for_each(|number| meta.renew(*number, 1, 0));
        assert!(meta.decider.create(NODE, numbers.iter().map(|number| id(*number)).collect(), 0));
        meta.drain();
        meta
    }

    fn drain(&mut self) {
        for output in self.decider.outputs() {
            match output {
                Output::Persist(node, kept) => drop(self.kept.insert(node, kept)),
                Output::Send(to, notice) => self.sent.push((to, notice)),
            }
        }
        self.decider.check_invariants().unwrap();
    }

    fn renew(&mut self, number: u32, life: u64, now: Ms) {
        let ask = MetaRequest::Renew { incarnation: Incarnation(life), asked: now, epoch: Epoch::default() };
        self.decider.handle(id(number), ask, now);
        self.drain();
    }

    fn report(&mut self, report: GroupReport, now: Ms) {
        let group = self.group();
        let ask = MetaRequest::Report { node: NODE, epoch: group.epoch, report };
        self.decider.handle(group.first().unwrap().id, ask, now);
        self.drain();
    }

    fn poll(&mut self, now: Ms) {
        self.decider.poll(now);
        self.drain();
    }

    fn group(&self) -> Group {
        self.decider.map().lookup(NODE).unwrap().clone()
    }
}

#[test]
fn logical_node_is_created_once_and_on_some_brick() {
    let mut meta = Meta::serving(&[1]);
    let group = meta.group();
    assert!(!meta.decider.create(NODE, vec![id(2)], 0), "it exists");
    assert_eq!(meta.group(), group);
    assert!(!meta.decider.create(NodeId(8), Vec::new(), 0), "no brick is to serve it");
    assert!(meta.decider.map().lookup(NodeId(8)).is_none());
}

#[test]
fn member_is_dropped_when_its_lease_has_ended() {
    let mut meta = Meta::serving(&[1, 2]);
    meta.renew(2, 1, 60);
    meta.poll(holder_expiry(0, LEASE_MS) - 1);
    assert_eq!(meta.group().members, [member(1, 1), member(2, 1)]);
    meta.poll(holder_expiry(0, LEASE_MS));
    assert_eq!(meta.group().members, [member(2, 1)]);
}

#[test]
fn restarted_first_member_is_replaced_at_once() {
    let mut meta = Meta::serving(&[1, 2]);
    meta.renew(1, 2, 10);
    assert_eq!(meta.group().members, [member(2, 1), member(1, 2)]);
    // The answer is sent after the decision and contains it.
    let Some((_, MetaNotice::Granted { news, epoch, .. })) = meta.sent.last() else { panic!("{:?}", meta.sent) };
    assert_eq!((news.clone(), *epoch), (vec![(NODE, meta.group())], meta.group().epoch));
}

#[test]
fn member_that_may_lack_durable_records_never_leads() {
    let mut meta = Meta::serving(&[1, 2]);
    meta.renew(1, 1, 100);
    meta.poll(110);
    assert_eq!(meta.group().members, [member(1, 1)]);
    // The second member returns, has almost everything, and joins. Before that epoch has started, the first one is
    // lost.
    meta.renew(2, 2, 120);
    meta.report(GroupReport::CaughtUp(member(2, 2)), 120);
    assert_eq!(meta.group().members, [member(1, 1), member(2, 2)]);
    // The start of the previous epoch has no effect on this one.
    let epoch = Epoch(meta.group().epoch.0 - 1);
    let late = MetaRequest::Report { node: NODE, epoch, report: GroupReport::Started };
    meta.decider.handle(id(1), late, 120);
    meta.drain();
    meta.renew(2, 2, 200);
    meta.poll(250);
    assert_eq!(meta.group().members, [member(1, 1), member(2, 2)], "the node waits for the first member");
    meta.renew(1, 2, 260);
    assert_eq!(meta.group().members, [member(1, 2), member(2, 2)]);
    // Now the epoch starts, and the second member may lead.
    meta.report(GroupReport::Started, 260);
    meta.renew(2, 2, 350);
    meta.poll(400);
    assert_eq!(meta.group().members, [member(2, 2)]);
}

#[test]
fn brick_joins_only_after_the_last_epoch_has_started() {
    let mut meta = Meta::serving(&[1, 2, 3]);
    meta.renew(1, 1, 100);
    meta.poll(110);
    meta.renew(2, 2, 120);
    meta.renew(3, 2, 120);
    meta.report(GroupReport::CaughtUp(member(2, 2)), 120);
    meta.report(GroupReport::CaughtUp(member(3, 2)), 120);
    assert_eq!(meta.group().members, [member(1, 1), member(2, 2)]);
    meta.report(GroupReport::Started, 120);
    meta.report(GroupReport::CaughtUp(member(3, 2)), 120);
    assert_eq!(meta.group().members, [member(1, 1), member(2, 2), member(3, 2)]);
}

#[test]
fn restarted_meta_server_waits_for_earlier_leases() {
    let mut meta = Meta::serving(&[1, 2]);
    meta.decider = Decider::new(LEASE_MS, meta.kept.clone(), 1000);
    meta.renew(2, 1, 1050);
    meta.poll(holder_expiry(1000, LEASE_MS) - 1);
    assert_eq!(meta.group().members.len(), 2);
    meta.poll(holder_expiry(1000, LEASE_MS));
    assert_eq!(meta.group().members, [member(2, 1)]);
}

#[test]
fn late_messages_of_an_earlier_start_are_ignored() {
    let mut meta = Meta::serving(&[1]);
    meta.renew(1, 3, 10);
    let sent = meta.sent.len();
    meta.renew(1, 2, 20);
    assert_eq!((meta.group().members, meta.sent.len()), (vec![member(1, 3)], sent));
}
