//! Finds the objects that have the names of a tree's entries.

use std::collections::HashMap;

use client::Client;
use model::{Error, ErrorKind, Object, Oid, Result};

use super::attributes::Attributes;
use super::join_all;
use super::walk::{Entry, Prefix};

/// An object that has the name of an entry.
#[derive(Clone, Debug)]
pub(super) struct BoundObject {
    /// The identifier.
    pub(super) oid: Oid,
    pub(super) state: ObjectState,
}

/// The state of an object that has a name.
#[derive(Clone, Debug)]
pub(super) enum ObjectState {
    Present(Object),
    /// It was deleted, and its name was not.
    Deleted,
    /// It is damaged in the store: what is wrong.
    Damaged(String),
}

impl BoundObject {
    /// The attributes of the file that it was imported from.
    pub(super) fn attributes(&self) -> Attributes {
        match &self.state {
            ObjectState::Present(object) => Attributes::of(object),
            ObjectState::Deleted | ObjectState::Damaged(_) => Attributes::default(),
        }
    }
}

/// Names of a directory that are listed at once.
const LISTED: usize = 1000;
/// From this number of names on, those of a directory are listed; fewer are looked up.
const MIN_LISTED: usize = 4;

/// Finds the objects that have the names of entries, in their order. `directories` are those of the tree whose objects are known, by path.
pub(super) async fn find_all(
    cluster: &Client,
    directories: &HashMap<String, Oid>,
    entries: &[Entry],
) -> Result<Vec<Option<BoundObject>>> {
    // A walk visits the entries of a directory one after the other, in the order of their names.
    let directory_of = |entry: &Entry| entry.parent.as_ref().and_then(|path| directories.get(path)).copied();
    let groups = entries.chunk_by(|one, next| directory_of(one).is_some() && directory_of(one) == directory_of(next));
    let targets = groups.map(|group| {
        let names: Vec<String> = group.iter().map(|entry| entry.component().to_owned()).collect();
        let (cluster, directory, path) = (cluster.clone(), directory_of(&group[0]), group[0].name.clone());
        async move {
            match directory {
                Some(directory) => targets(&cluster, directory, names).await,
                None => Ok(vec![cluster.resolve(&path).await?]),
            }
        }
    });
    let targets = join_all(targets.collect()).await?;
    let objects = targets.into_iter().flatten().map(|target| {
        let cluster = cluster.clone();
        async move {
            let Some(oid) = target else { return Ok(None) };
            Ok::<_, Error>(Some(BoundObject { oid, state: read_state(&cluster, oid).await? }))
        }
    });
    join_all(objects.collect()).await
}

/// The same, but damage of one name does not end the work on others: what is damaged is in place of its object.
pub(super) async fn find_readable(
    cluster: &Client,
    directories: &HashMap<String, Oid>,
    entries: &[Entry],
) -> Result<Vec<std::result::Result<Option<BoundObject>, String>>> {
    match find_all(cluster, directories, entries).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => {}
        found => return Ok(found?.into_iter().map(Ok).collect()),
    }
    let mut all = Vec::with_capacity(entries.len());
    for entry in entries {
        all.push(match find(cluster, directories, entry).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(error.message().to_owned()),
            found => Ok(found?),
        });
    }
    Ok(all)
}

/// Finds the object that has the name of an entry.
pub(super) async fn find(
    cluster: &Client,
    directories: &HashMap<String, Oid>,
    entry: &Entry,
) -> Result<Option<BoundObject>> {
    let found = find_all(cluster, directories, std::slice::from_ref(entry)).await?;
    Ok(found.into_iter().next().flatten())
}

/// The objects that names of a directory are bound to.
async fn targets(cluster: &Client, directory: Oid, names: Vec<String>) -> Result<Vec<Option<Oid>>> {
    let (Some(first), Some(last)) = (names.iter().min(), names.iter().max()) else { return Ok(Vec::new()) };
    let look_up = |name: &String| {
        let (cluster, name) = (cluster.clone(), name.clone());
        async move { cluster.entry(directory, &name).await }
    };
    if names.len() < MIN_LISTED {
        return join_all(names.iter().map(look_up).collect()).await;
    }
    // A listing begins behind a name.
    let mut bound: HashMap<String, Oid> =
        cluster.entry(directory, first).await?.map(|oid| (first.clone(), oid)).into_iter().collect();
    let mut after = first.clone();
    while after < *last {
        let listed = cluster.entries(directory, Some(&after), LISTED).await?;
        let Some((end, _)) = listed.last() else { break };
        let end = end.clone();
        bound.extend(listed);
        let found = names.iter().filter(|name| **name > after && **name <= end && bound.contains_key(*name)).count();
        after = end;
        if found < MIN_LISTED {
            // The directory has many other names: the rest is looked up.
            let rest: Vec<&String> = names.iter().filter(|name| **name > after).collect();
            let targets = join_all(rest.iter().map(|name| look_up(name)).collect()).await?;
            bound.extend(rest.into_iter().zip(targets).filter_map(|(name, oid)| Some((name.clone(), oid?))));
            break;
        }
    }
    Ok(names.iter().map(|name| bound.get(name).copied()).collect())
}

/// Reads an object that has a name. Damage of one object does not end the work on others.
pub(super) async fn read_state(cluster: &Client, oid: Oid) -> Result<ObjectState> {
    match cluster.stat(oid).await {
        Ok(Some(stat)) => Ok(ObjectState::Present(stat.object)),
        Ok(None) => Ok(ObjectState::Deleted),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(ObjectState::Damaged(error.message().to_owned())),
        Err(error) => Err(error),
    }
}

/// The number of names below a prefix that can be read, directories included.
pub(super) async fn count_names(cluster: &Client, prefix: &Prefix) -> Result<u64> {
    let mut names = cluster.names(&prefix.below()).with_directories().below_damage();
    let mut count = 0;
    while let Some(portion) = names.next().await? {
        // A directory of which entries cannot be read is listed twice.
        count += portion.iter().filter(|name| !(name.is_directory && name.damage.is_some())).count() as u64;
    }
    Ok(count)
}
