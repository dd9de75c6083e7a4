//! The transactions of an import: each creates objects with their names, and changes others.

use std::sync::Arc;

use bytes::Bytes;
use client::{Client, PlacementHint, StagedContent, Transaction};
use model::{ClassId, Error, ErrorKind, Kind, NodeId, Object, Oid, Result};

use crate::tree::attributes::Attributes;
use crate::tree::join_all;

/// An object that a transaction creates or changes.
#[derive(Clone)]
pub(super) struct ObjectWrite {
    /// The object.
    pub(super) target: WriteTarget,
    /// What it gets beside its attributes.
    pub(super) content: NewContent,
    /// The attributes of the file.
    pub(super) attributes: Attributes,
}

/// The object of an [`ObjectWrite`].
#[derive(Clone)]
pub(super) enum WriteTarget {
    /// An object that exists.
    Existing(Oid),
    /// A new object, and its name in a directory. If the name is bound, the transaction fails with [`ErrorKind::Exists`].
    New(Directory, String),
    /// A new directory with this path. Its missing parents are made.
    NewPath(String),
}

/// A directory in which a name is bound.
#[derive(Clone)]
pub(super) enum Directory {
    /// It exists.
    Existing(Oid),
    /// The same transaction creates it: its position among the writes, before that of its names.
    New(usize),
}

/// The content of an [`ObjectWrite`].
#[derive(Clone)]
pub(super) enum NewContent {
    /// None: the object is a directory.
    Directory,
    /// These bytes.
    Inline(Bytes),
    /// These bytes, which were uploaded.
    Staged(StagedContent),
    /// The same as before.
    Unchanged,
}

/// Writes objects in one transaction. Returns their identifiers.
///
/// # Errors
/// Those of the transaction; [`ErrorKind::Exists`] if a name of a new object is bound.
pub(super) async fn commit(cluster: &Client, writes: Vec<ObjectWrite>) -> Result<Vec<Oid>> {
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    let writes = &Arc::new(writes);
    let (transaction, oids) = cluster
        .transact(|t| {
            let writes = Arc::clone(writes);
            async move {
                let oids = write_all(&t, &writes).await?;
                Ok((t, oids))
            }
        })
        .await?;
    Ok(oids.into_iter().map(|oid| transaction.real_oid(oid).unwrap_or(oid)).collect())
}

/// Uploads bytes, to be written to an object at this logical node.
pub(super) async fn upload(cluster: &Client, node: NodeId, bytes: Bytes) -> Result<StagedContent> {
    let mut writer = cluster.content_writer(Some(node));
    writer.write(bytes).await?;
    writer.finish().await
}

async fn write_all(t: &Transaction, writes: &[ObjectWrite]) -> Result<Vec<Oid>> {
    let mut oids: Vec<Oid> = Vec::with_capacity(writes.len());
    for write in writes {
        oids.push(match &write.target {
            WriteTarget::Existing(oid) => *oid,
            WriteTarget::New(..) => create(t, write).await?,
            WriteTarget::NewPath(path) => t.create_directory(path).await?,
        });
    }
    // Each of these reads at a brick, so they run at the same time.
    let is_in_new = |write: &ObjectWrite| matches!(&write.target, WriteTarget::New(Directory::New(_), _));
    let steps = writes.iter().zip(&oids).filter(|(write, _)| !is_in_new(write));
    let steps = steps.map(|(write, oid)| finish(t.clone(), *oid, write.clone()));
    join_all(steps.collect()).await?;
    // An object goes to the logical node of its directory, so the names of parents come first.
    for (write, oid) in writes.iter().zip(&oids) {
        if let WriteTarget::New(Directory::New(position), name) = &write.target {
            t.add_entry(oids[*position], name, *oid).await?;
        }
    }
    Ok(oids)
}

/// Binds a new object in an existing directory, or changes another one.
async fn finish(t: Transaction, oid: Oid, write: ObjectWrite) -> Result<()> {
    match write.target {
        WriteTarget::New(Directory::Existing(directory), name) => t.add_entry(directory, &name, oid).await,
        _ => change(&t, oid, write.content, &write.attributes).await,
    }
}

/// Creates an object with its attributes.
async fn create(t: &Transaction, write: &ObjectWrite) -> Result<Oid> {
    let mut object = match &write.content {
        NewContent::Directory => Object::collection(Kind::Directory),
        NewContent::Inline(bytes) => Object::blob(bytes.clone()),
        NewContent::Unchanged => Object::blob(Bytes::new()),
        NewContent::Staged(staged) => {
            let oid = t.create_blob_from(*staged)?;
            change(t, oid, NewContent::Unchanged, &write.attributes).await?;
            return Ok(oid);
        }
    };
    write.attributes.apply(&mut object);
    t.create_object(ClassId::NONE, object, PlacementHint::Anywhere)
}

/// Changes the bytes and attributes of an object.
async fn change(t: &Transaction, oid: Oid, content: NewContent, attributes: &Attributes) -> Result<()> {
    if let NewContent::Staged(staged) = &content {
        t.put_content(oid, *staged).await?;
    }
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no object {oid} any more"));
    let mut object = t.get_for_update(oid).await?.ok_or_else(missing)?;
    if let NewContent::Inline(bytes) = content {
        object = object.with_data(bytes);
    }
    attributes.apply(&mut object);
    t.put(oid, object).await
}
