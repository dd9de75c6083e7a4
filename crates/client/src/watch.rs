//! Waits for changes of objects.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use model::{Object, Oid, Result};

use super::Client;
use super::client_core::Core;

type Change = Pin<Box<dyn Future<Output = Result<Option<Object>>> + Send + Sync>>;

struct WatchedObject {
    oid: Oid,
    /// Its state when it was returned last, or when the watch began.
    known: Option<Object>,
    change: Change,
}

/// Objects whose changes are waited for: [`Client::watch`]. Dropping it ends the watch.
pub struct Watch {
    core: Arc<Core>,
    objects: Vec<WatchedObject>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.objects.iter().map(|object| object.oid)).finish()
    }
}

impl Client {
    /// Watches objects: [`Watch::next`] waits until one of them has changed. The client keeps copies of them, and hears of changes as it
    /// does for any copy: nothing is polled. A change after this returns is noticed, whoever has made it.
    ///
    /// ```no_run
    /// # async fn example(cluster: client::Client, list: client::Oid) -> client::Result<()> {
    /// let mut watch = cluster.watch([list]).await?;
    /// loop {
    ///     println!("{:?}", cluster.get(list).await?);
    ///     watch.next().await?;
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn watch(&self, objects: impl IntoIterator<Item = Oid>) -> Result<Watch> {
        let oids: Vec<Oid> = objects.into_iter().collect();
        for oid in &oids {
            self.core.check_in_space(*oid)?;
        }
        self.core.fetch_all(&oids).await?;
        let mut objects = Vec::with_capacity(oids.len());
        for oid in oids {
            let known = self.core.get(oid).await?;
            objects.push(WatchedObject { oid, change: change(&self.core, oid, known.clone()), known });
        }
        Ok(Watch { core: self.core.clone(), objects })
    }
}

fn change(core: &Arc<Core>, oid: Oid, known: Option<Object>) -> Change {
    let core = core.clone();
    Box::pin(async move { core.wait_for_change(oid, known).await })
}

impl Watch {
    /// Waits until objects differ from what this has returned of them last, or from what they were when the watch began. Returns these objects;
    /// `None` for one that was deleted. Several changes of one object may be returned as one, and a change that is undone at once may not be
    /// noticed. Changes of entries of collections and directories are no changes of the object.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`](model::ErrorKind::Stopped) while the space is stopped; [`ErrorKind::Denied`](model::ErrorKind::Denied) once no
    /// peer server admits the client; [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if the client was closed. The watch may be used
    /// further after an error, and misses nothing.
    pub async fn next(&mut self) -> Result<Vec<(Oid, Option<Object>)>> {
        let (core, objects) = (&self.core, &mut self.objects);
        poll_fn(|context| {
            let mut changed = Vec::new();
            for object in objects.iter_mut() {
                let Poll::Ready(state) = object.change.as_mut().poll(context) else { continue };
                match state {
                    Ok(state) => {
                        object.known.clone_from(&state);
                        changed.push((object.oid, state));
                    }
                    Err(error) => {
                        object.change = change(core, object.oid, object.known.clone());
                        return Poll::Ready(Err(error));
                    }
                }
                object.change = change(core, object.oid, object.known.clone());
            }
            if changed.is_empty() { Poll::Pending } else { Poll::Ready(Ok(changed)) }
        })
        .await
    }
}
