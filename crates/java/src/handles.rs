//! What the Java half holds, by number.
//!
//! A handle is a number that is never used again, not an address. So one that was freed, or is of another kind, is an error and cannot
//! crash the virtual machine. A call keeps what it uses alive while another thread frees the handle.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{
    Attempts, Client, ContentReader, ContentWriter, Events, Objects, Rows, StagedContent, Transaction, Watch,
};
use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::name_listing::NameListing;

/// A stream, which one call at a time reads.
pub(crate) type Stream<T> = Arc<tokio::sync::Mutex<T>>;

/// A stream whose next item may never come. Releasing its handle ends the calls that wait for it.
#[derive(Debug)]
pub(crate) struct Subscription<T> {
    stream: tokio::sync::Mutex<T>,
    released: Notify,
}

impl<T> Subscription<T> {
    pub(crate) fn new(stream: T) -> Arc<Self> {
        Arc::new(Self { stream: tokio::sync::Mutex::new(stream), released: Notify::new() })
    }

    /// Waits for what `next` returns, or until the handle is released.
    ///
    /// # Errors
    /// Those of `next`; [`ErrorKind::Invalid`] if the handle is released.
    pub(crate) async fn wait<R>(&self, next: impl AsyncFnOnce(&mut T) -> Result<R>) -> Result<R> {
        let wait = async { next(&mut *self.stream.lock().await).await };
        tokio::select! {
            come = wait => come,
            () = self.released.notified() => {
                // For the next one that waits.
                self.release();
                Err(closed_error())
            }
        }
    }

    pub(crate) fn release(&self) {
        self.released.notify_one();
    }
}

/// What a handle stands for.
#[derive(Clone, Debug)]
pub(crate) enum Resource {
    Client(Client),
    Transaction(Transaction),
    Attempts(Stream<Attempts>),
    Rows(Stream<Rows>),
    Names(Stream<NameListing>),
    Objects(Stream<Objects>),
    Events(Arc<Subscription<Events>>),
    /// `None` once the upload is finished.
    Writer(Stream<Option<ContentWriter>>),
    Reader(Stream<ContentReader>),
    Watch(Arc<Subscription<Watch>>),
    Staged(StagedContent),
}

impl Resource {
    /// A stream as a resource of its kind.
    pub(crate) fn stream<T>(kind: impl FnOnce(Stream<T>) -> Self, stream: T) -> Self {
        kind(Arc::new(tokio::sync::Mutex::new(stream)))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Transaction(_) => "transaction",
            Self::Attempts(_) => "series of attempts",
            Self::Rows(_) => "result of a query",
            Self::Names(_) => "listing of names",
            Self::Objects(_) => "listing of objects",
            Self::Events(_) => "subscription",
            Self::Writer(_) => "upload",
            Self::Reader(_) => "content that is read",
            Self::Watch(_) => "watch",
            Self::Staged(_) => "uploaded content",
        }
    }
}

/// How many parts the table has, each with a lock of its own.
const PARTS: usize = 16;

/// The resources by handle.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    parts: [Mutex<HashMap<u64, Resource>>; PARTS],
}

impl Handles {
    fn part(&self, handle: u64) -> &Mutex<HashMap<u64, Resource>> {
        &self.parts[handle as usize % PARTS]
    }

    /// A handle for a resource.
    pub(crate) fn insert(&self, resource: Resource) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.part(handle).lock().insert(handle, resource);
        handle
    }

    /// The resource of a handle.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it was freed.
    pub(crate) fn get(&self, handle: u64) -> Result<Resource> {
        let found = self.part(handle).lock().get(&handle).cloned();
        found.ok_or_else(closed_error)
    }

    /// Frees a handle. The resource ends when the last call that uses it ends.
    pub(crate) fn remove(&self, handle: u64) -> Option<Resource> {
        self.part(handle).lock().remove(&handle)
    }

    /// The number of handles.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

/// Defines methods that return the resource of a handle if it is of one kind.
macro_rules! of_kind {
    ($($name:ident: $kind:ident => $resource:ty;)*) => {
        impl Handles {$(
            pub(crate) fn $name(&self, handle: u64) -> Result<$resource> {
                match self.get(handle)? {
                    Resource::$kind(resource) => Ok(resource),
                    other => Err(wrong_kind_error(&other)),
                }
            }
        )*}
    };
}

of_kind! {
    client: Client => Client;
    transaction: Transaction => Transaction;
    attempts: Attempts => Stream<Attempts>;
    rows: Rows => Stream<Rows>;
    names: Names => Stream<NameListing>;
    objects: Objects => Stream<Objects>;
    events: Events => Arc<Subscription<Events>>;
    writer: Writer => Stream<Option<ContentWriter>>;
    reader: Reader => Stream<ContentReader>;
    watch: Watch => Arc<Subscription<Watch>>;
    staged_content: Staged => StagedContent;
}

fn closed_error() -> Error {
    Error::new(ErrorKind::Invalid, "it was closed and cannot be used any more")
}

fn wrong_kind_error(resource: &Resource) -> Error {
    Error::new(ErrorKind::Invalid, format!("the handle is one of a {}, which has no such operation", resource.kind()))
}
