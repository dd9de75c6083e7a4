//! Objects of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{ClassId, ContentId, Error, ErrorKind, Kind, RecordRef, Result, limits};

/// Attributes of an object: values by key, in the order of the keys.
pub type Attributes = BTreeMap<Bytes, Bytes>;

/// An object of a cluster: the content of a slot of a page.
///
/// The bytes of a blob are here, or beside the page in a content that is read in ranges. Cloning is cheap: clones share the data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its class, which its identifier contains, too.
    pub class: ClassId,
    /// Its kind.
    pub kind: Kind,
    /// The encoded record, or the bytes of the blob; empty if they are in a content. A collection has none.
    pub data: Bytes,
    /// What few objects have.
    extension: Option<Arc<Extension>>,
}

/// What few objects have: attributes, or a content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Extension {
    attributes: Attributes,
    content: Option<ContentRef>,
}

/// The bytes of a blob that stand beside its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentRef {
    /// The content.
    pub id: ContentId,
    /// Its size in bytes.
    pub size: u64,
    /// How often a part of it has changed: 0 when it is new.
    pub generation: u64,
}

/// Marks the code of a kind if an extension precedes the data.
const EXTENDED: u8 = 0x80;
/// Bytes of an encoded content reference.
const CONTENT_LEN: usize = 16 + 8 + 8;

impl Object {
    /// A record of a class.
    #[must_use]
    pub fn record(class: ClassId, data: Bytes) -> Self {
        Self::plain(class, Kind::Record, data)
    }

    /// Bytes without a class.
    #[must_use]
    pub fn blob(data: Bytes) -> Self {
        Self::plain(ClassId::NONE, Kind::Blob, data)
    }

    /// A blob whose bytes are in a content.
    #[must_use]
    pub fn blob_with_content(content: ContentRef) -> Self {
        let extension = Extension { content: Some(content), ..Extension::default() };
        Self { extension: Some(Arc::new(extension)), ..Self::blob(Bytes::new()) }
    }

    /// An object without attributes, whose bytes are `data`.
    #[must_use]
    pub fn plain(class: ClassId, kind: Kind, data: Bytes) -> Self {
        Self { class, kind, data, extension: None }
    }

    /// The content beside the page, if the bytes are there.
    #[must_use]
    pub fn content(&self) -> Option<ContentRef> {
        self.extension.as_ref()?.content
    }

    /// The bytes of the object, wherever they are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.content().map_or(self.data.len() as u64, |content| content.size)
    }

    /// Bytes of the object and of the keys and values of its attributes, wherever they are.
    #[must_use]
    pub fn total_size(&self) -> u64 {
        let attributes = self.attributes().iter().map(|(key, value)| key.len() + value.len());
        self.size() + attributes.sum::<usize>() as u64
    }

    /// The attributes.
    #[must_use]
    pub fn attributes(&self) -> &Attributes {
        static NONE: Attributes = Attributes::new();
        self.extension.as_ref().map_or(&NONE, |extension| &extension.attributes)
    }

    /// Sets an attribute; without a value, removes it.
    pub fn set_attribute(&mut self, key: Bytes, value: Option<Bytes>) {
        let mut extension = self.extension.as_deref().cloned().unwrap_or_default();
        match value {
            Some(value) => drop(extension.attributes.insert(key, value)),
            None => drop(extension.attributes.remove(&key)),
        }
        self.set_extension(extension);
    }

    /// The object with other bytes and the same attributes.
    #[must_use]
    pub fn with_data(&self, data: Bytes) -> Self {
        self.with_bytes(data, None)
    }

    /// The object with its bytes in a content, and the same attributes.
    #[must_use]
    pub fn with_content(&self, content: ContentRef) -> Self {
        self.with_bytes(Bytes::new(), Some(content))
    }

    fn with_bytes(&self, data: Bytes, content: Option<ContentRef>) -> Self {
        let mut object = Self::plain(self.class, self.kind, data);
        object.set_extension(Extension { attributes: self.attributes().clone(), content });
        object
    }

    fn set_extension(&mut self, extension: Extension) {
        self.extension = (extension != Extension::default()).then(|| Arc::new(extension));
    }

    /// Bytes of the object in its page: its data, its attributes and the reference of its content.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.data.len() + self.extension.as_ref().map_or(0, |extension| extension.encoded_len())
    }

    /// A checksum of what the object is: its kind, class, bytes and attributes. The bytes of a content count by its identifier and
    /// generation. Objects with other states have other tags, but for chance; it is no cryptographic hash.
    #[must_use]
    pub fn etag(&self) -> u64 {
        let extension = self.encoded_extension().unwrap_or_default();
        let lengths = [self.class.0, extension.len() as u32, u32::from(self.code())].map(u32::to_be_bytes);
        crate::checksum::crc64_parts(&[lengths.as_flattened(), &extension, &self.data])
    }

    /// The code of its kind and form, which [`Object::decode`] needs.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.kind as u8 | if self.extension.is_some() { EXTENDED } else { 0 }
    }

    /// The kind of objects with this code.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown code.
    pub fn kind_of(code: u8) -> Result<Kind> {
        Kind::from_code(code & !EXTENDED).ok_or_else(|| invalid(format!("no object has the kind {code}")))
    }

    /// Whether the encoding of objects with this code begins with an extension. Without one, it is the data.
    #[must_use]
    pub const fn is_extended(code: u8) -> bool {
        code & EXTENDED != 0
    }

    /// What precedes the data in the encoding; `None` for most objects.
    #[must_use]
    pub fn encoded_extension(&self) -> Option<Bytes> {
        self.extension.as_ref().map(|extension| extension.encode())
    }

    /// Decodes an object from its encoding, which is the extension, if the code says that there is one, then the data. The record
    /// or the limits of the object are not checked: see [`Object::check`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown code, or an extension that is not well formed.
    pub fn decode(class: ClassId, code: u8, mut bytes: Bytes) -> Result<Self> {
        let kind = Self::kind_of(code)?;
        if !Self::is_extended(code) {
            return Ok(Self::plain(class, kind, bytes));
        }
        let extension = Extension::take(&mut bytes)?;
        Ok(Self { class, kind, data: bytes, extension: Some(Arc::new(extension)) })
    }

    /// An empty collection: a set, or a directory.
    #[must_use]
    pub fn collection(kind: Kind) -> Self {
        Self::plain(ClassId::NONE, kind, Bytes::new())
    }

    /// Whether it is a collection: a set or a directory, whose entries are beside it.
    #[must_use]
    pub fn is_collection(&self) -> bool {
        matches!(self.kind, Kind::Collection | Kind::Directory)
    }

    /// Validates an object from outside.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than [`limits::OBJECT`] bytes, or attributes over their limits; [`ErrorKind::Invalid`] for an
    /// invalid record, a blob or a collection with a class, a record with a content, and a collection with data: its entries are
    /// not in its page.
    pub fn check(&self) -> Result<()> {
        let len = self.encoded_len();
        if len > limits::OBJECT {
            let most = limits::OBJECT;
            let what = format!(
                "an object has {len} bytes; the limit is {most}: upload its content, or divide it into several objects"
            );
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        if let Some(extension) = &self.extension {
            extension.check(self.kind, &self.data)?;
        }
        match self.kind {
            Kind::Record => RecordRef::validate(&self.data).map(drop),
            kind if self.class != ClassId::NONE => {
                let what = format!("a {} has no class, but this one has class {}", kind.name(), self.class.0);
                Err(Error::new(ErrorKind::Invalid, what))
            }
            kind @ (Kind::Collection | Kind::Directory) if !self.data.is_empty() => {
                let what = format!("a {} has no data, but this one has {} bytes", kind.name(), self.data.len());
                Err(Error::new(ErrorKind::Invalid, what))
            }
            Kind::Blob | Kind::Collection | Kind::Directory => Ok(()),
        }
    }
}

impl Extension {
    fn encoded_len(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(key, value)| 5 + key.len() + value.len()).sum();
        5 + attributes + self.content.map_or(0, |_| CONTENT_LEN)
    }

    /// Whether there is a content, the number of attributes, each with its lengths, then the content.
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.encoded_len());
        bytes.put_u8(u8::from(self.content.is_some()));
        bytes.put_u32(self.attributes.len() as u32);
        for (key, value) in &self.attributes {
            bytes.put_u8(key.len() as u8);
            bytes.put_u32(value.len() as u32);
            bytes.put_slice(key);
            bytes.put_slice(value);
        }
        if let Some(ContentRef { id, size, generation }) = self.content {
            bytes.put_u128(id.0);
            bytes.put_u64(size);
            bytes.put_u64(generation);
        }
        bytes.freeze()
    }

    /// Takes an extension from the beginning of an object's encoding.
    fn take(bytes: &mut Bytes) -> Result<Self> {
        let has_content = match take_head(bytes, 5)?.get_u8() {
            0 => false,
            1 => true,
            other => return Err(invalid(format!("the form of an object is {other}: a newer version has written it"))),
        };
        let count = bytes.get_u32();
        let mut attributes = Attributes::new();
        for _ in 0..count {
            let (key, value) = (take_head(bytes, 5)?.get_u8(), bytes.get_u32());
            let (key, value) = (take(bytes, key.into())?, take(bytes, value as usize)?);
            if attributes.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(invalid("the attributes of an object are out of order, or repeated".to_owned()));
            }
            attributes.insert(key, value);
        }
        let content = match has_content {
            true => {
                let bytes = take_head(bytes, CONTENT_LEN)?;
                let (id, size, generation) = (ContentId(bytes.get_u128()), bytes.get_u64(), bytes.get_u64());
                if size > limits::BLOB || generation > limits::COUNT {
                    let what = format!("a content has {size} bytes and generation {generation}: no object has that");
                    return Err(invalid(what));
                }
                Some(ContentRef { id, size, generation })
            }
            false => None,
        };
        match attributes.is_empty() && content.is_none() {
            true => Err(invalid("an object has an extension without anything in it".to_owned())),
            false => Ok(Self { attributes, content }),
        }
    }

    fn check(&self, kind: Kind, data: &Bytes) -> Result<()> {
        for (key, value) in &self.attributes {
            check_attribute(key, value)?;
        }
        let Some(content) = self.content else { return Ok(()) };
        if kind != Kind::Blob || !data.is_empty() {
            return Err(invalid(format!(
                "a {} with {} bytes of its own cannot have a content",
                kind.name(),
                data.len()
            )));
        }
        if content.size > limits::BLOB {
            let (size, most) = (content.size, limits::BLOB);
            return Err(Error::new(ErrorKind::TooLarge, format!("a content has {size} bytes; the limit is {most}")));
        }
        Ok(())
    }
}

/// Checks the sizes of an attribute.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an empty key; [`ErrorKind::TooLarge`] beyond [`limits::ATTRIBUTE_KEY`] and
/// [`limits::ATTRIBUTE_VALUE`].
pub fn check_attribute(key: &[u8], value: &[u8]) -> Result<()> {
    if key.is_empty() {
        return Err(invalid("the key of an attribute is empty".to_owned()));
    }
    let limits = [("key", key, limits::ATTRIBUTE_KEY), ("value", value, limits::ATTRIBUTE_VALUE)];
    for (what, bytes, most) in limits {
        if bytes.len() > most {
            let what = format!("the {what} of an attribute has {} bytes; the limit is {most}", bytes.len());
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
    }
    Ok(())
}

/// The bytes, of which at least `len` are left.
fn take_head(bytes: &mut Bytes, len: usize) -> Result<&mut Bytes> {
    if bytes.len() < len { Err(invalid("the attributes of an object end too early".to_owned())) } else { Ok(bytes) }
}

fn take(bytes: &mut Bytes, len: usize) -> Result<Bytes> {
    Ok(take_head(bytes, len)?.split_to(len))
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: ContentRef = ContentRef { id: ContentId(7), size: 1 << 40, generation: 3 };

    fn encode(object: &Object) -> Bytes {
        let extension = object.encoded_extension().unwrap_or_default();
        [extension, object.data.clone()].concat().into()
    }

    fn attribute(mut object: Object, key: &'static str, value: &'static str) -> Object {
        object.set_attribute(key.into(), Some(value.into()));
        object
    }

    #[test]
    fn objects_are_decoded_as_they_were_encoded() {
        let plain = Object::blob("data".into());
        let both = attribute(attribute(Object::blob_with_content(CONTENT), "b", "2"), "a", "");
        for object in
            [plain.clone(), attribute(plain.clone(), "key", "value"), Object::blob_with_content(CONTENT), both]
        {
            let bytes = encode(&object);
            assert_eq!(bytes.len(), object.encoded_len());
            assert_eq!(Object::decode(object.class, object.code(), bytes.clone()).unwrap(), object);
            object.check().unwrap();
            let missing = bytes.len() - object.data.len();
            for cut in 0..missing {
                assert!(Object::decode(object.class, object.code(), bytes.slice(..cut)).is_err(), "{cut} of {missing}");
            }
        }
    }

    #[test]
    fn object_without_attributes_is_the_plain_one() {
        let plain = Object::blob("data".into());
        let mut object = attribute(plain.clone(), "key", "value");
        object.set_attribute("key".into(), None);
        assert_eq!(object, plain);
        assert_eq!(object.code(), Kind::Blob as u8);
    }

    #[test]
    fn attributes_stay_when_the_bytes_change() {
        let object = attribute(Object::blob("data".into()), "key", "value");
        let beside = object.with_content(CONTENT);
        assert_eq!((beside.size(), beside.data.len(), beside.content()), (CONTENT.size, 0, Some(CONTENT)));
        assert_eq!(beside.with_data("data".into()), object);
    }

    #[test]
    fn limits_are_checked() {
        let mut long = Object::blob(Bytes::new());
        long.set_attribute(vec![1; limits::ATTRIBUTE_KEY + 1].into(), Some(Bytes::new()));
        assert_eq!(long.check().unwrap_err().kind(), ErrorKind::TooLarge);
        let nameless = attribute(Object::blob(Bytes::new()), "", "value");
        assert_eq!(nameless.check().unwrap_err().kind(), ErrorKind::Invalid);
        let vast = Object::blob_with_content(ContentRef { size: limits::BLOB + 1, ..CONTENT });
        assert_eq!(vast.check().unwrap_err().kind(), ErrorKind::TooLarge);
        let mut twice = Object::blob_with_content(CONTENT);
        twice.data = "own".into();
        assert_eq!(twice.check().unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn contents_of_impossible_sizes_are_refused() {
        let decode = |content| {
            let object = Object::blob_with_content(content);
            Object::decode(object.class, object.code(), encode(&object))
        };
        decode(ContentRef { size: limits::BLOB, generation: limits::COUNT, ..CONTENT }).unwrap();
        for content in
            [ContentRef { size: limits::BLOB + 1, ..CONTENT }, ContentRef { generation: u64::MAX, ..CONTENT }]
        {
            assert_eq!(decode(content).unwrap_err().kind(), ErrorKind::Invalid, "{content:?}");
        }
    }

    #[test]
    fn extensions_that_are_not_well_formed_are_refused() {
        let bytes = |parts: &[&[u8]]| Bytes::from(parts.concat());
        let attribute = |key: &[u8]| [&[key.len() as u8, 0, 0, 0, 0], key].concat();
        let swapped = bytes(&[&[0, 0, 0, 0, 2], &attribute(b"b"), &attribute(b"a")]);
        let repeated = bytes(&[&[0, 0, 0, 0, 2], &attribute(b"a"), &attribute(b"a")]);
        let countless = bytes(&[&[0, 255, 255, 255, 255]]);
        for wrong in [swapped, repeated, countless, bytes(&[&[0, 0, 0, 0, 0]]), bytes(&[&[2, 0, 0, 0, 0]])] {
            let decoded = Object::decode(ClassId::NONE, Kind::Blob as u8 | EXTENDED, wrong.clone());
            assert_eq!(decoded.unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
        }
    }
}
