//! Verifies references between objects: attributes, members, names, and back references.

use model::{Kind, Oid, Result, SpaceId, limits};

use super::Scrub;
use crate::read::rows::{self, hex};
use crate::rows::key::{Key, oid_at, table};

/// The number of member rows of one collection.
#[derive(Clone, Copy)]
struct CollectionRun {
    owner: Oid,
    rows: u64,
}

impl Scrub<'_> {
    /// Every attribute matches its checksum and belongs to an object.
    pub(super) fn attributes(&mut self) -> Result<()> {
        let mut owner = None;
        self.scan_table(&Key::table(table::ATTRIBUTE), "attributes", |scrub, key, found| {
            let Some(oid) = oid_at(key, 1) else {
                scrub.report_damage(None, "the key of an attribute is too short");
                return Ok(());
            };
            scrub.report.attributes += 1;
            if owner != Some(oid) {
                owner = Some(oid);
                if !scrub.exists(&Key::object(oid)) {
                    scrub.report_damage(Some(oid), "it has attributes but does not exist");
                }
            }
            let what = format!("attribute {:?}", String::from_utf8_lossy(&key[1 + Oid::LEN..]));
            scrub.unseal_row(Some(oid), key, found, &what);
            Ok(())
        })
    }

    /// Every member exists and has a back reference, and every collection has the correct size.
    pub(super) fn members(&mut self) -> Result<()> {
        let mut run: Option<CollectionRun> = None;
        self.scan_table(&Key::table(table::MEMBER), "members", |scrub, key, _| {
            let pair = oid_at(key, 1).zip(oid_at(key, 1 + Oid::LEN)).filter(|_| key.len() == 1 + 2 * Oid::LEN);
            let Some((collection, member)) = pair else {
                scrub.report_damage(None, "the key of a member has the wrong length");
                return Ok(());
            };
            scrub.report.members += 1;
            match &mut run {
                Some(run) if run.owner == collection => run.rows += 1,
                run => {
                    scrub.check_collection(run.replace(CollectionRun { owner: collection, rows: 1 }));
                }
            }
            if !scrub.exists(&Key::object(member)) {
                scrub.report_damage(Some(collection), format!("its member {member} does not exist"));
            }
            if !scrub.exists(&Key::back_member(member, collection)) {
                scrub.report_damage(Some(member), format!("it has no back reference to collection {collection}"));
            }
            Ok(())
        })?;
        self.check_collection(run);
        Ok(())
    }

    fn check_collection(&mut self, run: Option<CollectionRun>) {
        let Some(CollectionRun { owner, rows }) = run else { return };
        match self.layers.object(owner) {
            // Damaged heads are reported with the objects.
            Err(_) => {}
            Ok(None) => self.report_damage(Some(owner), format!("it has {rows} members but does not exist")),
            Ok(Some(object)) => {
                let (kind, size) = (object.head.kind, object.head.size);
                if kind != Kind::Collection {
                    self.report_damage(Some(owner), format!("it has {rows} members but is a {}", kind.name()));
                } else if size != rows {
                    self.report_damage(Some(owner), format!("it has {rows} members, but its size is {size}"));
                }
            }
        }
    }

    /// Every name matches its checksum and is bound to an object of its space with a back reference.
    pub(super) fn names(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::NAME), "names", |scrub, key, found| {
            let space = key.get(1..3).and_then(|space| space.try_into().ok()).map(u16::from_be_bytes).map(SpaceId);
            let path = key.get(3..).map(std::str::from_utf8);
            let (Some(space), Some(Ok(path))) = (space, path) else {
                scrub.report_damage(None, "the key of a name is not UTF-8");
                return Ok(());
            };
            scrub.report.names += 1;
            let what = format!("name {path:?} of space {}", space.0);
            let Some(value) = scrub.unseal_row(None, key, found, &what) else { return Ok(()) };
            let Some(oid) = oid_at(value, 0).filter(|_| value.len() == Oid::LEN) else {
                scrub.report_damage(None, format!("{what} is not bound to an identifier"));
                return Ok(());
            };
            if oid.space() != space {
                scrub.report_damage(Some(oid), format!("{what} is bound to it, but it is in another space"));
            }
            if !scrub.exists(&Key::object(oid)) {
                scrub.report_damage(Some(oid), format!("{what} is bound to it, but it does not exist"));
            } else if !scrub.exists(&Key::back_name(oid, path)) {
                scrub.report_damage(Some(oid), format!("it has no back reference to {what}"));
            }
            Ok(())
        })
    }

    /// Every row matches its checksum and has a valid key.
    pub(super) fn rows(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::ROW), "rows", |scrub, key, found| {
            scrub.report.rows += 1;
            let own = &key[1..];
            if !(1..=limits::ROW_KEY).contains(&own.len()) {
                scrub.report_damage(None, format!("the key of row {} has {} bytes", hex(own), own.len()));
            }
            match rows::verify_value(key, found) {
                Ok(value) => scrub.report.bytes += value.len() as u64,
                Err(error) => scrub.report_damage(None, format!("row {}: {error}", hex(own))),
            }
            Ok(())
        })
    }

    /// Every back reference leads to its target.
    pub(super) fn back_references(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::BACK_REFERENCE), "back references", |scrub, key, _| {
            let oid = oid_at(key, 1);
            let (Some(oid), Some((kind, to))) = (oid, key.get(1 + Oid::LEN..).and_then(<[u8]>::split_first)) else {
                scrub.report_damage(None, "the key of a back reference is too short");
                return Ok(());
            };
            match (kind, oid_at(to, 0), std::str::from_utf8(to)) {
                (b'm', Some(collection), _) if to.len() == Oid::LEN => {
                    if !scrub.exists(&Key::member(collection, oid)) {
                        scrub.report_damage(Some(oid), format!("collection {collection} does not have it as a member"));
                    }
                }
                (b'n', _, Ok(path)) => {
                    let name = Key::name(oid.space(), path);
                    // A damaged name is reported with the names.
                    let bound = scrub.layers.get_sealed(&name, &String::new);
                    if !bound.is_ok_and(|bound| bound.is_none_or(|bound| oid_at(&bound, 0) != Some(oid))) {
                        return Ok(());
                    }
                    scrub.report_damage(Some(oid), format!("name {path:?} is not bound to it"));
                }
                _ => scrub.report_damage(Some(oid), "one of its back references is invalid"),
            }
            Ok(())
        })
    }
}
