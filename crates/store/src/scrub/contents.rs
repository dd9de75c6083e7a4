//! Verifies contents, their chunks, and the records of the chunks in use.

use model::{ContentId, Result};

use super::{Scrub, cause};
use crate::content::blob_file;
use crate::plant::{ContentBug, planted};
use crate::read::layers::{FoundRow, StoredContent};
use crate::rows::key::{self, Key, content_of, index_of, table};
use crate::rows::row::{CHUNK, Chunk, Extent, HEAD, RowError, check_blocks, decode_extent_len};

/// The name of a chunk of a blob file in descriptions of damage.
fn chunk_name(file: u32, offset: u64) -> String {
    format!("the chunk at byte {offset} of {}", blob_file::file_name(file))
}

impl Scrub<'_> {
    /// The head and the bytes of every content.
    pub(super) fn contents(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::CONTENT), "contents", |scrub, key, found| {
            let Some(id) = content_of(key) else {
                scrub.report_damage(None, "the key of a content has the wrong length");
                return Ok(());
            };
            scrub.report.contents += 1;
            scrub.note_first_extent(found);
            // A scan may show a patch without its base: look the content up.
            match scrub.layers.content(id) {
                Ok(Some(content)) => return scrub.content(&content),
                Ok(None) => {}
                Err(error) => {
                    scrub.unreadable_heads += 1;
                    scrub.report_damage(Some(id), cause(&error));
                }
            }
            Ok(())
        })
    }

    /// Notes that a first chunk uses its extent, even if the head is damaged.
    fn note_first_extent(&mut self, found: &FoundRow<'_>) {
        let chunk = found.value().and_then(|row| row.get(HEAD..)).map(Chunk::decode);
        if let Some(Ok(Chunk::Extent(extent))) = chunk {
            self.note_extent(&extent);
        }
    }

    /// Notes that a chunk uses an extent, which no other chunk may use.
    fn note_extent(&mut self, extent: &Extent) {
        let (file, offset) = (extent.file, extent.offset);
        if !self.used.insert(file, offset) {
            self.report_damage(None, format!("{} is used twice", chunk_name(file, offset)));
        }
    }

    fn content(&mut self, content: &StoredContent<'_>) -> Result<()> {
        let id = content.id;
        let chunks = content.head.size.div_ceil(CHUNK as u64);
        let first = content.row.value().map(|row| row.get(HEAD..).unwrap_or_default());
        if let Err(error) = self.chunk(content, 0, first) {
            self.report_damage(Some(id), error);
        }
        self.scan_table(&Key::chunks_of(content.head.data), "chunks", |scrub, key, found| {
            scrub.chunks += 1;
            let checked = match index_of(key) {
                None => Err("the key of a chunk has the wrong length".to_owned()),
                Some(index) if index >= chunks => Err(format!("chunk {index} is beyond its end")),
                Some(index) => scrub.chunk(content, index, found.value()),
            };
            if let Err(error) = checked {
                scrub.report_damage(Some(id), error);
            }
            Ok(())
        })
    }

    /// One chunk, from its row unless the row is a patch.
    fn chunk(&mut self, content: &StoredContent<'_>, index: u64, row: Option<&[u8]>) -> Result<(), String> {
        let (id, at) = (content.id, index * CHUNK as u64);
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
                self.layers.read_extent(&extent, bytes, at).map_err(|e| cause(&e.for_content(id)))?;
                bytes.len()
            }
            None => self.read_patched_chunk(id, index)?,
        };
        self.report.bytes += len as u64;
        Ok(())
    }

    /// A chunk whose row is a patch, merged with its base.
    fn read_patched_chunk(&mut self, id: ContentId, index: u64) -> Result<usize, String> {
        if let Some(content) = self.layers.content(id).map_err(|e| cause(&e))? {
            self.layers.fill(&content, index, 0, &mut self.buffer).map_err(|e| cause(&e))?;
        }
        Ok(CHUNK)
    }

    /// Chunks that no content uses: only their rows are counted.
    pub(super) fn garbage(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::GARBAGE), "chunks to be removed", |scrub, key, _| {
            let Some(data) = key::data_of(key) else {
                scrub.report_damage(None, "the key of chunks to be removed has the wrong length");
                return Ok(());
            };
            scrub.scan_table(&Key::chunks_of(data), "chunks", |scrub, _, _| {
                scrub.chunks += 1;
                Ok(())
            })
        })
    }

    /// Every row of a chunk belongs to a content, or is to be removed.
    pub(super) fn chunks(&mut self) -> Result<()> {
        let mut rows = 0;
        self.scan_table(&Key::table(table::CHUNK), "chunks", |scrub, _, found| {
            rows += 1;
            if let Some(Ok(Chunk::Extent(extent))) = found.value().map(Chunk::decode) {
                scrub.note_extent(&extent);
            }
            Ok(())
        })?;
        // The owner of chunks is unknown if its head is damaged.
        if rows != self.chunks && self.unreadable_heads == 0 && !self.has_lost_rows() {
            let known = self.chunks;
            self.report_damage(None, format!("there are {rows} chunks, and {known} of them belong to some content"));
        }
        Ok(())
    }

    /// The extents with a record are those that a chunk uses.
    pub(super) fn extents(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::EXTENT), "extents", |scrub, key, found| {
            let Some((file, offset)) = key::extent_of(key) else {
                scrub.report_damage(None, "the key of an extent has the wrong length");
                return Ok(());
            };
            let is_used = scrub.used.remove(file, offset);
            let what = match found.value().map_or(Err(RowError::Short), decode_extent_len) {
                _ if planted(ContentBug::ScrubTrustsExtents) => return Ok(()),
                Err(error) => error.to_string(),
                Ok(len) if len as usize != CHUNK => format!("its record says {len} bytes"),
                Ok(_) if !is_used && scrub.has_lost_rows() => return Ok(()),
                Ok(_) if !is_used => "it is recorded as used, and no content uses it".to_owned(),
                Ok(_) => return Ok(()),
            };
            scrub.report_damage(None, format!("{}: {what}", chunk_name(file, offset)));
            Ok(())
        })?;
        if self.has_lost_rows() {
            return Ok(());
        }
        let left: Vec<_> = self.used.iter().take(super::MAX_LISTED).collect();
        for (file, offset) in left {
            self.report_damage(None, format!("{} is used and not recorded", chunk_name(file, offset)));
        }
        Ok(())
    }

    /// Blob files with chunks have names and valid headers. A file without chunks may have lost its header in a power failure.
    pub(super) fn blob_files(&mut self) -> Result<()> {
        let Some(files) = self.layers.files else { return Ok(()) };
        let mut faults = Vec::new();
        let listed = files.check_headers(&mut |number, what| faults.push((number, false, what)));
        let unlinked = listed.and_then(|()| files.unlinked());
        let unlinked = unlinked.unwrap_or_else(|error| {
            self.report_damage(None, format!("the blob files cannot be listed: {error}"));
            Vec::new()
        });
        faults.extend(unlinked.into_iter().map(|(number, may_grow)| {
            let name = blob_file::file_name(number);
            (
                number,
                may_grow,
                format!("{name} was removed: what is in it can be read until this process ends, and not afterwards"),
            )
        }));
        for (number, mut is_used, what) in faults {
            self.scan_table(&Key::extents_of(number), "extents", |_, _, _| {
                is_used = true;
                Ok(())
            })?;
            if is_used {
                self.report_damage(None, what);
            }
        }
        Ok(())
    }

    /// Freed extents are not in use.
    pub(super) fn check_freed_extents(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::FREED), "freed extents", |scrub, key, _| {
            match key::extent_of(key) {
                None => scrub.report_damage(None, "the key of a freed extent has the wrong length"),
                Some((file, offset)) => {
                    if scrub.exists(&Key::extent(file, offset)) {
                        scrub.report_damage(None, format!("{} is in use, and freed", chunk_name(file, offset)));
                    }
                }
            }
            Ok(())
        })
    }
}
