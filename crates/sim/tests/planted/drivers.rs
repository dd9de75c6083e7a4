//! Bugs in the drivers that ship are noticed by whole clusters. Those that are not here have tests beside the drivers: they need
//! permissions, or an interleaving that whole clusters seldom have. `AnswersCountUnheard` is one of those: a lost answer shows only if
//! its rows do not change again before the move ends.

use client::plant::Bug as ClientBug;
use meta::plant::Bug as MetaBug;
use node::drivers::brick::plant::Bug;
use node::drivers::peer::plant::Bug as PeerBug;
use node::drivers::redirector::plant::Bug as RedirectorBug;
use query::plant::Bug as QueryBug;
use sim::bug;
use sim::plan::Topology;
use sim::workload::{Choice, Faults, Workload};

use super::search::{self, Search};

/// Seeds that are tried for each bug at most.
const LIMIT: u64 = 300;

/// Bugs in moves of logical nodes.
const MOVE_BUGS: &[Bug] = &[
    Bug::ServedUnsealed,
    Bug::SealNotWritten,
    Bug::ClosedWithRowsInFlight,
    Bug::EndsBeforeDurable,
    Bug::OldMapRemovesRows,
    Bug::ChangesForgotten,
    Bug::RestForgotten,
    Bug::ContentsNotMoved,
];

/// Bugs in how messages and rows pass between the logical nodes of a brick and its store. Those of one-phase commits need a crash between two
/// changes that follow each other, or a damaged row: `node` has directed tests of them.
const ROUTING_BUGS: &[Bug] = &[Bug::JointRowsReversed, Bug::RunTakesOtherNode];

/// Bugs in how pages that are not in memory get to their holders.
const COLD_BUGS: &[Bug] = &[Bug::ReadTakenForNewest];

/// Bugs in queries.
const QUERY_BUGS: &[PeerBug] =
    &[PeerBug::QueryGuardDropped, PeerBug::QueryPageRepeated, PeerBug::QuerySkipsNode, PeerBug::QueryStaleClasses];

/// Bugs in the driver of a logical node.
const BRICK_BUGS: &[Bug] = &[
    Bug::DurableWhenSubmitted,
    Bug::LimitNotRaised,
    Bug::RefusedRowsLost,
    Bug::OutdatedReplacedUsed,
    Bug::GuardsNotRead,
    Bug::ClassNotTouched,
    Bug::EntersBeforeDecided,
    Bug::PartialIndexUsed,
];

/// Bugs in entries of collections.
const ENTRY_BUGS: &[Bug] =
    &[Bug::LookUpWithoutVersion, Bug::ListingWithLaterGuard, Bug::CountedTwice, Bug::CountedFromDurable];

/// Bugs in fields that are added to classes: in the catalogue, in clients, in the building of indexes and in queries.
const FIELD_BUGS: &[bug::Bug] = &[
    bug::Bug::Meta(MetaBug::MissingNotFixed),
    bug::Bug::Client(ClientBug::UnknownFieldsDropped),
    bug::Bug::Client(ClientBug::NewerFieldsDropped),
    bug::Bug::Client(ClientBug::DefaultNotRead),
    bug::Bug::Brick(Bug::LackingNotEntered),
    bug::Bug::Query(QueryBug::NewerFieldDropped),
    bug::Bug::Query(QueryBug::DefaultMissingInIndex),
    bug::Bug::Query(QueryBug::DefaultHiddenFromBricks),
];

/// Bugs in classes that change: in the catalogue, in clients, and in the rewriting of objects; and, as objects are removed there and others take
/// their places, bugs in what is left of removed objects.
const CLASS_BUGS: &[bug::Bug] = &[
    bug::Bug::Meta(MetaBug::FieldNumberReused),
    bug::Bug::Meta(MetaBug::RenamedFieldRenumbered),
    bug::Bug::Meta(MetaBug::IndexedFieldChanged),
    bug::Bug::Client(ClientBug::RemovedFieldsKept),
    bug::Bug::Client(ClientBug::DefaultsNotInserted),
    bug::Bug::Client(ClientBug::WidenedRounded),
    bug::Bug::Query(QueryBug::RemovedFieldRewritten),
    bug::Bug::Query(QueryBug::DefaultNotRewritten),
    bug::Bug::Query(QueryBug::RemovedTakenForNewer),
    bug::Bug::Brick(Bug::DroppedIndexKept),
    bug::Bug::Brick(Bug::ExtentKeepsRemoved),
    bug::Bug::Brick(Bug::OldEntriesKept),
];

/// What a brick makes of damaged rows.
const DAMAGE_BUGS: &[Bug] = &[Bug::DamageEndsNode, Bug::DamageIsAbsence, Bug::GuardsReadLate];

/// Pages of the B-trees of bricks are damaged for a while.
const DAMAGE: Choice = Choice { damage: Some(true), ..Choice::of(Topology::Peer, Workload::Names, Faults::All) };

/// Classes change while clients read and write their objects by programs of several versions.
const CLASSES: Choice = Choice::of(Topology::Peer, Workload::Classes, Faults::All);

/// Fields are added to classes while clients read and write their objects by old and new programs.
const FIELDS: Choice = Choice { fields: Some(true), ..Choice::of(Topology::Peer, Workload::Phantoms, Faults::All) };

const CHOICE: Choice = Choice::of(Topology::Direct, Workload::Phantoms, Faults::All);

/// Queries go through peer servers, while classes and indexes come and nodes move.
const QUERIES: Choice = Choice::of(Topology::Peer, Workload::Phantoms, Faults::All);

/// Names are bound and listed.
const NAMES: Choice = Choice::of(Topology::Direct, Workload::Names, Faults::All);

/// Lists are appended to by clients with copies of their pages.
const LISTS: Choice = Choice::of(Topology::Direct, Workload::Lists, Faults::All);

/// All clients append to the same two lists.
const HOT_LISTS: Choice = Choice::of(Topology::Peer, Workload::Hot, Faults::All);

/// Lists with contents are appended to while nodes move.
const MOVED_LISTS: Choice = Choice { faults: None, ..Choice::of(Topology::Site, Workload::Lists, Faults::All) };

/// Names are bound and listed while nodes move.
const MOVED_NAMES: Choice = Choice { faults: None, ..Choice::of(Topology::Site, Workload::Names, Faults::All) };

/// Four in ten plans of this choice move nodes, and half begin with several nodes at a brick.
const MOVES: Choice = Choice { workload: None, ..MOVED_LISTS };

#[test]
fn bugs_in_the_driver_of_a_brick_are_noticed_in_whole_clusters() {
    assert_noticed(BRICK_BUGS.iter().copied().map(bug::Bug::Brick), CHOICE);
}

#[test]
fn bugs_in_entries_of_collections_are_noticed_in_whole_clusters() {
    assert_noticed(ENTRY_BUGS.iter().copied().map(bug::Bug::Brick), NAMES);
    assert_noticed([bug::Bug::Brick(Bug::EntriesNotMoved)].into_iter(), MOVED_NAMES);
}

#[test]
fn bugs_in_the_handling_of_damage_are_noticed_in_whole_clusters() {
    assert_noticed(DAMAGE_BUGS.iter().copied().map(bug::Bug::Brick), DAMAGE);
}

#[test]
fn bugs_in_moves_are_noticed_in_whole_clusters() {
    assert_noticed(MOVE_BUGS.iter().copied().map(bug::Bug::Brick), MOVES);
    assert_noticed([bug::Bug::Brick(Bug::ContentChangesForgotten)].into_iter(), MOVED_LISTS);
}

#[test]
fn bugs_in_the_routing_of_a_brick_are_noticed_in_whole_clusters() {
    assert_noticed(ROUTING_BUGS.iter().copied().map(bug::Bug::Brick), MOVES);
}

#[test]
fn bugs_in_changes_of_parts_of_blobs_are_noticed_in_whole_clusters() {
    let bugs = [Bug::ChangeInFlightForgotten, Bug::DurableAppendOffset];
    assert_noticed(bugs.into_iter().map(bug::Bug::Brick), HOT_LISTS);
}

#[test]
fn bugs_in_reads_of_cold_pages_are_noticed_in_whole_clusters() {
    assert_noticed(COLD_BUGS.iter().copied().map(bug::Bug::Brick), LISTS);
}

#[test]
fn bugs_in_queries_are_noticed_in_whole_clusters() {
    assert_noticed(QUERY_BUGS.iter().copied().map(bug::Bug::Peer), QUERIES);
}

fn assert_noticed(bugs: impl Iterator<Item = bug::Bug>, choice: Choice) {
    let missed = search::unnoticed_bugs(bugs.map(|bug| Search { bug, choice, limit: LIMIT }));
    assert!(missed.is_empty(), "not noticed in {LIMIT} runs: {missed:?}");
}

/// Bugs in the driver of a redirector. Those of permissions and of calls that no client makes have tests beside the driver.
const REDIRECTOR_BUGS: &[RedirectorBug] = &[
    RedirectorBug::MemberClosesOthers,
    RedirectorBug::UpstreamReturnIgnored,
    RedirectorBug::ReplyDropped,
    RedirectorBug::MemberUsesOthersTransaction,
];

/// Bugs by which a wicked member uses what is not its own.
const WICKED_MEMBER_BUGS: &[PeerBug] =
    &[PeerBug::AnyHeight, PeerBug::ForeignSession, PeerBug::ForeignReplacement, PeerBug::NumberOfAnother];

/// Bugs in permissions that clients below peer servers notice; the second list needs redirectors, which go by what a member could do when it
/// was admitted; the third one changes of entries only.
const PERMISSION_BUGS: &[PeerBug] = &[PeerBug::WriteUnchecked, PeerBug::CommitNeedsReadOnly];
const MEMBER_PERMISSION_BUGS: &[bug::Bug] = &[
    bug::Bug::Peer(PeerBug::AdmittedWithoutPermission),
    bug::Bug::Peer(PeerBug::RevokedStaysConnected),
    bug::Bug::Peer(PeerBug::LowerPermissionStaysConnected),
    bug::Bug::Redirector(RedirectorBug::MemberWriteUnchecked),
    bug::Bug::Redirector(RedirectorBug::CallOnOtherConnection),
];
const ENTRY_PERMISSION_BUGS: &[PeerBug] = &[PeerBug::EntryNeedsReadOnly];

/// Bugs in stopped spaces.
const STOP_BUGS: &[bug::Bug] = &[
    bug::Bug::Peer(PeerBug::StoppedSpaceServed),
    bug::Bug::Peer(PeerBug::StatusNotRepeated),
    bug::Bug::Client(ClientBug::StoppedSpaceServes),
];

/// Permissions change in every plan, and so may the policy.
const USERS: Choice =
    Choice { permissions: Some(true), ..Choice::of(Topology::Peer, Workload::Everything, Faults::All) };
const USERS_IN_GROUPS: Choice = Choice { topology: Some(Topology::Group), ..USERS };
const USERS_OF_NAMES: Choice = Choice { workload: Some(Workload::Names), ..USERS };

#[test]
fn bugs_in_permissions_are_noticed_in_whole_clusters() {
    assert_noticed(PERMISSION_BUGS.iter().copied().map(bug::Bug::Peer), USERS);
    assert_noticed(MEMBER_PERMISSION_BUGS.iter().copied(), USERS_IN_GROUPS);
    assert_noticed(STOP_BUGS.iter().copied(), USERS);
    assert_noticed(ENTRY_PERMISSION_BUGS.iter().copied().map(bug::Bug::Peer), USERS_OF_NAMES);
}

/// Bugs that show as rejections without a cause, each with where it is looked for.
const REJECTION_BUGS: &[(bug::Bug, Choice)] = &[
    (bug::Bug::Client(ClientBug::RefusalKept), USERS),
    (bug::Bug::Peer(PeerBug::ReaderStaysConnected), USERS_IN_GROUPS),
    (bug::Bug::Brick(Bug::FullIsDenied), CHOICE),
];

#[test]
fn rejections_without_a_cause_are_noticed_in_whole_clusters() {
    let searches = REJECTION_BUGS.iter().map(|(bug, choice)| Search { bug: *bug, choice: *choice, limit: LIMIT });
    assert_eq!(search::unnoticed_bugs(searches), []);
}

/// Clients are below redirectors.
const GROUPS: Choice = Choice::of(Topology::Group, Workload::Everything, Faults::All);

#[test]
fn bugs_in_redirectors_are_noticed_in_whole_clusters() {
    assert_noticed(REDIRECTOR_BUGS.iter().copied().map(bug::Bug::Redirector), GROUPS);
    assert_noticed(WICKED_MEMBER_BUGS.iter().copied().map(bug::Bug::Peer), GROUPS);
}

#[test]
fn bugs_in_changes_of_classes_are_noticed_in_whole_clusters() {
    assert_noticed(CLASS_BUGS.iter().copied(), CLASSES);
}

#[test]
fn bugs_in_added_fields_are_noticed_in_whole_clusters() {
    let searches = FIELD_BUGS.iter().map(|bug| Search { bug: *bug, choice: FIELDS, limit: LIMIT });
    assert_eq!(search::unnoticed_bugs(searches), []);
}
