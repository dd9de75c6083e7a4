//! The engine of a simulated machine: the engine in memory, which fails when the simulated disk fails, and may have a damaged page.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::MemoryEngine;
use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow, RowVisitor};
use crate::disk::sim::SimDisk;
use crate::rows::key::Key;
use crate::rows::key_range::KeyRange;

/// Faults of a simulated engine.
#[derive(Default)]
pub(crate) struct EngineFaults {
    /// Maximum bytes of the engine; `None` for no limit.
    pub(crate) room: Option<u64>,
    /// Whether every batch fails.
    pub(crate) broken: bool,
    /// The page that cannot be read.
    pub(crate) damage: Option<Arc<DamagedPage>>,
    /// A planted bug: rows whose keys begin with these bytes are not written.
    pub(crate) skip: Option<Vec<u8>>,
}

/// A page whose rows cannot be read, apart from those that were written after the damage.
#[derive(Clone)]
pub(crate) struct DamagedPage {
    range: KeyRange,
    written: BTreeSet<Key>,
}

impl DamagedPage {
    pub(crate) fn new(range: KeyRange) -> Self {
        Self { range, written: BTreeSet::new() }
    }

    /// Notes that rows were written.
    fn write<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) {
        self.written.extend(keys.filter(|key| self.range.contains(key)).cloned());
    }
}

/// A state of the engine with a damaged page.
struct DamagedRead<'a> {
    rows: &'a dyn EngineRead,
    page: &'a DamagedPage,
}

fn damage_error() -> EngineError {
    EngineError::Damaged("a page is damaged".into())
}

/// Shows the rows that `scan` reads on the way to a damaged page; fails unless the visitor ends the scan before the page.
fn ends_before_damage(
    show: &mut RowVisitor<'_>,
    scan: impl FnOnce(&mut RowVisitor<'_>) -> EngineResult<()>,
) -> EngineResult<()> {
    let mut is_ended = false;
    scan(&mut |key, value| {
        let shown = show(key, value);
        is_ended = shown.is_break();
        shown
    })?;
    if is_ended { Ok(()) } else { Err(damage_error()) }
}

impl EngineRead for DamagedRead<'_> {
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        match self.page.range.contains(key) && !self.page.written.contains(key) {
            true => Err(damage_error()),
            false => self.rows.get(key),
        }
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if !self.page.range.overlaps(from, to) {
            return self.rows.range(from, to, show);
        }
        ends_before_damage(show, |show| self.rows.range(from, &self.page.range.from, show))
    }

    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if !self.page.range.overlaps(from, to) {
            return self.rows.range_back(from, to, show);
        }
        ends_before_damage(show, |show| match &self.page.range.to {
            Some(behind) => self.rows.range_back(behind, to, show),
            None => Ok(()),
        })
    }

    fn first_damage(&self, from: &[u8], to: &[u8]) -> Option<KeyRange> {
        self.page.range.overlaps(from, to).then(|| self.page.range.clone())
    }
}

/// A pinned state of the engine with a damaged page.
struct DamagedPin {
    rows: Box<dyn EnginePin>,
    page: Arc<DamagedPage>,
}

impl EnginePin for DamagedPin {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) {
        self.rows.read(&mut |rows| read(&DamagedRead { rows, page: &self.page }));
    }
}

/// The engine in memory next to a simulated disk. A batch is one change of the disk: it is atomic and durable.
pub(crate) struct SimEngine {
    pub(crate) memory: MemoryEngine,
    pub(crate) disk: SimDisk,
    pub(crate) faults: Arc<Mutex<EngineFaults>>,
}

impl Engine for SimEngine {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        let damage = self.faults.lock().damage.clone();
        match damage {
            Some(page) => self.memory.read(&mut |rows| read(&DamagedRead { rows, page: &page })),
            None => self.memory.read(read),
        }
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        let rows = self.memory.pin()?;
        Ok(match &self.faults.lock().damage {
            Some(page) => Box::new(DamagedPin { rows, page: page.clone() }),
            None => rows,
        })
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        let rows: Vec<EngineRow> = rows.collect::<Result<_, _>>().map_err(|BatchAborted| EngineError::Aborted)?;
        self.disk.count_change().map_err(|e| EngineError::Failed(Box::new(e)))?;
        let mut faults = self.faults.lock();
        if faults.broken {
            return Err(EngineError::Failed("the engine is broken".into()));
        }
        let added: u64 = rows.iter().filter_map(|(key, row)| Some((key.len() + row.as_ref()?.len()) as u64)).sum();
        if faults.room.is_some_and(|room| self.memory.size() + added > room) {
            return Err(EngineError::Full(Box::new(io::Error::from(io::ErrorKind::StorageFull))));
        }
        if let Some(page) = &mut faults.damage {
            Arc::make_mut(page).write(rows.iter().map(|(key, _)| key));
        }
        let kept = rows.into_iter().filter(|(key, _)| faults.skip.as_ref().is_none_or(|skip| !key.starts_with(skip)));
        self.memory.write(&mut kept.map(Ok))
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }
}
