//! The operations: what the client does for each number.

use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;
use client::{Client, Event, IsolationLevel, Rows, Transaction};
use model::{Error, ErrorKind, Kind, NodeId, Oid, RecordRef, Result};
use query::{Query, Row};

use crate::handles::{Handles, Resource, Subscription};
use crate::message::{Reader, Writer};
use crate::name_listing::NameListing;
use crate::objects::{
    read_class, read_hint, read_object, read_options, read_txn, write_object, write_outcome, write_txn,
};
use crate::operation::{
    Attempt, ClientEntry, ClientLife, ClientObject, ClientStream, Operation, Stream, TransactionBlob, TransactionEntry,
    TransactionObject, TransactionPath,
};
use crate::schema;

/// A reply with this many bytes takes no further row and no further object.
const FULL_REPLY: usize = 4 << 20;

/// Performs an operation with `handle`.
///
/// # Errors
/// Those of the operation; [`ErrorKind::Invalid`] for a wrong handle or a damaged request.
pub(crate) async fn perform(
    handles: &Handles,
    handle: u64,
    operation: Operation,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        Operation::ClientLife(operation) => client_life(handles, handle, operation, request, reply).await,
        Operation::ClientObject(operation) => {
            client_object(handles, &handles.client(handle)?, operation, request, reply).await
        }
        Operation::ClientEntry(operation) => client_entry(&handles.client(handle)?, operation, request, reply).await,
        Operation::ClientStream(operation) => {
            client_stream(handles, &handles.client(handle)?, operation, request, reply).await
        }
        Operation::ClientSchema(operation) => {
            schema::perform(&handles.client(handle)?, operation, request, reply).await
        }
        Operation::Attempt(operation) => attempt(handles, handle, operation, request, reply).await,
        Operation::TransactionObject(operation) => {
            transaction_object(handles, &handles.transaction(handle)?, operation, request, reply).await
        }
        Operation::TransactionPath(operation) => {
            transaction_path(&handles.transaction(handle)?, operation, request, reply).await
        }
        Operation::TransactionEntry(operation) => {
            transaction_entry(&handles.transaction(handle)?, operation, request, reply).await
        }
        Operation::TransactionBlob(operation) => {
            transaction_blob(handles, &handles.transaction(handle)?, operation, request, reply).await
        }
        Operation::Stream(operation) => stream(handles, handle, operation, request, reply).await,
    }
}

// ---------------------------------------------------------------------------------------------- clients

async fn client_life(
    handles: &Handles,
    handle: u64,
    operation: ClientLife,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let client = match operation {
        ClientLife::Connect => {
            let url = request.string()?;
            Client::connect_with(&url, read_options(request)?).await?
        }
        ClientLife::Open => {
            let directory = request.string()?;
            Client::open_with(directory, read_options(request)?).await?
        }
        ClientLife::InMemory => Client::in_memory_with(read_options(request)?).await?,
        ClientLife::Shutdown => {
            let client = handles.client(handle)?;
            handles.remove(handle);
            return client.shutdown().await;
        }
        ClientLife::ValidateRecord => return RecordRef::validate(&request.bytes()?).map(drop),
    };
    let space = client.space();
    reply.u64(handles.insert(Resource::Client(client)));
    reply.u16(space.0);
    Ok(())
}

/// Operations of a client with single objects and with transactions.
async fn client_object(
    handles: &Handles,
    client: &Client,
    operation: ClientObject,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        ClientObject::Begin => {
            let transaction = client.begin(read_level(request)?);
            reply.u64(handles.insert(Resource::Transaction(transaction)));
        }
        ClientObject::Attempts => reply.u64(handles.insert(Resource::stream(Resource::Attempts, client.attempts()))),
        ClientObject::Get => reply.optional(client.get(request.oid()?).await?.as_ref(), write_object),
        ClientObject::Put => {
            let (oid, class) = (request.oid()?, read_class(request)?);
            client.put(oid, read_object(request, class)?).await?;
        }
        ClientObject::ReadLatest => reply.optional(client.read_latest(request.oid()?).await?.as_ref(), write_object),
        ClientObject::Stat => reply.optional(client.stat(request.oid()?).await?, |reply, stat| {
            write_object(reply, &stat.object);
            reply.u64(stat.size);
            let changed = stat.entry_changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            reply.optional(changed, |reply, at| reply.u64(at.as_millis() as u64));
        }),
        ClientObject::Append => reply.u64(client.append(request.oid()?, request.bytes()?).await?),
        ClientObject::Nodes => reply.list(client.nodes(), |reply, node| reply.u32(node.0)),
        ClientObject::Outcome => write_outcome(reply, client.outcome(read_txn(request)?).await?),
    }
    Ok(())
}

fn read_level(request: &mut Reader) -> Result<IsolationLevel> {
    match request.u8()? {
        0 => Ok(IsolationLevel::Optimistic),
        1 => Ok(IsolationLevel::Snapshot),
        2 => Ok(IsolationLevel::Locks),
        code => Err(Error::new(ErrorKind::Invalid, format!("there is no isolation level {code}"))),
    }
}

/// Operations of a client with paths, collections and directories.
async fn client_entry(client: &Client, operation: ClientEntry, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    match operation {
        ClientEntry::Resolve => reply.optional(client.resolve(&request.string()?).await?, Writer::oid),
        ClientEntry::Members => {
            let (collection, after) = (request.oid()?, request.optional(Reader::oid)?);
            reply.list(client.members(collection, after, request.u32()? as usize).await?, Writer::oid);
        }
        ClientEntry::Entries => {
            let (directory, after) = (request.oid()?, request.optional(Reader::string)?);
            write_entries(reply, client.entries(directory, after.as_deref(), request.u32()? as usize).await?);
        }
        ClientEntry::Entry => reply.optional(client.entry(request.oid()?, &request.string()?).await?, Writer::oid),
        ClientEntry::NamesOf => reply.list(client.names_of(request.oid()?).await?, |reply, name| reply.string(&name)),
        ClientEntry::CollectionsOf => reply.list(client.collections_of(request.oid()?).await?, Writer::oid),
        ClientEntry::Totals => {
            let (count, changed) = client.collection_totals(request.oid()?).await?;
            reply.u64(count);
            reply.u64(changed.ms());
        }
    }
    Ok(())
}

fn write_entries(reply: &mut Writer, entries: Vec<(String, Oid)>) {
    reply.list(entries, |reply, (name, target)| {
        reply.string(&name);
        reply.oid(target);
    });
}

/// Operations of a client that open a stream.
async fn client_stream(
    handles: &Handles,
    client: &Client,
    operation: ClientStream,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        ClientStream::Query => {
            let query = read_query(request)?;
            let rows = if request.bool()? { client.explain(&query).await? } else { client.query(&query).await? };
            write_rows(handles, reply, rows);
        }
        ClientStream::Names => {
            let mut names = client.names(&request.string()?);
            if let Some(after) = request.optional(Reader::string)? {
                names = names.after(&after);
            }
            if request.bool()? {
                names = names.with_directories();
            }
            if request.bool()? {
                names = names.one_level();
            }
            reply.u64(handles.insert(Resource::stream(Resource::Names, NameListing::new(names))));
        }
        ClientStream::Objects => reply.u64(handles.insert(Resource::stream(Resource::Objects, client.objects()))),
        ClientStream::Events => reply.u64(handles.insert(Resource::Events(Subscription::new(client.events()?)))),
        ClientStream::Writer => {
            let writer = client.content_writer(request.optional(Reader::u32)?.map(NodeId));
            reply.u64(handles.insert(Resource::stream(Resource::Writer, Some(writer))));
        }
        ClientStream::Reader => {
            let (oid, offset, end) = (request.oid()?, request.u64()?, request.optional(Reader::u64)?);
            let mut reader = client.content_reader(oid, offset);
            if let Some(end) = end {
                reader = reader.until(end);
            }
            reply.u64(handles.insert(Resource::stream(Resource::Reader, reader)));
        }
        ClientStream::Watch => {
            let watch = client.watch(request.list(Reader::oid)?).await?;
            reply.u64(handles.insert(Resource::Watch(Subscription::new(watch))));
        }
    }
    Ok(())
}

/// A query with its parameters.
fn read_query(request: &mut Reader) -> Result<Query> {
    let mut query = Query::parse(&request.string()?)?;
    for (name, value) in request.list(|request| Ok((request.string()?, request.value()?)))? {
        query = query.with(name, value);
    }
    Ok(query)
}

fn write_rows(handles: &Handles, reply: &mut Writer, rows: Rows) {
    let columns = rows.columns().to_vec();
    reply.u64(handles.insert(Resource::stream(Resource::Rows, rows)));
    reply.list(&columns, |reply, column| reply.string(column));
}

// ---------------------------------------------------------------------------------------------- transactions

async fn attempt(
    handles: &Handles,
    handle: u64,
    operation: Attempt,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let attempts = handles.attempts(handle)?;
    let mut attempts = attempts.lock().await;
    match operation {
        Attempt::Begin => reply.u64(handles.insert(Resource::Transaction(attempts.begin()))),
        Attempt::End => {
            let transaction = handles.transaction(request.u64()?)?;
            let (has_failed, kind, message) = (request.bool()?, request.u8()?, request.string()?);
            let result = match (has_failed, kind) {
                (false, _) => Ok(true),
                (true, 0) => Err(Error::new(ErrorKind::Internal, message).with_source(CallerFailure)),
                (true, kind) => Err(Error::new(ErrorKind::from_code(kind), message).with_source(CallerFailure)),
            };
            match attempts.end(&transaction, result).await {
                Ok(ended) => reply.bool(ended.is_some()),
                // What the body has read was consistent: the caller throws its exception again.
                Err(error) if is_caller_failure(&error) => reply.bool(true),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The cause of an error that stands for an exception that the body of a transaction has thrown.
#[derive(Debug)]
struct CallerFailure;

impl fmt::Display for CallerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the transaction has failed")
    }
}

impl StdError for CallerFailure {}

fn is_caller_failure(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<CallerFailure>())
}

/// Operations of a transaction with objects, and its end.
async fn transaction_object(
    handles: &Handles,
    transaction: &Transaction,
    operation: TransactionObject,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        TransactionObject::Id => write_txn(reply, transaction.id()),
        TransactionObject::Get => {
            let (oids, for_update) = (request.list(Reader::oid)?, request.bool()?);
            let objects = match for_update {
                true => transaction.get_all_for_update(&oids).await?,
                false => transaction.get_all(&oids).await?,
            };
            write_objects(reply, &objects);
        }
        TransactionObject::Prefetch => transaction.prefetch(request.list(Reader::oid)?).await?,
        TransactionObject::Query => {
            let rows = transaction.query(&read_query(request)?).await?;
            write_rows(handles, reply, rows);
        }
        TransactionObject::Allocate => {
            let class = read_class(request)?;
            let places = request.list(|request| Ok((request.u32()? as usize, read_hint(request)?)))?;
            reply.count(places.len());
            for (len, hint) in places {
                reply.oid(transaction.allocate(class, len, hint).await?);
            }
        }
        TransactionObject::Write => {
            for change in request.list(read_change)? {
                match change {
                    Change::Delete(oid) => transaction.delete(oid).await?,
                    Change::Replace(oid, object) => transaction.put(oid, object).await?,
                    Change::Create(oid, record) => transaction.create_record(oid, record)?,
                }
            }
        }
        TransactionObject::Create => {
            let class = read_class(request)?;
            let object = read_object(request, class)?;
            reply.oid(transaction.create_object(class, object, read_hint(request)?)?);
        }
        TransactionObject::CreateCollection => reply.oid(transaction.create_collection()?),
        TransactionObject::CreateBlobFrom => {
            reply.oid(transaction.create_blob_from(handles.staged_content(request.u64()?)?)?)
        }
        TransactionObject::RealOids => {
            let oids = request.list(Reader::oid)?;
            reply.list(oids, |reply, oid| reply.optional(transaction.real_oid(oid), Writer::oid));
        }
        TransactionObject::AppendOffsets => reply.list(transaction.append_offsets(request.oid()?), Writer::u64),
        TransactionObject::DeleteWithNames => transaction.delete_with_names(request.oid()?).await?,
        TransactionObject::Commit => write_outcome(reply, transaction.commit().await?),
        TransactionObject::Check => write_outcome(reply, transaction.check().await?),
        TransactionObject::Abort => transaction.abort(),
    }
    Ok(())
}

/// Writes objects until the reply is full, and at least one. The caller asks for the others again.
fn write_objects(reply: &mut Writer, objects: &[Option<model::Object>]) {
    let begin = reply.begin_list();
    let mut count = 0;
    for object in objects {
        if reply.len() >= FULL_REPLY {
            break;
        }
        reply.optional(object.as_ref(), write_object);
        count += 1;
    }
    reply.end_list(begin, count);
}

/// A change of an object in a transaction.
enum Change {
    Delete(Oid),
    Replace(Oid, model::Object),
    Create(Oid, Bytes),
}

fn read_change(request: &mut Reader) -> Result<Change> {
    let oid = request.oid()?;
    match request.u8()? {
        0 => Ok(Change::Delete(oid)),
        1 => {
            let class = read_class(request)?;
            Ok(Change::Replace(oid, read_object(request, class)?))
        }
        2 => {
            let class = read_class(request)?;
            let object = read_object(request, class)?;
            if object.kind != Kind::Record || !object.attributes().is_empty() {
                let what = "only records without attributes have identifiers before they are written";
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            Ok(Change::Create(oid, object.data))
        }
        code => Err(Error::new(ErrorKind::Invalid, format!("there is no change {code}"))),
    }
}

/// Operations of a transaction with paths.
async fn transaction_path(
    transaction: &Transaction,
    operation: TransactionPath,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        TransactionPath::Root => reply.oid(transaction.root()?),
        TransactionPath::Resolve => reply.optional(transaction.resolve(&request.string()?).await?, Writer::oid),
        TransactionPath::Bind => transaction.bind(&request.string()?, request.oid()?).await?,
        TransactionPath::Unbind => reply.bool(transaction.unbind(&request.string()?).await?),
        TransactionPath::Rename => transaction.rename(&request.string()?, &request.string()?).await?,
        TransactionPath::CreateDirectory => reply.oid(transaction.create_directory(&request.string()?).await?),
        TransactionPath::RemoveDirectory => transaction.remove_directory(&request.string()?).await?,
        TransactionPath::List => {
            let (path, after) = (request.string()?, request.optional(Reader::string)?);
            write_entries(reply, transaction.list(&path, after.as_deref(), request.u32()? as usize).await?);
        }
    }
    Ok(())
}

/// Operations of a transaction with sets and directories.
async fn transaction_entry(
    transaction: &Transaction,
    operation: TransactionEntry,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let collection = request.oid()?;
    match operation {
        TransactionEntry::AddMember => transaction.add_member(collection, request.oid()?).await?,
        TransactionEntry::RemoveMember => reply.bool(transaction.remove_member(collection, request.oid()?).await?),
        TransactionEntry::Contains => reply.bool(transaction.contains(collection, request.oid()?).await?),
        TransactionEntry::Members => {
            let after = request.optional(Reader::oid)?;
            reply.list(transaction.members(collection, after, request.u32()? as usize).await?, Writer::oid);
        }
        TransactionEntry::Entry => {
            reply.optional(transaction.entry(collection, &request.string()?).await?, Writer::oid)
        }
        TransactionEntry::PutEntry => transaction.put_entry(collection, &request.string()?, request.oid()?).await?,
        TransactionEntry::AddEntry => transaction.add_entry(collection, &request.string()?, request.oid()?).await?,
        TransactionEntry::RemoveEntry => reply.bool(transaction.remove_entry(collection, &request.string()?).await?),
        TransactionEntry::Entries => {
            let (after, limit) = (request.optional(Reader::string)?, request.u32()? as usize);
            let prefix = request.string()?;
            write_entries(reply, transaction.entries(collection, after.as_deref(), &prefix, limit).await?);
        }
        TransactionEntry::Count => reply.u64(transaction.count(collection).await?),
    }
    Ok(())
}

/// Operations of a transaction with parts of blobs, and with attributes.
async fn transaction_blob(
    handles: &Handles,
    transaction: &Transaction,
    operation: TransactionBlob,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let oid = request.oid()?;
    match operation {
        TransactionBlob::Size => {
            let blob = transaction.get(oid).await?.filter(|object| object.kind == Kind::Blob);
            let missing = || Error::new(ErrorKind::NotFound, format!("there is no blob {oid}"));
            reply.u64(blob.ok_or_else(missing)?.size());
        }
        TransactionBlob::ReadAt => {
            let (offset, len) = (request.u64()?, request.u32()? as usize);
            reply.bytes(&transaction.read_at(oid, offset, len).await?);
        }
        TransactionBlob::WriteAt => transaction.write_at(oid, request.u64()?, request.bytes()?).await?,
        TransactionBlob::Append => transaction.append(oid, request.bytes()?).await?,
        TransactionBlob::Truncate => transaction.truncate(oid, request.u64()?).await?,
        TransactionBlob::Zero => transaction.zero(oid, request.u64()?, request.u64()?).await?,
        TransactionBlob::PutContent => transaction.put_content(oid, handles.staged_content(request.u64()?)?).await?,
        TransactionBlob::SetAttribute => {
            let key = request.bytes()?;
            transaction.set_attribute(oid, key, request.optional(Reader::bytes)?).await?;
        }
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------- streams

async fn stream(
    handles: &Handles,
    handle: u64,
    operation: Stream,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match operation {
        Stream::RowsNext => read_rows(&mut *handles.rows(handle)?.lock().await, request.u32()?, reply).await?,
        Stream::RowsExplanation => {
            let rows = handles.rows(handle)?;
            reply.optional(rows.lock().await.explanation(), |reply, steps| {
                reply.string(&steps.text);
                reply.string(&steps.json);
            });
        }
        Stream::NamesNext => {
            let names = handles.names(handle)?;
            let portion = names.lock().await.next().await?;
            reply.list(portion.as_deref().unwrap_or_default(), |reply, name| {
                reply.string(&name.path);
                reply.oid(name.oid);
                reply.bool(name.is_directory);
            });
            reply.bool(portion.is_none());
        }
        Stream::ObjectsNext => {
            let objects = handles.objects(handle)?;
            let portion = objects.lock().await.next().await?;
            reply.list(portion.as_deref().unwrap_or_default(), |reply, object| {
                reply.oid(object.oid);
                reply.u8(object.kind as u8);
                reply.u64(object.size);
            });
            reply.bool(portion.is_none());
        }
        Stream::EventsNext => {
            let events = handles.events(handle)?;
            let event = events.wait(async |events| Ok(events.next().await)).await?;
            reply.optional(event, |reply, event| {
                reply.u8(event_code(&event));
                reply.string(&event.to_string());
            });
        }
        Stream::WriterWrite => {
            let writer = handles.writer(handle)?;
            let mut writer = writer.lock().await;
            writer.as_mut().ok_or_else(finished_error)?.write(request.bytes()?).await?;
        }
        Stream::WriterFinish => {
            let writer = handles.writer(handle)?;
            let writer = writer.lock().await.take().ok_or_else(finished_error)?;
            let staged = writer.finish().await?;
            reply.u64(handles.insert(Resource::Staged(staged)));
            reply.u64(staged.size());
            reply.u32(staged.node().0);
        }
        Stream::ReaderNext => {
            let reader = handles.reader(handle)?;
            let piece = reader.lock().await.next().await?;
            reply.optional(piece, |reply, piece| reply.bytes(&piece));
        }
        Stream::WatchNext => {
            let watch = handles.watch(handle)?;
            let changed = watch.wait(async |watch| watch.next().await).await?;
            reply.list(changed, |reply, (oid, _)| reply.oid(oid));
        }
    }
    Ok(())
}

fn finished_error() -> Error {
    Error::new(ErrorKind::Invalid, "the upload is finished")
}

/// Writes the next rows, at most `max` and at least one unless there are no more, and whether these are the last. An error behind rows is that of the
/// next call.
async fn read_rows(rows: &mut Rows, max: u32, reply: &mut Writer) -> Result<()> {
    let begin = reply.begin_list();
    let mut count = 0;
    let mut is_end = false;
    while count < max.max(1) && reply.len() < FULL_REPLY {
        let row = match rows.next().await {
            Err(_) if count > 0 => break,
            next => next?,
        };
        let Some(row) = row else {
            is_end = true;
            break;
        };
        write_row(reply, row)?;
        count += 1;
    }
    reply.end_list(begin, count);
    reply.bool(is_end);
    Ok(())
}

fn write_row(reply: &mut Writer, row: Row) -> Result<()> {
    match row {
        Row::Object(oid, record) => {
            reply.u8(0);
            reply.oid(oid);
            reply.bytes(&record);
        }
        Row::Values(values) => {
            reply.u8(1);
            reply.count(values.len());
            values.iter().try_for_each(|value| reply.value(value))?;
        }
    }
    Ok(())
}

/// The number of `Event.Kind` of the Java half.
pub(crate) fn event_code(event: &Event) -> u8 {
    match event {
        Event::Connected { .. } => 1,
        Event::Disconnected { .. } => 2,
        Event::Refused { .. } => 3,
        Event::BrickFailed(_) => 4,
        Event::BrickRecovered(_) => 5,
        Event::Stopped { .. } => 6,
        Event::Resumed => 7,
        Event::PolicyChanged(_) => 8,
        Event::NodeMoved { .. } => 9,
        Event::SchemaChanged => 10,
        Event::Missed(_) => 11,
        Event::NodeDamaged { .. } => 12,
        Event::NodeRecovered { .. } => 13,
        // Java has the text of an event that this file does not know yet.
        _ => 0,
    }
}
