//! Mortar's sides of the comparisons.

pub(crate) mod embedded;
pub(crate) mod server;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, Object};
use hdrhistogram::Histogram;
use model::Oid;
use tokio::task::{JoinSet, LocalSet};

use crate::Result;
use crate::load::Data;

/// Objects of one transaction while a store is filled.
const FILL_BATCH: usize = 256;

/// Creates an object for each value, placed as a user gets it.
pub(crate) async fn create_all(client: &Client, data: &Data) -> Result<Vec<Oid>> {
    let mut oids = Vec::with_capacity(data.keys());
    for first in (0..data.keys()).step_by(FILL_BATCH) {
        let keys = first..(first + FILL_BATCH).min(data.keys());
        let values: Vec<Bytes> = keys.map(|key| Bytes::copy_from_slice(data.value(key))).collect();
        oids.extend(commit_new(client, &values).await?);
    }
    Ok(oids)
}

/// Creates a blob for each value in one transaction, without a hint.
pub(crate) async fn commit_new(client: &Client, values: &[Bytes]) -> Result<Vec<Oid>> {
    let transaction = client.begin(IsolationLevel::Optimistic);
    let created = values.iter().map(|value| transaction.create_blob(value.clone()));
    let created = created.collect::<client::Result<Vec<Oid>>>()?;
    match transaction.commit().await? {
        CommitOutcome::Committed(_) => {
            let real = created.into_iter().map(|oid| transaction.real_oid(oid));
            real.collect::<Option<Vec<Oid>>>().ok_or_else(|| "a created object has no identifier".into())
        }
        other => Err(format!("a transaction without concurrent ones ended with {other:?}").into()),
    }
}

/// Writes objects of `size` bytes again and again, all of them in one transaction, one transaction after another. Records how long each took, in
/// nanoseconds.
pub(crate) async fn write_again(
    client: Client,
    objects: Vec<Oid>,
    size: usize,
    latencies: Rc<RefCell<Histogram<u64>>>,
) -> Result<()> {
    for number in 0_u64.. {
        let begun = Instant::now();
        let bytes = Bytes::from(number.to_le_bytes().repeat(size / 8));
        client
            .transact(|t| {
                let (objects, bytes) = (objects.clone(), bytes.clone());
                async move {
                    for object in objects {
                        t.put(object, Object::blob(bytes.clone())).await?;
                    }
                    Ok(())
                }
            })
            .await?;
        latencies.borrow_mut().saturating_record(begun.elapsed().as_nanos() as u64);
    }
    Ok(())
}

/// Runs endless tasks of clients, all on this thread, until the measurement ends.
///
/// # Errors
/// Those of the measurement, and of a client, which must not end before.
pub(crate) async fn measure_clients<T>(
    clients: impl IntoIterator<Item = impl Future<Output = Result<()>> + 'static>,
    measurement: impl Future<Output = Result<T>>,
) -> Result<T> {
    let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
    for client in clients {
        tasks.spawn_local_on(client, &local);
    }
    tokio::select! {
        measured = local.run_until(measurement) => measured,
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            _ => Err("a client ended early".into()),
        },
    }
}
