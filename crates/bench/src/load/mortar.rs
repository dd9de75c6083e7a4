//! Mortar: reads of single objects, and commits of a minimal client.
//!
//! Reads are frames that are encoded in advance. A commit is encoded when it is sent, because it needs a unique number and unique
//! identifiers. The minimal client does only what every client must do: no copies, retries or failover.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use model::{ClassId, ErrorKind, NodeId, Object, Oid, PageId, SpaceId};
use prost::Message as _;
use protocol::commit::client_mark::ClientMark;
use protocol::commit::{Part, coordinator};
use protocol::gateway::{self, Call};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use wire::cluster::Message;
use wire::frame::{Flags, HEADER, Header, Raw, crc32c};
use wire::handshake::{self, ClientNumber, Preamble};
use wire::outbox::encode_head;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::{Connection, Data, Protocol, Reply, Requests};
use crate::Result;
use crate::process::Address;

/// Bytes before the message of an opening: magic, version, length.
const OPENING_HEADER_BYTES: usize = 12;
/// The largest reply that is accepted.
const MAX_FRAME: u32 = 1 << 20;
/// The space that is measured.
pub(crate) const SPACE: SpaceId = SpaceId(1);
/// Pages that a connection fills: the most that can be reserved at once.
const PAGES_PER_CONNECTION: u64 = 1 << 16;
/// Transactions after which a client says which outcomes it has heard.
const HEARD_BATCH: u64 = 16;
/// How often and how fast pages are asked for.
const RESERVE_ATTEMPTS: usize = 200;
const RESERVE_PAUSE: Duration = Duration::from_millis(20);
/// Objects that a page gets: 8 KiB of them.
const OBJECTS_PER_PAGE: usize = 16;

/// Reads of single objects of a size.
pub(crate) struct ObjectReads(pub(crate) usize);

/// A read of the object of each key, from the object cache of a peer server or from its brick.
pub(crate) fn read_requests<'a>(data: &'a Data, oids: &[Oid], cached: bool) -> Requests<'a> {
    Requests::gets(data, |key, out| {
        let look = proto::ReadObject { oid: Some(oids[key].into()), cached };
        let message = proto::Request { request: Some(Request::ReadObject(look)) };
        encode_head(out, Flags::REQUEST, key as u32, &message, 0, crc32c(&[]));
    })
}

/// Opens a new connection.
fn open(connection: &mut Connection, client: Option<ClientNumber>) -> Result<()> {
    let ClientNumber { number: client_number, token: client_token } = client.unwrap_or_default();
    let hello = proto::Hello {
        features: handshake::FEATURES,
        required: handshake::REQUIRED,
        space: "main".into(),
        agent: "mortar-bench".into(),
        client_number,
        client_token,
        ..proto::Hello::default()
    };
    connection.send(&handshake::encode(handshake::VERSION, &hello))?;
    loop {
        let input = connection.wait()?;
        let length = match handshake::decode(input) {
            Preamble::Mortar { length, .. } => length,
            Preamble::Short => continue,
            Preamble::NotMortar => return Err("the server is not a Mortar server".into()),
        };
        let end = OPENING_HEADER_BYTES + length;
        let Some(message) = input.get(OPENING_HEADER_BYTES..end) else { continue };
        let welcome = proto::Welcome::decode(message)?;
        connection.consume(end);
        return match welcome.answer {
            Some(proto::welcome::Answer::Accepted(_)) => Ok(()),
            refused => Err(format!("Mortar refuses: {refused:?}").into()),
        };
    }
}

/// A frame: header, message and raw part.
type Frame<'a> = (Header, &'a [u8], &'a [u8]);

/// The frame at the beginning of `input`, if it is complete.
fn frame(input: &[u8]) -> Result<Option<Frame<'_>>> {
    let Some(bytes) = input.first_chunk::<HEADER>() else { return Ok(None) };
    let header = Header::decode(bytes, MAX_FRAME)?;
    if input.len() < header.frame_len() {
        return Ok(None);
    }
    let (message, raw) = (&input[HEADER..HEADER + header.message], &input[header.head_len()..header.frame_len()]);
    Ok(Some((header, message, raw)))
}

impl Protocol for ObjectReads {
    fn open(&self, _number: usize, connection: &mut Connection) -> Result<()> {
        open(connection, None)
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let Some((header, message, raw)) = frame(input)? else { return Ok(None) };
        if header.flags != Flags::RESPONSE || raw.len() != self.0 {
            return Err(format!("Mortar answered {:?}", proto::Response::decode(message)).into());
        }
        Ok(Some(Reply { len: header.frame_len(), key: Some(header.id as usize), value: Some(raw) }))
    }
}

/// Commits of objects. The objects of one transaction share the value of a key.
pub(crate) struct Commits {
    /// Objects per transaction.
    objects: usize,
    /// The logical nodes for the new objects of each connection. The objects of a transaction are spread over them.
    nodes: Vec<Vec<NodeId>>,
    /// The objects that are replaced, one for each key; none are if they are new.
    replaced: Vec<Oid>,
    clients: RefCell<Vec<CommitClient>>,
}

/// The client of a connection.
struct CommitClient {
    number: u64,
    /// The first page that is reserved at each logical node, and the number of objects created there.
    pages: BTreeMap<NodeId, (u64, usize)>,
    last: HlcTimestamp,
    /// The number of its transactions.
    begun: u64,
    /// The participants of those since it last said what it has heard.
    participants: BTreeSet<NodeId>,
}

impl Commits {
    /// Transactions of this many objects at the logical nodes `nodes[connection % nodes.len()]`.
    pub(crate) fn new(objects: usize, nodes: Vec<Vec<NodeId>>) -> Self {
        Self { objects, nodes, replaced: Vec::new(), clients: RefCell::default() }
    }

    /// Transactions that replace the object of a key, without having read it.
    pub(crate) fn replacing(oids: Vec<Oid>) -> Self {
        Self { objects: 1, nodes: Vec::new(), replaced: oids, clients: RefCell::default() }
    }
}

impl Commits {
    fn nodes_of(&self, connection: usize) -> &[NodeId] {
        if self.nodes.is_empty() { &[] } else { &self.nodes[connection % self.nodes.len()] }
    }
}

impl CommitClient {
    fn next_oid(&mut self, node: NodeId) -> Result<Oid> {
        let (first, used) = self.pages.get_mut(&node).ok_or("a logical node without pages")?;
        let number = (*used / OBJECTS_PER_PAGE) as u64;
        if number >= PAGES_PER_CONNECTION {
            return Err("a connection has filled all its pages".into());
        }
        let slot = (*used % OBJECTS_PER_PAGE) as u16;
        *used += 1;
        Ok(Oid::new(ClassId::NONE, PageId { space: SPACE, node, number: *first + number }, slot))
    }

    /// Says which outcomes it has heard, if it is time: as often as clients of the library do (C3). A connection has the replies to all
    /// earlier batches when it sends one, and the number of requests in a batch divides [`HEARD_BATCH`].
    fn next_mark(&mut self) -> Option<Message> {
        let is_due = self.begun > 0 && self.begun.is_multiple_of(HEARD_BATCH);
        self.begun += 1;
        let mark = ClientMark::new(self.last.next(), Vec::new()).filter(|_| is_due)?;
        let nodes = std::mem::take(&mut self.participants).into_iter().collect();
        let txn = TxnId { start: self.last, client: ClientId(self.number) };
        Some(Message::Call { txn, call: Call::Heard { nodes, mark } })
    }

    /// A unique time for the next transaction.
    fn next_timestamp(&mut self) -> HlcTimestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        self.last = HlcTimestamp::at(now).max(self.last.next());
        self.last
    }
}

/// Reserves pages; waits while a server that has just started does not serve their logical node yet, as clients do.
fn reserve_pages(connection: &mut Connection, reserve: proto::Reserve) -> Result<u64> {
    for _ in 0..RESERVE_ATTEMPTS {
        match call(connection, Request::Reserve(reserve))? {
            // The bench leaves a page that a client has begun as it is.
            Response::Reserved(reserved) if reserved.slot == 0 && reserved.pages == reserve.pages => {
                return Ok(reserved.first);
            }
            Response::Reserved(_) => continue,
            Response::Error(error) if error.kind == ErrorKind::Unavailable as u32 => {}
            other => return Err(format!("Mortar reserved no pages: {other:?}").into()),
        }
        std::thread::sleep(RESERVE_PAUSE);
    }
    Err("Mortar does not serve a logical node".into())
}

/// Takes the number of a client on a connection for this alone.
fn take_number(mut connection: Connection) -> Result<ClientNumber> {
    open(&mut connection, None)?;
    match call(&mut connection, Request::GetNumbers(proto::GetNumbers { count: 1 }))? {
        Response::Numbers(numbers) => Ok(ClientNumber::first(numbers)?),
        other => Err(format!("Mortar gave no number: {other:?}").into()),
    }
}

/// Sends a request and waits for the answer.
fn call(connection: &mut Connection, request: Request) -> Result<Response> {
    let mut out = Vec::new();
    encode_head(&mut out, Flags::REQUEST, 1, &proto::Request { request: Some(request) }, 0, crc32c(&[]));
    connection.send(&out)?;
    loop {
        let Some((header, message, _)) = frame(connection.wait()?)? else { continue };
        let (length, response) = (header.frame_len(), proto::Response::decode(message)?);
        connection.consume(length);
        return Ok(response.response.ok_or("Mortar sent an empty answer")?);
    }
}

/// The logical nodes among `nodes` that a brick serves.
pub(crate) fn nodes_served_by(brick: &Address, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
    let mut connection = Connection::dial(brick)?;
    open(&mut connection, None)?;
    let mut served = Vec::new();
    for node in nodes {
        let oid = Oid::new(ClassId::NONE, PageId { space: SPACE, node: *node, number: 0 }, 0);
        let look = proto::ReadObject { oid: Some(oid.into()), cached: false };
        if let Response::ObjectRead(_) = call(&mut connection, Request::ReadObject(look))? {
            served.push(*node);
        }
    }
    Ok(served)
}

impl Protocol for Commits {
    fn open(&self, number: usize, connection: &mut Connection) -> Result<()> {
        let client = take_number(connection.dial_again()?)?;
        let client_number = client.number;
        open(connection, Some(client))?;
        let mut clients = self.clients.borrow_mut();
        // Those of an earlier run have no connections any more.
        clients.truncate(number);
        let mut rooms = BTreeMap::new();
        for node in self.nodes_of(number) {
            let reserve =
                proto::Reserve { space: u32::from(SPACE.0), node: node.0, pages: PAGES_PER_CONNECTION as u32, room: 0 };
            rooms.insert(*node, (reserve_pages(connection, reserve)?, 0));
        }
        clients.push(CommitClient {
            number: client_number,
            pages: rooms,
            last: HlcTimestamp::ZERO,
            begun: 0,
            participants: BTreeSet::new(),
        });
        Ok(())
    }

    fn request(&self, connection: usize, requests: &Requests<'_>, key: usize, output: &mut Vec<u8>) -> Result<()> {
        let value = requests.data().value(key);
        let size = value.len() / self.objects;
        let mut clients = self.clients.borrow_mut();
        let client = &mut clients[connection];
        let nodes = self.nodes_of(connection);
        let mut parts: BTreeMap<NodeId, Part<Object>> = BTreeMap::new();
        for index in 0..self.objects {
            let oid = match self.replaced.get(key) {
                Some(oid) => *oid,
                None => client.next_oid(nodes[index % nodes.len()])?,
            };
            let object = Object::blob(Bytes::copy_from_slice(&value[index * size..(index + 1) * size]));
            parts.entry(oid.page().node).or_default().writes.insert(oid, ObjectState::Value(object));
        }
        let heard = client.next_mark();
        client.participants.extend(parts.keys());
        let txn = TxnId { start: client.next_timestamp(), client: ClientId(client.number) };
        let commit = Message::Call { txn, call: Call::Commit { parts, creates: false } };
        for message in heard.into_iter().chain([commit]) {
            let (request, raw) = message.encode();
            let (message, raw) = (proto::Request { request: Some(request) }, raw.concat());
            encode_head(output, Flags::ONE_WAY, 0, &message, raw.len(), crc32c(&raw));
            output.extend_from_slice(&raw);
        }
        Ok(())
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let mut taken = 0;
        while let Some((header, message, raw)) = frame(&input[taken..])? {
            taken += header.frame_len();
            if header.flags == Flags::RESPONSE {
                return Err(format!("Mortar ends the connection: {:?}", proto::Response::decode(message)).into());
            }
            let request = proto::Request::decode(message)?.request.ok_or("Mortar sent an empty message")?;
            match Message::decode(request, Raw::Borrowed(raw))? {
                // The server tells its clients the time now and then.
                Message::Time(_) => {}
                Message::Reply { reply: gateway::Reply::Ended(coordinator::CommitReply::Committed(_)), .. } => {
                    return Ok(Some(Reply { len: taken, key: None, value: None }));
                }
                other => return Err(format!("Mortar sent {other:?}").into()),
            }
        }
        Ok(None)
    }
}

/// Reads or commits.
pub(crate) enum Mortar {
    Reads(ObjectReads),
    Commits(Commits),
}

impl Protocol for Mortar {
    fn open(&self, number: usize, connection: &mut Connection) -> Result<()> {
        match self {
            Self::Reads(reads) => reads.open(number, connection),
            Self::Commits(commits) => commits.open(number, connection),
        }
    }

    fn request(&self, connection: usize, requests: &Requests<'_>, key: usize, output: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Reads(reads) => reads.request(connection, requests, key, output),
            Self::Commits(commits) => commits.request(connection, requests, key, output),
        }
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        match self {
            Self::Reads(reads) => reads.reply(input),
            Self::Commits(commits) => commits.reply(input),
        }
    }
}
