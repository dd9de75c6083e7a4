//! The encoding of requests and replies between the two halves of the client.
//!
//! Numbers are big-endian. A `bytes` is a length of 32 bits and that many bytes; a `string` is UTF-8 in a `bytes`; an optional item is
//! preceded by a byte that says whether it is there; a list is preceded by a count of 32 bits. The Java half has the same in
//! `MessageReader` and `MessageWriter`. Both halves are of one build, so the encoding has no version.

use bytes::Bytes;
use model::{Error, ErrorKind, Oid, Result, Value};

/// Reads a message. Every read is checked against the bytes that are left.
#[derive(Debug)]
pub(crate) struct Reader {
    rest: Bytes,
}

fn short_error() -> Error {
    Error::new(
        ErrorKind::Invalid,
        "a message of the Java client ends too early: its two halves are of different builds",
    )
}

impl Reader {
    pub(crate) fn new(message: impl Into<Bytes>) -> Self {
        Self { rest: message.into() }
    }

    fn take(&mut self, len: usize) -> Result<Bytes> {
        match len <= self.rest.len() {
            true => Ok(self.rest.split_to(len)),
            false => Err(short_error()),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.as_ref().try_into().map_err(|_| short_error())
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(crate) fn string(&mut self) -> Result<String> {
        let text = String::from_utf8(self.bytes()?.into());
        text.map_err(|error| Error::new(ErrorKind::Invalid, "a text is not UTF-8").with_source(error))
    }

    pub(crate) fn oid(&mut self) -> Result<Oid> {
        Ok(Oid::from_bytes(self.array()?))
    }

    /// A value as records encode it.
    pub(crate) fn value(&mut self) -> Result<Value> {
        Value::from_bytes(&self.bytes()?)
    }

    pub(crate) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    /// A list, for which no memory is allocated before its items are read.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| read(self)).collect()
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<()> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => {
                let what = format!("a message of the Java client has {} bytes too many", self.rest.len());
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }
}

/// Writes a message.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    message: Vec<u8>,
}

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.message
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.message.len()
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.message.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.message.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.message.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.message.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// # Panics
    /// Beyond 4 GiB: nothing that is sent is as large.
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.count(value.len());
        self.message.extend_from_slice(value);
    }

    pub(crate) fn string(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub(crate) fn oid(&mut self, value: Oid) {
        self.message.extend_from_slice(&value.to_bytes());
    }

    pub(crate) fn value(&mut self, value: &Value) -> Result<()> {
        self.bytes(&value.to_bytes()?);
        Ok(())
    }

    pub(crate) fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let items = items.into_iter();
        self.count(items.len());
        items.for_each(|item| write(self, item));
    }

    /// Begins a list whose count is not known yet. Its items follow.
    pub(crate) fn begin_list(&mut self) -> usize {
        let at = self.message.len();
        self.u32(0);
        at
    }

    /// Ends the list that began at `begin`.
    pub(crate) fn end_list(&mut self, begin: usize, count: u32) {
        self.message[begin..begin + size_of::<u32>()].copy_from_slice(&count.to_be_bytes());
    }

    /// The count of a list whose items follow, or the length of bytes.
    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count);
        assert!(count.is_ok(), "a message has fewer than 2^32 items and bytes");
        self.u32(count.unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Writer::default();
        message.u8(7);
        message.string("Grüße");
        message.optional(Some(5), Writer::u64);
        message.optional(None, Writer::u64);
        message.list([1, 2, 3], Writer::u32);
        message.value(&Value::Int64(-300)).unwrap();
        let mut read = Reader::new(message.into_bytes());
        assert_eq!((read.u8().unwrap(), read.string().unwrap().as_str()), (7, "Grüße"));
        assert_eq!((read.optional(Reader::u64).unwrap(), read.optional(Reader::u64).unwrap()), (Some(5), None));
        assert_eq!(read.list(Reader::u32).unwrap(), [1, 2, 3]);
        assert_eq!(read.value().unwrap(), Value::Int64(-300));
        read.end().unwrap();
    }

    #[test]
    fn short_or_long_message_is_refused() {
        assert_eq!(Reader::new(&[0, 0, 0, 9, 1][..]).bytes().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Reader::new(&[0xff; 4][..]).list(Reader::u64).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0xff][..]).string().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Reader::new(&[1][..]).end().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
