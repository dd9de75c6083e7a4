//! Every mistake that can be planted in the driver is noticed.

use model::planted_bug::{PlantedBug, plant};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use model::{ClassId, Object, Oid, PageId};
use protocol::commit::{Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId};
use protocol::page_cache::{FetchId, ObjectState};
use protocol::tree::{Down, Up};
use store::sim::{DiskImage, SimStore};
use wire::cluster::Message;

use super::{NODES, SKEW_MS, SPACE, World, options};
use crate::brick::node_driver::{
    DriverOutput, NodeDriver, OpenSettings, PortionLimits, Requester, STAGING_LEASE_MS, WINDOW,
};
use crate::brick::plant::Bug;
use crate::brick::row_reader::RowReader;

/// Runs in which a mistake must be noticed.
const MAX_SEEDS: u64 = 200;
const STEPS: u32 = 500;

/// Mistakes that the simulation notices.
const SIMULATED: &[Bug] = &[
    Bug::DurableWhenSubmitted,
    Bug::LimitNotRaised,
    Bug::SequenceNotKept,
    Bug::RefusedRowsLost,
    Bug::TakenWithoutRoom,
    Bug::DeferredIsMarked,
    Bug::OldPiecesKept,
    Bug::NewestHeadForgotten,
    Bug::PagesTakenForNew,
    Bug::ChangingPagesForgotten,
    Bug::OutdatedReplacedUsed,
    Bug::GuardsNotRead,
    Bug::ClassNotTouched,
    Bug::OldEntriesNotTouched,
    Bug::BucketNotTouched,
    Bug::UniquenessUnchecked,
    Bug::ExtentKeepsRemoved,
    Bug::OldEntriesKept,
    Bug::BuildingTakenForComplete,
    Bug::EntersBeforeDecided,
    Bug::PartialIndexUsed,
    Bug::RemovalOvertakesEntries,
    Bug::ReservationReused,
    Bug::StagedUnmarked,
    Bug::StagedMarkKept,
    Bug::ReplacedContentKept,
    Bug::ListingWithLaterGuard,
    Bug::CountedTwice,
    Bug::CountedFromDurable,
    Bug::CountsForgottenInFlight,
    Bug::ReverseRowKept,
    Bug::UsageWrittenLate,
    Bug::UsageOfReplacedKept,
];

/// Mistakes in the rules of entries of collections that the simulation notices.
const OF_ENTRIES: &[protocol::plant::Bug] = &[
    protocol::plant::Bug::KeyGuardNotWritten,
    protocol::plant::Bug::CollectionGuardNotTouched,
    protocol::plant::Bug::EntriesNotDecided,
];

/// The first seed whose run notices a mistake.
fn first_noticing_seed(bug: impl PlantedBug) -> Option<u64> {
    (0..MAX_SEEDS).find(|seed| {
        let _planted = plant(bug);
        let run = panic::catch_unwind(AssertUnwindSafe(|| World::run(*seed, STEPS).map(drop)));
        !matches!(run, Ok(Ok(())))
    })
}

/// Mistakes that tests beside the code notice: those of the row writer, and those of moves, most of which whole clusters notice, too.
const DIRECTED: &[Bug] = &[
    Bug::RefusedRowsBehindLater,
    Bug::JointDeferralDropped,
    Bug::DeferralQueued,
    Bug::JointRowsReversed,
    Bug::RunTakesOtherNode,
    Bug::MarksNotRead,
    Bug::MarkRowRemovedLate,
    Bug::DroppedIndexTrusted,
    Bug::StagedUsedTwice,
    Bug::OtherSpaceContentTaken,
    Bug::CollectionReplaced,
    Bug::PreparedContentExpires,
    Bug::RecoveredContentForgotten,
    Bug::GenerationKept,
    Bug::OldContentWritten,
    Bug::OldLifeCounts,
    Bug::ShownBeforeTold,
    Bug::FirstConnectionKept,
    Bug::ReservationsNotMoved,
    Bug::ClosedWithRowsInFlight,
    Bug::ChangesForgotten,
    Bug::ContentsNotMoved,
    Bug::ContentChangesForgotten,
    Bug::LateQuestionCounts,
    Bug::AnswersCountUnheard,
    Bug::RestForgotten,
    Bug::OldCopyKept,
    Bug::LastBeforeAll,
    Bug::LastRowsBeforeSeal,
    Bug::SealNotWritten,
    Bug::ServedUnsealed,
    Bug::EndsBeforeDurable,
    Bug::CopyNotMarked,
    Bug::OldMapRemovesRows,
    Bug::OtherEpochServed,
    // Whole clusters notice these.
    Bug::LookUpWithoutVersion,
    Bug::EntriesNotMoved,
    Bug::UsageNotMoved,
    Bug::GrowthNotReserved,
    Bug::UnknownCountsAsEmpty,
    Bug::PreparedGrowthForgotten,
    Bug::RemovedSpaceWritten,
    Bug::RemovedClassWritten,
    Bug::EmptyBeforeDecided,
    Bug::EmptyBeforeDurable,
    Bug::EntriesUnbounded,
    Bug::FullCollectionDeleted,
    Bug::TotalsKept,
];

#[test]
fn each_mistake_is_noticed_somewhere() {
    let missing = Bug::ALL.iter().filter(|bug| SIMULATED.contains(bug) == DIRECTED.contains(bug));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Bug>::new());
}

#[test]
fn mistakes_in_the_driver_are_noticed_by_the_simulation() {
    // A panic is one way to notice.
    let unnoticed: Vec<Bug> = SIMULATED.iter().copied().filter(|bug| first_noticing_seed(*bug).is_none()).collect();
    assert!(unnoticed.is_empty(), "not noticed in {MAX_SEEDS} runs: {unnoticed:?}");
}

#[test]
fn mistakes_in_the_guards_of_entries_are_noticed_by_the_simulation() {
    let unnoticed: Vec<_> = OF_ENTRIES.iter().filter(|bug| first_noticing_seed(**bug).is_none()).collect();
    assert!(unnoticed.is_empty(), "not noticed in {MAX_SEEDS} runs: {unnoticed:?}");
}

// ------------------------------------------------------------------------------------------------ holders

/// A driver whose rows become durable when the test says so, and two holders.
struct Holders {
    machine: SimStore,
    driver: NodeDriver<u8>,
    now: u64,
}

impl Holders {
    fn new() -> Self {
        let machine = SimStore::open(DiskImage::default(), options()).unwrap();
        let reader = RowReader::new(machine.store());
        let rows = NodeDriver::<u8>::opening_rows(NODES[0], &reader).unwrap().unwrap();
        machine.store().commit_rows(rows).unwrap();
        let settings = OpenSettings {
            node: NODES[0],
            moves: 0,
            skew_ms: SKEW_MS,
            window: WINDOW,
            portion: PortionLimits::SMALL,
            upload_lease_ms: STAGING_LEASE_MS,
            opening: 1,
            is_new: true,
        };
        let driver = NodeDriver::open(settings, reader, Arc::default(), 1_000).unwrap();
        Self { machine, driver, now: 1_000 }
    }

    fn say(&mut self, connection: u8, holder: u64, message: Up<Object>) {
        self.driver.handle_up(&connection, HolderId(holder), message, self.now).unwrap();
    }

    fn renew(&mut self, connection: u8, holder: u64) {
        let (asked, wanted_ms, sync, height) = (self.now, 1_000, 1, u8::MAX);
        self.say(
            connection,
            holder,
            Up::Renew { asked, wanted_ms, open: true, sync, subscribe: false, height, replaces: None },
        );
    }

    /// What is sent, with the connections; the rows are submitted, and their results are not told.
    fn sent(&mut self) -> Vec<(u8, Down<Object>)> {
        let mut sent = Vec::new();
        while let Some(output) = self.driver.next_output() {
            match output {
                DriverOutput::Send(to, Message::Down { message, .. }) => sent.push((to, message)),
                DriverOutput::SubmitRows { rows, .. } => self.machine.store().submit_rows(rows, drop),
                _ => {}
            }
        }
        sent
    }
}

const PAGE: PageId = PageId { space: SPACE, node: NODES[0], number: 1 };

/// D2: a holder is told of a change before anybody gets the page, also when the store shows it before the driver hears of it.
fn check_told_before_shown() -> Result<(), String> {
    let mut world = Holders::new();
    world.renew(1, 1);
    world.renew(2, 2);
    world.say(1, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    world.sent();
    let txn = TxnId { start: HlcTimestamp::at(world.now), client: ClientId(7) };
    let oid = Oid::new(ClassId::NONE, PAGE, 1);
    let writes = [(oid, ObjectState::Value(Object::blob("x".into())))].into();
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    world.driver.handle_request(Requester::Remote(3), request, HlcTimestamp::ZERO, world.now).unwrap();
    if !world.sent().is_empty() {
        return Err("L1: a change is told before it is durable".to_owned());
    }
    world.machine.force().unwrap();
    world.say(2, 2, Up::Fetch { page: PAGE, fetch: FetchId(2), have: None });
    let sent = world.sent();
    let told = sent.iter().position(|(to, message)| *to == 1 && matches!(message, Down::Invalidate { .. }));
    let shown = sent.iter().position(|(to, message)| *to == 2 && matches!(message, Down::Fetched { .. }));
    match (told, shown) {
        (Some(told), Some(shown)) if told < shown => Ok(()),
        _ => Err(format!("D2: the page is sent before the change is told: {sent:?}")),
    }
}

/// D1: a holder gets messages over the connection by which it renewed its lease last.
fn check_last_connection_counts() -> Result<(), String> {
    let mut world = Holders::new();
    world.renew(1, 1);
    world.renew(2, 1);
    world.sent();
    world.say(2, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    match &world.sent()[..] {
        [(2, Down::Fetched { .. })] => Ok(()),
        other => Err(format!("D1: a page goes elsewhere: {other:?}")),
    }
}

#[test]
fn holders_are_told_in_order_and_over_their_last_connection() {
    for (bug, check) in [
        (Bug::ShownBeforeTold, check_told_before_shown as fn() -> Result<(), String>),
        (Bug::FirstConnectionKept, check_last_connection_counts),
    ] {
        check().unwrap();
        let _planted = plant(bug);
        assert!(check().is_err(), "{bug:?} is not noticed");
    }
}
