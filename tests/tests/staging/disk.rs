//! What blob files hold.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The header of a blob file.
const HEADER_BYTES: u64 = 4096;

/// Bytes of all blob files in a data directory, without holes and headers.
pub(crate) fn blob_bytes(data: &Path) -> u64 {
    files(data).iter().map(|(_, bytes)| bytes).sum()
}

/// The blob files that hold bytes, and how many.
pub(crate) fn files(data: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(data.join("blobs")).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<(String, u64)> = entries
        .filter_map(|entry| {
            // An empty file may be removed meanwhile.
            let bytes = bytes_without_holes(&File::open(entry.path()).ok()?).saturating_sub(HEADER_BYTES);
            (bytes > 0).then(|| (entry.file_name().to_string_lossy().into_owned(), bytes))
        })
        .collect();
    files.sort();
    files
}

fn bytes_without_holes(file: &File) -> u64 {
    let (mut bytes, mut at) = (0, 0);
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(from) => {
                at = seek(file, SeekFrom::Hole(from)).unwrap();
                bytes += at - from;
            }
            Err(Errno::NXIO) => return bytes,
            Err(error) => panic!("a blob file cannot be searched for holes: {error}"),
        }
    }
}
