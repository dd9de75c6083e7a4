//! Lists the objects of a space, logical node by logical node.

use std::sync::Arc;

use model::{Error, ErrorKind, NodeId, Result};
use wire::cluster::{ListNodeObjects, ListedObject, NodeObjects};
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::client_core::{Core, unexpected_answer_error};

/// Objects that are requested at a time.
const PORTION: u32 = 1_000;

/// The objects of a space in portions: [`Client::objects`](super::Client::objects).
#[derive(Debug)]
pub struct Objects {
    core: Arc<Core>,
    /// The logical nodes that are not listed yet, the next one last.
    nodes: Vec<NodeId>,
    /// The place at which the listing of the next one continues.
    from: (u64, u16),
    /// What cannot be read before that place, which the next call tells.
    damage: Option<String>,
}

impl Objects {
    pub(super) fn new(core: Arc<Core>) -> Self {
        let mut nodes = core.nodes.clone();
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        Self { core, nodes, from: (0, 0), damage: None }
    }

    /// The next objects; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] once for what is damaged behind the objects before it; else as [`Client::get`](super::Client::get). After an
    /// error, the next call continues where this one ended, or behind what is damaged.
    pub async fn next(&mut self) -> Result<Option<Vec<ListedObject>>> {
        loop {
            if let Some(damage) = self.damage.take() {
                return Err(Error::new(ErrorKind::Corrupt, damage));
            }
            let Some(node) = self.nodes.last().copied() else { return Ok(None) };
            let list = ListNodeObjects { space: self.core.space, node, from: self.from, limit: PORTION };
            let found = match self.core.ask(Request::ListNodeObjects(list.into_proto())).await {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    // Nothing of the logical node can be listed.
                    self.nodes.pop();
                    self.from = (0, 0);
                    return Err(error);
                }
                found => found?,
            };
            let (Response::NodeObjects(found), _) = found else { return Err(unexpected_answer_error()) };
            let NodeObjects { objects, next, damage } = NodeObjects::from_proto(found)?;
            if next.is_none() {
                self.nodes.pop();
            }
            (self.from, self.damage) = (next.unwrap_or_default(), damage);
            if !objects.is_empty() {
                return Ok(Some(objects));
            }
        }
    }
}
