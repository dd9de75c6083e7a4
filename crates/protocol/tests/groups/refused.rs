//! A replica group is one participant: a refused transaction stays refused, whichever member is lost. With a count of
//! the members' votes instead, a transaction was reported aborted and later found prepared at every member.

use std::collections::BTreeMap;

use model::{ClassId, NodeId, Oid, PageId, SpaceId};
use protocol::commit::participant::{self, Participant};
use protocol::commit::{Answer, Part, Record, Request};
use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
use protocol::page_cache::ObjectState;
use protocol::placement::{Epoch, Group, GroupMember, Incarnation, MemberId};
use protocol::replica::log::{LogPoint, ReplicaLog};
use protocol::replica::message::Message;
use protocol::replica::{Output, Replica, ReplicaSettings};
use protocol::validate::WindowLimits;
use protocol::validate::{Read, ReadVersion};

const NODE: NodeId = NodeId(1);

fn member(number: u32) -> GroupMember {
    GroupMember { id: MemberId(number), incarnation: Incarnation(1) }
}

fn group(epoch: u64, members: &[u32]) -> Group {
    let members: Vec<GroupMember> = members.iter().map(|number| member(*number)).collect();
    let wanted = vec![MemberId(1), MemberId(2)];
    Group { epoch: Epoch(epoch), members, wanted }
}

/// A member with its participant, if it leads.
struct TestMember {
    replica: Replica<Record<u64>>,
    participant: Option<Participant<(), u64>>,
    /// The last record that was written and is not durable.
    unforced: Option<LogPoint>,
    sent: Vec<(MemberId, Message<Record<u64>>)>,
    answers: Vec<Answer>,
}

impl TestMember {
    fn new(number: u32) -> Self {
        let settings = ReplicaSettings { node: NODE, me: member(number), retry_ms: 10, batch: 8, window: 8 };
        let mut replica = Replica::new(settings, ReplicaLog::new(LogPoint::default(), []));
        replica.extend_lease(1_000_000, 0);
        let (sent, answers) = (Vec::new(), Vec::new());
        Self { replica, participant: None, unforced: None, sent, answers }
    }

    /// Carries out the outputs as a driver does.
    fn drain(&mut self) {
        loop {
            let outputs: Vec<_> = self.replica.outputs().collect();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Append(point, _) => self.unforced = Some(point),
                    Output::Send(to, message) => self.sent.push((to, message)),
                    Output::Durable(position) => {
                        if let Some(participant) = &mut self.participant {
                            participant.handle_forced(position, &Version::ZERO);
                        }
                    }
                    Output::Lead => {
                        let windows = WindowLimits { page: 10, retained: 0 };
                        let settings =
                            participant::ParticipantSettings { node: NODE, moves: 0, skew_ms: 1000, windows };
                        let mut participant = Participant::new(settings);
                        for (position, (_, record)) in (1..).zip(self.replica.log().after(0).cloned()) {
                            participant.recover(Version { moves: 0, position }, record);
                        }
                        participant.finish_recovery(self.replica.log().end());
                        self.participant = Some(participant);
                    }
                    Output::Resign => self.participant = None,
                    _ => {}
                }
            }
            self.drain_participant();
        }
    }

    fn drain_participant(&mut self) {
        for output in self.participant.iter_mut().flat_map(Participant::outputs).collect::<Vec<_>>() {
            match output {
                participant::Output::Append(_, record) => drop(self.replica.append(record, 0).unwrap()),
                participant::Output::Answer((), answer) => self.answers.push(answer),
                participant::Output::Changed(..)
                | participant::Output::Again(..)
                | participant::Output::RemoveRows(_)
                | participant::Output::RemoveMarks(_) => {}
            }
        }
    }

    fn ask(&mut self, request: Request<u64>) {
        let participant = self.participant.as_mut().unwrap();
        participant.handle((), request, HlcTimestamp::ZERO, 5, &Version { moves: 0, position: 9 }).unwrap();
        self.drain_participant();
        self.drain();
    }

    fn force(&mut self) {
        if let Some(point) = self.unforced.take() {
            self.replica.handle_forced(point, 0);
            self.drain();
        }
    }
}

/// Delivers all messages between the two members.
fn deliver_all(one: &mut TestMember, two: &mut TestMember) {
    while !(one.sent.is_empty() && two.sent.is_empty()) {
        for (_, message) in std::mem::take(&mut one.sent) {
            two.replica.handle(MemberId(1), message, 0);
        }
        for (_, message) in std::mem::take(&mut two.sent) {
            one.replica.handle(MemberId(2), message, 0);
        }
        one.drain();
        two.drain();
    }
}

fn prepare() -> (TxnId, Request<u64>) {
    let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NODE, number: 1 }, 0);
    let txn = TxnId { start: HlcTimestamp::at(1), client: ClientId(1) };
    // It has read an outdated state, so it cannot commit.
    let reads = [Read { oid, seen: ReadVersion::At(Version { moves: 0, position: 3 }) }].into();
    let part = Part { reads, writes: BTreeMap::from([(oid, ObjectState::Value(1))]), ..Part::default() };
    (txn, Request::Prepare { txn, participants: vec![NODE, NodeId(2)], part })
}

#[test]
fn refused_transaction_stays_refused_when_the_first_member_is_dropped() {
    let (mut one, mut two) = (TestMember::new(1), TestMember::new(2));
    for brick in [&mut one, &mut two] {
        brick.replica.configure(&group(1, &[1, 2]), 0);
        brick.drain();
    }
    deliver_all(&mut one, &mut two);
    let (txn, prepare) = prepare();
    one.ask(prepare.clone());
    one.force();
    deliver_all(&mut one, &mut two);
    assert_eq!(one.answers, [], "the second member does not hold the refusal yet");
    two.force();
    deliver_all(&mut one, &mut two);
    assert!(matches!(one.answers[..], [Answer::Refused { .. }]), "{:?}", one.answers);
    // The client learns that the transaction was aborted. The first member is dropped, and the same request is
    // repeated.
    two.replica.configure(&group(2, &[2]), 0);
    two.drain();
    two.ask(prepare);
    two.ask(Request::Ask { txn, round: 0 });
    two.force();
    assert!(two.answers.iter().all(|answer| matches!(answer, Answer::Refused { .. })), "{:?}", two.answers);
    assert_eq!(two.answers.len(), 2);
    // The dropped member has no participant any more.
    one.replica.configure(&group(2, &[2]), 0);
    one.drain();
    assert!(one.participant.is_none());
}
