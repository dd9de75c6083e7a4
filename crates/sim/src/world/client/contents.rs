//! Reads of contents: the bytes of lists that stand beside their pages.

use model::{ContentRef, ErrorKind, Object, Oid};
use wire::cluster::ReadContent;
use wire::proto;
use wire::proto::request::Request;

use super::steps::history_value;
use crate::plan::Key;
use crate::world::World;
use crate::world::net::Pid;
use crate::world::users::Asked;
use check::history::{self, Outcome};

/// How soon a read of a content at a brick that is down is tried again, in milliseconds.
const REREAD_MS: u64 = 50;

/// The read of all bytes of a content.
pub(super) fn read_of(oid: Oid, content: ContentRef) -> ReadContent {
    let ContentRef { id, size, generation } = content;
    ReadContent { oid, offset: 0, length: size as u32, expected: Some((id, generation)) }
}

/// What it asks the peer server for.
fn request() -> Request {
    Request::ReadContent(proto::contents::Read::default())
}

impl World {
    /// A read outside of transactions has found an object. If its bytes have changed since, the read has failed.
    pub(super) fn finish_get(&mut self, pid: Pid, key: Key, object: Option<Object>) {
        let content = object.as_ref().and_then(Object::content);
        let may_read = |world: &Self| matches!(world.check_request(pid, request()), Some(Ok(())));
        let read = |content| self.read_at_brick(&read_of(key.oid(), content)).ok().flatten().filter(|_| may_read(self));
        let bytes = content.map(read);
        let Some(current) = self.current_mut(pid) else { return };
        let object = match (object, bytes) {
            (_, Some(None)) => return self.finish(pid, Outcome::Failed, None),
            (Some(object), Some(Some(bytes))) => Some(object.with_data(bytes)),
            (object, None) => object,
            (None, Some(Some(_))) => None,
        };
        current.record.steps.push(history::Step::Read(key.to_string(), history_value(object.as_ref())));
        self.finish(pid, Outcome::Ok, None);
    }

    /// Reads the bytes of a content for a transaction, which conflicts if they have changed. Says whether there may be another step.
    pub(super) fn read_content(&mut self, pid: Pid, read: ReadContent) -> bool {
        match self.may_request(pid, request(), REREAD_MS) {
            Asked::Allowed => {}
            Asked::Denied => return true,
            Asked::Unconnected => return false,
        }
        let (found, life) = (self.read_at_brick(&read), self.processes[pid].incarnation);
        match (found, read.expected) {
            (Ok(Some(bytes)), Some(state)) => {
                if let Some(current) = self.current_mut(pid) {
                    current.contents.insert(state, bytes);
                }
                true
            }
            (Ok(_), _) => {
                self.give_up(pid, ErrorKind::Conflict);
                true
            }
            (Err(error), _) if error.kind() == ErrorKind::Corrupt => {
                self.give_up(pid, ErrorKind::Corrupt);
                true
            }
            (Err(_), _) => {
                // The brick is down.
                self.push_timer(self.now + REREAD_MS, pid, life);
                false
            }
        }
    }
}
