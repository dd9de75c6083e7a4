//! Rows in memory: a catalogue that lives as long as somebody has its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::Result;
use parking_lot::Mutex;

use super::rows::{DurableCallback, RowChange, Rows};

/// Rows in memory. Clones are the same rows.
#[derive(Clone, Default)]
pub(super) struct MemoryRows(Arc<Mutex<BTreeMap<Vec<u8>, Bytes>>>);

impl Rows for MemoryRows {
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()> {
        self.0.lock().iter().try_for_each(|(name, value)| visit(name, value.clone()))
    }

    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback) {
        let mut rows = self.0.lock();
        for (name, value) in changes {
            match value {
                Some(value) => rows.insert(name, value),
                None => rows.remove(&name),
            };
        }
        drop(rows);
        done(Ok(()));
    }
}
