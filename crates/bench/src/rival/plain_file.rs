//! Files, written and read directly.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes `pieces` one after the other into a new file. They are on disk when this returns.
pub(crate) fn write<'a>(path: &Path, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut file = File::create(path)?;
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_data()?;
    // A new file is durable only if its directory entry is.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Reads the file in pieces of `buffer`'s size and passes each to `look` with its offset. Returns the number of bytes.
pub(crate) fn read(path: &Path, buffer: &mut [u8], mut look: impl FnMut(u64, &[u8])) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut offset = 0;
    loop {
        let len = file.read_at(buffer, offset)?;
        if len == 0 {
            return Ok(offset);
        }
        look(offset, &buffer[..len]);
        offset += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write(&path, [b"abc".as_slice(), b"defg"].into_iter()).unwrap();
        let mut seen = Vec::new();
        assert_eq!(read(&path, &mut [0; 4], |_, piece| seen.extend_from_slice(piece)).unwrap(), 7);
        assert_eq!(seen, b"abcdefg");
    }
}
