//! Whether parts of files can be sent without waiting for a disk.
//!
//! `sendfile` blocks on the disk if a page is not in the system's cache, and with it every connection of the I/O thread. So the
//! first byte of each part is read without waiting; if that fails, a blocking thread reads the parts first.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tracing::debug;
use wire::outbox::Piece;

/// Whether all parts are probably in memory.
fn is_resident(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| match piece {
        Piece::Bytes(_) => true,
        Piece::File { file, offset, .. } => has_byte(file, *offset),
    })
}

/// Whether a byte can be read without waiting. True if the file system cannot tell.
fn has_byte(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::AGAIN))
}

/// Makes the system read all parts into its cache, if they are not there. Errors are ignored here and reported when the parts are
/// sent.
pub(crate) fn make_resident(pieces: &[Piece]) {
    if is_resident(pieces) {
        return;
    }
    let mut buffer = vec![0; 64 << 10];
    for piece in pieces {
        let Piece::File { file, offset, len, .. } = piece else { continue };
        let mut at = 0;
        while at < *len {
            let part = buffer.len().min(*len - at);
            if let Err(error) = file.read_exact_at(&mut buffer[..part], offset + at as u64) {
                debug!(%error, offset, "a part of a file cannot be read ahead");
                break;
            }
            at += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn parts_are_in_memory_once_they_were_read_ahead() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        // Evicts the pages, where the file system supports that.
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let file = Arc::new(file);
        let piece = |number: u64| Piece::File { file: file.clone(), offset: number << 16, len: 1 << 16, checksum: 0 };
        let pieces: Vec<Piece> = (0..16).map(piece).collect();
        make_resident(&pieces);
        assert!(is_resident(&pieces));
    }
}
