//! A client that breaks the rules: what it sends instead of what its driver wants to be sent.

use std::collections::BTreeMap;

use model::{NodeId, Object, PageId};
use protocol::commit::Writes;
use protocol::gateway::Call;
use protocol::ident::{HlcTimestamp, HolderId, TxnId, Version};
use protocol::page_cache::{FetchId, ObjectState, PageImage};
use protocol::tree::{Down, Up};
use wire::cluster::Message;

use super::World;
use super::net::{Datagram, Pid};
use super::peer::SESSION_BITS;
use super::process::ProcessMachine;
use crate::deceit::Deceit;
use crate::object::Content;
use crate::plan::ProcessName;

/// With [`Deceit::Any`], one in so many messages that would be rejected is sent: each ends the connection.
const REJECTED_PERIOD: u64 = 16;
/// What a wicked client writes into objects: a number that no operation has.
const ALTERED: i64 = -1_000_000;
/// The nodes that a wicked client says it has below it.
const CLAIMED_HEIGHT: u8 = 3;

/// A client that breaks the rules, over all its restarts.
#[derive(Clone, Debug)]
pub(super) struct WickedClient {
    deceit: Deceit,
    /// The first image that it had of each page.
    earlier: BTreeMap<PageId, PageImage<Object>>,
}

impl World {
    /// From now on a client breaks the rules.
    pub(super) fn make_wicked(&mut self, number: usize, deceit: Deceit) {
        let place = ProcessName::Client(number);
        let Some(pid) = self.pid(place) else { return };
        self.wicked.insert(pid, WickedClient { deceit, earlier: BTreeMap::new() });
        self.oracle.slow.insert(place);
    }

    /// Whether a process breaks rules.
    pub(super) fn is_wicked(&self, pid: Pid) -> bool {
        self.wicked.contains_key(&pid)
    }

    /// Whether a client breaks the rules in this way now. A rejected message ends a connection: at the end, when all have to finish, a
    /// wicked client sends none.
    fn deceives(&mut self, pid: Pid, deceit: Deceit) -> bool {
        let Some(wicked) = self.wicked.get(&pid) else { return false };
        match wicked.deceit {
            _ if deceit.is_rejected() && self.healing => false,
            Deceit::Any if deceit.is_rejected() => self.net.chance(pid, (1, REJECTED_PERIOD)) == 1,
            Deceit::Any => self.net.chance(pid, (0, 1)) == 1,
            only => only == deceit,
        }
    }

    /// What a client does with a request for a copy, if it breaks the rules.
    fn deceit_with_copy(&mut self, pid: Pid) -> Option<Deceit> {
        match self.wicked.get(&pid)?.deceit {
            Deceit::Any => {
                let choice = self.net.chance(pid, (0, Deceit::WITH_COPIES.len() as u64)) as usize;
                Deceit::WITH_COPIES.get(choice).copied()
            }
            only => Some(only),
        }
    }

    // ------------------------------------------------------------------------------------------ its own messages

    /// A wicked client keeps the first image of each page.
    pub(super) fn keep_image(&mut self, pid: Pid, page: PageId, image: &PageImage<Object>) {
        if let Some(wicked) = self.wicked.get_mut(&pid) {
            wicked.earlier.entry(page).or_insert_with(|| image.clone());
        }
    }

    /// Sends a message of a client to the node above, or what a wicked client sends instead.
    pub(super) fn send_client_up(&mut self, pid: Pid, node: NodeId, session: HolderId, message: Up<Object>) {
        if !self.is_wicked(pid) {
            return self.send_up(pid, node, session, message);
        }
        let message = match message {
            Up::Helped { page, help, copy } => match self.deceitful_copy(pid, page, copy) {
                Some(copy) => Up::Helped { page, help, copy },
                None => return,
            },
            Up::Renew { asked, wanted_ms, open, sync, subscribe, height: 0, replaces }
                if self.deceives(pid, Deceit::HoldersBelow) =>
            {
                Up::Renew { asked, wanted_ms, open, sync, subscribe, height: CLAIMED_HEIGHT, replaces }
            }
            Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } => {
                let replaces = self.other_session(pid, node).or(replaces);
                Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces }
            }
            message => message,
        };
        if let Up::Acknowledge { page, .. } = message {
            self.send_in_name_of_others(pid, node, page);
        }
        self.send_up(pid, node, session, message);
    }

    /// The copy that a client gives; `None` if it does not answer.
    fn deceitful_copy(
        &mut self,
        pid: Pid,
        page: PageId,
        copy: Option<PageImage<Object>>,
    ) -> Option<Option<PageImage<Object>>> {
        let deceit = self.deceit_with_copy(pid);
        let Some(copy) = copy else { return (deceit != Some(Deceit::NoCopy)).then_some(None) };
        self.keep_image(pid, page, &copy);
        let pick = self.net.chance(pid, (0, u64::from(u16::MAX))) as usize;
        let earlier = &self.wicked.get(&pid)?.earlier;
        let PageImage { version, timestamp, .. } = copy;
        Some(Some(match deceit {
            Some(Deceit::NoCopy) => return None,
            Some(Deceit::AlteredCopy) => altered(copy, pick),
            Some(Deceit::IncompleteCopy) => incomplete(copy, pick),
            Some(Deceit::OutdatedCopy) => PageImage { version, timestamp, ..earlier.get(&page)?.clone() },
            Some(Deceit::EarlierVersion) => earlier.get(&page)?.clone(),
            Some(Deceit::LaterVersion) => {
                let version = Version { position: version.position + 1, ..version };
                PageImage { version, ..copy }
            }
            Some(Deceit::EarlierTime) => PageImage { timestamp: HlcTimestamp::ZERO, ..copy },
            Some(Deceit::OtherPage) => {
                let other = earlier.iter().find(|(other, _)| **other != page).map(|(_, image)| image.clone());
                PageImage { version, timestamp, ..other.unwrap_or(copy) }
            }
            _ => copy,
        }))
    }

    // ------------------------------------------------------------------------------------------ in the name of others

    /// The members of the group of a client, without the client.
    fn other_members(&self, pid: Pid) -> Vec<Pid> {
        let upper = |pid: Pid| Some(self.net.links[self.processes[pid].uplinks.first()?.link?].upper);
        let is_other = |other: &Pid| *other != pid && upper(*other).is_some() && upper(*other) == upper(pid);
        let clients = self.processes.iter().enumerate();
        let clients = clients.filter(|(_, process)| matches!(process.place, ProcessName::Client(_)));
        clients.map(|(other, _)| other).filter(is_other).collect()
    }

    /// The session of another member, if the client says that its own session replaces it.
    fn other_session(&mut self, pid: Pid, node: NodeId) -> Option<HolderId> {
        let other = self.other_members(pid).into_iter().next().filter(|_| self.deceives(pid, Deceit::OtherSession))?;
        let Some(ProcessMachine::Client(client)) = &self.processes[other].machine else { return None };
        client.driver.session().holder(node)
    }

    /// A wicked client sends a message in the session of another member, and a call in the name of its transaction.
    fn send_in_name_of_others(&mut self, pid: Pid, node: NodeId, page: PageId) {
        let (in_session, in_transaction) =
            (self.deceives(pid, Deceit::OtherSession), self.deceives(pid, Deceit::OtherTransaction));
        for other in self.other_members(pid) {
            let Some(ProcessMachine::Client(client)) = &self.processes[other].machine else { continue };
            let (session, txn) = (client.driver.session().holder(node), client.current_txn());
            if let Some(session) = session.filter(|_| in_session) {
                // What it has not had yet.
                let version = Version { moves: u32::MAX, position: u64::MAX };
                self.send_up(pid, node, session, Up::Acknowledge { page, version });
            }
            if let Some((_, txn)) = txn.filter(|_| in_transaction)
                && let Some(link) = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link)
            {
                let (upper, call) =
                    (self.net.links[link].upper, Call::Resolve { participants: vec![node], patched: Vec::new() });
                self.send_datagram(pid, upper, Datagram::Cluster(Message::Call { txn, call }));
            }
        }
    }

    /// A redirector asks a member for a copy. A wicked member, which has guessed the number of the request, says that there is none.
    pub(super) fn deny_copy(&mut self, helper: Pid, (node, page): (NodeId, PageId), help: FetchId) {
        let wicked: Vec<Pid> = self.other_members(helper).into_iter().filter(|pid| self.is_wicked(*pid)).collect();
        for pid in wicked {
            let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { continue };
            let session = client.driver.session().holder(node);
            if let Some(session) = session
                && self.deceives(pid, Deceit::CopyDenied)
            {
                self.send_up(pid, node, session, Up::Helped { page, help, copy: None });
            }
        }
    }

    /// Whether a message from a member uses what is not the member's own. A redirector has to reject it.
    pub(super) fn is_to_be_rejected(&self, from: Pid, holder: HolderId, message: &Up<Object>) -> bool {
        let is_client = matches!(self.processes[from].place, ProcessName::Client(_));
        let is_own = |session: HolderId| self.members.get(&(session.0 >> SESSION_BITS)) == Some(&from);
        let uses_others = match message {
            Up::Renew { height, replaces, .. } => *height > 0 || replaces.is_some_and(|replaced| !is_own(replaced)),
            _ => false,
        };
        is_client && (uses_others || !is_own(holder))
    }

    // ------------------------------------------------------------------------------------------ two contents

    /// What a client sends to its redirector in place of a call, if it sends other contents elsewhere.
    pub(super) fn call_with_other_contents(&mut self, pid: Pid, call: &Call<Object>) -> Option<Call<Object>> {
        let Call::Commit { parts, creates } = call else { return None };
        if parts.values().all(|part| part.writes.is_empty()) || !self.deceives(pid, Deceit::TwoContents) {
            return None;
        }
        let mut parts = parts.clone();
        for part in parts.values_mut() {
            part.writes = self.other_contents(pid, &part.writes);
        }
        Some(Call::Commit { parts, creates: *creates })
    }

    /// The same for a write outside of transactions.
    pub(super) fn write_with_other_contents(&mut self, pid: Pid, writes: &Writes<Object>) -> Option<Writes<Object>> {
        self.deceives(pid, Deceit::TwoContents).then(|| self.other_contents(pid, writes))
    }

    /// Other new states of the same objects, or of some of them.
    fn other_contents(&mut self, pid: Pid, writes: &Writes<Object>) -> Writes<Object> {
        let is_part = writes.len() > 1 && self.net.chance(pid, (0, 3)) == 0;
        let altered = writes.iter().enumerate().map(|(index, (oid, state))| {
            let other = match state {
                ObjectState::Value(object) => ObjectState::Value(altered_object(object)),
                ObjectState::Absent | ObjectState::Changed(_) => {
                    ObjectState::Value(Content::Number(ALTERED - index as i64).encode())
                }
            };
            (*oid, other)
        });
        altered.skip(usize::from(is_part)).collect()
    }

    /// Whether the update of this transaction at the redirectors may differ from what the bricks have applied.
    pub(super) fn has_two_contents(&self, txn: TxnId) -> bool {
        self.members.get(&txn.client.0).is_some_and(|pid| self.is_wicked(*pid))
    }

    /// What the messages of a server above may show to be forged: the update of a wicked client's transaction.
    pub(super) fn may_show_forgery(&self, message: &Down<Object>) -> bool {
        matches!(message, Down::Invalidate { message, .. } if self.has_two_contents(message.txn))
    }
}

/// Another object in place of one.
fn altered_object(object: &Object) -> Object {
    let other = match Content::decode(object) {
        Some(Content::List(mut list)) => {
            list.push(ALTERED);
            Content::List(list)
        }
        Some(Content::Number(number)) => Content::Number(ALTERED - number),
        None => Content::Number(ALTERED),
    };
    other.encode()
}

/// The slot of an object of a page.
fn slot(image: &PageImage<Object>, pick: usize) -> Option<u16> {
    image.objects.keys().copied().nth(pick % image.objects.len().max(1))
}

/// The page with another object in a slot; an empty page gets an object.
fn altered(mut image: PageImage<Object>, pick: usize) -> PageImage<Object> {
    let slot = slot(&image, pick).unwrap_or_default();
    let other = image.objects.get(&slot).map_or_else(|| Content::Number(ALTERED).encode(), altered_object);
    image.objects.insert(slot, other);
    image
}

/// The page without one of its objects.
fn incomplete(mut image: PageImage<Object>, pick: usize) -> PageImage<Object> {
    if let Some(slot) = slot(&image, pick) {
        image.objects.remove(&slot);
    }
    image
}
