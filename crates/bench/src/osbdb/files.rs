//! The same objects as plain files of a directory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::Oid;

use super::{Objects, Reopens};
use crate::Result;

/// A directory with a file for each object.
pub(super) struct Files {
    directory: PathBuf,
    next: u128,
    /// The file that was used last.
    open: Option<(Oid, File)>,
    buffer: Vec<u8>,
}

impl Files {
    pub(super) fn create(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned(), next: 0, open: None, buffer: Vec::new() })
    }

    fn path(&self, oid: Oid) -> PathBuf {
        self.directory.join(format!("{:032x}", oid.to_u128()))
    }

    fn file(&mut self, oid: Oid) -> Result<&File> {
        let open = self.open.take().filter(|(current, _)| *current == oid);
        let open = match open {
            Some(open) => open,
            None => (oid, OpenOptions::new().read(true).write(true).open(self.path(oid))?),
        };
        Ok(&self.open.insert(open).1)
    }
}

impl Reopens for Files {
    fn reopen(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }
}

impl Objects for Files {
    fn create_all(&mut self, contents: &[Bytes]) -> Result<Vec<Oid>> {
        let mut oids = Vec::with_capacity(contents.len());
        for content in contents {
            self.next += 1;
            let oid = Oid::from_bytes(self.next.to_be_bytes());
            let mut file = File::create(self.path(oid))?;
            file.write_all(content)?;
            file.sync_data()?;
            oids.push(oid);
        }
        File::open(&self.directory)?.sync_all()?;
        Ok(oids)
    }

    fn write(&mut self, oid: Oid, offset: u64, data: &Bytes) -> Result<()> {
        Ok(self.file(oid)?.write_all_at(data, offset)?)
    }

    fn force(&mut self) -> Result<()> {
        Ok(self.open.as_ref().map_or(Ok(()), |(_, file)| file.sync_data())?)
    }

    fn read(&mut self, oid: Oid, offset: u64, len: usize, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        self.file(oid)?.read_exact_at(&mut buffer[..len], offset)?;
        look(&buffer[..len]);
        self.buffer = buffer;
        Ok(())
    }
}
