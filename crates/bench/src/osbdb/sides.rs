//! The systems in the workloads of this paper, and their settings.

use tempfile::TempDir;

use super::files::Files;
use super::{Collections, Objects};
use crate::Result;
use crate::contest::Side;
use crate::mortar::embedded::Embedded;
use crate::run::Run;

#[cfg(libdb)]
use super::berkeley_store::{BerkeleyStore, Layout};
#[cfg(libdb)]
use crate::rival::berkeley::{Access, Settings};

/// The workload of a store, which determines the settings of Berkeley DB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Large objects, written whole.
    Whole,
    /// Objects of about a kilobyte.
    Records,
    /// A large object, written in chunks.
    Chunks,
    /// Directories: collections with small objects, each change forced.
    Tree,
}

/// One kind of store.
pub(super) struct Contender {
    name: String,
    for_reference: bool,
    kind: Kind,
}

enum Kind {
    Mortar,
    Files,
    #[cfg(libdb)]
    Berkeley(Settings, Layout),
}

/// A new store in its own directory.
pub(super) struct TempStore<T: ?Sized> {
    // Dropped in this order.
    pub(super) store: Box<T>,
    _directory: TempDir,
}

/// All sides, Mortar first.
pub(super) fn contenders(purpose: Use) -> Vec<Contender> {
    let side = |name: &str, for_reference, kind| Contender { name: name.to_owned(), for_reference, kind };
    let mut sides = vec![side("Mortar", false, Kind::Mortar)];
    #[cfg(libdb)]
    {
        let mut berkeley =
            |name: &str, settings, layout| sides.push(side(name, false, Kind::Berkeley(settings, layout)));
        let (btree, hash) = ("Berkeley DB, B-tree", "Berkeley DB, hash");
        match purpose {
            Use::Whole => {
                berkeley(btree, Settings::bulk(Access::Btree, 256 << 20), Layout::Whole);
                berkeley(hash, Settings::bulk(Access::Hash, 256 << 20), Layout::Whole);
            }
            Use::Records => {
                berkeley(btree, Settings::records(Access::Btree), Layout::Whole);
                berkeley(hash, Settings::records(Access::Hash), Layout::Whole);
            }
            Use::Chunks => {
                // Half-full pages of small records take more space than the content; nothing must be evicted while it is read.
                let settings = Settings::bulk(Access::Btree, 4 << 30);
                berkeley("Berkeley DB, 4 MiB records", settings, Layout::Pieces(4 << 20));
                berkeley("Berkeley DB, 16 KiB records", settings, Layout::Pieces(16 << 10));
            }
            Use::Tree => berkeley(btree, Settings::small_forces(Access::Btree), Layout::Whole),
        }
    }
    if matches!(purpose, Use::Whole | Use::Chunks) {
        sides.push(side("plain file", true, Kind::Files));
    }
    sides
}

/// The settings and checks of each side, for the report.
pub(super) fn settings(purpose: Use) -> Vec<String> {
    let cache = match purpose {
        Use::Whole => "256 MiB",
        Use::Records => "1 GiB",
        Use::Chunks => "4 GiB, which holds the whole object: it is read from there",
        Use::Tree => "64 MiB, which holds all",
    };
    let log = match purpose {
        Use::Tree => "log files of 16 MiB, written with zeros before they are used, as Mortar's are",
        _ => "log files of 256 MiB",
    };
    let checks = match purpose {
        Use::Whole | Use::Chunks => "each read of content verifies its checksums, also repeated reads",
        Use::Records | Use::Tree => "each read verifies the checksums of what it returns",
    };
    vec![
        format!("Berkeley DB: private environment without locks, cache of {cache}, {log}, a checkpoint each 512 MiB"),
        format!("Mortar: the settings of a server, a buffer of 32 MiB and the system's page cache; {checks}"),
    ]
}

/// A contest of all sides; `body` measures one run of a store that it creates.
pub(super) fn contest<'a>(purpose: Use, body: impl Fn(&Contender) -> Result<Vec<f64>> + Copy + 'a) -> Vec<Side<'a>> {
    let sides = contenders(purpose).into_iter().map(|contender| {
        let (name, for_reference) = (contender.name.clone(), contender.for_reference);
        let side = Side::new(name, move || body(&contender));
        if for_reference { side.for_reference() } else { side }
    });
    sides.collect()
}

impl Contender {
    /// A new, empty store.
    pub(super) fn create(&self, run: &Run) -> Result<TempStore<dyn Objects>> {
        let directory = run.directory("osbdb")?;
        let path = directory.path();
        let store: Box<dyn Objects> = match &self.kind {
            Kind::Mortar => Box::new(Embedded::create(path)?),
            Kind::Files => Box::new(Files::create(path)?),
            #[cfg(libdb)]
            Kind::Berkeley(settings, layout) => Box::new(BerkeleyStore::create(path, *settings, *layout)?),
        };
        Ok(TempStore { store, _directory: directory })
    }

    /// A new, empty store with collections.
    pub(super) fn create_with_collections(&self, run: &Run) -> Result<TempStore<dyn Collections>> {
        let directory = run.directory("osbdb")?;
        let path = directory.path();
        let store: Box<dyn Collections> = match &self.kind {
            Kind::Mortar => Box::new(Embedded::create(path)?),
            Kind::Files => return Err("plain files take no part in this workload".into()),
            #[cfg(libdb)]
            Kind::Berkeley(settings, layout) => Box::new(BerkeleyStore::create(path, *settings, *layout)?),
        };
        Ok(TempStore { store, _directory: directory })
    }
}

/// A size with its unit: `64 KiB`, `4 MiB`.
pub(super) fn size_name(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
