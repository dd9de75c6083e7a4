//! The engine of a simulated machine: the engine in memory, which fails when the simulated disk fails.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::MemoryEngine;
use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow};
use crate::disk::sim::SimDisk;

/// Faults of a simulated engine.
#[derive(Default)]
pub(crate) struct EngineFaults {
    /// Maximum bytes of the engine; `None` for no limit.
    pub(crate) room: Option<u64>,
    /// Whether every batch fails.
    pub(crate) broken: bool,
    /// A planted bug: rows whose keys begin with these bytes are not written.
    pub(crate) skip: Option<Vec<u8>>,
}

/// The engine in memory next to a simulated disk. A batch is one change of the disk: it is atomic and durable.
pub(crate) struct SimEngine {
    pub(crate) memory: MemoryEngine,
    pub(crate) disk: SimDisk,
    pub(crate) faults: Arc<Mutex<EngineFaults>>,
}

impl Engine for SimEngine {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        self.memory.read(read)
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        self.memory.pin()
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        let rows: Vec<EngineRow> = rows.collect::<Result<_, _>>().map_err(|BatchAborted| EngineError::Aborted)?;
        self.disk.count_change().map_err(|e| EngineError::Failed(Box::new(e)))?;
        let faults = self.faults.lock();
        if faults.broken {
            return Err(EngineError::Failed("the engine is broken".into()));
        }
        let added: u64 = rows.iter().filter_map(|(key, row)| Some((key.len() + row.as_ref()?.len()) as u64)).sum();
        if faults.room.is_some_and(|room| self.memory.size() + added > room) {
            return Err(EngineError::Full(Box::new(io::Error::from(io::ErrorKind::StorageFull))));
        }
        let kept = rows.into_iter().filter(|(key, _)| faults.skip.as_ref().is_none_or(|skip| !key.starts_with(skip)));
        self.memory.write(&mut kept.map(Ok))
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }
}
