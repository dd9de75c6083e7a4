//! A model of a store in plain maps and vectors, and random transactions for both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{
    Committed, Conflict, ErrorKind, Kind, NodeId, Oid, Op, Outcome, PageId, Result, Transaction, UploadId, limits,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{MAIN, name, pattern, temporary};
use crate::read::rows;
use crate::read::{self, Piece, Readable};
use crate::{RowChanges, Store};

const CHUNK: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelObject {
    kind: Kind,
    content: Arc<Vec<u8>>,
    version: u64,
    attributes: BTreeMap<Vec<u8>, Bytes>,
    members: BTreeSet<Oid>,
}

/// The state of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<Oid, ModelObject>,
    names: BTreeMap<String, Oid>,
    rows: BTreeMap<Vec<u8>, Bytes>,
}

/// A transaction or changes of rows.
#[derive(Clone)]
pub(crate) enum Change {
    Ops(Vec<Op>),
    Rows(Vec<(Vec<u8>, Option<Bytes>)>),
}

impl Change {
    pub(crate) fn submit(&self, store: &Store, done: impl FnOnce(Result<Outcome>) + Send + 'static) {
        match self {
            Self::Ops(ops) => store.submit(Transaction { ops: ops.clone() }, done),
            Self::Rows(rows) => {
                let mut changes = RowChanges::new();
                for (key, value) in rows {
                    match value {
                        Some(value) => changes.put(key, value.clone()),
                        None => changes.remove(key),
                    }
                }
                let outcome = |version| Outcome::Committed(Committed { version, created: Vec::new() });
                store.submit_rows(changes, move |result| done(result.map(outcome)));
            }
        }
    }

    /// The uploads that the transaction takes.
    pub(crate) fn uploads(&self) -> impl Iterator<Item = UploadId> {
        let ops = if let Self::Ops(ops) = self { &ops[..] } else { &[] };
        ops.iter().filter_map(|op| if let Op::PutUpload { upload, .. } = op { Some(*upload) } else { None })
    }

    /// A short description without long bytes.
    pub(crate) fn brief(&self) -> Vec<String> {
        match self {
            Self::Ops(ops) => brief(ops),
            Self::Rows(rows) => {
                let one =
                    |(key, value): &(Vec<u8>, Option<Bytes>)| format!("{key:x?} {:?}", value.as_ref().map(Bytes::len));
                rows.iter().map(one).collect()
            }
        }
    }
}

/// Why a transaction does not commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict(Conflict),
    Error(ErrorKind),
}

type StepResult<T = ()> = std::result::Result<T, Refusal>;

const INVALID: Refusal = Refusal::Error(ErrorKind::Invalid);
const NOT_FOUND: Refusal = Refusal::Error(ErrorKind::NotFound);

/// A transaction that is being applied to the model.
struct ModelTransaction<'a> {
    model: Model,
    version: u64,
    real: HashMap<Oid, Oid>,
    created: std::slice::Iter<'a, Oid>,
    uploads: &'a HashMap<UploadId, Bytes>,
}

impl Model {
    /// The state after a change. `created` has the identifiers that the store assigned.
    pub(crate) fn apply(
        &self,
        change: &Change,
        version: u64,
        created: &[Oid],
        uploads: &HashMap<UploadId, Bytes>,
    ) -> StepResult<Self> {
        let mut taken = BTreeSet::new();
        if change.uploads().any(|upload| !uploads.contains_key(&upload) || !taken.insert(upload)) {
            return Err(NOT_FOUND);
        }
        let mut model = self.clone();
        let ops = match change {
            Change::Ops(ops) => ops,
            Change::Rows(rows) => {
                for (key, value) in rows {
                    match value {
                        Some(value) => drop(model.rows.insert(key.clone(), value.clone())),
                        None => drop(model.rows.remove(key)),
                    }
                }
                return Ok(model);
            }
        };
        let mut running = ModelTransaction { model, version, real: HashMap::new(), created: created.iter(), uploads };
        ops.iter().try_for_each(|op| running.op(op))?;
        Ok(running.model)
    }

    /// The version of an object.
    pub(crate) fn version(&self, oid: Oid) -> Option<u64> {
        self.objects.get(&oid).map(|thing| thing.version)
    }
}

impl ModelTransaction<'_> {
    fn resolve(&self, oid: Oid) -> StepResult<Oid> {
        if oid.is_temporary() { self.real.get(&oid).copied().ok_or(INVALID) } else { Ok(oid) }
    }

    fn object(&mut self, oid: Oid) -> StepResult<&mut ModelObject> {
        let oid = self.resolve(oid)?;
        self.model.objects.get_mut(&oid).ok_or(NOT_FOUND)
    }

    /// Changes the content of a blob.
    fn blob(&mut self, oid: Oid, change: impl FnOnce(&mut Vec<u8>)) -> StepResult {
        let version = self.version;
        let thing = self.object(oid)?;
        if thing.kind != Kind::Blob {
            return Err(INVALID);
        }
        thing.version = version;
        change(Arc::make_mut(&mut thing.content));
        Ok(())
    }

    fn op(&mut self, op: &Op) -> StepResult {
        let version = self.version;
        match op {
            Op::Create { oid, kind, data, near } => return self.create(*oid, *kind, data, *near),
            Op::Put { oid, data } => {
                let thing = self.object(*oid)?;
                if thing.kind == Kind::Collection {
                    return Err(INVALID);
                }
                (thing.version, thing.content) = (version, Arc::new(data.to_vec()));
            }
            Op::PutUpload { oid, upload } => {
                let content = self.uploads[upload].to_vec();
                self.blob(*oid, |blob| *blob = content)?;
            }
            Op::Write { oid, offset, data } => {
                let (from, to) = (*offset as usize, *offset as usize + data.len());
                self.blob(*oid, |blob| {
                    if !data.is_empty() {
                        blob.resize(blob.len().max(to), 0);
                        blob[from..to].copy_from_slice(data);
                    }
                })?;
            }
            Op::Append { oid, data } => self.blob(*oid, |blob| blob.extend_from_slice(data))?,
            Op::Truncate { oid, size } => self.blob(*oid, |blob| blob.resize(*size as usize, 0))?,
            Op::Zero { oid, offset, len } => self.blob(*oid, |blob| {
                let to = offset.saturating_add(*len).min(blob.len() as u64) as usize;
                blob[(*offset as usize).min(to)..to].fill(0);
            })?,
            Op::Clone { from, to } => {
                let (from, to) = (self.resolve(*from)?, self.resolve(*to)?);
                let (kind, content) = self.object(from).map(|thing| (thing.kind, Arc::clone(&thing.content)))?;
                let target = self.object(to)?;
                if kind != target.kind || kind == Kind::Collection {
                    return Err(INVALID);
                }
                if from != to {
                    (target.version, target.content) = (version, content);
                }
            }
            Op::Delete { oid } => {
                let oid = self.resolve(*oid)?;
                self.model.objects.remove(&oid).ok_or(NOT_FOUND)?;
                for thing in self.model.objects.values_mut().filter(|thing| thing.members.contains(&oid)) {
                    thing.members.remove(&oid);
                    thing.version = version;
                }
                self.model.names.retain(|_, bound| *bound != oid);
            }
            Op::SetAttribute { oid, key, value } => {
                let thing = self.object(*oid)?;
                thing.version = version;
                thing.attributes.insert(key.to_vec(), value.clone());
            }
            Op::RemoveAttribute { oid, key } => {
                let thing = self.object(*oid)?;
                thing.version = version;
                thing.attributes.remove(&key[..]);
            }
            Op::Add { collection, member } => self.member(*collection, *member, true)?,
            Op::Remove { collection, member } => self.member(*collection, *member, false)?,
            Op::Bind { name, oid } => {
                let oid = self.resolve(*oid)?;
                self.object(oid)?;
                self.model.names.insert(name.path.clone(), oid);
            }
            Op::Unbind { name } => drop(self.model.names.remove(&name.path)),
            Op::Expect { oid, version: read } => {
                let oid = self.resolve(*oid)?;
                let (read, current) = (*read, self.model.version(oid));
                if current != read {
                    return Err(Refusal::Conflict(Conflict::Object { oid, read, current }));
                }
            }
            Op::ExpectName { name, oid } => {
                let read = oid.map(|oid| self.resolve(oid)).transpose()?;
                let current = self.model.names.get(&name.path).copied();
                if current != read {
                    return Err(Refusal::Conflict(Conflict::Name { name: name.clone(), read, current }));
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, oid: Oid, kind: Kind, data: &Bytes, near: Option<Oid>) -> StepResult {
        let wrong = !oid.is_temporary() || self.real.contains_key(&oid);
        if wrong || (kind == Kind::Collection && !data.is_empty()) {
            return Err(INVALID);
        }
        near.map(|near| self.resolve(near)).transpose()?;
        // A failed transaction has no identifiers; any new ones will do.
        let page = PageId { space: MAIN, node: NodeId(0), number: MADE_UP | self.real.len() as u64 };
        let new = self.created.next().copied().unwrap_or(Oid::new(oid.class(), page, 0));
        self.real.insert(oid, new);
        let content = Arc::new(data.to_vec());
        let (version, attributes, members) = (self.version, BTreeMap::new(), BTreeSet::new());
        self.model.objects.insert(new, ModelObject { kind, content, version, attributes, members });
        Ok(())
    }

    fn member(&mut self, collection: Oid, member: Oid, present: bool) -> StepResult {
        let (collection, member, version) = (self.resolve(collection)?, self.resolve(member)?, self.version);
        if self.object(collection)?.kind != Kind::Collection {
            return Err(INVALID);
        }
        if present {
            self.object(member)?;
        }
        let thing = self.object(collection)?;
        let changed = if present { thing.members.insert(member) } else { thing.members.remove(&member) };
        if changed {
            thing.version = version;
        }
        Ok(())
    }
}

/// Page numbers above those of any test.
const MADE_UP: u64 = 1 << 40;

fn is_made_up(oid: Oid) -> bool {
    oid.page().number >= MADE_UP
}

/// The refusal without details that only the store knows.
pub(crate) fn refusal_of(result: &Result<Outcome>) -> Option<Refusal> {
    match result {
        Ok(Outcome::Committed(_)) => None,
        Ok(Outcome::Conflict(conflict)) => Some(Refusal::Conflict(conflict.clone())),
        Err(error) => Some(Refusal::Error(error.kind())),
    }
}

/// Whether a transaction ended as expected.
///
/// The model invents the version and identifiers that a refused transaction would have got.
pub(crate) fn agree(found: &Option<Refusal>, expected: &StepResult<Model>) -> bool {
    use Conflict::{Name, Object};
    use Refusal::Conflict as Met;
    match (found, expected.as_ref().err()) {
        (Some(Met(Object { read: a, .. })), Some(Met(Object { read: b, current: Some(0), .. }))) => a == b,
        (Some(Met(Name { read: a, .. })), Some(Met(Name { read: b, current: Some(new), .. }))) if is_made_up(*new) => {
            a == b
        }
        (found, expected) => found.as_ref() == expected,
    }
}

/// A short description of operations without long bytes.
fn brief(ops: &[Op]) -> Vec<String> {
    let one = |op: &Op| match op {
        Op::Create { oid, kind, data, near } => format!("Create {oid} {kind:?} {} near {near:?}", data.len()),
        Op::Put { oid, data } => format!("Put {oid} {}", data.len()),
        Op::Write { oid, offset, data } => format!("Write {oid} {} at {offset}", data.len()),
        Op::Append { oid, data } => format!("Append {oid} {}", data.len()),
        Op::SetAttribute { oid, key, .. } => format!("SetAttribute {oid} {key:?}"),
        other => format!("{other:?}"),
    };
    ops.iter().map(one).collect()
}

/// Panics unless the store or snapshot has exactly the objects and contents of the model.
pub(crate) fn compare_contents(this: &impl Readable, model: &Model) {
    let found = read::objects(this, MAIN, None, 10_000).unwrap();
    let found: Vec<_> = found.iter().map(|stat| (stat.oid, stat.kind, stat.size, stat.version)).collect();
    let size = |thing: &ModelObject| match thing.kind {
        Kind::Collection => thing.members.len() as u64,
        _ => thing.content.len() as u64,
    };
    let things = model.objects.iter();
    let expected: Vec<_> = things.map(|(oid, thing)| (*oid, thing.kind, size(thing), thing.version)).collect();
    assert_eq!(found, expected);
    for (oid, thing) in model.objects.iter().filter(|(_, thing)| thing.kind != Kind::Collection) {
        let found = read::read(this, *oid, 0, 1 << 22).unwrap();
        assert!(
            found == **thing.content,
            "content of {oid} differs from byte {:?} on",
            first_difference(&found, &thing.content)
        );
    }
    let names = read::names(this, MAIN, "", None, 10_000).unwrap();
    assert_eq!(names, model.names.clone().into_iter().collect::<Vec<_>>());
    compare_rows(this, model, &[], END);
    for (oid, thing) in &model.objects {
        let attributes = read::attributes(this, *oid, None, 10_000).unwrap();
        assert!(attributes.iter().map(|(k, v)| (&k[..], v)).eq(thing.attributes.iter().map(|(k, v)| (&k[..], v))));
        if thing.kind == Kind::Collection {
            let members = read::members(this, *oid, None, 10_000).unwrap();
            assert!(members.iter().eq(&thing.members), "members of {oid}");
        }
    }
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

/// All entries of a listing, read a few at a time.
fn pages<T: Clone>(random: &mut StdRng, mut page: impl FnMut(Option<&T>, usize) -> Result<Vec<T>>) -> Vec<T> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let found = page(after.as_ref(), random.random_range(1..5)).unwrap();
        let Some(last) = found.last().cloned() else { return all };
        all.extend(found);
        after = Some(last);
    }
}

/// As [`compare_contents`], with every kind of read.
pub(crate) fn compare(this: &impl Readable, model: &Model, seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    compare_contents(this, model);
    let objects = pages(random, |after, limit| {
        let found = read::objects(this, MAIN, after.copied(), limit)?;
        Ok(found.into_iter().map(|stat| stat.oid).collect())
    });
    assert!(objects.iter().eq(model.objects.keys()));
    for (oid, thing) in &model.objects {
        let stat = read::stat(this, *oid).unwrap().unwrap();
        assert_eq!((stat.kind, stat.version), (thing.kind, thing.version));
        if thing.kind != Kind::Collection {
            compare_ranges(this, *oid, &thing.content, random);
        }
        let keys = pages(random, |after: Option<&Bytes>, limit| {
            let found = read::attributes(this, *oid, after.map(|after| &after[..]), limit)?;
            Ok(found.into_iter().map(|(key, _)| key).collect())
        });
        assert!(keys.iter().map(|key| &key[..]).eq(thing.attributes.keys().map(|key| &key[..])));
        for (key, value) in &thing.attributes {
            assert_eq!(read::attribute(this, *oid, key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(read::attribute(this, *oid, b"no such key").unwrap(), None);
        if thing.kind == Kind::Collection {
            let members = pages(random, |after, limit| read::members(this, *oid, after.copied(), limit));
            assert!(members.iter().eq(&thing.members));
        }
        let holders = model.objects.iter().filter(|(_, holder)| holder.members.contains(oid)).map(|(oid, _)| *oid);
        let found = pages(random, |after, limit| read::collections_of(this, *oid, after.copied(), limit));
        assert_eq!(found, holders.clone().collect::<Vec<_>>());
        for holder in holders {
            assert!(read::contains(this, holder, *oid).unwrap());
        }
        let names = model.names.iter().filter(|(_, bound)| *bound == oid).map(|(path, _)| path.clone());
        assert_eq!(read::names_of(this, *oid).unwrap(), names.collect::<Vec<_>>());
    }
    for prefix in ["", "a", "a/", "b/1", "none"] {
        let found = pages(random, |after: Option<&(String, Oid)>, limit| {
            read::names(this, MAIN, prefix, after.map(|(path, _)| &path[..]), limit)
        });
        let expected = model.names.clone().into_iter().filter(|(path, _)| path.starts_with(prefix));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
    for _ in 0..4 {
        let (key, to) = (row_key(random), row_key(random));
        assert_eq!(rows::row(this, &key).unwrap().as_ref(), model.rows.get(&key));
        compare_rows(this, model, &key, &to);
    }
    for path in PATHS {
        assert_eq!(read::resolve(this, &name(path)).unwrap(), model.names.get(*path).copied());
    }
}

fn compare_ranges(this: &impl Readable, oid: Oid, content: &[u8], random: &mut StdRng) {
    let max = size(random);
    let (_, whole) = read::get(this, oid, max).unwrap().unwrap();
    assert!(whole.as_deref() == (content.len() <= max).then_some(content), "get {oid} with {max}");
    for _ in 0..3 {
        let (from, len) = (size(random), size(random));
        let expected = &content[from.min(content.len())..(from + len).min(content.len())];
        let found = read::read(this, oid, from as u64, len as u64).unwrap();
        assert!(found == expected, "{len} bytes at {from} of {oid}");
        let mut found = Vec::new();
        for piece in read::pieces(this, oid, from as u64, len as u64).unwrap().pieces {
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
        assert!(found == expected, "{len} bytes at {from} of {oid} in pieces");
    }
}

const PATHS: &[&str] = &["a", "a/b", "a/c", "b/1", "b/10", "b/2", "ü"];
const KEYS: &[&[u8]] = &[b"k", b"key", b"kez", &[0xff; 255], b"\0"];

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

/// Generates transactions that are valid in a state, or nearly.
pub(crate) struct TransactionGenerator {
    pub(crate) random: StdRng,
    /// Deleted objects.
    pub(crate) gone: Vec<Oid>,
    pub(crate) uploads: HashMap<UploadId, Bytes>,
    /// The target number of objects.
    pub(crate) objects: usize,
    /// Divisor of sizes: a larger scale gives smaller and faster transactions.
    pub(crate) scale: usize,
}

impl TransactionGenerator {
    pub(crate) fn new(seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { random, gone: Vec::new(), uploads: HashMap::new(), objects: 12, scale: 1 }
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

    /// An object, mostly an existing one of the requested kind.
    fn object(&mut self, model: &Model, kind: Option<Kind>, temporaries: u64) -> Oid {
        if temporaries > 0 && self.chance(20) {
            let known = temporaries + u64::from(self.chance(5));
            return temporary(self.random.random_range(0..known));
        }
        let gone = self.gone.clone();
        if self.chance(3)
            && let Some(gone) = self.choose(&gone)
        {
            return gone;
        }
        let kind = kind.filter(|_| self.random.random_range(0..100) < 97);
        let fits = |thing: &ModelObject| kind.is_none_or(|kind| kind == thing.kind);
        let fitting: Vec<Oid> = model.objects.iter().filter(|(_, thing)| fits(thing)).map(|(oid, _)| *oid).collect();
        self.choose(&fitting).unwrap_or(temporary(0))
    }

    /// A transaction that mostly commits.
    fn transaction(&mut self, model: &Model) -> Vec<Op> {
        let many = if self.chance(70) { 1 } else { self.random.random_range(2..8) };
        let mut created = 0;
        (0..many).map(|_| self.op(model, &mut created)).collect()
    }

    /// A transaction, or changes of rows.
    pub(crate) fn change(&mut self, model: &Model) -> Change {
        if !self.chance(25) {
            return Change::Ops(self.transaction(model));
        }
        let many = self.random.random_range(0..7);
        Change::Rows((0..many).map(|_| (row_key(&mut self.random), self.row())).collect())
    }

    fn row(&mut self) -> Option<Bytes> {
        match self.random.random_range(0..10) {
            0..3 => None,
            3 => Some(self.data()),
            _ => Some(pattern(self.random.random_range(0..300), self.random.random())),
        }
    }

    fn op(&mut self, model: &Model, created: &mut u64) -> Op {
        let few = model.objects.len() < self.objects;
        let pick = if few && self.chance(50) { 0 } else { self.random.random_range(if few { 0 } else { 4 }..100) };
        let (blob, bag) = (Some(Kind::Blob), Some(Kind::Collection));
        match pick {
            0..4 => {
                let kind = self.choose(&[Kind::Blob, Kind::Blob, Kind::Record, Kind::Collection]).unwrap();
                let near = self.chance(20).then(|| self.object(model, None, *created));
                let data = if kind == Kind::Collection { Bytes::new() } else { self.data() };
                *created += 1;
                Op::Create { oid: temporary(*created - 1), kind, data, near }
            }
            4..12 => {
                let kind = self.random_content();
                Op::Put { oid: self.object(model, kind, *created), data: self.data() }
            }
            12..32 => {
                let oid = self.object(model, blob, *created);
                Op::Write { oid, offset: self.size() as u64, data: self.data() }
            }
            32..40 => Op::Append { oid: self.object(model, blob, *created), data: self.data() },
            40..46 => Op::Truncate { oid: self.object(model, blob, *created), size: self.size() as u64 },
            46..52 => {
                let oid = self.object(model, blob, *created);
                Op::Zero { oid, offset: self.size() as u64, len: self.size() as u64 }
            }
            52..62 => {
                let kind = self.random_content();
                Op::Clone { from: self.object(model, kind, *created), to: self.object(model, kind, *created) }
            }
            62..66 => Op::Delete { oid: self.object(model, None, *created) },
            66..71 => {
                let (key, value) = (self.choose(KEYS).unwrap(), pattern(self.random.random_range(0..300), 1));
                Op::SetAttribute { oid: self.object(model, None, *created), key: key.into(), value }
            }
            71..73 => {
                let key = self.choose(KEYS).unwrap().into();
                Op::RemoveAttribute { oid: self.object(model, None, *created), key }
            }
            73..79 => {
                Op::Add { collection: self.object(model, bag, *created), member: self.object(model, None, *created) }
            }
            79..82 => {
                Op::Remove { collection: self.object(model, bag, *created), member: self.object(model, None, *created) }
            }
            82..87 => Op::Bind { name: self.name(), oid: self.object(model, None, *created) },
            87..89 => Op::Unbind { name: self.name() },
            89..92 => {
                let oid = self.object(model, None, *created);
                let version = if self.chance(80) { model.version(oid) } else { Some(1) };
                Op::Expect { oid, version }
            }
            92..94 => {
                let name = self.name();
                let oid = if self.chance(80) { model.names.get(&name.path).copied() } else { None };
                Op::ExpectName { name, oid }
            }
            _ => {
                let mut known: Vec<UploadId> = self.uploads.keys().copied().collect();
                known.sort();
                let oid = self.object(model, blob, *created);
                let missing = self.chance(2).then_some(UploadId(7));
                match missing.or_else(|| self.choose(&known)) {
                    Some(upload) => Op::PutUpload { oid, upload },
                    None => Op::Append { oid, data: self.data() },
                }
            }
        }
    }

    fn random_content(&mut self) -> Option<Kind> {
        Some(if self.chance(70) { Kind::Blob } else { Kind::Record })
    }

    fn name(&mut self) -> model::Name {
        name(self.choose(PATHS).unwrap())
    }
}
