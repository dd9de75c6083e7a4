//! What names are bound to, as far as it is known.

use client::{Bytes, Client, Oid, Result};

/// Bytes of a chunk: docs/format.md.
const CHUNK: usize = 64 << 10;

/// The bytes of a blob.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    /// Whether a part of it was changed after it was uploaded. Which of its chunks are in blob files is the store's business then.
    pub(crate) is_changed: bool,
}

impl Content {
    pub(crate) fn from_upload(bytes: Bytes) -> Self {
        Self { bytes, is_changed: false }
    }

    /// Bytes of its chunks in blob files: whole chunks, if it is as it was uploaded.
    pub(crate) fn bytes_in_files(&self) -> u64 {
        (self.bytes.len() / CHUNK * CHUNK) as u64
    }
}

/// A name, which one worker or process changes.
pub(crate) struct Slot {
    pub(crate) path: String,
    content: Option<Content>,
    /// What it is instead if a change whose outcome is not known was committed.
    doubtful: Option<Option<Content>>,
}

impl Slot {
    pub(crate) fn new(path: String) -> Self {
        Self { path, content: None, doubtful: None }
    }

    pub(crate) fn content(&self) -> Option<&Content> {
        self.content.as_ref()
    }

    /// Whether it is known what the name is bound to.
    pub(crate) fn is_settled(&self) -> bool {
        self.doubtful.is_none()
    }

    /// A change was committed.
    pub(crate) fn set(&mut self, content: Option<Content>) {
        self.content = content;
    }

    /// A change was sent, and its outcome is not known.
    pub(crate) fn set_doubtful(&mut self, content: Option<Content>) {
        self.doubtful = Some(content);
    }

    /// Reads the blob and compares it with what it may be.
    ///
    /// # Panics
    /// If it is something else.
    pub(crate) async fn check(&mut self, client: &Client) {
        let found = self.read(client).await.unwrap_or_else(|error| panic!("{} cannot be read: {error:?}", self.path));
        let is_found = |content: &Option<Content>| content.as_ref().map(|content| &content.bytes) == found.as_ref();
        match self.doubtful.take() {
            Some(doubtful) if is_found(&doubtful) => self.content = doubtful,
            _ if is_found(&self.content) => {}
            doubtful => {
                let expected = self.content.iter().chain(doubtful.iter().flatten());
                let expected: Vec<String> =
                    expected.map(|content| difference(&content.bytes, found.as_ref())).collect();
                panic!("{} has other bytes than were committed: {expected:?}", self.path);
            }
        }
    }

    async fn read(&self, client: &Client) -> Result<Option<Bytes>> {
        let Some(oid) = client.resolve(&self.path).await? else { return Ok(None) };
        read_all(client, oid).await.map(Some)
    }
}

async fn read_all(client: &Client, oid: Oid) -> Result<Bytes> {
    let (mut reader, mut all) = (client.content_reader(oid, 0), Vec::new());
    while let Some(piece) = reader.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

/// Where bytes differ from those that were found.
fn difference(expected: &Bytes, found: Option<&Bytes>) -> String {
    let Some(found) = found else { return format!("{} bytes are not there", expected.len()) };
    let first = expected.iter().zip(found).position(|(one, two)| one != two);
    format!("{} bytes instead of {}, the first difference is at {first:?}", found.len(), expected.len())
}
