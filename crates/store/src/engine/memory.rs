//! The engine in memory: a shared ordered map, copied on write while a snapshot holds it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow, RowVisitor};
use crate::rows::key::Key;

type Rows = BTreeMap<Key, Bytes>;

/// The memory engine. A clone shares its rows; [`MemoryEngine::image`] copies the state after a crash.
#[derive(Clone, Default)]
pub(crate) struct MemoryEngine {
    rows: Arc<RwLock<Arc<Rows>>>,
}

struct MemoryRead(Arc<Rows>);

impl MemoryEngine {
    /// A new engine with the same rows: the state after a crash at this moment.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn image(&self) -> Self {
        Self { rows: Arc::new(RwLock::new(Arc::clone(&self.rows.read()))) }
    }

    /// A checksum of all rows, continued from another checksum.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn digest(&self, seed: u32) -> u32 {
        let add = |digest: u32, (key, value): (&Key, &Bytes)| {
            let len = (key.len() as u64).to_le_bytes();
            crate::checksum::crc32c_parts(&[&digest.to_le_bytes()[..], &len, key, value])
        };
        self.rows.read().iter().fold(seed, add)
    }
}

impl EngineRead for MemoryRead {
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        Ok(self.0.get(key).map(|value| &**value))
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if from < to {
            for (key, value) in self.0.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
                if show(key, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if from < to {
            for (key, value) in self.0.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))).rev() {
                if show(key, value).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl EnginePin for MemoryRead {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) {
        read(self);
    }
}

impl Engine for MemoryEngine {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        // The lock is released during the read, because the reader may write.
        let state = MemoryRead(Arc::clone(&self.rows.read()));
        read(&state);
        Ok(())
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        Ok(Box::new(MemoryRead(Arc::clone(&self.rows.read()))))
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        let rows: Vec<EngineRow> = rows.collect::<Result<_, _>>().map_err(|BatchAborted| EngineError::Aborted)?;
        let mut shared = self.rows.write();
        let map = Arc::make_mut(&mut shared);
        for (key, value) in rows {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.rows.read().iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}
