use super::*;
use crate::placement::Remedy;

const NODE: NodeId = NodeId(1);

fn member(number: u32, life: u64) -> GroupMember {
    GroupMember { id: MemberId(number), incarnation: Incarnation(life) }
}

fn group(epoch: u64, members: &[u32]) -> Group {
    let wanted = vec![MemberId(1), MemberId(2)];
    let members = members.iter().map(|number| member(*number, 1)).collect();
    Group { epoch: Epoch(epoch), members, wanted }
}

fn point(epoch: u64, position: u64) -> LogPoint {
    LogPoint { epoch: Epoch(epoch), position }
}

fn log_id(life: u64, copies: u32) -> LogId {
    LogId { incarnation: Incarnation(life), copies }
}

/// A member whose log is durable and has records of these epochs. Each record is its position.
fn replica(number: u32, epochs: &[u64]) -> Replica<u64> {
    let settings = ReplicaSettings { node: NODE, me: member(number, 1), retry_ms: 10, batch: 8, window: 8 };
    let records = (1..).zip(epochs).map(|(position, epoch)| (Epoch(*epoch), position));
    let mut replica = Replica::new(settings, ReplicaLog::new(LogPoint::default(), records));
    replica.extend_lease(1000, 0);
    replica
}

fn append(epoch: u64, previous: LogPoint, records: &[(u64, u64)], durable: Option<u64>) -> Message<u64> {
    let records = records.iter().map(|(epoch, record)| (Epoch(*epoch), *record)).collect();
    Message::Append { epoch: Epoch(epoch), log: log_id(1, 0), previous, records, durable }
}

fn appended_message(epoch: u64, log: LogId, position: u64) -> Message<u64> {
    Message::Appended { epoch: Epoch(epoch), log, position, durable: None }
}

/// The outputs, without messages and reports.
fn take_commands(replica: &mut Replica<u64>) -> Vec<Output<u64>> {
    replica.check_invariants().unwrap();
    replica.outputs().filter(|output| !matches!(output, Output::Send(..) | Output::Report(..))).collect()
}

/// The first of two members with empty logs, which leads in the second epoch.
fn leading() -> Replica<u64> {
    let mut first = replica(1, &[]);
    first.configure(&group(2, &[1, 2]), 0);
    first.handle(MemberId(2), Message::Hello { epoch: Epoch(2), log: log_id(1, 0), runs: Vec::new() }, 0);
    assert_eq!(take_commands(&mut first), [Output::Lead, Output::Serving(Serving::All)]);
    first
}

#[test]
fn record_is_durable_when_all_members_have_acknowledged_it() {
    let mut first = leading();
    assert_eq!(first.append(7, 0), Ok(1));
    first.handle_forced(point(2, 1), 0);
    first.handle(MemberId(2), appended_message(1, log_id(1, 0), 1), 0);
    first.handle(MemberId(2), appended_message(2, log_id(1, 1), 1), 0);
    first.handle(MemberId(3), appended_message(2, log_id(1, 0), 1), 0);
    assert_eq!(take_commands(&mut first), [Output::Append(point(2, 1), 7)]);
    first.handle(MemberId(2), appended_message(2, log_id(1, 0), 1), 0);
    assert_eq!(take_commands(&mut first), [Output::Durable(1)]);
}

#[test]
fn first_member_without_a_lease_reports_nothing() {
    let mut first = leading();
    assert_eq!(first.append(7, 999), Ok(1));
    first.handle_forced(point(2, 1), 1000);
    first.handle(MemberId(2), appended_message(2, log_id(1, 0), 1), 1000);
    assert_eq!(take_commands(&mut first), [Output::Append(point(2, 1), 7), Output::Serving(Serving::Nothing)]);
    first.extend_lease(2000, 1001);
    assert_eq!(take_commands(&mut first), [Output::Durable(1), Output::Serving(Serving::All)]);
}

#[test]
fn new_first_member_leads_when_all_members_hold_its_log() {
    let mut first = replica(1, &[1, 1]);
    first.configure(&group(2, &[1, 2]), 0);
    first.handle(MemberId(2), Message::Hello { epoch: Epoch(2), log: log_id(1, 0), runs: vec![point(1, 1)] }, 0);
    assert_eq!((take_commands(&mut first), first.append(3, 0)), (Vec::new(), Err(NotServing::Elsewhere)));
    first.handle(MemberId(2), appended_message(2, log_id(1, 0), 2), 0);
    let leads = [Output::Durable(2), Output::Lead, Output::Serving(Serving::All)];
    assert_eq!(take_commands(&mut first), leads);
}

#[test]
fn member_discards_its_tail_and_serves_when_the_epoch_has_started() {
    let mut member = replica(2, &[1, 1, 1]);
    member.configure(&group(2, &[1, 2]), 0);
    member.handle(MemberId(1), append(2, point(1, 2), &[(2, 8)], None), 0);
    assert_eq!(take_commands(&mut member), [Output::Truncate(2), Output::Append(point(2, 3), 8)]);
    // The truncated record was forced before. This has no effect on the record that replaces it.
    member.handle_forced(point(1, 3), 0);
    assert_eq!((take_commands(&mut member), member.log().forced_position()), (Vec::new(), 2));
    member.handle(MemberId(1), append(2, point(2, 3), &[], Some(3)), 0);
    assert_eq!(take_commands(&mut member), [Output::Durable(2), Output::Serving(Serving::Reads)]);
    member.handle_forced(point(2, 3), 0);
    assert_eq!(take_commands(&mut member), [Output::Durable(3)]);
}

#[test]
fn records_of_other_epochs_or_with_gaps_are_ignored() {
    let mut member = replica(2, &[1]);
    member.configure(&group(3, &[1, 2]), 0);
    member.handle(MemberId(1), append(2, point(1, 1), &[(2, 5)], None), 0);
    member.handle(MemberId(1), append(3, point(2, 1), &[(3, 5)], None), 0);
    member.handle(MemberId(1), append(3, point(1, 2), &[(3, 5)], None), 0);
    assert_eq!((take_commands(&mut member), member.log().end()), (Vec::new(), 1));
}

#[test]
fn late_copy_does_not_replace_acknowledged_records() {
    let mut member = replica(2, &[1]);
    member.configure(&group(2, &[1]), 0);
    let copy = |base| Message::Copy { epoch: Epoch(2), log: log_id(1, 0), base };
    member.handle(MemberId(1), copy(3), 0);
    assert_eq!(take_commands(&mut member), [Output::CopyFrom(MemberId(1))]);
    member.handle(MemberId(1), append(2, point(1, 1), &[(1, 2), (1, 3)], None), 0);
    assert!(!member.handle_copied(point(1, 3), 0), "the log of the member follows already");
    // The first member has forgotten the next records: now the member must copy a state that is not older than its own.
    member.handle(MemberId(1), copy(9), 0);
    assert!(!member.handle_copied(point(1, 2), 0));
    assert!(member.handle_copied(point(2, 9), 0));
    assert_eq!(member.log().base(), point(2, 9));
}

#[test]
fn process_outside_the_epoch_takes_no_part() {
    let mut restarted = replica(1, &[]);
    let mut named = group(2, &[1]);
    named.members = vec![member(1, 0)];
    restarted.configure(&named, 0);
    assert_eq!((take_commands(&mut restarted), restarted.serving(0)), (Vec::new(), Serving::Nothing));
}

#[test]
fn refusal_contains_its_remedy() {
    let first = leading();
    assert_eq!(first.admit(Epoch(2), Serving::All, 0), Ok(()));
    assert_eq!(first.admit(Epoch(1), Serving::All, 0), Err(NotServing::StaleRequester(Epoch(2))));
    assert_eq!(first.admit(Epoch(3), Serving::All, 0), Err(NotServing::StaleBrick));
    assert_eq!(first.admit(Epoch(2), Serving::All, 1000), Err(NotServing::LeaseExpired));
    assert_eq!(
        (NotServing::StaleRequester(Epoch(2)).remedy(), NotServing::LeaseExpired.remedy()),
        (Remedy::Fetch, Remedy::Wait)
    );
    let mut member = replica(2, &[]);
    member.configure(&group(2, &[1, 2]), 0);
    assert_eq!(member.admit(Epoch(2), Serving::All, 0), Err(NotServing::Elsewhere));
    assert_eq!(member.admit(Epoch(2), Serving::Reads, 0), Err(NotServing::Starting));
}

/// The histories rarely detect these bugs.
#[test]
fn planted_bugs_are_detected_by_their_tests() {
    use model::planted_bug::is_noticed;

    let acknowledged = record_is_durable_when_all_members_have_acknowledged_it;
    assert!(is_noticed(Bug::AckOfAnyEpoch, acknowledged));
    assert!(is_noticed(Bug::TellsWithoutLease, first_member_without_a_lease_reports_nothing));
}
