//! Waits for changes of objects.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use model::{Object, Oid, Result};

use super::Client;
use super::client_core::Core;

type Change = Pin<Box<dyn Future<Output = Result<Option<Object>>> + Send + Sync>>;

/// Objects that have changed, with their states.
type Changed = Vec<(Oid, Option<Object>)>;

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
    /// Watches objects: [`Watch::next`] waits until one of them has changed. The client keeps copies of them, and the messages that keep
    /// these copies current report the changes: nothing is polled. A change by any client after this returns is noticed.
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
        poll_fn(|context| poll_changes(objects, context, |oid, known| change(core, oid, known))).await
    }
}

/// The objects that have changed, with their states. Each of them is waited for again, by what `again` makes.
fn poll_changes(
    objects: &mut [WatchedObject],
    context: &mut Context<'_>,
    again: impl Fn(Oid, Option<Object>) -> Change,
) -> Poll<Result<Changed>> {
    let (mut changed, mut failed) = (Vec::new(), None);
    for object in objects {
        match object.change.as_mut().poll(context) {
            Poll::Pending => continue,
            Poll::Ready(Ok(state)) => {
                object.known.clone_from(&state);
                changed.push((object.oid, state));
            }
            Poll::Ready(Err(error)) => failed = Some(error),
        }
        object.change = again(object.oid, object.known.clone());
    }
    match failed {
        // An error that lasts ends the next wait: what has changed is returned first.
        _ if !changed.is_empty() => Poll::Ready(Ok(changed)),
        Some(error) => Poll::Ready(Err(error)),
        None => Poll::Pending,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::Waker;

    use model::{ClassId, Error, ErrorKind, NodeId, PageId, SpaceId};

    use super::*;

    #[test]
    fn change_is_returned_although_another_object_cannot_be_watched() {
        let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
        let blob = Some(Object::blob("new".into()));
        let failure = || Error::new(ErrorKind::Stopped, "the space is stopped");
        let mut objects: Vec<WatchedObject> = (0..3)
            .map(|slot| {
                let change: Change = match slot {
                    0 => Box::pin(ready(Ok(blob.clone()))),
                    1 => Box::pin(ready(Err(failure()))),
                    _ => Box::pin(pending()),
                };
                WatchedObject { oid: Oid::new(ClassId::NONE, page, slot), known: None, change }
            })
            .collect();
        let mut poll = |is_stopped: bool| {
            let again = move |_, _| -> Change {
                if is_stopped { Box::pin(ready(Err(failure()))) } else { Box::pin(pending()) }
            };
            poll_changes(&mut objects, &mut Context::from_waker(Waker::noop()), again)
        };
        let Poll::Ready(Ok(changed)) = poll(true) else { panic!("the first object has changed") };
        assert_eq!(changed, [(Oid::new(ClassId::NONE, page, 0), blob.clone())]);
        let Poll::Ready(Err(error)) = poll(false) else { panic!("the space is stopped") };
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert!(poll(false).is_pending(), "all are waited for again");
    }
}
