//! Every mistake that can be planted in the driver is noticed.

use model::planted_bug::{PlantedBug, plant};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use model::{ClassId, Object, Oid, PageId, Result};
use protocol::commit::{Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use protocol::page_cache::{FetchId, FetchReply, ObjectState, PageImage};
use protocol::tree::{Down, Up};
use store::sim::{DiskImage, SimStore};
use wire::cluster::Message;

use super::{NODES, SKEW_MS, SPACE, World, options};
use crate::brick::node_driver::{
    DriverOutput, NodeDriver, OpenSettings, PageRead, PortionLimits, Requester, STAGING_LEASE_MS, WINDOWS,
};
use crate::brick::page_rows as rows;
use crate::brick::plant::Bug;
use crate::brick::row_reader::RowReader;

/// Runs in which a mistake must be noticed.
const MAX_SEEDS: u64 = 200;
const STEPS: u32 = 500;

/// Mistakes that the simulation notices, each with a seed that has noticed it.
const SIMULATED: &[(Bug, u64)] = &[
    (Bug::DurableWhenSubmitted, 0),
    (Bug::LimitNotRaised, 0),
    (Bug::SequenceNotKept, 0),
    (Bug::RefusedRowsLost, 0),
    (Bug::TakenWithoutRoom, 0),
    (Bug::DeferredIsMarked, 0),
    (Bug::OldPiecesKept, 0),
    (Bug::NewestHeadForgotten, 11),
    (Bug::PagesTakenForNew, 0),
    (Bug::ChangingPagesForgotten, 0),
    (Bug::OutdatedReplacedUsed, 0),
    (Bug::GuardsNotRead, 0),
    (Bug::ClassNotTouched, 0),
    (Bug::OldEntriesNotTouched, 15),
    (Bug::BucketNotTouched, 0),
    (Bug::UniquenessUnchecked, 0),
    (Bug::ExtentKeepsRemoved, 0),
    (Bug::OldEntriesKept, 0),
    (Bug::BuildingTakenForComplete, 3),
    (Bug::EntersBeforeDecided, 40),
    (Bug::PartialIndexUsed, 0),
    (Bug::RemovalOvertakesEntries, 1),
    (Bug::ReservationReused, 0),
    (Bug::StagedUnmarked, 0),
    (Bug::StagedMarkKept, 0),
    (Bug::ReplacedContentKept, 0),
    (Bug::ListingWithLaterGuard, 19),
    (Bug::CountedTwice, 0),
    (Bug::CountedFromDurable, 3),
    (Bug::CountsForgottenInFlight, 101),
    (Bug::ReverseRowKept, 0),
    (Bug::UsageWrittenLate, 0),
    (Bug::UsageOfReplacedKept, 0),
];

/// Mistakes in the rules of entries of collections that the simulation notices.
const OF_ENTRIES: &[(protocol::plant::Bug, u64)] = &[
    (protocol::plant::Bug::KeyGuardNotWritten, 1),
    (protocol::plant::Bug::CollectionGuardNotTouched, 0),
    (protocol::plant::Bug::EntriesNotDecided, 0),
];

/// Mistakes in the rules of commits that show in where transactions have appended.
const OF_APPENDS: &[(protocol::plant::Bug, u64)] = &[(protocol::plant::Bug::OffsetsForgotten, 11)];

/// Those that no run notices. The runs begin with the seed that is known; the test says which one has noticed a mistake.
#[allow(clippy::print_stderr, reason = "how soon each is noticed is worth knowing")]
fn unnoticed_bugs<B: PlantedBug>(bugs: &[(B, u64)]) -> Vec<B> {
    let noticing = |bug: B, known: u64| {
        (known..known + MAX_SEEDS).map(|seed| seed % MAX_SEEDS).find(|seed| {
            let _planted = plant(bug);
            // A panic is one way to notice.
            let run = panic::catch_unwind(AssertUnwindSafe(|| World::run(*seed, STEPS).map(drop)));
            !matches!(run, Ok(Ok(())))
        })
    };
    let mut unnoticed = Vec::new();
    for (bug, known) in bugs {
        match noticing(*bug, *known) {
            Some(seed) => eprintln!("{bug:?}: seed {seed}"),
            None => unnoticed.push(*bug),
        }
    }
    unnoticed
}

/// Mistakes that tests beside the code notice: those of the row writer, and those of moves, most of which whole clusters notice, too.
const DIRECTED: &[Bug] = &[
    Bug::FilterWorkUnbounded,
    Bug::RefusedLockHeld,
    Bug::PreparedNotCloned,
    Bug::CloneWithoutIndexes,
    Bug::EarlierCutContinues,
    Bug::EarlierCloneKept,
    Bug::RefusedRowsBehindLater,
    Bug::JointDeferralDropped,
    Bug::DeferralQueued,
    Bug::JointRowsReversed,
    Bug::OnePhaseRowsApart,
    Bug::OnePhaseHalfCommitted,
    Bug::RefusedOnePhaseRetried,
    Bug::RunTakesOtherNode,
    Bug::MarksNotRead,
    Bug::MarkRowRemovedLate,
    Bug::DroppedIndexKept,
    Bug::DroppedIndexTrusted,
    Bug::DroppedAtOnce,
    Bug::StagedUsedTwice,
    Bug::OtherSpaceContentTaken,
    Bug::CollectionReplaced,
    Bug::PreparedContentExpires,
    Bug::RecoveredContentForgotten,
    Bug::GenerationKept,
    Bug::GenerationRepeated,
    Bug::ClaimedSizeTaken,
    Bug::OldContentWritten,
    Bug::OldLifeCounts,
    Bug::ShownBeforeTold,
    Bug::FirstConnectionKept,
    Bug::ReadTakenForNewest,
    Bug::EarlierOpeningAnswered,
    Bug::ReservationsNotMoved,
    Bug::ClosedWithRowsInFlight,
    Bug::ChangesForgotten,
    Bug::ContentsNotMoved,
    Bug::ContentChangesForgotten,
    Bug::CutBytesKept,
    Bug::RangeRestForgotten,
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
    Bug::FailedMoveHurries,
    Bug::OldMapRemovesRows,
    Bug::OtherEpochServed,
    Bug::DamagedNodeNotNoted,
    // Whole clusters notice these.
    Bug::ChangeInFlightForgotten,
    Bug::FullIsDenied,
    Bug::BoundKeyTakenForUnbound,
    Bug::DurableAppendOffset,
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
    Bug::ContentWorkUnbounded,
    Bug::EntriesUnbounded,
    Bug::LackingNotEntered,
    Bug::LostContentChanged,
    Bug::DamageEndsNode,
    Bug::DamageIsAbsence,
    Bug::GuardsReadLate,
    Bug::IndexWaitsForDamaged,
    Bug::VersionsKept,
    Bug::BrokenRecordsKept,
    Bug::DamageIsConflict,
    Bug::FullCollectionDeleted,
    Bug::TotalsKept,
];

#[test]
fn each_mistake_is_noticed_somewhere() {
    let is_simulated = |bug: &Bug| SIMULATED.iter().any(|(simulated, _)| simulated == bug);
    let missing = Bug::ALL.iter().filter(|bug| is_simulated(bug) == DIRECTED.contains(bug));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Bug>::new());
}

#[test]
fn mistakes_in_the_driver_are_noticed_by_the_simulation() {
    assert_eq!(unnoticed_bugs(SIMULATED), [], "not noticed in {MAX_SEEDS} runs");
}

#[test]
fn mistakes_in_the_guards_of_entries_are_noticed_by_the_simulation() {
    assert_eq!(unnoticed_bugs(OF_ENTRIES), [], "not noticed in {MAX_SEEDS} runs");
}

#[test]
fn mistakes_in_the_offsets_of_appends_are_noticed_by_the_simulation() {
    assert_eq!(unnoticed_bugs(OF_APPENDS), [], "not noticed in {MAX_SEEDS} runs");
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
        Self::open(1)
    }

    /// The driver of another opening.
    fn open(opening: u64) -> Self {
        let machine = SimStore::open(DiskImage::default(), options()).unwrap();
        let reader = RowReader::new(machine.store());
        let rows = NodeDriver::<u8>::opening_rows(NODES[0], &reader).unwrap().unwrap();
        machine.store().commit_rows(rows).unwrap();
        let settings = OpenSettings {
            node: NODES[0],
            moves: 0,
            skew_ms: SKEW_MS,
            windows: WINDOWS,
            portion: PortionLimits::SMALL,
            upload_lease_ms: STAGING_LEASE_MS,
            opening,
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

    /// What is sent, with the connections; the rows are submitted, and their results are not told. Pages are read.
    fn drain(&mut self) -> Vec<(u8, Down<Object>)> {
        let (mut sent, mut reads) = self.drain_before_reads();
        while let Some(read) = reads.pop() {
            let found = self.read(read);
            self.driver.handle_page_read(read, found, self.now);
            let (behind, more) = self.drain_before_reads();
            sent.extend(behind);
            reads.extend(more);
        }
        sent
    }

    fn read(&self, read: PageRead) -> Result<PageImage<Object>> {
        rows::read_page(&RowReader::new(self.machine.store()), read.page())
    }

    /// The same, and the pages that are to be read.
    fn drain_before_reads(&mut self) -> (Vec<(u8, Down<Object>)>, Vec<PageRead>) {
        let (mut sent, mut reads) = (Vec::new(), Vec::new());
        while let Some(output) = self.driver.next_output() {
            match output {
                DriverOutput::Send(to, Message::Down { message, .. }) => sent.push((to, message)),
                DriverOutput::SubmitRows { rows, .. } => self.machine.store().submit_rows(rows, drop),
                DriverOutput::ReadPage(read) => reads.push(read),
                _ => {}
            }
        }
        (sent, reads)
    }

    /// Commits an object of the page. The driver hears that it is durable when a page shows it.
    fn commit(&mut self) {
        let txn = TxnId { start: HlcTimestamp::at(self.now), client: ClientId(7) };
        let writes = [(Oid::new(ClassId::NONE, PAGE, 1), ObjectState::Value(Object::blob("x".into())))].into();
        let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
        self.driver.handle_request(Requester::Remote(3), request, HlcTimestamp::ZERO, self.now).unwrap();
    }
}

const PAGE: PageId = PageId { space: SPACE, node: NODES[0], number: 1 };

/// D2: a holder is told of a change before anybody gets the page, also when the store shows it before the driver hears of it.
fn check_told_before_shown() -> std::result::Result<(), String> {
    let mut world = Holders::new();
    world.renew(1, 1);
    world.renew(2, 2);
    world.say(1, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    world.drain();
    world.commit();
    if !world.drain().is_empty() {
        return Err("L1: a change is told before it is durable".to_owned());
    }
    world.machine.force().unwrap();
    world.say(2, 2, Up::Fetch { page: PAGE, fetch: FetchId(2), have: None });
    let sent = world.drain();
    let told = sent.iter().position(|(to, message)| *to == 1 && matches!(message, Down::Invalidate { .. }));
    let shown = sent.iter().position(|(to, message)| *to == 2 && matches!(message, Down::Fetched { .. }));
    match (told, shown) {
        (Some(told), Some(shown)) if told < shown => Ok(()),
        _ => Err(format!("D2: the page is sent before the change is told: {sent:?}")),
    }
}

/// D3: a page that is sent after a later change has the version that was read: the change was told before.
fn check_late_page_has_its_own_version() -> std::result::Result<(), String> {
    let mut world = Holders::new();
    world.renew(1, 1);
    world.renew(2, 2);
    world.say(1, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    let (_, reads) = world.drain_before_reads();
    let [late] = reads[..] else { return Err(format!("pages are read: {reads:?}")) };
    let found = world.read(late);
    world.commit();
    world.drain();
    world.machine.force().unwrap();
    // Another holder's page tells the driver that the change is durable.
    world.say(2, 2, Up::Fetch { page: PAGE, fetch: FetchId(2), have: None });
    let told = world.drain();
    if !told.iter().any(|(to, message)| *to == 1 && matches!(message, Down::Invalidate { .. })) {
        return Err(format!("D1: the holder whose page is being read is not told of a change: {told:?}"));
    }
    world.driver.handle_page_read(late, found, world.now);
    match &world.drain()[..] {
        [(1, Down::Fetched { reply: FetchReply::Page(page), .. })] if page.version == Version::ZERO => Ok(()),
        other => Err(format!("D3: the page is sent with another version: {other:?}")),
    }
}

/// D1: a page that was read for an earlier opening is not sent.
fn check_earlier_opening_is_not_answered() -> std::result::Result<(), String> {
    let mut before = Holders::new();
    before.renew(1, 1);
    before.say(1, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    let (_, reads) = before.drain_before_reads();
    let [late] = reads[..] else { return Err(format!("pages are read: {reads:?}")) };
    let found = before.read(late);
    let mut world = Holders::open(2);
    world.renew(1, 1);
    world.drain();
    world.driver.handle_page_read(late, found, world.now);
    match &world.drain()[..] {
        [] => Ok(()),
        other => Err(format!("D1: a page of an earlier opening is sent: {other:?}")),
    }
}

/// D1: a holder gets messages over the connection by which it renewed its lease last.
fn check_last_connection_counts() -> std::result::Result<(), String> {
    let mut world = Holders::new();
    world.renew(1, 1);
    world.renew(2, 1);
    world.drain();
    world.say(2, 1, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None });
    match &world.drain()[..] {
        [(2, Down::Fetched { .. })] => Ok(()),
        other => Err(format!("D1: a page goes elsewhere: {other:?}")),
    }
}

#[test]
fn holders_are_told_in_order_and_over_their_last_connection() {
    for (bug, check) in [
        (Bug::ShownBeforeTold, check_told_before_shown as fn() -> std::result::Result<(), String>),
        (Bug::FirstConnectionKept, check_last_connection_counts),
        (Bug::ReadTakenForNewest, check_late_page_has_its_own_version),
        (Bug::EarlierOpeningAnswered, check_earlier_opening_is_not_answered),
    ] {
        check().unwrap();
        let _planted = plant(bug);
        assert!(check().is_err(), "{bug:?} is not noticed");
    }
}
