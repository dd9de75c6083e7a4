//! The operations: what the client does for each number.

use bytes::Bytes;
use client::{Client, Embedded, Event, IsolationLevel, Rows};
use model::{Error, ErrorKind, Kind, NodeId, Oid, RecordRef, Result};
use query::{Query, Row};

use crate::codes::*;
use crate::handles::{Handles, Resource, Subscription};
use crate::message::{Reader, Writer};
use crate::objects::{
    read_class, read_hint, read_object, read_options, read_txn, write_object, write_outcome, write_txn,
};
use crate::schema;

/// A reply with rows is not made larger than this by a further row, in bytes.
const MAX_ROWS: usize = 4 << 20;

/// Performs operation `code` with `handle`.
///
/// # Errors
/// Those of the operation; [`ErrorKind::Invalid`] for an unknown operation, a wrong handle or a damaged request.
pub(crate) async fn perform(
    handles: &Handles,
    handle: u64,
    code: i32,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match code {
        1..10 => open(handles, code, request, reply).await,
        10..20 => object(&handles.client(handle)?, handle, handles, code, request, reply).await,
        20..40 => space(&handles.client(handle)?, handles, code, request, reply).await,
        40..50 => attempt(handles, handle, code, request, reply).await,
        50..70 => transaction(handles, handle, code, request, reply).await,
        70..81 => collection(handles, handle, code, request, reply).await,
        81..100 => content(handles, handle, code, request, reply).await,
        100..110 => stream(handles, handle, code, request, reply).await,
        _ => Err(unknown_operation_error(code)),
    }
}

fn unknown_operation_error(code: i32) -> Error {
    let what = format!("there is no operation {code}: the two halves of the Java client are of different builds");
    Error::new(ErrorKind::Invalid, what)
}

// ---------------------------------------------------------------------------------------------- clients

async fn open(handles: &Handles, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    let (client, embedded) = match code {
        CONNECT => {
            let url = request.string()?;
            (Client::connect_with(&url, read_options(request)?).await?, None)
        }
        OPEN => {
            let directory = request.string()?;
            (Client::open_with(directory, read_options(request)?).await?, None)
        }
        IN_MEMORY => {
            let options = read_options(request)?;
            let embedded = Embedded::in_memory().await?;
            (embedded.connect("main", options).await?, Some(embedded))
        }
        VALIDATE_RECORD => {
            RecordRef::validate(&request.bytes()?)?;
            return Ok(());
        }
        _ => return Err(unknown_operation_error(code)),
    };
    let space = client.space();
    reply.u64(handles.insert(Resource::Client(client, embedded)));
    reply.u16(space.0);
    Ok(())
}

async fn shut_down(handles: &Handles, handle: u64) -> Result<()> {
    let Some(Resource::Client(client, embedded)) = handles.remove(handle) else { return Ok(()) };
    client.shutdown().await?;
    match embedded {
        Some(embedded) => embedded.shutdown().await,
        None => Ok(()),
    }
}

/// Operations of a client with one object, and of its life.
async fn object(
    client: &Client,
    handle: u64,
    handles: &Handles,
    code: i32,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    match code {
        SHUTDOWN => shut_down(handles, handle).await?,
        BEGIN => {
            let transaction = client.begin(read_level(request)?);
            reply.u64(handles.insert(Resource::Transaction(transaction)));
        }
        ATTEMPTS => reply.u64(handles.insert(Resource::stream(Resource::Attempts, client.attempts()))),
        GET => write_optional_object(reply, client.get(request.oid()?).await?.as_ref()),
        PUT => {
            let (oid, class) = (request.oid()?, read_class(request)?);
            client.put(oid, read_object(request, class)?).await?;
        }
        READ_LATEST => write_optional_object(reply, client.read_latest(request.oid()?).await?.as_ref()),
        RESOLVE => reply.optional(client.resolve(&request.string()?).await?, Writer::oid),
        STAT => reply.optional(client.stat(request.oid()?).await?, |reply, stat| {
            write_object(reply, &stat.object);
            reply.u64(stat.size);
            let changed = stat.entry_changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            reply.optional(changed, |reply, at| reply.u64(at.as_millis() as u64));
        }),
        APPEND => reply.u64(client.append(request.oid()?, request.bytes()?).await?),
        MEMBERS => {
            let (collection, after) = (request.oid()?, request.optional(Reader::oid)?);
            reply.list(client.members(collection, after, request.u32()? as usize).await?, Writer::oid);
        }
        _ => return Err(unknown_operation_error(code)),
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

fn write_optional_object(reply: &mut Writer, object: Option<&model::Object>) {
    reply.optional(object, write_object);
}

fn write_entries(reply: &mut Writer, entries: Vec<(String, Oid)>) {
    reply.list(entries, |reply, (name, target)| {
        reply.string(&name);
        reply.oid(target);
    });
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

/// Operations of a client with collections, names, queries, streams and the classes of its space.
async fn space(client: &Client, handles: &Handles, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    match code {
        ENTRIES => {
            let (directory, after) = (request.oid()?, request.optional(Reader::string)?);
            write_entries(reply, client.entries(directory, after.as_deref(), request.u32()? as usize).await?);
        }
        NAMES_OF => reply.list(client.names_of(request.oid()?).await?, |reply, name| reply.string(&name)),
        COLLECTIONS_OF => reply.list(client.collections_of(request.oid()?).await?, Writer::oid),
        TOTALS => {
            let (count, changed) = client.collection_totals(request.oid()?).await?;
            reply.u64(count);
            reply.u64(changed.ms());
        }
        QUERY => {
            let query = read_query(request)?;
            let rows = if request.bool()? { client.explain(&query).await? } else { client.query(&query).await? };
            write_rows(handles, reply, rows);
        }
        NAMES => {
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
            reply.u64(handles.insert(Resource::stream(Resource::Names, names)));
        }
        OBJECTS => reply.u64(handles.insert(Resource::stream(Resource::Objects, client.objects()))),
        EVENTS => reply.u64(handles.insert(Resource::Events(Subscription::new(client.events()?)))),
        WRITER => {
            let writer = client.content_writer(request.optional(Reader::u32)?.map(NodeId));
            reply.u64(handles.insert(Resource::stream(Resource::Writer, Some(writer))));
        }
        READER => {
            let (oid, offset, end) = (request.oid()?, request.u64()?, request.optional(Reader::u64)?);
            let mut reader = client.content_reader(oid, offset);
            if let Some(end) = end {
                reader = reader.until(end);
            }
            reply.u64(handles.insert(Resource::stream(Resource::Reader, reader)));
        }
        SCHEMA => schema::write_schema(reply, schema::fetch(client).await?)?,
        DEFINE..=REMOVE_CLASS => schema::change(client, code, request).await?,
        OUTCOME => write_outcome(reply, client.outcome(read_txn(request)?).await?),
        NODES => reply.list(client.nodes(), |reply, node| reply.u32(node.0)),
        ENTRY => reply.optional(client.entry(request.oid()?, &request.string()?).await?, Writer::oid),
        WATCH => {
            let watch = client.watch(request.list(Reader::oid)?).await?;
            reply.u64(handles.insert(Resource::Watch(Subscription::new(watch))));
        }
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------- transactions

async fn attempt(handles: &Handles, handle: u64, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    let attempts = handles.attempts(handle)?;
    let mut attempts = attempts.lock().await;
    match code {
        ATTEMPT_BEGIN => reply.u64(handles.insert(Resource::Transaction(attempts.begin()))),
        ATTEMPT_END => {
            let transaction = handles.transaction(request.u64()?)?;
            let (has_failed, kind, message) = (request.bool()?, request.u8()?, request.string()?);
            let result = match (has_failed, kind) {
                (false, _) => Ok(true),
                // An exception of the caller's own. It counts only if what the transaction has read was consistent.
                (true, 0) => Err(Error::new(ErrorKind::Internal, message)),
                (true, kind) => Err(Error::new(ErrorKind::from_code(kind), message)),
            };
            match attempts.end(&transaction, result).await {
                Ok(ended) => reply.bool(ended.is_some()),
                // The caller throws its own exception again.
                Err(_) if has_failed && kind == 0 => reply.bool(true),
                Err(error) => return Err(error),
            }
        }
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
}

/// Operations of a transaction with objects and paths, and its end.
async fn transaction(
    handles: &Handles,
    handle: u64,
    code: i32,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let transaction = handles.transaction(handle)?;
    match code {
        T_ID => write_txn(reply, transaction.id()),
        T_ROOT => reply.oid(transaction.root()?),
        T_GET => {
            let (oids, for_update) = (request.list(Reader::oid)?, request.bool()?);
            if oids.len() > 1 && !for_update {
                transaction.prefetch(oids.iter().copied().filter(|oid| !oid.is_temporary())).await?;
            }
            reply.count(oids.len());
            for oid in oids {
                let object = match for_update {
                    true => transaction.get_for_update(oid).await?,
                    false => transaction.get(oid).await?,
                };
                write_optional_object(reply, object.as_ref());
            }
        }
        T_ALLOCATE => {
            let class = read_class(request)?;
            let places = request.list(|request| Ok((request.u32()? as usize, read_hint(request)?)))?;
            reply.count(places.len());
            for (len, hint) in places {
                reply.oid(transaction.allocate(class, len, hint).await?);
            }
        }
        T_WRITE => {
            for change in request.list(read_change)? {
                match change {
                    Change::Delete(oid) => transaction.delete(oid).await?,
                    Change::Replace(oid, object) => transaction.put(oid, object).await?,
                    Change::Create(oid, record) => transaction.create_record(oid, record)?,
                }
            }
        }
        T_CREATE => {
            let class = read_class(request)?;
            let object = read_object(request, class)?;
            reply.oid(transaction.create_object(class, object, read_hint(request)?)?);
        }
        T_REAL_OIDS => {
            let oids = request.list(Reader::oid)?;
            reply.list(oids, |reply, oid| reply.optional(transaction.real_oid(oid), Writer::oid));
        }
        T_COMMIT => write_outcome(reply, transaction.commit().await?),
        T_CHECK => write_outcome(reply, transaction.check().await?),
        T_ABORT => transaction.abort(),
        T_QUERY => {
            let rows = transaction.query(&read_query(request)?).await?;
            write_rows(handles, reply, rows);
        }
        T_PREFETCH => transaction.prefetch(request.list(Reader::oid)?).await?,
        T_RESOLVE => reply.optional(transaction.resolve(&request.string()?).await?, Writer::oid),
        T_BIND => transaction.bind(&request.string()?, request.oid()?).await?,
        T_UNBIND => reply.bool(transaction.unbind(&request.string()?).await?),
        T_RENAME => transaction.rename(&request.string()?, &request.string()?).await?,
        T_CREATE_DIRECTORY => reply.oid(transaction.create_directory(&request.string()?).await?),
        T_REMOVE_DIRECTORY => transaction.remove_directory(&request.string()?).await?,
        T_LIST => {
            let (path, after) = (request.string()?, request.optional(Reader::string)?);
            write_entries(reply, transaction.list(&path, after.as_deref(), request.u32()? as usize).await?);
        }
        T_DELETE_WITH_NAMES => transaction.delete_with_names(request.oid()?).await?,
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
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

/// Operations of a transaction with sets and directories.
async fn collection(handles: &Handles, handle: u64, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    let transaction = handles.transaction(handle)?;
    if code == T_CREATE_COLLECTION {
        reply.oid(transaction.create_collection()?);
        return Ok(());
    }
    let collection = request.oid()?;
    match code {
        T_ADD_MEMBER => transaction.add_member(collection, request.oid()?).await?,
        T_REMOVE_MEMBER => reply.bool(transaction.remove_member(collection, request.oid()?).await?),
        T_CONTAINS => reply.bool(transaction.contains(collection, request.oid()?).await?),
        T_MEMBERS => {
            let after = request.optional(Reader::oid)?;
            reply.list(transaction.members(collection, after, request.u32()? as usize).await?, Writer::oid);
        }
        T_ENTRY => reply.optional(transaction.entry(collection, &request.string()?).await?, Writer::oid),
        T_PUT_ENTRY => transaction.put_entry(collection, &request.string()?, request.oid()?).await?,
        T_ADD_ENTRY => transaction.add_entry(collection, &request.string()?, request.oid()?).await?,
        T_REMOVE_ENTRY => reply.bool(transaction.remove_entry(collection, &request.string()?).await?),
        T_ENTRIES => {
            let (after, prefix) = (request.optional(Reader::string)?, request.string()?);
            let limit = request.u32()? as usize;
            write_entries(reply, transaction.entries(collection, after.as_deref(), &prefix, limit).await?);
        }
        T_COUNT => reply.u64(transaction.count(collection).await?),
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
}

/// Operations of a transaction with parts of blobs and with attributes.
async fn content(handles: &Handles, handle: u64, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    let transaction = handles.transaction(handle)?;
    if code == T_CREATE_BLOB_FROM {
        reply.oid(transaction.create_blob_from(handles.staged(request.u64()?)?)?);
        return Ok(());
    }
    let oid = request.oid()?;
    match code {
        T_READ_AT => {
            let (offset, len) = (request.u64()?, request.u32()? as usize);
            reply.bytes(&transaction.read_at(oid, offset, len).await?);
        }
        T_WRITE_AT => transaction.write_at(oid, request.u64()?, request.bytes()?).await?,
        T_APPEND => transaction.append(oid, request.bytes()?).await?,
        T_TRUNCATE => transaction.truncate(oid, request.u64()?).await?,
        T_ZERO => transaction.zero(oid, request.u64()?, request.u64()?).await?,
        T_APPEND_OFFSETS => reply.list(transaction.append_offsets(oid), Writer::u64),
        T_PUT_CONTENT => transaction.put_content(oid, handles.staged(request.u64()?)?).await?,
        T_SET_ATTRIBUTE => {
            let key = request.bytes()?;
            transaction.set_attribute(oid, key, request.optional(Reader::bytes)?).await?;
        }
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------- streams

async fn stream(handles: &Handles, handle: u64, code: i32, request: &mut Reader, reply: &mut Writer) -> Result<()> {
    match code {
        ROWS_NEXT => read_rows(&mut *handles.rows(handle)?.lock().await, request.u32()?, reply).await?,
        ROWS_EXPLANATION => {
            let rows = handles.rows(handle)?;
            reply.optional(rows.lock().await.explanation(), |reply, steps| {
                reply.string(&steps.text);
                reply.string(&steps.json);
            });
        }
        NAMES_NEXT => {
            let names = handles.names(handle)?;
            let portion = names.lock().await.next().await?;
            reply.list(portion.as_deref().unwrap_or_default(), |reply, name| {
                reply.string(&name.path);
                reply.oid(name.oid);
                reply.bool(name.is_directory);
            });
            reply.bool(portion.is_none());
        }
        OBJECTS_NEXT => {
            let objects = handles.objects(handle)?;
            let portion = objects.lock().await.next().await?;
            reply.list(portion.as_deref().unwrap_or_default(), |reply, object| {
                reply.oid(object.oid);
                reply.u8(object.kind as u8);
                reply.u64(object.size);
            });
            reply.bool(portion.is_none());
        }
        EVENTS_NEXT => {
            let events = handles.events(handle)?;
            let event = events.wait(async |events| Ok(events.next().await)).await?;
            reply.optional(event, |reply, event| {
                reply.u8(event_code(&event));
                reply.string(&event.to_string());
            });
        }
        WRITER_WRITE => {
            let writer = handles.writer(handle)?;
            let mut writer = writer.lock().await;
            writer.as_mut().ok_or_else(finished_error)?.write(request.bytes()?).await?;
        }
        WRITER_FINISH => {
            let writer = handles.writer(handle)?;
            let writer = writer.lock().await.take().ok_or_else(finished_error)?;
            let staged = writer.finish().await?;
            reply.u64(handles.insert(Resource::Staged(staged)));
            reply.u64(staged.size());
            reply.u32(staged.node().0);
        }
        READER_NEXT => {
            let reader = handles.reader(handle)?;
            let piece = reader.lock().await.next().await?;
            reply.optional(piece, |reply, piece| reply.bytes(&piece));
        }
        WATCH_NEXT => {
            let watch = handles.watch(handle)?;
            let changed = watch.wait(async |watch| watch.next().await).await?;
            reply.list(changed, |reply, (oid, _)| reply.oid(oid));
        }
        _ => return Err(unknown_operation_error(code)),
    }
    Ok(())
}

fn finished_error() -> Error {
    Error::new(ErrorKind::Invalid, "the upload is finished")
}

/// Writes the next rows, at most `max` and at least one unless there are no more, and whether these are the last.
async fn read_rows(rows: &mut Rows, max: u32, reply: &mut Writer) -> Result<()> {
    let (mut found, mut size) = (Vec::new(), 0);
    let mut is_end = false;
    while found.len() < max.max(1) as usize && size < MAX_ROWS {
        let Some(row) = rows.next().await? else {
            is_end = true;
            break;
        };
        let mut encoded = Writer::default();
        match row {
            Row::Object(oid, record) => {
                encoded.u8(0);
                encoded.oid(oid);
                encoded.bytes(&record);
            }
            Row::Values(values) => {
                encoded.u8(1);
                encoded.count(values.len());
                values.iter().try_for_each(|value| encoded.value(value))?;
            }
        }
        size += encoded.len();
        found.push(encoded.into_bytes());
    }
    reply.count(found.len());
    found.iter().for_each(|row| reply.raw(row));
    reply.bool(is_end);
    Ok(())
}

fn event_code(event: &Event) -> u8 {
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
        // An event that this file does not know yet is told as its text.
        _ => 0,
    }
}
