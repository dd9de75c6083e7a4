//! Changes of a part of a blob's bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{ClassId, Error, ErrorKind, Kind, Object, Result, limits};

/// A change of a part of a blob's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentOp {
    /// Writes bytes at an offset. A gap behind the old end reads as zeros.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Writes bytes at the end, wherever it is when the transaction commits.
    Append {
        /// The bytes.
        data: Bytes,
    },
    /// Cuts the blob, or extends it with zeros.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Sets a range to zeros. The size does not change.
    Zero {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Changes of a part of a blob's bytes that one transaction makes, in order. Its encoding is the data of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentPatch {
    ops: Vec<ContentOp>,
    /// Bytes of the encoding.
    encoded_len: usize,
}

const WRITE: u8 = 1;
const APPEND: u8 = 2;
const TRUNCATE: u8 = 3;
const ZERO: u8 = 4;

impl ContentOp {
    /// The size of the blob after the change, if it had `size` bytes before.
    #[must_use]
    pub fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Write { data, .. } if data.is_empty() => size,
            Self::Write { offset, data } => size.max(offset.saturating_add(data.len() as u64)),
            Self::Append { data } => size.saturating_add(data.len() as u64),
            Self::Truncate { size } => *size,
            Self::Zero { .. } => size,
        }
    }

    /// Changes bytes in memory.
    ///
    /// # Panics
    /// If memory does not suffice for the size after the change: check [`ContentOp::size_after`] first.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        let size = bytes.len() as u64;
        match self {
            Self::Write { offset, data } if !data.is_empty() => {
                bytes.resize(self.size_after(size) as usize, 0);
                let offset = *offset as usize;
                bytes[offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Write { .. } => {}
            Self::Append { data } => bytes.extend_from_slice(data),
            Self::Truncate { size } => bytes.resize(*size as usize, 0),
            Self::Zero { offset, len } => {
                let (from, to) = (size.min(*offset), size.min(offset.saturating_add(*len)));
                bytes[from as usize..to as usize].fill(0);
            }
        }
    }

    /// The bytes that it writes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Write { data, .. } | Self::Append { data } => data,
            Self::Truncate { .. } | Self::Zero { .. } => &[],
        }
    }

    /// Bytes of the encoding.
    fn encoded_len(&self) -> usize {
        let numbers = match self {
            Self::Write { .. } => 8 + 4,
            Self::Append { .. } => 4,
            Self::Truncate { .. } => 8,
            Self::Zero { .. } => 8 + 8,
        };
        1 + numbers + self.data().len()
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Write { offset, data } => {
                out.put_u8(WRITE);
                out.put_u64(*offset);
                out.put_u32(data.len() as u32);
                out.put_slice(data);
            }
            Self::Append { data } => {
                out.put_u8(APPEND);
                out.put_u32(data.len() as u32);
                out.put_slice(data);
            }
            Self::Truncate { size } => {
                out.put_u8(TRUNCATE);
                out.put_u64(*size);
            }
            Self::Zero { offset, len } => {
                out.put_u8(ZERO);
                out.put_u64(*offset);
                out.put_u64(*len);
            }
        }
    }

    fn take(bytes: &mut Bytes) -> Option<Self> {
        let numbers = |bytes: &mut Bytes| bytes.try_get_u64().ok();
        Some(match bytes.try_get_u8().ok()? {
            WRITE => Self::Write { offset: numbers(bytes)?, data: take_data(bytes)? },
            APPEND => Self::Append { data: take_data(bytes)? },
            TRUNCATE => Self::Truncate { size: numbers(bytes)? },
            ZERO => Self::Zero { offset: numbers(bytes)?, len: numbers(bytes)? },
            _ => return None,
        })
    }
}

fn take_data(bytes: &mut Bytes) -> Option<Bytes> {
    let len = bytes.try_get_u32().ok()? as usize;
    (len <= bytes.len()).then(|| bytes.split_to(len))
}

impl ContentPatch {
    /// These changes.
    #[must_use]
    pub fn new(ops: Vec<ContentOp>) -> Self {
        let encoded_len = ops.iter().map(ContentOp::encoded_len).sum();
        Self { ops, encoded_len }
    }

    /// The changes.
    #[must_use]
    pub fn ops(&self) -> &[ContentOp] {
        &self.ops
    }

    /// The changes, without the patch.
    #[must_use]
    pub fn into_ops(self) -> Vec<ContentOp> {
        self.ops
    }

    /// Adds a change.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the encoding would be larger than [`limits::OBJECT`]: nothing is added.
    pub fn push(&mut self, op: ContentOp) -> Result<()> {
        let encoded_len = self.encoded_len + op.encoded_len();
        if encoded_len > limits::OBJECT {
            let what = format!(
                "the changes of a blob in one transaction would take {encoded_len} bytes; the limit is {}: change it in several \
                 transactions, or upload its whole content",
                limits::OBJECT
            );
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        self.ops.push(op);
        self.encoded_len = encoded_len;
        Ok(())
    }

    /// The encoding.
    #[must_use]
    pub fn encode(&self) -> Object {
        let mut out = BytesMut::with_capacity(self.encoded_len);
        self.ops.iter().for_each(|op| op.encode(&mut out));
        Object::blob(out.freeze())
    }

    /// Decodes a patch and checks its sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is not well formed or changes nothing; [`ErrorKind::TooLarge`] if it reaches beyond
    /// [`limits::BLOB`].
    pub fn decode(object: &Object) -> Result<Self> {
        let is_plain = object.code() == Kind::Blob as u8 && object.class == ClassId::NONE;
        let mut rest = Some(object.data.clone()).filter(|data| is_plain && !data.is_empty());
        let mut ops = Vec::new();
        while let Some(bytes) = rest.as_mut().filter(|bytes| !bytes.is_empty()) {
            match ContentOp::take(bytes) {
                Some(op) => ops.push(op),
                None => rest = None,
            }
        }
        if rest.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "a change of a blob's bytes is not well formed"));
        }
        let patch = Self::new(ops);
        patch.check_sizes(0)?;
        Ok(patch)
    }

    /// Bytes that the changes carry.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.ops.iter().map(|op| op.data().len()).sum()
    }

    /// The size of a blob after the changes, if it had `size` bytes before.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if it exceeds [`limits::BLOB`] at any time.
    pub fn check_sizes(&self, size: u64) -> Result<u64> {
        let mut size = size;
        for op in &self.ops {
            size = op.size_after(size);
            if size > limits::BLOB {
                let what = format!("a blob would have {size} bytes; the limit is {}", limits::BLOB);
                return Err(Error::new(ErrorKind::TooLarge, what));
            }
        }
        Ok(size)
    }

    /// The offset at which the first append puts its bytes if the blob has `size` bytes before the changes; `None` if nothing is
    /// appended.
    #[must_use]
    pub fn first_append(&self, size: u64) -> Option<u64> {
        let mut end = size;
        for op in &self.ops {
            if let ContentOp::Append { .. } = op {
                return Some(end);
            }
            end = op.size_after(end);
        }
        None
    }

    /// The offset of each append, in order, if the first one puts its bytes at `first`.
    #[must_use]
    pub fn append_offsets(&self, first: u64) -> Vec<u64> {
        let (mut end, mut offsets) = (first, Vec::new());
        for op in self.ops.iter().skip_while(|op| !matches!(op, ContentOp::Append { .. })) {
            if let ContentOp::Append { .. } = op {
                offsets.push(end);
            }
            end = op.size_after(end);
        }
        offsets
    }

    /// The largest size that a blob of `size` bytes has during the changes.
    #[must_use]
    pub fn largest_size(&self, size: u64) -> u64 {
        let sizes = self.ops.iter().scan(size, |size, op| {
            *size = op.size_after(*size);
            Some(*size)
        });
        sizes.max().unwrap_or(size).max(size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn op() -> impl Strategy<Value = ContentOp> {
        let data = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        prop_oneof![
            (0..100_u64, data()).prop_map(|(offset, data)| ContentOp::Write { offset, data }),
            data().prop_map(|data| ContentOp::Append { data }),
            (0..100_u64).prop_map(|size| ContentOp::Truncate { size }),
            (0..100_u64, 0..100_u64).prop_map(|(offset, len)| ContentOp::Zero { offset, len }),
        ]
    }

    proptest! {
        #[test]
        fn patches_are_decoded_as_they_were_encoded(ops in proptest::collection::vec(op(), 1..10)) {
            let patch = ContentPatch::new(ops);
            let encoded = patch.encode();
            prop_assert_eq!(ContentPatch::decode(&encoded).unwrap(), patch);
            for cut in 0..encoded.data.len() {
                // A prefix may be a shorter patch, and never causes a panic.
                drop(ContentPatch::decode(&Object::blob(encoded.data.slice(..cut))));
            }
        }

        #[test]
        fn size_after_is_that_of_the_changed_bytes(ops in proptest::collection::vec(op(), 1..10)) {
            let (mut bytes, mut size, mut largest) = (Vec::new(), 0, 0);
            for op in &ops {
                size = op.size_after(size);
                op.apply(&mut bytes);
                prop_assert_eq!(size, bytes.len() as u64);
                largest = largest.max(size);
            }
            let patch = ContentPatch::new(ops);
            prop_assert_eq!(patch.check_sizes(0).unwrap(), size);
            prop_assert_eq!(patch.largest_size(0), largest);
        }

        #[test]
        fn appended_bytes_are_at_the_offsets_of_the_appends(
            size in 0..100_u64,
            ops in proptest::collection::vec(op(), 1..10),
        ) {
            let (mut bytes, mut expected) = (vec![0; size as usize], Vec::new());
            for op in &ops {
                if let ContentOp::Append { .. } = op {
                    expected.push(bytes.len() as u64);
                }
                op.apply(&mut bytes);
            }
            let patch = ContentPatch::new(ops);
            prop_assert_eq!(patch.first_append(size), expected.first().copied());
            prop_assert_eq!(patch.append_offsets(expected.first().copied().unwrap_or(0)), expected);
        }
    }

    #[test]
    fn bytes_change_as_the_operations_say() {
        let mut bytes = b"hello".to_vec();
        ContentOp::Write { offset: 7, data: "x".into() }.apply(&mut bytes);
        assert_eq!(bytes, b"hello\0\0x");
        ContentOp::Zero { offset: 1, len: 2 }.apply(&mut bytes);
        ContentOp::Truncate { size: 5 }.apply(&mut bytes);
        ContentOp::Append { data: "!".into() }.apply(&mut bytes);
        assert_eq!(bytes, b"h\0\0lo!");
        ContentOp::Zero { offset: 5, len: u64::MAX }.apply(&mut bytes);
        ContentOp::Write { offset: 90, data: Bytes::new() }.apply(&mut bytes);
        assert_eq!(bytes, b"h\0\0lo\0");
    }

    #[test]
    fn patches_that_are_not_well_formed_or_too_large_are_refused() {
        let kind = |object: &Object| ContentPatch::decode(object).unwrap_err().kind();
        assert_eq!(kind(&Object::blob(Bytes::new())), ErrorKind::Invalid);
        assert_eq!(kind(&Object::blob(vec![9].into())), ErrorKind::Invalid);
        let append = ContentPatch::new(vec![ContentOp::Append { data: "x".into() }]).encode();
        assert_eq!(kind(&Object::record(ClassId(1), append.data.clone())), ErrorKind::Invalid);
        let beyond = ContentOp::Write { offset: limits::BLOB, data: "x".into() };
        assert_eq!(kind(&ContentPatch::new(vec![beyond]).encode()), ErrorKind::TooLarge);
        let grows = ContentPatch::new(vec![ContentOp::Append { data: "x".into() }]);
        assert_eq!(grows.check_sizes(limits::BLOB).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
