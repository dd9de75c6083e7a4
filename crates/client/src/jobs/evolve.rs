//! Rewrites old records in the newest version of their class.
//!
//! Objects are read by class and logical node, in the order of their places. Each portion is a transaction; a concurrent change of an object
//! wins. To rewrite a record that is current changes nothing, so a portion may be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use model::{ClassId, Error, ErrorKind, Kind, NodeId, Object, Oid, PageId, RecordRef, Result, SpaceId};
use node::process::JobHost;
use query::{Query, Row, Schema};
use wire::cluster::{Scan, ScanPosition, Scanned};
use wire::frame::Raw;
use wire::handshake::Credentials;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::{PartWork, WorkEnd, is_retryable};
use crate::client_core::unexpected_answer_error;
use crate::link::{self, Target};
use crate::{Client, ConnectOptions, Transaction};

/// Objects in one transaction.
const BATCH_OBJECTS: usize = 64;
/// Objects that are read at a time.
const PORTION: u64 = 1_000;
/// Bytes of cached copies.
const CACHE_BYTES: usize = 16 << 20;
/// How long a read or a commit may take before it is repeated.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A record in the newest version of its class, if that differs.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the record cannot be read.
pub fn upgrade_object(schema: &Schema, oid: Oid, object: &Object) -> Result<Option<Object>> {
    if object.kind != Kind::Record {
        return Ok(None);
    }
    let record = RecordRef::new(&object.data)?;
    let data = schema.upgrade_record(&record, oid.class())?;
    Ok(data.map(|data| object.with_data(data)))
}

/// Number of objects of a class, without those that extend it.
///
/// # Errors
/// As [`Client::query`].
pub async fn count_objects(cluster: &Client, schema: &Schema, class: ClassId) -> Result<u64> {
    let Some(class) = schema.class(class) else { return Ok(0) };
    let mut query = Query::parse_of(&class.name, "select count(*)")?;
    query.only = true;
    let mut rows = cluster.query(&query).await?;
    let mut count = 0;
    while let Some(row) = rows.next().await? {
        if let Row::Values(values) = row
            && let Some(model::Value::Int64(number)) = values.first()
        {
            count += number.unsigned_abs();
        }
    }
    Ok(count)
}

/// Where an evolution goes on: behind an object, or at the beginning of a class at a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    class: ClassId,
    node: NodeId,
    after: Option<(u64, u16)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class.0, self.node.0)?;
        self.after.map_or(Ok(()), |(page, slot)| write!(f, "/{page}/{slot}"))
    }
}

impl Place {
    /// Reads a place that was recorded.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is none.
    fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(ErrorKind::Corrupt, format!("the place of the job, {text:?}, cannot be read: begin another job"))
        };
        let numbers: Vec<u64> = text.split('/').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let (class, node, after) = match numbers[..] {
            [class, node] => (class, node, None),
            [class, node, page, slot] => (class, node, Some((page, u16::try_from(slot).map_err(|_| wrong())?))),
            _ => return Err(wrong()),
        };
        let class = u32::try_from(class).map(ClassId).ok().filter(|class| *class <= ClassId::MAX).ok_or_else(wrong)?;
        let node = u32::try_from(node).map(NodeId).ok().filter(|node| *node <= NodeId::MAX).ok_or_else(wrong)?;
        Ok(Self { class, node, after })
    }
}

/// Rewrites the objects of some classes of a space.
pub(super) async fn run(work: &mut PartWork, space: SpaceId, classes: &[String]) -> Result<WorkEnd> {
    let Some(client) = connect(work, space).await? else { return Ok(WorkEnd::Interrupted) };
    let done = evolve(work, &client, classes).await;
    client.core.close();
    done
}

async fn evolve(work: &mut PartWork, client: &Client, wanted: &[String]) -> Result<WorkEnd> {
    let core = &client.core;
    while let Err(error) = core.refresh_classes().await {
        if !is_retryable(&error) {
            return Err(error);
        }
        if !work.wait_for(&error).await {
            return Ok(WorkEnd::Interrupted);
        }
    }
    let schema = core.classes.schema();
    let named = |id| Some((id, schema.class(id)?.name.clone()));
    let classes = schema.families(wanted)?.into_iter().filter_map(named).collect();
    let evolution = Evolution { client, schema: &schema, classes };
    if work.progress.total == 0 && !evolution.count(work).await? {
        return Ok(WorkEnd::Interrupted);
    }
    evolution.rewrite_all(work).await
}

/// A client of this peer server; `None` if the work is not to go on.
async fn connect(work: &mut PartWork, space: SpaceId) -> Result<Option<Client>> {
    loop {
        let catalog = work.host.view.catalog().unwrap_or_default();
        let removed = || Error::new(ErrorKind::NotFound, "the space of the job was removed");
        let name = catalog.space_by_id(space).map(|space| space.name.clone()).ok_or_else(removed)?;
        let JobHost { address, password, .. } = &*work.host;
        let target = Target { peers: vec![address.clone()], space: name, user: None, group: None };
        let mut options = ConnectOptions { cache_bytes: CACHE_BYTES, timeout: TIMEOUT, ..ConnectOptions::default() };
        options.credentials = Some(Credentials { user: String::new(), password: password.clone() });
        match link::connect_to(target, options).await {
            Ok(core) => return Ok(Some(Client { core })),
            Err(error) if is_retryable(&error) => {
                if !work.wait_for(&error).await {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

struct Evolution<'a> {
    client: &'a Client,
    schema: &'a Schema,
    /// The classes with their names, in order.
    classes: BTreeMap<ClassId, String>,
}

impl Evolution<'_> {
    /// Counts the objects. Returns whether to go on.
    async fn count(&self, work: &mut PartWork) -> Result<bool> {
        let mut total = 0;
        for (class, name) in &self.classes {
            loop {
                match count_objects(self.client, self.schema, *class).await {
                    Ok(count) => break total += count,
                    Err(error) if is_retryable(&error) => {
                        if !work.wait_for(&error).await {
                            return Ok(false);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            work.progress.count(name, 0, 0);
            if !work.pace().await {
                return Ok(false);
            }
        }
        (work.progress.total, work.progress.problem) = (total, None);
        Ok(true)
    }

    /// Rewrites the objects behind the place of the work.
    async fn rewrite_all(&self, work: &mut PartWork) -> Result<WorkEnd> {
        let begin = work.place.as_deref().map(Place::parse).transpose()?;
        let nodes: BTreeSet<NodeId> = self.client.core.nodes.iter().copied().collect();
        for (class, name) in self.classes.iter().map(|(class, name)| (*class, name)) {
            for node in nodes.iter().copied() {
                let after = match begin {
                    Some(place) if (class, node) < (place.class, place.node) => continue,
                    Some(place) if (class, node) == (place.class, place.node) => place.after,
                    _ => None,
                };
                let place = Place { class, node, after };
                work.place = Some(place.to_string());
                if !self.rewrite_at(work, place, name).await? {
                    return Ok(WorkEnd::Interrupted);
                }
            }
        }
        Ok(WorkEnd::Complete)
    }

    /// Rewrites the objects of a class at a logical node. Returns whether to go on.
    async fn rewrite_at(&self, work: &mut PartWork, mut place: Place, name: &str) -> Result<bool> {
        loop {
            if !work.pace().await {
                return Ok(false);
            }
            let limit = work.bucket.portion(PORTION);
            let (found, next) = match self.scan(place, limit).await {
                Ok(scanned) => scanned,
                Err(error) if is_retryable(&error) => match work.wait_for(&error).await {
                    true => continue,
                    false => return Ok(false),
                },
                Err(error) => return Err(error),
            };
            work.progress.problem = None;
            for chunk in found.chunks(BATCH_OBJECTS) {
                work.take(chunk.len() as u64);
                let Some(changed) = self.rewrite_chunk(work, chunk).await? else { return Ok(false) };
                work.progress.count(name, chunk.len() as u64, changed);
                if let Some((oid, _)) = chunk.last() {
                    place.after = Some((oid.page().number, oid.slot()));
                    work.place = Some(place.to_string());
                }
                if !work.pace().await {
                    return Ok(false);
                }
            }
            let Some(ScanPosition { oid, .. }) = next else { return Ok(true) };
            place.after = Some((oid.page().number, oid.slot()));
        }
    }

    /// Reads objects behind a place, in order.
    async fn scan(&self, place: Place, limit: u64) -> Result<(Vec<(Oid, Object)>, Option<ScanPosition>)> {
        let (core, Place { class, node, after }) = (&self.client.core, place);
        let position = |(number, slot)| {
            let page = PageId { space: core.space, node, number };
            ScanPosition { key: Default::default(), oid: Oid::new(class, page, slot) }
        };
        let scan = Scan {
            space: core.space,
            node,
            epoch: 0,
            classes: [class].into(),
            range: None,
            after: after.map(position),
            limit: limit as u32,
            filter: None,
            count: false,
            family: None,
        };
        let (Response::Scanned(scanned), raw) = core.ask(Request::Scan(scan.into_proto()?)).await? else {
            return Err(unexpected_answer_error());
        };
        let Scanned { found, next, .. } = Scanned::from_proto(*scanned, Raw::Owned(raw))?;
        Ok((found.into_iter().map(|(oid, _, object)| (oid, object)).collect(), next))
    }

    /// Rewrites the old ones of some objects. Returns their number; `None` if the work is not to go on.
    async fn rewrite_chunk(&self, work: &mut PartWork, chunk: &[(Oid, Object)]) -> Result<Option<u64>> {
        let mut old = Vec::new();
        for (oid, object) in chunk {
            match upgrade_object(self.schema, *oid, object) {
                Ok(Some(_)) => old.push(*oid),
                Ok(None) => {}
                Err(error) => work.progress.add_finding(&format!("object {oid} is left as it is: {error}")),
            }
        }
        match self.rewrite(work, &old).await {
            Ok(changed) => return Ok(changed),
            Err(error) if old.len() == 1 || !is_about_an_object(&error) => return self.leave(work, &old, error),
            Err(_) => {}
        }
        // One of them cannot be rewritten.
        let mut changed = 0;
        for oid in &old {
            match self.rewrite(work, &[*oid]).await {
                Ok(Some(more)) => changed += more,
                Ok(None) => return Ok(None),
                Err(error) => drop(self.leave(work, &[*oid], error)?),
            }
        }
        Ok(Some(changed))
    }

    /// An object cannot be rewritten: it stays, and the job says so.
    fn leave(&self, work: &mut PartWork, old: &[Oid], error: Error) -> Result<Option<u64>> {
        match old {
            [oid] if is_about_an_object(&error) => {
                work.progress.add_finding(&format!("object {oid} is left as it is: {error}"));
                Ok(Some(0))
            }
            _ => Err(error),
        }
    }

    /// Rewrites objects in a transaction. Returns how many were old; `None` if the work is not to go on.
    async fn rewrite(&self, work: &mut PartWork, old: &[Oid]) -> Result<Option<u64>> {
        if old.is_empty() {
            return Ok(Some(0));
        }
        loop {
            match self.client.transact(|transaction| rewrite(transaction, self.schema, old)).await {
                Err(error) if is_retryable(&error) => {
                    if !work.wait_for(&error).await {
                        return Ok(None);
                    }
                }
                result => {
                    work.progress.problem = None;
                    return result.map(Some);
                }
            }
        }
    }
}

/// Whether an error is about one of the objects, so that others can be rewritten.
fn is_about_an_object(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Exists | ErrorKind::Corrupt | ErrorKind::TooLarge | ErrorKind::Invalid)
}

/// Rewrites the objects that are old. Returns their number.
async fn rewrite(transaction: Transaction, schema: &Schema, portion: &[Oid]) -> Result<u64> {
    let mut rewritten = 0;
    for oid in portion {
        // It may have been removed or rewritten meanwhile.
        let Some(object) = transaction.get_for_update(*oid).await? else { continue };
        if let Some(object) = upgrade_object(schema, *oid, &object)? {
            transaction.put(*oid, object).await?;
            rewritten += 1;
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written() {
        for after in [None, Some((0, 0)), Some((u64::MAX, u16::MAX))] {
            for (class, node) in [(ClassId(7), NodeId(3)), (ClassId(0), NodeId(0)), (ClassId::MAX, NodeId::MAX)] {
                let place = Place { class, node, after };
                assert_eq!(Place::parse(&place.to_string()).unwrap(), place);
            }
        }
        let too_large = [format!("{}/1", ClassId::MAX.0 + 1), format!("1/{}", NodeId::MAX.0 + 1)];
        let others = ["", "1", "1/2/3", "1/2/3/65536", "1/2/3/4/5", "x/1", "4294967296/1", "-1/2"];
        for text in others.into_iter().chain(too_large.iter().map(String::as_str)) {
            assert_eq!(Place::parse(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
    }
}
