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

/// A member of which the log is durable, with records of these epochs; each record is its position.
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

fn appended(epoch: u64, log: LogId, position: u64) -> Message<u64> {
    Message::Appended { epoch: Epoch(epoch), log, position, durable: None }
}

/// What was put out, without what was sent.
fn take_commands(replica: &mut Replica<u64>) -> Vec<Output<u64>> {
    replica.check_invariants().unwrap();
    replica.outputs().filter(|output| !matches!(output, Output::Send(..) | Output::Report(..))).collect()
}

/// The first of two members, which leads in the second epoch, and the other has an empty log too.
fn leading() -> Replica<u64> {
    let mut first = replica(1, &[]);
    first.configure(&group(2, &[1, 2]), 0);
    first.handle(MemberId(2), Message::Hello { epoch: Epoch(2), log: log_id(1, 0), runs: Vec::new() }, 0);
    assert_eq!(take_commands(&mut first), [Output::Lead, Output::Serving(Serving::All)]);
    first
}

#[test]
fn a_record_counts_when_all_members_hold_it_and_have_said_so_in_this_epoch_of_this_log() {
    let mut first = leading();
    assert_eq!(first.append(7, 0), Ok(1));
    first.handle_forced(point(2, 1), 0);
    first.handle(MemberId(2), appended(1, log_id(1, 0), 1), 0);
    first.handle(MemberId(2), appended(2, log_id(1, 1), 1), 0);
    first.handle(MemberId(3), appended(2, log_id(1, 0), 1), 0);
    assert_eq!(take_commands(&mut first), [Output::Append(point(2, 1), 7)]);
    first.handle(MemberId(2), appended(2, log_id(1, 0), 1), 0);
    assert_eq!(take_commands(&mut first), [Output::Durable(1)]);
}

#[test]
fn a_first_member_without_a_lease_tells_nothing_until_it_has_one_again() {
    let mut first = leading();
    assert_eq!(first.append(7, 999), Ok(1));
    first.handle_forced(point(2, 1), 1000);
    first.handle(MemberId(2), appended(2, log_id(1, 0), 1), 1000);
    assert_eq!(take_commands(&mut first), [Output::Append(point(2, 1), 7), Output::Serving(Serving::Nothing)]);
    first.extend_lease(2000, 1001);
    assert_eq!(take_commands(&mut first), [Output::Durable(1), Output::Serving(Serving::All)]);
}

#[test]
fn a_new_first_member_leads_when_all_hold_what_it_has() {
    let mut first = replica(1, &[1, 1]);
    first.configure(&group(2, &[1, 2]), 0);
    first.handle(MemberId(2), Message::Hello { epoch: Epoch(2), log: log_id(1, 0), runs: vec![point(1, 1)] }, 0);
    assert_eq!((take_commands(&mut first), first.append(3, 0)), (Vec::new(), Err(NotServing::Elsewhere)));
    first.handle(MemberId(2), appended(2, log_id(1, 0), 2), 0);
    let leads = [Output::Durable(2), Output::Lead, Output::Serving(Serving::All)];
    assert_eq!(take_commands(&mut first), leads);
}

#[test]
fn a_member_discards_its_tail_and_serves_when_the_epoch_has_started() {
    let mut member = replica(2, &[1, 1, 1]);
    member.configure(&group(2, &[1, 2]), 0);
    member.handle(MemberId(1), append(2, point(1, 2), &[(2, 8)], None), 0);
    assert_eq!(take_commands(&mut member), [Output::Truncate(2), Output::Append(point(2, 3), 8)]);
    // The record that was cut off was forced before; that says nothing of the one that is there now.
    member.handle_forced(point(1, 3), 0);
    assert_eq!((take_commands(&mut member), member.log().forced()), (Vec::new(), 2));
    member.handle(MemberId(1), append(2, point(2, 3), &[], Some(3)), 0);
    assert_eq!(take_commands(&mut member), [Output::Durable(2), Output::Serving(Serving::Reads)]);
    member.handle_forced(point(2, 3), 0);
    assert_eq!(take_commands(&mut member), [Output::Durable(3)]);
}

#[test]
fn what_was_said_in_another_epoch_or_does_not_go_on_from_the_log_is_not_taken() {
    let mut member = replica(2, &[1]);
    member.configure(&group(3, &[1, 2]), 0);
    member.handle(MemberId(1), append(2, point(1, 1), &[(2, 5)], None), 0);
    member.handle(MemberId(1), append(3, point(2, 1), &[(3, 5)], None), 0);
    member.handle(MemberId(1), append(3, point(1, 2), &[(3, 5)], None), 0);
    assert_eq!((take_commands(&mut member), member.log().end()), (Vec::new(), 1));
}

#[test]
fn a_copy_that_came_late_does_not_replace_what_was_acknowledged() {
    let mut member = replica(2, &[1]);
    member.configure(&group(2, &[1]), 0);
    let copy = |base| Message::Copy { epoch: Epoch(2), log: log_id(1, 0), base };
    member.handle(MemberId(1), copy(3), 0);
    assert_eq!(take_commands(&mut member), [Output::CopyFrom(MemberId(1))]);
    member.handle(MemberId(1), append(2, point(1, 1), &[(1, 2), (1, 3)], None), 0);
    assert!(!member.handle_copied(point(1, 3), 0), "it follows");
    // The first member has forgotten what comes next: now it must copy, and nothing older than what it has.
    member.handle(MemberId(1), copy(9), 0);
    assert!(!member.handle_copied(point(1, 2), 0));
    assert!(member.handle_copied(point(2, 9), 0));
    assert_eq!(member.log().base(), point(2, 9));
}

#[test]
fn a_process_that_the_epoch_does_not_name_takes_no_part() {
    let mut restarted = replica(1, &[]);
    let mut named = group(2, &[1]);
    named.members = vec![member(1, 0)];
    restarted.configure(&named, 0);
    assert_eq!((take_commands(&mut restarted), restarted.serving(0)), (Vec::new(), Serving::Nothing));
}

#[test]
fn who_refuses_says_what_to_do_about_it() {
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

/// The histories hardly ever meet these.
#[test]
fn planted_bugs_are_noticed_by_the_tests_that_are_there_for_them() {
    use model::planted_bug::is_noticed;

    let acknowledged = a_record_counts_when_all_members_hold_it_and_have_said_so_in_this_epoch_of_this_log;
    assert!(is_noticed(Bug::AckOfAnyEpoch, acknowledged));
    assert!(is_noticed(Bug::TellsWithoutLease, a_first_member_without_a_lease_tells_nothing_until_it_has_one_again));
}
