//! The same client for threads without an async runtime.
//!
//! Each method does what the one of the same name of the async client does, whose documentation describes it, and waits for its end.
//! Neither call them nor drop the last handle of a client within an async runtime. One thread behind all clones of a [`Client`]
//! keeps its copies current and its leases alive.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use model::{ClassId, Entry, Error, ErrorKind, Filter, Kind, NodeId, Object, Oid, Result, SpaceId};
use protocol::ident::{HlcTimestamp, TxnId};
use query::Query;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use wire::proto;

use crate::{
    CommitOutcome, ConnectOptions, Event, Explanation, IsolationLevel, ListedName, ListedObject, Loaded, LoadedMut,
    ObjectStat, Persistent, PlacementHint, Ref, SpaceStatus, StagedContent,
};

/// Methods that wait for those of the same name of the async client.
macro_rules! waiting {
    ($(fn $name:ident $(<$generic:ident>)? (&self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {$(
        #[doc = concat!("Waits for `", stringify!($name), "` of the async client.")]
        ///
        /// # Errors
        /// Those of that method.
        pub fn $name $(<$generic: Persistent>)? (&self $(, $arg: $type)*) -> $out {
            wait(&self.runtime, self.inner.$name($($arg),*))
        }
    )*};
}

/// Methods that do not wait.
macro_rules! same {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $out:ty)?;)*) => {$(
        #[doc = concat!("Does what `", stringify!($name), "` of the async client does.")]
        ///
        /// # Errors
        /// Those of that method, if it has any.
        pub fn $name(&self $(, $arg: $type)*) $(-> $out)? {
            let _entered = self.runtime.enter();
            self.inner.$name($($arg),*)
        }
    )*};
}

/// A client of one space; see [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    // Before the runtime, which its tasks need.
    inner: crate::Client,
    runtime: Arc<Runtime>,
}

/// Waits for a future. One that does not have to wait, as a read of a cached object, is polled once without the machinery of waiting.
#[doc(hidden)]
pub fn wait<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let mut future = pin!(future);
    {
        let _entered = runtime.enter();
        if let Poll::Ready(done) = poll(future.as_mut(), &mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
    let mut done = None;
    block_on(runtime, &mut |context| poll(future.as_mut(), context).map(|result| done = Some(result)));
    done.expect("a future that is ready has a result")
}

/// Waits until `poll` is ready. It is not generic, so that the compiler generates the machinery of waiting once, and not for each future.
fn block_on(runtime: &Runtime, poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>) {
    runtime.block_on(poll_fn(poll));
}

/// Polls a future. What it commits at a store in this process is forced by this thread, which has nothing to do before that.
#[cfg(feature = "embedded")]
fn poll<F: Future>(mut future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    loop {
        let scope = store::ForceScope::enter();
        let polled = future.as_mut().poll(context);
        if polled.is_ready() || !scope.force() {
            return polled;
        }
    }
}

#[cfg(not(feature = "embedded"))]
fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    future.poll(context)
}

/// A source whose reads block: only the thread that called waits for them.
struct BlockingSource<R>(R);

impl<R: Read + Unpin> AsyncRead for BlockingSource<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0.read(buf.initialize_unfilled()) {
            Ok(read) => {
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

fn start_runtime() -> Result<Arc<Runtime>> {
    let started = Builder::new_multi_thread().worker_threads(1).thread_name("mortar-client").enable_all().build();
    let failed = |error| Error::new(ErrorKind::Io, "the operating system grants no event queue").with_source(error);
    started.map(Arc::new).map_err(failed)
}

impl Client {
    /// See [`crate::Client::connect`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, ConnectOptions::default())
    }

    /// See [`crate::Client::connect_with`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn connect_with(url: &str, options: ConnectOptions) -> Result<Self> {
        let runtime = start_runtime()?;
        Ok(Self { inner: wait(&runtime, crate::Client::connect_with(url, options))?, runtime })
    }

    /// See [`crate::Client::open`].
    ///
    /// # Errors
    /// Those of that method.
    #[cfg(feature = "embedded")]
    pub fn open(directory: impl AsRef<std::path::Path>) -> Result<Self> {
        let runtime = start_runtime()?;
        Ok(Self { inner: wait(&runtime, crate::Client::open(directory))?, runtime })
    }

    /// See [`crate::Client::in_memory`].
    ///
    /// # Errors
    /// Those of that method.
    #[cfg(feature = "embedded")]
    pub fn in_memory() -> Result<Self> {
        let runtime = start_runtime()?;
        Ok(Self { inner: wait(&runtime, crate::Client::in_memory())?, runtime })
    }

    /// See [`crate::Client::shutdown`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn shutdown(self) -> Result<()> {
        wait(&self.runtime, self.inner.shutdown())
    }

    /// See [`crate::Client::begin`].
    #[must_use]
    pub fn begin(&self, level: IsolationLevel) -> Transaction {
        Transaction { inner: self.inner.begin(level), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::transact`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn transact<T>(&self, mut body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        let mut attempts = self.attempts();
        loop {
            let transaction = attempts.begin();
            let result = body(&transaction);
            if let Some(value) = attempts.end(&transaction, result)? {
                return Ok(value);
            }
        }
    }

    /// See [`crate::Client::attempts`].
    #[must_use]
    pub fn attempts(&self) -> Attempts {
        Attempts { inner: self.inner.attempts(), runtime: self.runtime.clone() }
    }

    same! {
        fn space(&self) -> SpaceId;
        fn nodes(&self) -> &[NodeId];
        fn space_status(&self) -> Option<SpaceStatus>;
        fn close(&self);
    }

    waiting! {
        fn describe(&self, request: proto::schema::Describe) -> Result<proto::schema::Described>;
        fn collection_totals(&self, collection: Oid) -> Result<(u64, HlcTimestamp)>;
        fn outcome(&self, txn: TxnId) -> Result<CommitOutcome>;
        fn get(&self, oid: Oid) -> Result<Option<Object>>;
        fn put(&self, oid: Oid, object: Object) -> Result<()>;
        fn append(&self, oid: Oid, data: impl Into<Bytes>) -> Result<u64>;
        fn read_latest(&self, oid: Oid) -> Result<Option<Object>>;
        fn read_cached(&self, oid: Oid) -> Result<Option<Object>>;
        fn resolve(&self, path: &str) -> Result<Option<Oid>>;
        fn entry(&self, directory: Oid, name: &str) -> Result<Option<Oid>>;
        fn stat(&self, oid: Oid) -> Result<Option<ObjectStat>>;
        fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>>;
        fn entries(&self, directory: Oid, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>>;
        fn names_of(&self, oid: Oid) -> Result<Vec<String>>;
        fn collections_of(&self, oid: Oid) -> Result<Vec<Oid>>;
        fn read<T>(&self, reference: Ref<T>) -> Result<Option<T>>;
        fn decode<T>(&self, oid: Oid, object: &Object) -> Result<T>;
    }

    /// See [`crate::Client::define`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn define<T: Persistent>(&self) -> Result<()> {
        wait(&self.runtime, self.inner.define::<T>())
    }

    /// See [`crate::Client::remove_class`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn remove_class(&self, name: &str) -> Result<()> {
        wait(&self.runtime, self.inner.remove_class(name))
    }

    /// See [`crate::Client::query`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        Ok(Rows { inner: wait(&self.runtime, self.inner.query(query))?, runtime: self.runtime.clone() })
    }

    /// See [`crate::Client::explain`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn explain(&self, query: &Query) -> Result<Rows> {
        Ok(Rows { inner: wait(&self.runtime, self.inner.explain(query))?, runtime: self.runtime.clone() })
    }

    /// See [`crate::Client::find`].
    #[must_use]
    pub fn find(&self, classes: impl IntoIterator<Item = ClassId>, filter: Option<Filter>) -> ScanResults {
        ScanResults { inner: self.inner.find(classes, filter), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::events`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn events(&self) -> Result<Events> {
        Ok(Events { inner: self.inner.events()?, runtime: self.runtime.clone() })
    }

    /// See [`crate::Client::watch`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn watch(&self, objects: impl IntoIterator<Item = Oid>) -> Result<Watch> {
        Ok(Watch { inner: wait(&self.runtime, self.inner.watch(objects))?, runtime: self.runtime.clone() })
    }

    /// See [`crate::Client::names`].
    #[must_use]
    pub fn names(&self, prefix: &str) -> Names {
        Names { inner: self.inner.names(prefix), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::objects`].
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects { inner: self.inner.objects(), runtime: self.runtime.clone() }
    }

    /// Uploads all bytes of a source; see [`crate::Client::upload`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn upload(&self, node: Option<NodeId>, source: impl Read + Unpin) -> Result<StagedContent> {
        wait(&self.runtime, self.inner.upload(node, BlockingSource(source)))
    }

    /// See [`crate::Client::content_writer`].
    #[must_use]
    pub fn content_writer(&self, node: Option<NodeId>) -> ContentWriter {
        ContentWriter { inner: Some(self.inner.content_writer(node)), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::content_reader`].
    #[must_use]
    pub fn content_reader(&self, oid: Oid, offset: u64) -> ContentReader {
        let (inner, runtime) = (self.inner.content_reader(oid, offset), self.runtime.clone());
        ContentReader { inner, runtime, rest: Bytes::new() }
    }
}

/// A transaction; see [`crate::Transaction`].
#[derive(Clone, Debug)]
pub struct Transaction {
    inner: crate::Transaction,
    runtime: Arc<Runtime>,
}

impl Transaction {
    same! {
        fn id(&self) -> TxnId;
        fn root(&self) -> Result<Oid>;
        fn create_object(&self, class: ClassId, object: Object, hint: PlacementHint) -> Result<Oid>;
        fn create_record(&self, oid: Oid, record: Bytes) -> Result<()>;
        fn create_blob(&self, data: impl Into<Bytes>) -> Result<Oid>;
        fn create_blob_from(&self, staged: StagedContent) -> Result<Oid>;
        fn create_collection(&self) -> Result<Oid>;
        fn real_oid(&self, oid: Oid) -> Option<Oid>;
        fn append_offsets(&self, oid: Oid) -> Vec<u64>;
        fn flush(&self) -> Result<()>;
        fn abort(&self);
    }

    waiting! {
        fn allocate(&self, class: ClassId, len: usize, hint: PlacementHint) -> Result<Oid>;
        fn create_directory(&self, path: &str) -> Result<Oid>;
        fn remove_directory(&self, path: &str) -> Result<()>;
        fn restore_collection(&self, collection: Oid) -> Result<Option<Kind>>;
        fn restore_entry(&self, entry: Entry, target: Oid) -> Result<Option<bool>>;
        fn list(&self, path: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>>;
        fn delete_with_names(&self, oid: Oid) -> Result<()>;
        fn prefetch(&self, objects: impl IntoIterator<Item = impl Into<Oid>>) -> Result<()>;
        fn create_with<T>(&self, value: T, hint: PlacementHint) -> Result<Ref<T>>;
        fn draft<T>(&self, value: T) -> Result<Ref<T>>;
        fn load_all<T>(&self, references: impl IntoIterator<Item = Ref<T>>) -> Result<Vec<Loaded<T>>>;
        fn get(&self, oid: Oid) -> Result<Option<Object>>;
        fn get_for_update(&self, oid: Oid) -> Result<Option<Object>>;
        fn get_all(&self, oids: &[Oid]) -> Result<Vec<Option<Object>>>;
        fn get_all_for_update(&self, oids: &[Oid]) -> Result<Vec<Option<Object>>>;
        fn put(&self, oid: Oid, object: Object) -> Result<()>;
        fn delete(&self, oid: Oid) -> Result<()>;
        fn commit(&self) -> Result<CommitOutcome>;
        fn check(&self) -> Result<CommitOutcome>;
        fn read_at(&self, oid: Oid, offset: u64, len: usize) -> Result<Bytes>;
        fn write_at(&self, oid: Oid, offset: u64, data: impl Into<Bytes>) -> Result<()>;
        fn append(&self, oid: Oid, data: impl Into<Bytes>) -> Result<()>;
        fn truncate(&self, oid: Oid, size: u64) -> Result<()>;
        fn zero(&self, oid: Oid, offset: u64, len: u64) -> Result<()>;
        fn put_content(&self, oid: Oid, staged: StagedContent) -> Result<()>;
        fn set_attribute(&self, oid: Oid, key: impl Into<Bytes>, value: Option<Bytes>) -> Result<()>;
        fn add_member(&self, collection: Oid, member: Oid) -> Result<()>;
        fn remove_member(&self, collection: Oid, member: Oid) -> Result<bool>;
        fn contains(&self, collection: Oid, member: Oid) -> Result<bool>;
        fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>>;
        fn entry(&self, directory: Oid, name: &str) -> Result<Option<Oid>>;
        fn put_entry(&self, directory: Oid, name: &str, target: impl Into<Oid>) -> Result<()>;
        fn add_entry(&self, directory: Oid, name: &str, target: impl Into<Oid>) -> Result<()>;
        fn remove_entry(&self, directory: Oid, name: &str) -> Result<bool>;
        fn entries(&self, directory: Oid, after: Option<&str>, prefix: &str, limit: usize) -> Result<Vec<(String, Oid)>>;
        fn count(&self, collection: Oid) -> Result<u64>;
        fn bind(&self, path: &str, target: impl Into<Oid>) -> Result<()>;
        fn unbind(&self, path: &str) -> Result<bool>;
        fn rename(&self, from: &str, to: &str) -> Result<()>;
        fn resolve(&self, path: &str) -> Result<Option<Oid>>;
        fn create<T>(&self, value: T) -> Result<Ref<T>>;
        fn load<T>(&self, reference: Ref<T>) -> Result<Loaded<T>>;
        fn load_mut<T>(&self, reference: Ref<T>) -> Result<LoadedMut<T>>;
        fn try_load<T>(&self, reference: Ref<T>) -> Result<Option<Loaded<T>>>;
        fn resolve_ref<T>(&self, path: &str) -> Result<Option<Ref<T>>>;
        fn remove<T>(&self, reference: Ref<T>) -> Result<()>;
    }

    /// See [`crate::Transaction::query`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        Ok(Rows { inner: wait(&self.runtime, self.inner.query(query))?, runtime: self.runtime.clone() })
    }
}

/// The attempts of a transaction; see [`crate::Attempts`].
#[derive(Debug)]
pub struct Attempts {
    inner: crate::Attempts,
    runtime: Arc<Runtime>,
}

impl Attempts {
    /// See [`crate::Attempts::begin`].
    pub fn begin(&mut self) -> Transaction {
        Transaction { inner: self.inner.begin(), runtime: self.runtime.clone() }
    }

    /// See [`crate::Attempts::end`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn end<T>(&mut self, transaction: &Transaction, result: Result<T>) -> Result<Option<T>> {
        wait(&self.runtime, self.inner.end(&transaction.inner, result))
    }
}

/// Defines streams of portions.
macro_rules! portions {
    ($($name:ident of $portion:ty;)*) => {$(
        #[doc = concat!("See [`crate::", stringify!($name), "`].")]
        #[derive(Debug)]
        pub struct $name {
            inner: crate::$name,
            runtime: Arc<Runtime>,
        }

        impl $name {
            /// Waits for the next portion; `None` at the end.
            ///
            /// # Errors
            /// Those of the async method.
            #[expect(clippy::should_implement_trait, reason = "an iterator could be asked on after an error")]
            pub fn next(&mut self) -> Result<Option<$portion>> {
                wait(&self.runtime, self.inner.next())
            }
        }
    )*};
}

portions! {
    Rows of query::Row;
    Names of Vec<ListedName>;
    Objects of Vec<ListedObject>;
    ScanResults of Vec<(Oid, Object)>;
}

/// Objects whose changes are waited for; see [`crate::Watch`].
#[derive(Debug)]
pub struct Watch {
    inner: crate::Watch,
    runtime: Arc<Runtime>,
}

impl Watch {
    /// See [`crate::Watch::next`].
    ///
    /// # Errors
    /// Those of that method.
    #[expect(clippy::should_implement_trait, reason = "it waits, which an iterator should not")]
    pub fn next(&mut self) -> Result<Vec<(Oid, Option<Object>)>> {
        wait(&self.runtime, self.inner.next())
    }
}

impl Rows {
    /// See [`crate::Rows::columns`].
    #[must_use]
    pub fn columns(&self) -> &[String] {
        self.inner.columns()
    }

    /// See [`crate::Rows::all`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn all(self) -> Result<Vec<query::Row>> {
        wait(&self.runtime, self.inner.all())
    }

    /// See [`crate::Rows::explanation`].
    #[must_use]
    pub fn explanation(&self) -> Option<&Explanation> {
        self.inner.explanation()
    }
}

impl Names {
    /// See [`crate::Names::after`].
    #[must_use]
    pub fn after(self, path: &str) -> Self {
        Self { inner: self.inner.after(path), ..self }
    }

    /// See [`crate::Names::portion_size`].
    #[must_use]
    pub fn portion_size(self, names: usize) -> Self {
        Self { inner: self.inner.portion_size(names), ..self }
    }

    /// See [`crate::Names::with_directories`].
    #[must_use]
    pub fn with_directories(self) -> Self {
        Self { inner: self.inner.with_directories(), ..self }
    }

    /// See [`crate::Names::one_level`].
    #[must_use]
    pub fn one_level(self) -> Self {
        Self { inner: self.inner.one_level(), ..self }
    }

    /// See [`crate::Names::below_damage`].
    #[must_use]
    pub fn below_damage(self) -> Self {
        Self { inner: self.inner.below_damage(), ..self }
    }
}

/// Events of a space; see [`crate::Events`].
#[derive(Debug)]
pub struct Events {
    inner: crate::Events,
    runtime: Arc<Runtime>,
}

impl Events {
    /// Waits for the next event; `None` when the client is closed.
    #[expect(clippy::should_implement_trait, reason = "it waits, which an iterator should not")]
    pub fn next(&mut self) -> Option<Event> {
        wait(&self.runtime, self.inner.next())
    }
}

/// A content that is being uploaded; see [`crate::ContentWriter`].
#[derive(Debug)]
pub struct ContentWriter {
    /// `None` once it is finished.
    inner: Option<crate::ContentWriter>,
    runtime: Arc<Runtime>,
}

impl ContentWriter {
    /// See [`crate::ContentWriter::write`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.inner {
            Some(inner) => wait(&self.runtime, inner.write(bytes)),
            None => Err(Error::new(ErrorKind::Invalid, "the upload is finished")),
        }
    }

    /// See [`crate::ContentWriter::finish`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn finish(mut self) -> Result<StagedContent> {
        match self.inner.take() {
            Some(inner) => wait(&self.runtime, inner.finish()),
            None => Err(Error::new(ErrorKind::Invalid, "the upload is finished")),
        }
    }
}

impl Drop for ContentWriter {
    fn drop(&mut self) {
        // What it has staged is given up by a task of the runtime.
        let _entered = self.runtime.enter();
        drop(self.inner.take());
    }
}

impl Write for ContentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ContentWriter::write(self, Bytes::copy_from_slice(bytes)).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A content that is being read; see [`crate::ContentReader`]. Also a [`Read`].
#[derive(Debug)]
pub struct ContentReader {
    inner: crate::ContentReader,
    runtime: Arc<Runtime>,
    /// What [`Read`] took from a piece and did not hand out yet.
    rest: Bytes,
}

impl ContentReader {
    /// See [`crate::ContentReader::until`].
    #[must_use]
    pub fn until(self, end: u64) -> Self {
        Self { inner: self.inner.until(end), ..self }
    }

    /// See [`crate::ContentReader::next`].
    ///
    /// # Errors
    /// Those of that method.
    #[expect(clippy::should_implement_trait, reason = "an iterator could be asked on after an error")]
    pub fn next(&mut self) -> Result<Option<Bytes>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        wait(&self.runtime, self.inner.next())
    }
}

impl Read for ContentReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.next().map_err(io::Error::other)?.unwrap_or_default();
        }
        let piece = self.rest.split_to(self.rest.len().min(buf.len()));
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}
