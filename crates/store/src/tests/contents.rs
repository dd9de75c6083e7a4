//! Contents of the store's user: changed together with rows, copied by backups, checked by scrubs.

use bytes::Bytes;
use model::{ContentId, ErrorKind};

use crate::scrub::ScrubReport;
use crate::{ContentChange, Options, RowChanges, Store};

const FIRST: ContentId = ContentId(7);
const SECOND: ContentId = ContentId(1 << 110);

fn bytes(len: usize, first: u8) -> Bytes {
    (0..len).map(|at| first.wrapping_add((at / 3) as u8)).collect::<Vec<_>>().into()
}

fn change(store: &Store, changes: Vec<ContentChange>) -> model::Result<u64> {
    let mut all = RowChanges::new();
    all.put(b"row", Bytes::from(format!("{}", changes.len())));
    changes.into_iter().for_each(|one| all.content(one));
    store.commit_rows(all)
}

fn scrub(store: &Store) -> ScrubReport {
    store.scrub(&()).unwrap()
}

fn read(store: &Store, id: ContentId) -> Option<Bytes> {
    let size = store.content_size(id).unwrap()?;
    Some(store.read_content(id, 0, size).unwrap())
}

/// What the store has after some changes, with what it should have.
fn changed(store: &Store) -> [(ContentId, Bytes); 2] {
    let (mut first, second) = (bytes(300_000, 1).to_vec(), bytes(70_000, 9));
    change(
        store,
        vec![
            ContentChange::Create { id: FIRST, data: first.clone().into() },
            ContentChange::Write { id: FIRST, offset: 65_000, data: bytes(2_000, 50) },
        ],
    )
    .unwrap();
    first[65_000..67_000].copy_from_slice(&bytes(2_000, 50));
    let upload = store.begin_upload().unwrap();
    store.upload(upload, second.slice(..66_000)).unwrap();
    store.upload(upload, second.slice(66_000..)).unwrap();
    assert_eq!(store.seal_upload(upload).unwrap(), second.len() as u64);
    assert_eq!(store.upload(upload, "late".into()).unwrap_err().kind(), ErrorKind::NotFound);
    change(store, vec![ContentChange::CreateFromUpload { id: SECOND, upload }]).unwrap();
    [(FIRST, first.into()), (SECOND, second)]
}

#[test]
fn contents_change_with_rows_and_are_found_after_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::open(&path, Options::default()).unwrap();
    let expected = changed(&store);
    for install in [false, true] {
        if install {
            store.install().unwrap();
        }
        for (id, bytes) in &expected {
            assert!(read(&store, *id).as_ref() == Some(bytes), "{id}");
        }
        assert_eq!(scrub(&store).damaged, 0);
    }
    store.close().unwrap();
    let store = Store::open(&path, Options::default()).unwrap();
    assert_eq!(store.contents(ContentId(0), ContentId(u128::MAX >> 1), 10).unwrap(), [FIRST, SECOND]);
    for (id, bytes) in &expected {
        assert!(read(&store, *id).as_ref() == Some(bytes), "{id}");
    }
    let cut = ContentChange::Truncate { id: FIRST, size: 10 };
    change(&store, vec![cut, ContentChange::Delete { id: SECOND }]).unwrap();
    assert_eq!(read(&store, FIRST), Some(expected[0].1.slice(..10)));
    assert_eq!((read(&store, SECOND), store.row(b"row").unwrap()), (None, Some("2".into())));
    assert_eq!(scrub(&store).damaged, 0);
    store.close().unwrap();
}

#[test]
fn changes_that_cannot_be_made_change_nothing() {
    let store = Store::in_memory(Options::default()).unwrap();
    let [(_, first), _] = changed(&store);
    let kind = |changes| change(&store, changes).unwrap_err().kind();
    assert_eq!(kind(vec![ContentChange::Create { id: FIRST, data: "again".into() }]), ErrorKind::Exists);
    let missing = ContentChange::Write { id: ContentId(99), offset: 0, data: "x".into() };
    let cut = ContentChange::Truncate { id: FIRST, size: 0 };
    assert_eq!(kind(vec![cut.clone(), missing]), ErrorKind::Invalid);
    let unknown = ContentChange::CreateFromUpload { id: ContentId(99), upload: model::UploadId(4) };
    assert_eq!(kind(vec![cut, unknown]), ErrorKind::NotFound);
    let vast = ContentChange::Truncate { id: FIRST, size: model::limits::BLOB + 1 };
    assert_eq!(kind(vec![vast]), ErrorKind::TooLarge);
    assert_eq!(kind(vec![ContentChange::Delete { id: ContentId(1 << 127) }]), ErrorKind::Invalid);
    assert!(read(&store, FIRST) == Some(first));
    // These are of no consequence if there is no content.
    change(&store, vec![ContentChange::Delete { id: ContentId(99) }]).unwrap();
    change(&store, vec![ContentChange::Resize { id: ContentId(99), size: 5 }]).unwrap();
    assert_eq!(read(&store, ContentId(99)), Some(vec![0; 5].into()));
}

#[test]
fn backups_have_the_contents() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store"), Options::default()).unwrap();
    let expected = changed(&store);
    let mut archive = Vec::new();
    store.backup(&mut archive, &()).unwrap();
    let restored = dir.path().join("restored");
    Store::restore(&restored, &mut &archive[..], Options::default(), &()).unwrap();
    let restored = Store::open(&restored, Options::default()).unwrap();
    for (id, bytes) in &expected {
        assert!(read(&restored, *id).as_ref() == Some(bytes), "{id}");
    }
    assert_eq!(scrub(&restored).damaged, 0);
}
