//! Looks through the extents of classes at one logical node.
//!
//! What is found was durable when it was looked at; each object comes with the version of its page, by which a transaction can
//! validate it. A scan is cut into answers of a bounded size, and so that none takes long.

use std::ops::ControlFlow;

use model::{ClassId, Kind, Oid, PageId, RecordRef, Result, SpaceId};
use store::Store;
use wire::cluster::{Place, Scan, Scanned};

use super::page_rows as rows;

/// Bytes of objects in one answer, beyond which no other follows.
const ANSWER: usize = 1 << 20;
/// Objects that are looked at for one answer.
const EXAMINED: u64 = 10_000;

/// Looks for what a scan asks for.
pub(crate) fn scan(store: &Store, scan: &Scan) -> Result<Scanned> {
    let mut looking = Looking { store, scan, scanned: Scanned::default(), bytes: 0, failed: Ok(()) };
    for class in &scan.classes {
        let after = scan.after.as_ref().map(|place| place.oid);
        // Classes rise, so those before the place where it goes on are done.
        if after.is_some_and(|oid| oid.class() > *class) {
            continue;
        }
        looking.extent(*class, after.filter(|oid| oid.class() == *class))?;
        if looking.scanned.next.is_some() {
            break;
        }
    }
    Ok(looking.scanned)
}

struct Looking<'a> {
    store: &'a Store,
    scan: &'a Scan,
    scanned: Scanned,
    bytes: usize,
    failed: Result<()>,
}

impl Looking<'_> {
    fn extent(&mut self, class: ClassId, after: Option<Oid>) -> Result<()> {
        let Scan { node, space, .. } = *self.scan;
        let prefix = rows::extent_prefix(node, space, class);
        let mut from = match after {
            Some(oid) => rows::extent_key(class, oid.page(), oid.slot()),
            None => prefix.clone(),
        };
        if after.is_some() {
            from.push(0);
        }
        let mut to = prefix.clone();
        to.extend_from_slice(&[0xff; 9]);
        let store = self.store;
        store.rows(&from, &to, |key, _| {
            let looked = rows::extent_place(key).and_then(|(number, slot)| {
                let page = PageId { space: SpaceId(space.0), node, number };
                self.object(Oid::new(class, page, slot))
            });
            match looked {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    self.failed = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        std::mem::replace(&mut self.failed, Ok(()))
    }

    /// Looks at an object. Says whether there is room for another one.
    fn object(&mut self, oid: Oid) -> Result<bool> {
        self.scanned.examined += 1;
        let (head, object) = rows::read_one(self.store, oid)?;
        // It may have gone since its place was found.
        if let Some(object) = object {
            let matches = match &self.scan.filter {
                None => true,
                Some(_) if object.kind != Kind::Record => false,
                Some(filter) => filter.matches(&RecordRef::new(&object.data)?)?,
            };
            if matches {
                self.scanned.count += 1;
                if !self.scan.count {
                    self.bytes += object.data.len();
                    self.scanned.found.push((oid, head.version, object));
                }
            }
        }
        let is_full = self.scanned.found.len() >= self.scan.limit as usize && !self.scan.count;
        if is_full || self.bytes >= ANSWER || self.scanned.examined >= EXAMINED {
            self.scanned.next = Some(Place { key: Default::default(), oid });
            return Ok(false);
        }
        Ok(true)
    }
}
