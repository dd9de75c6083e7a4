//! Reads records as a sequence of JSON values, such as one on each line.

use std::io::{self, BufReader, Read};

use model::limits;
use serde_json::{Deserializer, Value};

use crate::distinct_json::DistinctJson;

use crate::failure::{Failure, Result};

/// Most bytes of JSON for one record: its text may be several times as long as the record.
const MAX_RECORD_BYTES: usize = 4 * limits::OBJECT;

/// Reads records one after the other, and keeps at most one in memory.
pub(crate) struct RecordReader<R> {
    source: BoundedReader<BufReader<R>>,
    /// Number of records read.
    count: u64,
}

/// A source of bytes that fails after a limit.
struct BoundedReader<R> {
    source: R,
    left: usize,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is longer than {MAX_RECORD_BYTES} bytes"),
            ));
        }
        let room = buffer.len().min(self.left);
        let read = self.source.read(&mut buffer[..room])?;
        self.left -= read;
        Ok(read)
    }
}

impl<R: Read> RecordReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source: BoundedReader { source: BufReader::new(source), left: MAX_RECORD_BYTES }, count: 0 }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// If the next value is not valid JSON or too long.
    pub(crate) fn next(&mut self) -> Result<Option<Value>> {
        self.source.left = MAX_RECORD_BYTES;
        self.count += 1;
        // The deserializer takes single bytes from the buffer, so bytes after a record stay for the next one.
        let next = Deserializer::from_reader(&mut self.source).into_iter::<DistinctJson>().next();
        next.transpose().map(|next| next.map(|DistinctJson(value)| value)).map_err(|error| {
            let what = format!("it is not valid JSON: {}", without_place(&error));
            self.with_record_number(Failure::usage(what))
        })
    }

    /// The only record.
    ///
    /// # Errors
    /// If there is none, or more than one; as [`RecordReader::next`].
    pub(crate) fn read_single(&mut self) -> Result<Value> {
        let none = || Failure::usage("the standard input has no record: give it the fields as a JSON object");
        let only = self.next()?.ok_or_else(none)?;
        match self.next() {
            Ok(None) => Ok(only),
            _ => Err(Failure::usage("the standard input has several records, and a name is of one object")
                .hint("Leave the name out to store several.")),
        }
    }

    /// Adds the number of the record to a failure.
    pub(crate) fn with_record_number(&self, failure: Failure) -> Failure {
        let before = if self.count > 1 { " (those before it are stored)" } else { "" };
        failure.context(&format!("record {} of the standard input{before}", self.count))
    }
}

/// The message of an error without its line and column: they count from the end of the record before.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(place.as_str()).map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_read_with_any_separation() {
        for text in ["{\"a\": 1}\n{\"a\": 2}\n", " {\"a\":1} {\"a\":2}", "{\n \"a\": 1\n}\n\n{\n \"a\": 2\n}"] {
            let mut records = RecordReader::new(text.as_bytes());
            assert_eq!(records.next().unwrap(), Some(json!({"a": 1})), "{text}");
            assert_eq!(records.next().unwrap(), Some(json!({"a": 2})), "{text}");
            assert_eq!(records.next().unwrap(), None, "{text}");
        }
        assert!(RecordReader::new("".as_bytes()).read_single().is_err());
        assert!(RecordReader::new("{} {}".as_bytes()).read_single().is_err());
        assert_eq!(RecordReader::new("{}".as_bytes()).read_single().unwrap(), json!({}));
    }

    #[test]
    fn invalid_record_is_reported_with_its_number() {
        let mut records = RecordReader::new("{\"a\": 1}\n{\"a\": }".as_bytes());
        records.next().unwrap();
        let wrong = records.next().unwrap_err().to_json();
        assert!(wrong.contains("record 2 of") && wrong.contains("those before it are stored"), "{wrong}");
        assert!(wrong.contains("expected value") && !wrong.contains(" column "), "{wrong}");
    }

    #[test]
    fn duplicate_field_is_refused() {
        let wrong = RecordReader::new("{\"age\": 1, \"age\": 2}".as_bytes()).next().unwrap_err().to_json();
        assert!(wrong.contains("age") && wrong.contains("twice"), "{wrong}");
        let wrong = RecordReader::new("{\"a\": [{\"b\": 1, \"b\": 1}]}".as_bytes()).next().unwrap_err().to_json();
        assert!(wrong.contains("twice"), "{wrong}");
    }

    #[test]
    fn endless_record_does_not_fill_memory() {
        let endless = "\"".as_bytes().chain(io::repeat(b'x'));
        let wrong = RecordReader::new(endless).next().unwrap_err().to_json();
        assert!(wrong.contains("longer than"), "{wrong}");
    }
}
