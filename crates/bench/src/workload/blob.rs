//! A large object written and read in pieces over the Unix socket, compared with a file.

use std::time::Instant;

use bytes::Bytes;

use crate::Result;
use crate::contest::{Side, interleave};
use crate::figure::{Better, Figure, Shape};
use crate::mortar::server::{Engine, MortarServer, runtime};
use crate::rival::plain_file;
use crate::run::{MetricSpec, Run};

const MIB: usize = 1 << 20;

/// Measures writing and reading.
pub(crate) fn measure(run: &Run) -> Result<Vec<Figure>> {
    let pieces = run.choose(256, 64);
    let cell = |what: &str, bar| MetricSpec {
        case: format!("{what} {pieces} MiB in pieces of 1 MiB"),
        panel: "MiB/s".into(),
        point: what.into(),
        unit: "MiB/s",
        better: Better::Higher,
        target_ratio: Some(bar),
    };
    let cells = [cell("write", 0.8), cell("read", 0.6)];
    let mut figure = Figure {
        id: "blob",
        title: "a large object over the Unix socket",
        about: "Mortar: the client library's writer, the commit of the upload, and its reader, on the Unix socket. The rival: \
                write(2) into a new file, fdatasync and fsync of its directory; pread(2). Both are on disk before the clock \
                of the write stops, and read from the page cache, into memory of the reading process; every piece is \
                checked."
            .into(),
        paper: "",
        parameters: vec![format!("{pieces} pieces of 1 MiB")],
        shape: Shape::Bars,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    if run.wants("blob", &cells) {
        let content = Content::new(pieces);
        let served = MortarServer::start(run, Engine::Durable)?;
        let mut sides = [
            Side::new("Mortar", || runtime()?.block_on(measure_mortar(&served, &content))),
            Side::new("plain file", || measure_file(run, &content)),
        ];
        let outcome = interleave("blob", Run::REPEATS, &mut sides)?;
        figure.rows = run.rows("blob", &outcome, &cells);
    }
    Ok(vec![figure])
}

/// Pieces that begin with their number and share the rest.
struct Content {
    pieces: Vec<Bytes>,
}

impl Content {
    fn new(pieces: usize) -> Self {
        let piece = |index: usize| {
            let mut piece: Vec<u8> = (0..MIB).map(|at| (at * 31 + at / 4096) as u8).collect();
            piece[..8].copy_from_slice(&(index as u64).to_le_bytes());
            piece.into()
        };
        Self { pieces: (0..pieces).map(piece).collect() }
    }

    fn len(&self) -> usize {
        self.pieces.len() * MIB
    }

    /// Whether bytes read at `offset` are correct: checks the beginning of each piece and the last byte.
    fn is_right(&self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset + bytes.len();
        if bytes.is_empty() || end > self.len() {
            return false;
        }
        let at = |offset: usize| self.pieces[offset / MIB][offset % MIB];
        let begins = (offset.next_multiple_of(MIB)..end.saturating_sub(7)).step_by(MIB);
        let mut stamps = begins.map(|begin| (&self.pieces[begin / MIB][..8], &bytes[begin - offset..][..8]));
        stamps.all(|(expected, found)| expected == found) && bytes[bytes.len() - 1] == at(end - 1)
    }

    /// MiB per second of writing and reading.
    fn rates(&self, writing: f64, reading: f64) -> Vec<f64> {
        let mib = self.pieces.len() as f64;
        vec![mib / writing, mib / reading]
    }
}

async fn measure_mortar(served: &MortarServer, content: &Content) -> Result<Vec<f64>> {
    let cluster = served.connect().await?;
    let begun = Instant::now();
    let mut writer = cluster.content_writer(None);
    for piece in &content.pieces {
        writer.write(piece.clone()).await?;
    }
    let staged = writer.finish().await?;
    let created = cluster.transact(|t| async move { Ok((t.create_blob_from(staged)?, t)) });
    let (blob, t) = created.await?;
    let writing = begun.elapsed().as_secs_f64();
    let oid = t.real_oid(blob).ok_or("the commit created nothing")?;

    let begun = Instant::now();
    let mut reader = cluster.content_reader(oid, 0);
    let mut offset = 0;
    while let Some(bytes) = reader.next().await? {
        if !content.is_right(offset, &bytes) {
            return Err(format!("the bytes read at {offset} differ from those written").into());
        }
        offset += bytes.len();
    }
    let reading = begun.elapsed().as_secs_f64();
    if offset != content.len() {
        return Err(format!("{offset} bytes were read of {}", content.len()).into());
    }
    // The object is kept: freeing its blocks would continue in the background while the rival runs.
    Ok(content.rates(writing, reading))
}

fn measure_file(run: &Run, content: &Content) -> Result<Vec<f64>> {
    let directory = run.directory("file")?;
    let path = directory.path().join("file");
    let begun = Instant::now();
    plain_file::write(&path, content.pieces.iter().map(|piece| &piece[..]))?;
    let writing = begun.elapsed().as_secs_f64();

    let mut buffer = vec![0; MIB];
    let begun = Instant::now();
    let mut right = true;
    let len = plain_file::read(&path, &mut buffer, |offset, bytes| right &= content.is_right(offset as usize, bytes))?;
    let reading = begun.elapsed().as_secs_f64();
    if !right || len != content.len() as u64 {
        return Err("the bytes read differ from those written".into());
    }
    Ok(content.rates(writing, reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_at_the_wrong_place_is_noticed() {
        let content = Content::new(3);
        assert!(content.is_right(0, &content.pieces[0]));
        assert!(content.is_right(MIB + 5, &content.pieces[1][5..]));
        assert!(!content.is_right(0, &content.pieces[1]));
        assert!(!content.is_right(2 * MIB, &[&content.pieces[2][..], &[0]].concat()));
        let across = [&content.pieces[0][100..], &content.pieces[1][..100]].concat();
        assert!(content.is_right(100, &across));
        assert!(!content.is_right(100, &[&content.pieces[0][100..], &content.pieces[2][..100]].concat()));
    }
}
