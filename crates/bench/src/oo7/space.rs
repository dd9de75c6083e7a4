//! The objects of OO7 in a space of Mortar, through the typed client.

use std::ops::Deref;

use client::{
    Client, CommitOutcome, Error, ErrorKind, IsolationLevel, Object, Persistent, Query, Ref, Result, Row, Transaction,
};

use super::control::Stored;
use super::model::{AtomicPart, Document, Module};
use super::objects::{Database, Objects};

/// Attempts of a snapshot transaction.
const SNAPSHOT_TRIES: u32 = 10;

/// A space, through one client.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    client: Client,
    /// Whether traversals that only read use group snapshots.
    with_snapshots: bool,
}

/// A transaction of this client.
pub(crate) struct SpaceTransaction {
    client: Client,
    transaction: Transaction,
}

impl Space {
    pub(crate) fn new(client: Client, with_snapshots: bool) -> Self {
        Self { client, with_snapshots }
    }

    /// Defines the classes.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the space has a database of OO7.
    pub(crate) async fn define(&self) -> Result<()> {
        if self.client.resolve(&module_name(1)).await?.is_some() {
            let what = "the space has a database of OO7 already: use another space";
            return Err(Error::new(ErrorKind::Exists, what));
        }
        // And all classes that it refers to.
        self.client.define::<Module>().await
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self, level: IsolationLevel) -> SpaceTransaction {
        self.transaction(self.client.begin(level))
    }

    fn transaction(&self, transaction: Transaction) -> SpaceTransaction {
        SpaceTransaction { client: self.client.clone(), transaction }
    }

    /// Runs `body` in a group snapshot.
    async fn snapshot<T>(&self, body: impl AsyncFn(&SpaceTransaction) -> Result<T>) -> Result<T> {
        for _ in 0..SNAPSHOT_TRIES {
            let transaction = self.client.begin(IsolationLevel::Snapshot);
            let result = body(&self.transaction(transaction.clone())).await;
            match result {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) => return Err(error),
                Ok(value) => match transaction.commit().await? {
                    CommitOutcome::Committed(_) => return Ok(value),
                    CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_) => {}
                },
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("no snapshot was consistent in {SNAPSHOT_TRIES} attempts")))
    }
}

impl Database for Space {
    type Objects = SpaceTransaction;

    async fn transact<T>(&self, body: impl AsyncFn(&SpaceTransaction) -> Result<T>) -> Result<T> {
        let body = &body;
        self.client
            .transact(|transaction| {
                let objects = self.transaction(transaction);
                async move { body(&objects).await }
            })
            .await
    }

    async fn traverse<T>(&self, body: impl AsyncFn(&SpaceTransaction) -> Result<T>) -> Result<T> {
        if self.with_snapshots { self.snapshot(body).await } else { self.transact(body).await }
    }
}

impl SpaceTransaction {
    /// Commits.
    pub(crate) async fn commit(&self) -> Result<CommitOutcome> {
        self.transaction.commit().await
    }

    /// The objects that a query finds.
    async fn find<T: Persistent>(&self, query: &Query) -> Result<Vec<Box<T>>> {
        let mut rows = self.transaction.query(query).await?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            if let Row::Object(oid, record) = row {
                found.push(Box::new(self.client.decode(oid, &Object::record(oid.class(), record)).await?));
            }
        }
        Ok(found)
    }

    /// The only object that a query finds.
    async fn find_one<T: Persistent>(&self, query: &Query) -> Result<Box<T>> {
        let found = self.find(query).await?;
        let [object] = <[Box<T>; 1]>::try_from(found).map_err(|found| {
            let what = format!("a query finds {} objects of class {} instead of one", found.len(), T::CLASS);
            Error::new(ErrorKind::NotFound, what)
        })?;
        Ok(object)
    }
}

impl Objects for SpaceTransaction {
    async fn get<T: Stored>(&self, reference: Ref<T>) -> Result<impl Deref<Target = T>> {
        self.transaction.load(reference).await
    }

    async fn update<T: Stored>(&self, reference: Ref<T>, change: impl FnOnce(&mut T)) -> Result<()> {
        change(&mut *self.transaction.load_mut(reference).await?);
        Ok(())
    }

    async fn create<T: Stored>(&self, value: T) -> Result<Ref<T>> {
        self.transaction.create(value).await
    }

    async fn name_module(&self, number: u32, module: Ref<Module>) -> Result<()> {
        self.transaction.bind(&module_name(number), module).await
    }

    async fn module(&self, number: u32) -> Result<Ref<Module>> {
        // Names of modules do not change. A snapshot cannot look them up.
        let name = module_name(number);
        let module = self.client.resolve(&name).await?;
        module.map(Ref::new).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no {name}")))
    }

    async fn atomic_part(&self, id: i64) -> Result<impl Deref<Target = AtomicPart>> {
        self.find_one::<AtomicPart>(&Query::parse_of(AtomicPart::CLASS, "id == :id")?.with("id", id)).await
    }

    async fn atomic_parts_since(&self, date: i64) -> Result<Vec<impl Deref<Target = AtomicPart>>> {
        self.find::<AtomicPart>(&Query::parse_of(AtomicPart::CLASS, "build_date >= :date")?.with("date", date)).await
    }

    async fn document(&self, title: &str) -> Result<impl Deref<Target = Document>> {
        self.find_one::<Document>(&Query::parse_of(Document::CLASS, "title == :title")?.with("title", title)).await
    }

    async fn all<T: Stored>(&self) -> Result<Vec<impl Deref<Target = T>>> {
        self.find::<T>(&Query::of(T::CLASS)).await
    }
}

fn module_name(number: u32) -> String {
    format!("oo7/module-{number:04}")
}
