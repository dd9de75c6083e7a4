//! Verifies objects, their content, and the counts of it.

use model::{Kind, Oid, Result, SpaceId};

use super::{Scrub, cause};
use crate::plant::{ContentBug, planted};
use crate::read::layers::{FoundRow, StoredObject};
use crate::rows::key::{self, Key, content_of, oid_at, page_of, table};
use crate::rows::row::{CHUNK, Chunk, ExtentUse, HEAD, Head, PageUsage, RowError, check_blocks};

impl Scrub<'_> {
    /// Every object's head and content.
    pub(super) fn objects(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::OBJECT), "objects", |scrub, key, found| {
            let Some(oid) = oid_at(key, 1).filter(|_| key.len() == 1 + Oid::LEN) else {
                scrub.report_damage(None, "the key of an object has the wrong length");
                return Ok(());
            };
            scrub.report.objects += 1;
            scrub.count_first_extent(found);
            if content_of(oid).is_none() {
                scrub.note_slot(oid);
            }
            match scrub.layers.object(oid) {
                Ok(Some(object)) => return scrub.object(&object),
                Ok(None) => {}
                Err(error) => {
                    scrub.unreadable_heads += 1;
                    scrub.report_damage(Some(oid), cause(&error));
                }
            }
            Ok(())
        })?;
        self.check_page();
        Ok(())
    }

    /// Counts the extent of a first chunk, even if the head is damaged.
    fn count_first_extent(&mut self, found: &FoundRow<'_>) {
        let chunk = found.value().and_then(|row| row.get(HEAD..)).map(Chunk::decode);
        if let Some(Ok(Chunk::Extent(extent))) = chunk {
            self.count_use(&extent);
        }
    }

    fn object(&mut self, object: &StoredObject<'_>) -> Result<()> {
        let (oid, Head { kind, size, data, .. }) = (object.oid, object.head);
        if content_of(oid).is_none() && !self.spaces.contains(&oid.space()) {
            self.report_damage(Some(oid), format!("there is no space {}", oid.space().0));
        }
        if kind == Kind::Collection {
            if size > 0 && !self.exists_under(&Key::members(oid)) {
                self.report_damage(Some(oid), format!("it should have {size} members and has none"));
            }
            return Ok(());
        }
        let chunks = size.div_ceil(CHUNK as u64);
        let first = object.row.value().map(|row| row.get(HEAD..).unwrap_or_default());
        if let Err(error) = self.chunk(object, 0, first) {
            self.report_damage(Some(oid), error);
        }
        self.scan_table(&Key::chunks_of(data), "chunks", |scrub, key, found| {
            scrub.chunks += 1;
            let checked = match index_of(key) {
                None => Err("the key of a chunk has the wrong length".to_owned()),
                Some(index) if index >= chunks => Err(format!("chunk {index} is beyond its end")),
                Some(index) => scrub.chunk(object, index, found.value()),
            };
            if let Err(error) = checked {
                scrub.report_damage(Some(oid), error);
            }
            Ok(())
        })
    }

    /// One chunk, from its row unless the row is a patch.
    fn chunk(&mut self, object: &StoredObject<'_>, index: u64, row: Option<&[u8]>) -> Result<(), String> {
        let (oid, at) = (object.oid, index * CHUNK as u64);
        let damaged = |e: RowError| e.to_string();
        let len = match row.map(Chunk::decode).transpose().map_err(damaged)? {
            Some(Chunk::Empty) => 0,
            Some(Chunk::Inline { blocks, bytes }) => {
                check_blocks(blocks, 0, bytes, at).map_err(damaged)?;
                bytes.len()
            }
            Some(Chunk::Extent(extent)) => {
                let bytes = &mut self.buffer[..extent.len as usize];
                if planted(ContentBug::ScrubTrustsChunks) {
                    return Ok(());
                }
                self.layers.read_extent(&extent, bytes, at).map_err(|e| cause(&e.for_object(oid)))?;
                bytes.len()
            }
            None => {
                let object = self.layers.object(oid).map_err(|e| cause(&e))?;
                if let Some(object) = object {
                    self.layers.fill(&object, index, 0, &mut self.buffer).map_err(|e| cause(&e))?;
                }
                CHUNK
            }
        };
        self.report.bytes += len as u64;
        Ok(())
    }

    /// Content without an object: only its rows are counted.
    pub(super) fn garbage(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::GARBAGE), "content to be removed", |scrub, key, _| {
            let Some(data) = key::data_of(key) else {
                scrub.report_damage(None, "the key of content to be removed has the wrong length");
                return Ok(());
            };
            scrub.scan_table(&Key::chunks_of(data), "chunks", |scrub, _, _| {
                scrub.chunks += 1;
                Ok(())
            })
        })
    }

    /// Every row of a chunk belongs to some content. Counts the extents.
    pub(super) fn chunks(&mut self) -> Result<()> {
        let mut rows = 0;
        self.scan_table(&Key::table(table::CHUNK), "chunks", |scrub, _, found| {
            rows += 1;
            if let Some(Ok(Chunk::Extent(extent))) = found.value().map(Chunk::decode) {
                scrub.count_use(&extent);
            }
            Ok(())
        })?;
        // The owner of chunks is unknown if its head is damaged.
        if rows != self.chunks && self.unreadable_heads == 0 {
            let known = self.chunks;
            self.report_damage(None, format!("there are {rows} chunks, and {known} of them belong to some content"));
        }
        Ok(())
    }

    /// Every extent has the correct number of users.
    pub(super) fn extents(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::EXTENT), "extents", |scrub, key, found| {
            let Some((file, offset)) = key::extent_of(key) else {
                scrub.report_damage(None, "the key of an extent has the wrong length");
                return Ok(());
            };
            let place = format!("the chunk at byte {offset} of {}", crate::content::blob_file::file_name(file));
            let found = found.value().map_or(Err(RowError::Short), ExtentUse::decode);
            let counted = scrub.uses.take(file, offset);
            match found {
                Ok(_) if planted(ContentBug::ScrubTrustsUserCounts) => {}
                Ok(row) if row.users == counted && row.len as usize == CHUNK => {}
                Ok(row) => {
                    let ExtentUse { len, users } = row;
                    scrub.report_damage(
                        None,
                        format!("{place} has {counted} users, and its count says {users}, of {len} bytes"),
                    );
                }
                Err(error) => scrub.report_damage(None, format!("the count of users of {place}: {error}")),
            }
            Ok(())
        })?;
        let left: Vec<_> = self.uses.remaining().take(super::MAX_LISTED).collect();
        for (file, offset) in left {
            let file = crate::content::blob_file::file_name(file);
            self.report_damage(None, format!("the chunk at byte {offset} of {file} is used and not counted"));
        }
        Ok(())
    }

    /// Freed extents are not in use.
    pub(super) fn freed(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::FREED), "freed extents", |scrub, key, _| {
            match key::extent_of(key) {
                None => scrub.report_damage(None, "the key of a freed extent has the wrong length"),
                Some((file, offset)) => {
                    if scrub.exists(&Key::extent(file, offset)) {
                        let file = crate::content::blob_file::file_name(file);
                        scrub.report_damage(None, format!("the chunk at byte {offset} of {file} is in use, and freed"));
                    }
                }
            }
            Ok(())
        })
    }

    /// Records the slot of an object. Objects come in the order of their pages within a class.
    fn note_slot(&mut self, oid: Oid) {
        match &mut self.page {
            Some((page, slot)) if *page == oid.page() => *slot = (*slot).max(oid.slot()),
            _ => {
                self.check_page();
                self.page = Some((oid.page(), oid.slot()));
            }
        }
    }

    /// The row of a page is above its highest slot, and the counter of its space is above the page.
    fn check_page(&mut self) {
        let Some((page, slot)) = self.page.take() else { return };
        let name = format!("page {:x} of space {}", page.number, page.space.0);
        match self.layers.find(&Key::page(page)).map(|found| found.value().map(PageUsage::decode)) {
            Ok(Some(Ok(room))) if room.next_slot > slot => {}
            Ok(Some(Ok(room))) => {
                let next = room.next_slot;
                self.report_damage(None, format!("{name} would assign slot {next} again: slot {slot} is taken"));
            }
            Ok(Some(Err(error))) => self.report_damage(None, format!("the usage of {name}: {error}")),
            Ok(None) => self.report_damage(None, format!("{name} has no row for its slots")),
            Err(error) => self.report_damage(None, format!("the usage of {name} cannot be read: {error}")),
        }
        let counter = self.layers.find(&Key::next_page(page.space));
        let next = counter.ok().and_then(|found| found.value().and_then(|row| row.try_into().ok()));
        if next.map_or(0, u64::from_be_bytes) <= page.number {
            self.report_damage(None, format!("{name} would be assigned again"));
        }
    }

    pub(super) fn pages(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::PAGE), "pages", |scrub, key, found| {
            if page_of(key).is_none() || found.value().is_none_or(|row| PageUsage::decode(row).is_err()) {
                scrub.report_damage(None, "the row of a page has the wrong length");
            }
            Ok(())
        })
    }

    /// Spaces and counters.
    pub(super) fn system(&mut self) -> Result<()> {
        let (spaces, counters) = (Key::system("space:"), Key::system("page:"));
        self.scan_table(&spaces, "spaces", |scrub, key, found| {
            let name = String::from_utf8_lossy(&key[spaces.len()..]).into_owned();
            let id = scrub.unseal_row(None, key, found, &format!("space {name:?}"));
            match id.map(|id| id.try_into().map(u16::from_be_bytes)) {
                Some(Ok(id)) => drop(scrub.spaces.insert(SpaceId(id))),
                Some(Err(_)) => scrub.report_damage(None, format!("space {name:?} has no number")),
                None => {}
            }
            Ok(())
        })?;
        self.scan_table(&counters, "page counters", |scrub, _, found| {
            if found.value().is_none_or(|row| row.len() != 8) {
                scrub.report_damage(None, "the page counter of a space has the wrong length");
            }
            Ok(())
        })
    }
}

fn index_of(key: &[u8]) -> Option<u64> {
    key.get(9..).and_then(|index| index.try_into().ok()).map(u64::from_be_bytes)
}
