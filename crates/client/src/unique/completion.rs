//! The values of objects from before a unique index: the client that makes the index binds them, when all bricks refuse values that are
//! not bound. A peer server calls the index ready when it has seen that all are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Oid, Result};
use query::{Query, Row};
use tokio::time;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::{RETRY_DELAY, UniqueIndex};
use crate::client::Client;
use crate::client_core::{Core, unexpected_answer_error};
use crate::concurrent::concurrently;
use crate::rows::Rows;
use crate::transaction::Transaction;

/// Objects whose values are bound in one transaction.
const BOUND_AT_ONCE: usize = 200;
/// How long a peer server may take to hear of a new index.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Core {
    /// Waits until the peer server has heard of these unique indexes, and with it this client.
    async fn wait_for_unique_indexes(&self, indexes: &BTreeSet<u32>) -> Result<()> {
        let until = Instant::now() + KNOWN_TIMEOUT;
        loop {
            self.refresh_classes().await?;
            let known: BTreeSet<u32> = self.classes.unique().iter().map(|index| index.id).collect();
            if indexes.is_subset(&known) {
                return Ok(());
            }
            if Instant::now() > until {
                let what = "the peer server does not know one of these unique indexes: if it was not removed, complete it again";
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            time::sleep(RETRY_DELAY).await;
        }
    }

    /// The numbers of the unique indexes of these classes that are not ready.
    pub(crate) fn building_indexes(&self, classes: &BTreeSet<&str>) -> Vec<u32> {
        let known = self.classes.unique();
        let building = known.iter().filter(|index| index.is_building && classes.contains(&*index.class));
        building.map(|index| index.id).collect()
    }

    /// Waits until the bricks of all logical nodes know an index and have entered their objects: then each refuses values that are not bound.
    async fn wait_for_bricks(&self, index: u32) -> Result<()> {
        let until = Instant::now() + self.options.timeout;
        for node in &self.nodes {
            loop {
                let space = u32::from(self.space.0);
                let build = proto::BuildIndex { space, node: node.0, index, only_report: false };
                match self.ask(Request::BuildIndex(build)).await {
                    Ok((Response::Done(_), _)) => break,
                    Ok((Response::Progress(_), _)) => {}
                    Ok(_) => return Err(unexpected_answer_error()),
                    // The brick has not learned of the index yet.
                    Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < until => {
                        time::sleep(RETRY_DELAY).await;
                        self.refresh_classes().await?;
                        if !self.classes.unique().iter().any(|known| known.id == index) {
                            // It was removed.
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// Binds the values of an object in unique indexes that are not ready, as far as no other object has them.
    async fn bind_values(&self, known: &[Arc<UniqueIndex>], oid: Oid) -> Result<()> {
        let object = self.get(oid).await?;
        for index in known {
            let Some(entry) = index.entry(self.core(), object.as_ref())?.filter(|_| index.is_building) else {
                continue;
            };
            match self.check_free(index, oid, &entry).await {
                Ok(()) => drop(self.changes()?.entries.insert(entry, Some(oid))),
                // The catalogue records which objects have the same values.
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Client {
    /// Binds the values of all objects from before unique indexes, given by their numbers, as far as they are not ready. An index becomes
    /// ready after that, if no two objects have the same values. [`Client::define`] and [`Client::describe`] do this for the
    /// indexes that they make, and for those of the same classes; a program that was ended meanwhile does it when it is started again.
    ///
    /// # Errors
    /// As [`Client::query`] and [`Client::transact`]; [`ErrorKind::Denied`] without the permission to administer the space. What was bound
    /// stays: call it again.
    pub async fn complete_unique_indexes(&self, indexes: impl IntoIterator<Item = u32> + Send) -> Result<()> {
        let indexes: BTreeSet<u32> = indexes.into_iter().collect();
        self.core.wait_for_unique_indexes(&indexes).await?;
        let mut classes = BTreeSet::new();
        for index in &*self.core.classes.unique() {
            if index.is_building && indexes.contains(&index.id) {
                self.core.wait_for_bricks(index.id).await?;
                classes.insert(index.class.clone());
            }
        }
        for class in classes {
            let mut rows = self.query(&Query::of(&*class)).await?;
            loop {
                let oids = &next_objects(&mut rows, BOUND_AT_ONCE).await?;
                if oids.is_empty() {
                    break;
                }
                let bind = |t: Transaction| async move {
                    // An index may be removed meanwhile.
                    let known = t.core().classes.unique();
                    concurrently(oids, |oid| t.bind_values(&known, *oid)).await.map(drop)
                };
                self.transact(bind).await?;
            }
        }
        Ok(())
    }
}

/// The next objects of a query, at most this many.
async fn next_objects(rows: &mut Rows, most: usize) -> Result<Vec<Oid>> {
    let mut oids = Vec::new();
    while oids.len() < most
        && let Some(row) = rows.next().await?
    {
        if let Row::Object(oid, _) = row {
            oids.push(oid);
        }
    }
    Ok(oids)
}
