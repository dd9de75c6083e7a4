//! `mortar get`: an object's content.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use client::ObjectStat;
use model::Kind;

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::target::Target;

const EXAMPLES: &str = "\
Examples:
  mortar get /photos/cat.jpg -o cat.jpg     write to a file
  mortar get /notes/now                     write to the standard output
  mortar get /log --range -1000             the last 1000 bytes
  mortar get /data --range 4096-8191        bytes 4096 to 8191, both included
  mortar get 1.0.0.2a.3 --range 1000000-    from byte 1,000,000 to the end";

/// Write an object's content to a file or the standard output
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// The object: a name or an identifier
    target: Target,
    /// The file to write; it appears when it is complete. - is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Only a part: FIRST-LAST, FIRST- or -COUNT, in bytes from 0, LAST included
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    range: Option<ByteRange>,
}

impl Get {
    /// Whether the content goes to a file.
    pub(crate) fn writes_file(&self) -> bool {
        self.output.as_os_str() != "-"
    }
}

/// A part of an object's content, as given by `--range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteRange {
    /// From a byte to another one, both included, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || "a range has the form FIRST-LAST, FIRST- or -COUNT, in bytes".to_owned();
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
        match text.split_once('-').ok_or_else(wrong)? {
            ("", count) => Ok(Self::Last(number(count)?)),
            (first, "") => Ok(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    Err("the range ends before it begins".to_owned())
                } else {
                    Ok(Self::From(first, Some(last)))
                }
            }
        }
    }
}

impl ByteRange {
    /// The range within content of `size` bytes; the part after its end is cut off.
    fn within(self, size: u64) -> Range<u64> {
        match self {
            Self::From(first, last) => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                first.min(end)..end
            }
            Self::Last(count) => size.saturating_sub(count)..size,
        }
    }
}

pub(crate) async fn run(args: Get, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let stat = args.target.stat(&cluster).await?;
    refuse_other_kinds(&args.target, &stat)?;
    let range = args.range.map_or(0..stat.size, |range| range.within(stat.size));
    let mut sink = Sink::open(&args.output)?;
    if stat.object.content().is_none() {
        let part = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let part = part.and_then(|(start, end)| stat.object.data.get(start..end));
        sink.write(&mut session.output, part.unwrap_or_default())?;
    } else {
        // What is appended meanwhile counts, unless a part was asked for.
        let mut reader = cluster.content_reader(stat.oid, range.start);
        if args.range.is_some() {
            reader = reader.until(range.end);
        }
        while let Some(piece) = reader.next().await? {
            sink.write(&mut session.output, &piece)?;
        }
    }
    sink.finish()
}

fn refuse_other_kinds(target: &Target, stat: &ObjectStat) -> Result {
    let (what, hint) = match stat.kind() {
        Kind::Blob => return Ok(()),
        Kind::Record => ("record", "`mortar object get` shows it."),
        Kind::Directory => ("directory", "`mortar ls` lists it; `mortar export` writes a whole tree."),
        Kind::Collection => ("collection: it has members but no content", "`mortar collection ls` lists the members."),
    };
    Err(Failure::usage(format!("{target} is a {what}")).hint(hint))
}

/// The destination: the standard output, or a file that gets its name when it is complete.
pub(crate) enum Sink {
    Output,
    File { file: File, part: PathBuf, path: PathBuf },
}

impl Sink {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Output);
        }
        let cannot = |error| Failure::file(format!("cannot write {}", path.display()), &error);
        // A device or pipe is written directly, and must not be replaced by a file.
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(path).map_err(cannot)?;
            return Ok(Self::File { file, part: path.to_owned(), path: path.to_owned() });
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".part-{}", std::process::id()));
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(cannot)?;
        Ok(Self::File { file, part, path: path.to_owned() })
    }

    pub(crate) fn write(&mut self, output: &mut Output, bytes: &[u8]) -> Result {
        match self {
            Self::Output => output.write_raw(bytes),
            Self::File { file, path, .. } => {
                file.write_all(bytes).map_err(|e| Failure::file(format!("cannot write {}", path.display()), &e))
            }
        }
    }

    pub(crate) fn finish(mut self) -> Result {
        if let Self::File { part, path, .. } = &mut self
            && part != path
        {
            fs::rename(&*part, &*path).map_err(|e| Failure::file(format!("cannot write {}", path.display()), &e))?;
            *part = path.clone();
        }
        Ok(())
    }
}

/// Removes an incomplete file.
impl Drop for Sink {
    fn drop(&mut self) {
        if let Self::File { part, path, .. } = self
            && part != path
        {
            // It is incomplete; an error of removing it would hide the first error.
            let _ = fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_and_limited_to_the_content() {
        let range = |text: &str, size| text.parse::<ByteRange>().map(|range| range.within(size));
        assert_eq!(range("0-9", 100), Ok(0..10));
        assert_eq!(range("90-200", 100), Ok(90..100));
        assert_eq!(range("200-", 100), Ok(100..100));
        assert_eq!(range("-10", 100), Ok(90..100));
        assert_eq!(range("-1000", 100), Ok(0..100));
        assert_eq!(range("0-18446744073709551615", 100), Ok(0..100));
        for wrong in ["", "5", "-", "9-0", "a-b", "1-2-3", "--5"] {
            assert!(wrong.parse::<ByteRange>().is_err(), "{wrong}");
        }
    }
}
