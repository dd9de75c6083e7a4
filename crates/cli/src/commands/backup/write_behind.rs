//! A file of which the disk writes what has come while more comes, so that little is left for the force at its end.

use std::fs::File;
use std::io::{self, Write};

/// Bytes that are passed to the disk at a time.
const STEP: u64 = 8 << 20;

/// A file that is written from its beginning to its end.
pub(super) struct WriteBehind {
    file: File,
    written: u64,
    /// The disk has been asked to write the bytes before this position.
    begun: u64,
}

impl WriteBehind {
    pub(super) fn new(file: File) -> Self {
        Self { file, written: 0, begun: 0 }
    }

    fn begin_write_back(&mut self) {
        store::begin_write_back(&self.file, self.begun, self.written - self.begun);
        self.begun = self.written;
    }
}

impl Write for WriteBehind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        if self.written - self.begun >= STEP {
            self.begin_write_back();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
