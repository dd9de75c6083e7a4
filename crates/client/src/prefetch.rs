//! Prefetch: fetching many pages together before they are needed.
//!
//! A reference is followed when its object is loaded, which takes a round trip each time. Prefetch saves these round trips if the
//! objects are known before. It only fills the cache: a transaction has read only what it loads.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Object, Oid, RecordRef, Result};

use super::client_core::Core;
use super::transaction::{IsolationLevel, Transaction};
use super::typed::collect_references;

/// Maximum pages that are fetched at a time.
const MAX_CONCURRENT_FETCHES: usize = 256;

impl Transaction {
    /// Fetches the pages of these objects that are not cached, together. An object that does not exist is not an error. At the level
    /// [`IsolationLevel::Locks`] this does nothing, because objects are read at their bricks.
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

    /// Fetches the objects that these objects refer to by paths of fields: `"bank"`, `"friends.boss"`. A field is a reference, or a
    /// list, set or map of references. Takes one round trip more than the longest path has fields.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if none of the classes has such a field; else as [`Transaction::get`].
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
                    next.push((core.referenced_objects(&at, field).await?, fields));
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
    /// Fetches the pages of objects that are not cached.
    async fn fetch(&self, oids: &BTreeSet<Oid>) -> Result<()> {
        // One object of each page.
        let mut pages = BTreeSet::new();
        let mut firsts = Vec::new();
        for oid in oids {
            self.check_in_space(*oid)?;
            if pages.insert(oid.page()) {
                firsts.push(*oid);
            }
        }
        for some in firsts.chunks(MAX_CONCURRENT_FETCHES) {
            self.fetch_all(some).await?;
        }
        Ok(())
    }

    /// The objects to which a field of cached objects refers.
    async fn referenced_objects(&self, oids: &BTreeSet<Oid>, field: &str) -> Result<BTreeSet<Oid>> {
        let mut schema = self.classes.schema();
        if oids.iter().any(|oid| schema.class(oid.class()).is_none()) {
            self.refresh_classes().await?;
            schema = self.classes.schema();
        }
        let (mut behind, mut is_known) = (Vec::new(), oids.is_empty());
        for oid in oids {
            let Some(field) = schema.field_named(oid.class(), field) else { continue };
            is_known = true;
            // An object whose page was evicted meanwhile is skipped.
            let object: Option<Object> = self.with_driver(|driver, now| driver.get(*oid, now))??.flatten();
            let Some(object) = object else { continue };
            if let Some(value) = RecordRef::new(&object.data)?.field(field.number)? {
                collect_references(value, &mut behind)?;
            }
        }
        match is_known {
            true => Ok(behind.into_iter().collect()),
            false => {
                let what = format!("no object on the path has a field {field:.100?}");
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }
}
