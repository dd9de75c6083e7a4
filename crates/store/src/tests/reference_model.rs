//! A model of a store in plain maps and vectors, and random changes for both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentId, ErrorKind, Result, UploadId, limits};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{create, delete, pattern, replace, take, truncate, write, zero};
use crate::read::{Piece, Readable, contents, rows};
use crate::{ContentChange, RowChanges, Store};

const CHUNK: usize = 64 << 10;

/// The state of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) contents: BTreeMap<ContentId, Arc<Vec<u8>>>,
    rows: BTreeMap<Vec<u8>, Bytes>,
}

/// Changes of contents and rows that are submitted together.
#[derive(Clone, Default)]
pub(crate) struct Change {
    contents: Vec<ContentChange>,
    rows: Vec<(Vec<u8>, Option<Bytes>)>,
}

impl Change {
    pub(crate) fn submit(&self, store: &Store, done: impl FnOnce(Result<u64>) + Send + 'static) {
        let mut changes = RowChanges::new();
        for (key, value) in &self.rows {
            match value {
                Some(value) => changes.put(key, value.clone()),
                None => changes.remove(key),
            }
        }
        self.contents.iter().for_each(|change| changes.content(change.clone()));
        store.submit_rows(changes, done);
    }

    /// The uploads that the change takes.
    pub(crate) fn uploads(&self) -> impl Iterator<Item = UploadId> {
        self.contents.iter().filter_map(|change| match change {
            ContentChange::CreateFromUpload { upload, .. } => Some(*upload),
            _ => None,
        })
    }

    /// A short description without long bytes.
    pub(crate) fn brief(&self) -> Vec<String> {
        let content = |change: &ContentChange| match change {
            ContentChange::Create { id, data } => format!("Create {id} {}", data.len()),
            ContentChange::Write { id, offset, data } => format!("Write {id} {} at {offset}", data.len()),
            other => format!("{other:?}"),
        };
        let row = |(key, value): &(Vec<u8>, Option<Bytes>)| format!("{key:x?} {:?}", value.as_ref().map(Bytes::len));
        self.rows.iter().map(row).chain(self.contents.iter().map(content)).collect()
    }
}

type StepResult<T = ()> = std::result::Result<T, ErrorKind>;

impl Model {
    /// The state after a change.
    pub(crate) fn apply(&self, change: &Change, uploads: &HashMap<UploadId, Bytes>) -> StepResult<Self> {
        let mut taken = BTreeSet::new();
        if change.uploads().any(|upload| !uploads.contains_key(&upload) || !taken.insert(upload)) {
            return Err(ErrorKind::NotFound);
        }
        let mut model = self.clone();
        for (key, value) in &change.rows {
            match value {
                Some(value) => drop(model.rows.insert(key.clone(), value.clone())),
                None => drop(model.rows.remove(key)),
            }
        }
        change.contents.iter().try_for_each(|change| model.change_content(change, uploads))?;
        Ok(model)
    }

    fn change_content(&mut self, change: &ContentChange, uploads: &HashMap<UploadId, Bytes>) -> StepResult {
        match change {
            ContentChange::Create { id, data } => self.create(*id, data)?,
            ContentChange::CreateFromUpload { id, upload } => self.create(*id, &uploads[upload])?,
            ContentChange::Write { id, offset, data } => {
                let (from, to) = (*offset as usize, *offset as usize + data.len());
                let bytes = self.bytes(*id)?;
                if !data.is_empty() {
                    bytes.resize(bytes.len().max(to), 0);
                    bytes[from..to].copy_from_slice(data);
                }
            }
            ContentChange::Truncate { id, size } => self.bytes(*id)?.resize(*size as usize, 0),
            ContentChange::Zero { id, offset, len } => {
                let bytes = self.bytes(*id)?;
                let to = offset.saturating_add(*len).min(bytes.len() as u64) as usize;
                bytes[(*offset as usize).min(to)..to].fill(0);
            }
            ContentChange::Resize { id, size } => {
                Arc::make_mut(self.contents.entry(*id).or_default()).resize(*size as usize, 0);
            }
            ContentChange::Delete { id } => drop(self.contents.remove(id)),
        }
        Ok(())
    }

    fn create(&mut self, id: ContentId, data: &[u8]) -> StepResult {
        match self.contents.insert(id, Arc::new(data.to_vec())) {
            None => Ok(()),
            Some(_) => Err(ErrorKind::Exists),
        }
    }

    fn bytes(&mut self, id: ContentId) -> StepResult<&mut Vec<u8>> {
        self.contents.get_mut(&id).map(Arc::make_mut).ok_or(ErrorKind::NotFound)
    }

    /// The size of a content, 0 if it does not exist.
    fn size(&self, id: ContentId) -> usize {
        self.contents.get(&id).map_or(0, |bytes| bytes.len())
    }
}

/// The contents and rows of a store or snapshot.
pub(crate) fn model_of(this: &impl Readable) -> Model {
    let mut model = Model::default();
    for id in contents::list(this, ContentId(0), ContentId(u128::MAX), 10_000).unwrap() {
        model.contents.insert(id, Arc::new(contents::read(this, id, 0, 1 << 22).unwrap().to_vec()));
    }
    let visit = |key: &[u8], value: &[u8]| {
        model.rows.insert(key.to_vec(), Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    };
    rows::rows(this, (&[], END), false, visit).unwrap();
    model
}

/// Panics unless the store or snapshot has exactly the contents and rows of the model.
pub(crate) fn compare_all(this: &impl Readable, model: &Model) {
    let found = contents::list(this, ContentId(0), ContentId(u128::MAX), 10_000).unwrap();
    assert!(found.iter().eq(model.contents.keys()), "{found:?}, not {:?}", model.contents.keys());
    for (id, expected) in &model.contents {
        let found = contents::read(this, *id, 0, 1 << 22).unwrap();
        assert!(found == **expected, "content {id} differs from byte {:?} on", first_difference(&found, expected));
    }
    compare_rows(this, model, &[], END);
}

/// Above the keys of all rows.
const END: &[u8] = &[0xff; limits::ROW_KEY + 1];

fn compare_rows(this: &impl Readable, model: &Model, from: &[u8], to: &[u8]) {
    let mut expected = model.rows.iter().filter(|(key, _)| from <= &key[..] && &key[..] < to);
    let visit = |key: &[u8], value: &[u8]| {
        let (known, is) = expected.next().expect("a row that does not exist");
        assert!(known == key && is == value, "row {key:x?} of {} bytes, not {known:x?} of {}", value.len(), is.len());
        ControlFlow::Continue(())
    };
    rows::rows(this, (from, to), false, visit).unwrap();
    assert_eq!(expected.next(), None, "a row is missing");
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b).or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

/// As [`compare_all`], with every kind of read.
pub(crate) fn compare(this: &impl Readable, model: &Model, seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    compare_all(this, model);
    let (mut listed, mut from) = (Vec::new(), ContentId(0));
    loop {
        let found = contents::list(this, from, ContentId(u128::MAX), random.random_range(1..5)).unwrap();
        let Some(last) = found.last() else { break };
        from = ContentId(last.0 + 1);
        listed.extend(found);
    }
    assert!(listed.iter().eq(model.contents.keys()), "a listing in parts");
    for (id, expected) in &model.contents {
        assert_eq!(contents::size(this, *id).unwrap(), Some(expected.len() as u64));
        compare_ranges(this, *id, expected, random);
    }
    assert_eq!(contents::size(this, ContentId(1)).unwrap(), None);
    for _ in 0..4 {
        let (key, to) = (row_key(random), row_key(random));
        assert_eq!(rows::row(this, &key).unwrap().as_ref(), model.rows.get(&key));
        compare_rows(this, model, &key, &to);
    }
}

fn compare_ranges(this: &impl Readable, id: ContentId, content: &[u8], random: &mut StdRng) {
    for _ in 0..3 {
        let (from, len) = (size(random), size(random));
        let expected = &content[from.min(content.len())..(from + len).min(content.len())];
        let found = contents::read(this, id, from as u64, len as u64).unwrap();
        assert!(found == expected, "{len} bytes at {from} of {id}");
        let mut found = Vec::new();
        for piece in contents::pieces(this, id, from as u64, len as u64).unwrap().pieces {
            match piece {
                Piece::Bytes(bytes) => found.extend_from_slice(&bytes),
                Piece::File { file, offset, len, crc32c } => {
                    let mut bytes = vec![0; len as usize];
                    std::os::unix::fs::FileExt::read_exact_at(&*file, &mut bytes, offset).unwrap();
                    assert_eq!(crate::checksum::crc32c(&bytes), crc32c);
                    found.extend(bytes);
                }
            }
        }
        assert!(found == expected, "{len} bytes at {from} of {id} in pieces");
    }
}

/// The key of one of a few rows.
fn row_key(random: &mut StdRng) -> Vec<u8> {
    let mut key = vec![random.random_range(0..3) * 0x7f, random.random_range(0..8)];
    if random.random_range(0..8) == 0 {
        key.resize(limits::ROW_KEY, 0xff);
    }
    key
}

/// A size or offset, mostly near the borders of blocks and chunks.
pub(crate) fn size(random: &mut StdRng) -> usize {
    let near = [0, 0, 1, 100, 1000, 4096, 8192, CHUNK, CHUNK, 2 * CHUNK, 3 * CHUNK];
    let near = near[random.random_range(0..near.len())];
    match random.random_range(0..4) {
        0 => near + random.random_range(0..200),
        1 => near.saturating_sub(random.random_range(0..3)),
        2 => near / 2,
        _ => near,
    }
}

/// Generates changes that are valid in a state, or nearly.
pub(crate) struct ChangeGenerator {
    pub(crate) random: StdRng,
    /// Contents that were created, some of which are deleted.
    known: Vec<ContentId>,
    pub(crate) uploads: HashMap<UploadId, Bytes>,
    /// The target number of contents.
    pub(crate) contents: usize,
    /// Divisor of sizes: a larger scale gives smaller and faster changes.
    pub(crate) scale: usize,
}

impl ChangeGenerator {
    pub(crate) fn new(seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { random, known: Vec::new(), uploads: HashMap::new(), contents: 12, scale: 1 }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn choose<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.random.random_range(0..of.len())].clone())
    }

    fn size(&mut self) -> usize {
        size(&mut self.random) / if self.chance(80) { self.scale } else { 1 }
    }

    pub(crate) fn data(&mut self) -> Bytes {
        let len = self.size();
        let seed = self.random.random();
        if self.chance(5) { vec![0; len].into() } else { pattern(len, seed) }
    }

    /// A content that mostly exists, or is created by an earlier part of the change.
    fn content(&mut self, model: &Model, created: &[ContentId]) -> ContentId {
        let known = self.known.clone();
        let from: Vec<ContentId> = match self.random.random_range(0..100) {
            0..20 if !created.is_empty() => created.to_vec(),
            20..23 => known,
            _ => model.contents.keys().copied().collect(),
        };
        self.choose(&from).unwrap_or(ContentId(7))
    }

    /// An identifier for a new content: mostly one that was never used.
    fn new_content(&mut self, created: &mut Vec<ContentId>) -> ContentId {
        let (known, reused) = (self.known.clone(), self.chance(5));
        let id = self.choose(&known).filter(|_| reused).unwrap_or(ContentId(self.random.random()));
        self.known.push(id);
        created.push(id);
        id
    }

    /// Changes that mostly succeed: of contents, of rows, or of both.
    pub(crate) fn change(&mut self, model: &Model) -> Change {
        let mut change = Change::default();
        let pick = self.random.random_range(0..100);
        if pick < 80 {
            let many = if self.chance(70) { 1 } else { self.random.random_range(2..8) };
            let mut created = Vec::new();
            for _ in 0..many {
                self.add_content_change(model, &mut created, &mut change.contents);
            }
        }
        if pick > 60 {
            let many = self.random.random_range(0..7);
            change.rows = (0..many).map(|_| (row_key(&mut self.random), self.row())).collect();
        }
        change
    }

    fn row(&mut self) -> Option<Bytes> {
        match self.random.random_range(0..10) {
            0..3 => None,
            3 => Some(self.data()),
            _ => Some(pattern(self.random.random_range(0..300), self.random.random())),
        }
    }

    fn add_content_change(&mut self, model: &Model, created: &mut Vec<ContentId>, changes: &mut Vec<ContentChange>) {
        let few = model.contents.len() < self.contents;
        let pick = if few && self.chance(50) { 0 } else { self.random.random_range(if few { 0 } else { 6 }..100) };
        let id = self.content(model, created);
        changes.push(match pick {
            0..6 => create(self.new_content(created), self.data()),
            6..18 => return changes.extend(replace(id, self.data())),
            18..43 => write(id, self.size(), self.data()),
            43..53 => write(id, model.size(id), self.data()),
            53..61 => truncate(id, self.size()),
            61..69 => zero(id, self.size(), self.size()),
            69..73 => {
                let id = if self.chance(50) { self.new_content(created) } else { id };
                ContentChange::Resize { id, size: self.size() as u64 }
            }
            73..82 => delete(id),
            _ => {
                let mut known: Vec<UploadId> = self.uploads.keys().copied().collect();
                known.sort();
                let missing = self.chance(2).then_some(UploadId(7));
                match missing.or_else(|| self.choose(&known)) {
                    Some(upload) => take(self.new_content(created), upload),
                    None => write(id, self.size(), self.data()),
                }
            }
        });
    }
}
