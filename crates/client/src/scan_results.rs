//! Results of scans, in portions.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ClassId, Filter, NodeId, Object, Oid, Result};
use wire::cluster::{Scan, ScanPosition, Scanned};
use wire::frame::Raw;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::client_core::{Core, unexpected_answer_error};

/// Objects in one portion.
const PORTION: u32 = 1_000;

/// The objects that a scan finds: [`Client::find`](super::Client::find).
#[derive(Debug)]
pub struct ScanResults {
    core: Arc<Core>,
    classes: BTreeSet<ClassId>,
    filter: Option<Filter>,
    /// Logical nodes that were not scanned yet; the last one is next.
    nodes: Vec<NodeId>,
    after: Option<ScanPosition>,
    examined: u64,
}

impl ScanResults {
    pub(super) fn new(core: Arc<Core>, classes: BTreeSet<ClassId>, filter: Option<Filter>) -> Self {
        let nodes = core.nodes.iter().rev().copied().collect();
        Self { core, classes, filter, nodes, after: None, examined: 0 }
    }

    /// The next portion, which may be empty; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if a brick cannot be reached in time;
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if it cannot read an object. After an error, or if the future was dropped, the next
    /// call continues where this one began.
    pub async fn next(&mut self) -> Result<Option<Vec<(Oid, Object)>>> {
        let Some(node) = self.nodes.last().copied() else { return Ok(None) };
        let scan = Scan {
            space: self.core.space,
            node,
            epoch: 0,
            classes: self.classes.clone(),
            range: None,
            after: self.after.clone(),
            limit: PORTION,
            filter: self.filter.clone(),
            count: false,
            family: None,
        };
        let (Response::Scanned(scanned), raw) = self.core.ask(Request::Scan(scan.into_proto()?)).await? else {
            return Err(unexpected_answer_error());
        };
        let Scanned { found, next, examined, .. } = Scanned::from_proto(*scanned, Raw::Owned(raw))?;
        self.examined += examined;
        self.after = next;
        if self.after.is_none() {
            self.nodes.pop();
        }
        Ok(Some(found.into_iter().map(|(oid, _, object)| (oid, object)).collect()))
    }

    /// The number of objects examined so far.
    #[must_use]
    pub fn examined_count(&self) -> u64 {
        self.examined
    }
}
