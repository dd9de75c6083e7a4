//! Rows in a store: durable in its log before anybody sees them.

use std::ops::ControlFlow;

use bytes::Bytes;
use model::Result;
use store::{RowChanges, Store};

use super::rows::{DurableCallback, ROW_PREFIX, ROWS_END, RowChange, Rows};

impl Rows for Store {
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        self.rows(ROW_PREFIX, ROWS_END, |name, value| {
            result = visit(name, Bytes::copy_from_slice(value));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback) {
        let mut rows = RowChanges::new();
        for (name, value) in changes {
            match value {
                Some(value) => rows.put(&name, value),
                None => rows.remove(&name),
            }
        }
        self.submit_rows(rows, |result| done(result.map(drop)));
    }
}
