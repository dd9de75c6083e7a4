//! Fetching pages before they are needed, many at a time.
//!
//! References are followed one by one, each when it is loaded; whoever knows what it will look at saves the round trips.
//! What is fetched so is a copy in the cache: a transaction has read only what it loads.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Object, Oid, RecordRef, Result};

use super::core::{Core, WaitKey, found_object};
use super::transaction::{IsolationLevel, Transaction};
use super::typed::collect_references;

/// Pages that are on their way at a time.
const MAX_CONCURRENT_FETCHES: usize = 256;

impl Transaction {
    /// Fetches the pages of these objects that are not at hand, together. Objects that do not exist are no error. With locks
    /// nothing happens: then each is read at its brick.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn prefetch(&self, objects: impl IntoIterator<Item = impl Into<Oid>>) -> Result<()> {
        if self.inner.level == IsolationLevel::Locks {
            return Ok(());
        }
        let oids: BTreeSet<Oid> = objects.into_iter().map(Into::into).filter(|oid: &Oid| !oid.is_temporary()).collect();
        self.inner.core.fetch(&oids).await
    }

    /// Fetches what is reached from these objects by paths of fields: `"bank"`, `"friends.boss"`. A field may be a
    /// reference, or a list, a set or a map of them. As many round trips as the longest path has fields, and one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if no class has such a field; else as [`Transaction::get`].
    pub async fn prefetch_along(
        &self,
        objects: impl IntoIterator<Item = impl Into<Oid>>,
        paths: &[&str],
    ) -> Result<()> {
        if self.inner.level == IsolationLevel::Locks {
            return Ok(());
        }
        let core = &self.inner.core;
        let first: BTreeSet<Oid> = objects.into_iter().map(Into::into).collect();
        core.fetch(&first).await?;
        let mut ways: Vec<(BTreeSet<Oid>, std::str::Split<'_, char>)> =
            paths.iter().map(|path| (first.clone(), path.split('.'))).collect();
        while !ways.is_empty() {
            let mut next = Vec::new();
            for (at, mut fields) in ways {
                if let Some(field) = fields.next() {
                    next.push((core.referenced_by(&at, field).await?, fields));
                }
            }
            let all: BTreeSet<Oid> = next.iter().flat_map(|(oids, _)| oids.iter().copied()).collect();
            core.fetch(&all).await?;
            ways = next;
        }
        Ok(())
    }
}

impl Core {
    /// Fetches the pages of objects that are not at hand.
    async fn fetch(&self, oids: &BTreeSet<Oid>) -> Result<()> {
        // One object of each page, in the order of the pages.
        let mut pages = BTreeSet::new();
        let mut firsts = Vec::new();
        for oid in oids {
            self.check_in_space(*oid)?;
            if pages.insert(oid.page()) {
                firsts.push(*oid);
            }
        }
        for some in firsts.chunks(MAX_CONCURRENT_FETCHES) {
            let missing: Vec<Oid> = self.work(|state, now| {
                let missing =
                    some.iter().copied().filter(|oid| found_object(*oid, state.session.get(*oid, now)).is_none());
                missing.collect()
            })?;
            for oid in missing {
                let (page, node) = (oid.page(), [oid.page().node]);
                self.wait_for(WaitKey::Page(page), &node, |state, now| {
                    Ok(found_object(oid, state.session.get(oid, now)))
                })
                .await?;
            }
        }
        Ok(())
    }

    /// What objects that are at hand refer to in a field.
    async fn referenced_by(&self, oids: &BTreeSet<Oid>, field: &str) -> Result<BTreeSet<Oid>> {
        let mut schema = self.classes.schema();
        if oids.iter().any(|oid| schema.class(oid.class()).is_none()) {
            self.refresh_classes().await?;
            schema = self.classes.schema();
        }
        let (mut behind, mut is_known) = (Vec::new(), oids.is_empty());
        for oid in oids {
            let Some(field) = schema.field_named(oid.class(), field) else { continue };
            is_known = true;
            // What had to go again meanwhile is not worth another look.
            let object: Option<Object> =
                self.work(|state, now| found_object(*oid, state.session.get(*oid, now)))?.flatten();
            let Some(object) = object else { continue };
            if let Some(value) = RecordRef::new(&object.data)?.field(field.number)? {
                collect_references(value, &mut behind)?;
            }
        }
        match is_known {
            true => Ok(behind.into_iter().collect()),
            false => {
                let what = format!("none of the objects there has a field {field:.100?}: no path leads along it");
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }
}
