//! A walk over a tree of files, always in the same order.
//!
//! Directories precede their entries, and entries are ordered by their bytes. The walk holds one sorted list for each level of its
//! current path, never the whole tree. Symbolic links are entries and are not followed. Two walks over the same tree with the same
//! budget produce the same entries, so an import can count first, and a verification finds what was imported.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::limits;

use super::attributes::Mtime;
use super::file_name;

/// The path of the root directory of a space.
const SPACE_ROOT: &str = "/";

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A file, directory or link of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its path on disk.
    pub(crate) path: PathBuf,
    /// Its name in the store.
    pub(crate) name: String,
    /// The name of its directory in the store; `None` for the root of the walk.
    pub(crate) parent: Option<String>,
    /// Its kind.
    pub(crate) kind: EntryKind,
    /// Bytes of content, or of the target of a link; 0 for a directory.
    pub(crate) size: u64,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// When it last changed.
    pub(crate) mtime: Mtime,
}

/// An item of a walk.
#[derive(Debug)]
pub(crate) enum WalkItem {
    /// An entry to import.
    Entry(Entry),
    /// A socket, pipe or device.
    Special,
    /// A file that exceeds the budget.
    OverBudget,
    /// An entry that could not be read, and why.
    Failed(String),
}

/// A walk in progress.
pub(crate) struct Walk {
    prefix: Prefix,
    budget: u64,
    root: Option<PathBuf>,
    levels: Vec<Level>,
}

/// The entries of one directory that were not visited yet, last first.
struct Level {
    name: String,
    entries: Vec<PathBuf>,
}

/// The prefix of all names of a tree, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// The prefix that `--prefix` gives. A slash at the beginning may be left out.
    pub(crate) fn new(text: &str) -> Self {
        let path = text.trim_end_matches('/');
        Self(if path.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
    }

    /// The default prefix of a tree: the name of its directory.
    pub(crate) fn of(root: &Path) -> Self {
        Self(root.file_name().map(|name| format!("/{}", file_name::encode(name))).unwrap_or_default())
    }

    /// The name of the tree's root: the prefix, or `/` if there is none.
    pub(crate) fn root(&self) -> &str {
        if self.0.is_empty() { SPACE_ROOT } else { &self.0 }
    }

    /// The prefix of all names below the root.
    pub(crate) fn below(&self) -> String {
        format!("{}/", self.0)
    }

    /// The part of a name below the root; `None` for names elsewhere.
    pub(crate) fn relative<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.0.as_str())?.strip_prefix('/').filter(|rest| !rest.is_empty())
    }

    fn join(&self, parent: &str, component: &str) -> String {
        let parent = if parent == self.root() { &self.0 } else { parent };
        format!("{parent}/{component}")
    }
}

impl Walk {
    /// A walk over the tree at `root` that visits files of at most `budget` bytes together.
    pub(crate) fn new(root: PathBuf, prefix: Prefix, budget: Option<u64>) -> Self {
        Self { prefix, budget: budget.unwrap_or(u64::MAX), root: Some(root), levels: Vec::new() }
    }

    fn visit(&mut self, path: PathBuf, name: String, parent: Option<String>) -> WalkItem {
        if let Some(why) = check_name(&name) {
            return WalkItem::Failed(format!("{}: {why}", path.display()));
        }
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => return failed_item(&path, &error),
        };
        let Some(entry) = Entry::new(path, name, parent, &metadata) else { return WalkItem::Special };
        if entry.kind == EntryKind::Directory {
            match entries_of(&entry.path) {
                Ok(entries) => self.levels.push(Level { name: entry.name.clone(), entries }),
                Err(error) => return failed_item(&entry.path, &error),
            }
        } else if entry.size > self.budget {
            return WalkItem::OverBudget;
        } else {
            self.budget -= entry.size;
        }
        WalkItem::Entry(entry)
    }
}

impl Iterator for Walk {
    type Item = WalkItem;

    fn next(&mut self) -> Option<WalkItem> {
        if let Some(root) = self.root.take() {
            let name = self.prefix.root().to_owned();
            return Some(self.visit(root, name, None));
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(path) = level.entries.pop() else {
                self.levels.pop();
                continue;
            };
            let Some(component) = path.file_name() else { continue };
            let name = self.prefix.join(&level.name, &file_name::encode(component));
            let parent = Some(level.name.clone());
            return Some(self.visit(path, name, parent));
        }
    }
}

impl Entry {
    /// Its name in its directory.
    pub(crate) fn component(&self) -> &str {
        last_component(&self.name)
    }

    /// Whether it is the root directory of the space, which always exists and has no attributes.
    pub(crate) fn is_space_root(&self) -> bool {
        self.name == SPACE_ROOT
    }

    /// The entry that `metadata` describes; `None` for a socket, pipe or device.
    fn new(path: PathBuf, name: String, parent: Option<String>, metadata: &Metadata) -> Option<Self> {
        let kind = match metadata.file_type() {
            t if t.is_file() => EntryKind::File,
            t if t.is_dir() => EntryKind::Directory,
            t if t.is_symlink() => EntryKind::Symlink,
            _ => return None,
        };
        Some(Self {
            path,
            name,
            parent,
            kind,
            size: if kind == EntryKind::Directory { 0 } else { metadata.len() },
            mode: metadata.mode() & 0o7777,
            mtime: mtime_of(metadata),
        })
    }
}

/// Why a path cannot be a name in the store.
fn check_name(name: &str) -> Option<String> {
    if name.len() > limits::NAME {
        return Some(format!("its path in the store would have more than {} bytes", limits::NAME));
    }
    let is_long = last_component(name).len() > limits::ENTRY_KEY;
    is_long.then(|| format!("its name in the store, {name:?}, would have more than {} bytes", limits::ENTRY_KEY))
}

fn last_component(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

/// The time when the file last changed.
pub(crate) fn mtime_of(metadata: &Metadata) -> Mtime {
    Mtime { seconds: metadata.mtime(), nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) }
}

fn failed_item(path: &Path, error: &io::Error) -> WalkItem {
    WalkItem::Failed(format!("{}: {error}", path.display()))
}

/// The paths in a directory, last first.
fn entries_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| b.as_os_str().cmp(a.as_os_str()));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn names(root: &Path, prefix: &str, budget: Option<u64>) -> (Vec<String>, usize, usize) {
        let (mut names, mut special, mut over) = (Vec::new(), 0, 0);
        for step in Walk::new(root.to_owned(), Prefix::new(prefix), budget) {
            match step {
                WalkItem::Entry(entry) => names.push(entry.name),
                WalkItem::Special => special += 1,
                WalkItem::OverBudget => over += 1,
                WalkItem::Failed(why) => panic!("{why}"),
            }
        }
        (names, special, over)
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/two"), "22").unwrap();
        fs::write(dir.path().join("a"), "333").unwrap();
        fs::write(dir.path().join("z"), "1").unwrap();
        symlink("nowhere", dir.path().join("link")).unwrap();
        drop(UnixListener::bind(dir.path().join("socket")).unwrap());
        dir
    }

    #[test]
    fn walk_is_in_order_with_parents_first_and_counts_skipped_entries() {
        let dir = tree();
        let (found, special, over) = names(dir.path(), "/t/", None);
        assert_eq!(found, ["/t", "/t/a", "/t/b", "/t/b/c", "/t/b/c/two", "/t/link", "/t/z"]);
        assert_eq!((special, over), (1, 0));
    }

    #[test]
    fn files_over_the_budget_are_left_out() {
        let dir = tree();
        let (found, _, over) = names(dir.path(), "/t", Some(4));
        assert_eq!(found, ["/t", "/t/a", "/t/b", "/t/b/c", "/t/z"]);
        assert_eq!(over, 2);
    }

    #[test]
    fn names_that_are_too_long_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        // Each of these bytes becomes three.
        fs::write(dir.path().join(OsStr::from_bytes(&[0xff; 86])), "x").unwrap();
        fs::write(dir.path().join(OsStr::from_bytes(&[0xff; 85])), "x").unwrap();
        let walk = Walk::new(dir.path().to_owned(), Prefix::new("/t"), None);
        let failed = walk.filter(|item| matches!(item, WalkItem::Failed(_)));
        let failed: Vec<String> = failed.map(|item| format!("{item:?}")).collect();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].contains("more than 255 bytes"), "{failed:?}");
    }

    #[test]
    fn without_a_prefix_the_root_is_a_slash() {
        let dir = tree();
        let (found, ..) = names(dir.path(), "/", None);
        assert_eq!(found[..3], ["/", "/a", "/b"]);
        let prefix = Prefix::new("/");
        assert_eq!(prefix.relative("/a/b"), Some("a/b"));
        assert_eq!(prefix.relative("/"), None);
        assert_eq!(Prefix::new("/t").relative("/tea"), None);
        assert_eq!(Prefix::new("t"), Prefix::new("/t/"));
        assert_eq!(Prefix::of(Path::new("/usr/share")).root(), "/share");
    }
}
