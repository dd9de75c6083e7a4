//! A brick's disk: its log, of which a part may be lost, and its B-tree.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::{Object, Oid, PageId};
use protocol::brick::Brick;
use protocol::commit::participant::ParticipantSettings;
use protocol::commit::{Change, Record};
use protocol::ident::{HlcTimestamp, Version};
use protocol::page_cache::{Invalidation, ObjectState, PageImage, SlotStates};
use protocol::validate::PageVersions;

use super::net::Pid;

/// The objects of a page, by slot.
pub(super) type Objects = Rc<BTreeMap<u16, Object>>;

/// A page as it is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) version: Version,
    /// The largest commit timestamp of it.
    pub(super) timestamp: HlcTimestamp,
    pub(super) objects: Objects,
}

impl PageVersions for Disk {
    fn version(&self, page: PageId) -> Version {
        self.pages.get(&page).map(|page| page.version).unwrap_or_default()
    }
}

/// A change that is found in the log after a restart.
pub(super) struct RecoveredChange {
    pub(super) page: PageId,
    pub(super) version: Version,
    pub(super) contents: SlotStates<Object>,
    pub(super) objects: Objects,
}

/// The disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// The log from the position after `freed` on.
    log: Vec<Record<Object>>,
    freed: u64,
    /// Up to where it is durable, and up to where the force that is under way reaches.
    forced: u64,
    pub(super) forcing: Option<u64>,
    /// The pages as they are, and as they are in the B-tree, which has all up to a position.
    pub(super) pages: BTreeMap<PageId, Page>,
    tree: BTreeMap<PageId, Page>,
    installed: u64,
    /// How often it has moved.
    pub(super) moves: u32,
}

impl Disk {
    /// A disk that has these pages from the start.
    pub(super) fn new(pages: BTreeMap<PageId, Page>) -> Self {
        Self { tree: pages.clone(), pages, ..Self::default() }
    }

    /// The position of the last record.
    pub(super) fn last(&self) -> u64 {
        self.freed + self.log.len() as u64
    }

    pub(super) fn append(&mut self, record: Record<Object>) {
        self.log.push(record);
    }

    /// Begins to force what is there, unless that is being done or there is nothing. Says whether it has begun.
    pub(super) fn begin_force(&mut self) -> bool {
        if self.forcing.is_some() || self.forced == self.last() {
            return false;
        }
        self.forcing = Some(self.last());
        true
    }

    /// The force is done. Returns up to where the log is durable.
    pub(super) fn end_force(&mut self) -> u64 {
        if let Some(position) = self.forcing.take() {
            self.forced = self.forced.max(position);
        }
        self.forced
    }

    pub(super) fn read(&self, page: PageId) -> PageImage<Object> {
        let Page { version, timestamp, objects } = self.pages.get(&page).cloned().unwrap_or_default();
        PageImage { version, timestamp, objects: (*objects).clone() }
    }

    pub(super) fn object(&self, oid: Oid) -> (Version, Option<Object>) {
        let page = self.pages.get(&oid.page());
        let value = page.and_then(|page| page.objects.get(&oid.slot()).cloned());
        (self.version(oid.page()), value)
    }

    /// Stores what has changed. Returns the page as it is now.
    pub(super) fn store(&mut self, message: &Invalidation, contents: &SlotStates<Object>) -> &Page {
        self.write(message.page, message.version, message.timestamp, contents)
    }

    /// Writes new states of the objects of a page.
    pub(super) fn write(
        &mut self,
        page: PageId,
        version: Version,
        at: HlcTimestamp,
        contents: &SlotStates<Object>,
    ) -> &Page {
        let page = self.pages.entry(page).or_default();
        let mut objects = (*page.objects).clone();
        for (slot, content) in contents {
            match content {
                ObjectState::Value(state) => objects.insert(*slot, state.clone()),
                ObjectState::Absent => objects.remove(slot),
                ObjectState::Changed(_) => panic!("a brick without a driver stores whole objects only"),
            };
        }
        (page.version, page.timestamp, page.objects) = (version, page.timestamp.max(at), Rc::new(objects));
        page
    }

    /// Writes what a record that was found says.
    pub(super) fn redo(&mut self, version: Version, change: Change<Object>) -> Vec<RecoveredChange> {
        let timestamp = change.timestamp;
        let pages = change.pages().into_iter().map(|(page, (_, contents))| {
            let objects = self.write(page, version, timestamp, &contents).objects.clone();
            RecoveredChange { page, version, contents, objects }
        });
        pages.collect()
    }

    /// Brings all pages into the B-tree. What is not durable in the log is not in the pages.
    pub(super) fn install(&mut self) -> u64 {
        self.tree = self.pages.clone();
        self.installed = self.forced;
        self.installed
    }

    /// Frees the log up to a position, which is installed and copied forward.
    pub(super) fn free(&mut self, upto: u64) {
        assert!(upto <= self.installed && upto <= self.forced, "the log is freed before it is installed");
        if upto > self.freed {
            self.log.drain(..(upto - self.freed) as usize);
            self.freed = upto;
        }
    }

    /// Loses what was not forced, but `kept` records of it.
    pub(super) fn crash(&mut self, kept: usize) {
        let unforced = (self.last() - self.forced) as usize;
        let lost = unforced - kept.min(unforced);
        self.log.truncate(self.log.len() - lost);
        self.forced = self.last();
        self.forcing = None;
        self.pages = BTreeMap::new();
    }

    /// What is found after a restart, and the changes that are found again.
    pub(super) fn recover(
        &mut self,
        settings: ParticipantSettings,
        now: u64,
    ) -> (Brick<Pid, Object>, Vec<RecoveredChange>) {
        let (mut brick, mut found) = (Brick::new(settings), Vec::new());
        self.pages = self.tree.clone();
        let log = self.log.clone();
        for (position, record) in (self.freed + 1..).zip(log) {
            let version = Version { moves: settings.moves, position };
            let Some(change) = brick.recover(version, record) else { continue };
            if position > self.installed {
                found.extend(self.redo(version, change));
            }
        }
        brick.finish_recovery(self.last(), now);
        (brick, found)
    }
}
