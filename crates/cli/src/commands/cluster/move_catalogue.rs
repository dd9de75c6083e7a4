//! `mortar cluster move-catalogue`: moves the catalogue between a directory and etcd.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use meta::catalogue_move::{self, MoveTarget, MoveTargetState, move_catalogue};
use meta::{Embedded, Etcd, MetaStore, Prefix};
use node::purpose::Purpose;
use serde::Serialize;
use store::{DirectoryContents, Store};

use crate::commands::dev::explain_open;
use crate::commands::node::{open, store_options};
use crate::failure::{Failure, Result};
use crate::output::{HumanBytes, Output, Report, pluralize};
use crate::progress::Progress;
use crate::settings::{EtcdSettings, PartialSettings, ProcessRole, Settings};

pub(super) const EXAMPLES: &str = "\
Examples:
  mortar cluster move-catalogue --from meta.toml --to etcd.toml          what it would do; changes nothing
  mortar cluster move-catalogue --from meta.toml --to etcd.toml --yes    from a directory to etcd
  mortar cluster move-catalogue --from etcd.toml --to /srv/meta-2 --yes  and back, to a new directory
  mortar cluster move-catalogue --from mortar-data --to etcd.toml --yes  of `mortar dev`, whose directory is that of a brick then
  mortar cluster move-catalogue --from meta.toml --cancel                serve the original again

A file is that of a meta-server, as `mortar node` uses it. End the meta-server of a directory, or `mortar dev`, first. Those on etcd end by themselves:
from the beginning of the move on, the original refuses every change. Bricks, peer servers and clients go on meanwhile. When the command has
ended, start the meta-server with the file of --to, at the same address.

The target must be empty: a new directory, or a namespace of etcd that was never used. Repeat the command if it was interrupted. --cancel
--yes is for a move that cannot be finished. If a process has seen the copy already, it refuses the original.";

/// Where the catalogue is, and where it goes.
#[derive(Args)]
pub(super) struct MoveCatalogue {
    /// Where it is: the settings of its meta-server, or its data directory
    #[arg(long, value_name = "FILE|DIR")]
    from: PathBuf,
    /// Where it goes: the settings of a meta-server, or a new directory
    #[arg(long, value_name = "FILE|DIR", required_unless_present = "cancel", conflicts_with = "cancel")]
    to: Option<PathBuf>,
    /// Do it; without this, only say what it does
    #[arg(long)]
    yes: bool,
    /// Serve the original again, with --yes; the copy must never have served
    #[arg(long)]
    cancel: bool,
}

/// What is moved, or was moved.
#[derive(Serialize)]
struct MoveReport {
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    moved: bool,
    cancelled: bool,
    /// Entries and bytes without those of sessions.
    entries: u64,
    bytes: u64,
    /// Whether the directory is that of a brick, too.
    brick_directory: bool,
}

impl Report for MoveReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { from, to, .. } = self;
        if self.cancelled {
            return writeln!(out, "Cancelled. The catalogue in {from} can be served again.");
        }
        let (to, entries) = (to.as_deref().unwrap_or_default(), pluralize(self.entries, "entry", "entries"));
        writeln!(out, "{entries}, {}, from {from} to {to}", HumanBytes(self.bytes))?;
        match (self.moved, self.brick_directory) {
            (false, false) => writeln!(out, "Moving ends the service of the original. Add --yes to do it."),
            (false, true) => writeln!(
                out,
                "Moving leaves the first brick in {from}: `mortar dev` does not serve it any more. Add --yes to do it."
            ),
            (true, false) => writeln!(out, "Moved. Start the meta-server there."),
            (true, true) => {
                writeln!(
                    out,
                    "Moved. Start the meta-server there, and the first brick with `mortar node --role brick --data {from}`."
                )
            }
        }
    }
}

pub(super) async fn run(args: MoveCatalogue, output: &mut Output) -> Result {
    let source = Source::open(&Place::of(&args.from)?)?;
    let done = run_from(&source, &args, output).await;
    let closed = source.close(matches!(done, Ok(true))).await;
    done?;
    closed
}

/// Moves the catalogue, or says what that does. Returns whether the source has no catalogue any more.
async fn run_from(source: &Source, args: &MoveCatalogue, output: &mut Output) -> Result<bool> {
    let catalogue = &*source.catalogue;
    let report = MoveReport {
        from: source.place.clone(),
        to: None,
        moved: false,
        cancelled: args.cancel,
        entries: 0,
        bytes: 0,
        brick_directory: source.is_whole(),
    };
    let Some(to) = &args.to else {
        if !args.yes {
            let what = "a cancelled original can be served again, and must not be once its copy has served";
            return Err(Failure::usage(what).hint("Make sure that no meta-server has served the copy, and add --yes."));
        }
        catalogue_move::cancel(catalogue).await?;
        output.print(&report)?;
        return Ok(false);
    };
    let place = Place::of(to)?;
    if source.place == place.name()? {
        return Err(Failure::usage("the catalogue is there already: --from and --to name the same place"));
    }
    let to = Some(place.name()?);
    if !args.yes {
        place.check_unused().await?;
        let state = catalogue.read(Prefix::all()).await?;
        let lasting = || state.entries.iter().filter(|(_, entry)| entry.session.is_none());
        let bytes = lasting().map(|(key, entry)| (key.as_str().len() + entry.value.len()) as u64).sum();
        output.print(&MoveReport { to, entries: lasting().count() as u64, bytes, ..report })?;
        return Ok(false);
    }
    let target = Target::open(&place)?;
    let progress = Progress::start_with_unit("moving the catalogue", "entries", output);
    let (on_sealed, on_copied) = (
        |bytes: u64, entries: u64| progress.set_total(bytes, entries),
        |bytes: u64, entries: u64| progress.advance(bytes, entries),
    );
    let moved = move_catalogue(catalogue, &target.as_move_target(), &place.name()?, &on_sealed, &on_copied).await;
    progress.end();
    target.close()?;
    let copy = moved?;
    output.print(&MoveReport { to, moved: true, entries: copy.count(), bytes: copy.bytes(), ..report })?;
    Ok(source.is_whole())
}

/// Where a catalogue is, or goes.
enum Place {
    Etcd(EtcdSettings),
    /// A directory, with the settings of its store.
    Directory(Box<Settings>, PathBuf),
}

impl Place {
    fn of(path: &Path) -> Result<Self> {
        let is_file = path.is_file() || path.extension().is_some_and(|extension| extension == "toml");
        let given = match is_file {
            true => PartialSettings::read(path)?,
            false => PartialSettings::of_catalogue_in(path),
        };
        let settings = Settings::resolve(given)?;
        match (settings.role, settings.etcd.clone(), settings.data.clone()) {
            (ProcessRole::Meta, Some(etcd), _) => Ok(Self::Etcd(etcd)),
            (ProcessRole::Meta, None, Some(data)) => Ok(Self::Directory(Box::new(settings), data)),
            _ => {
                Err(Failure::usage(format!("{} is no file of a meta-server with a directory or etcd", path.display())))
            }
        }
    }

    /// Its name for a person, which the original keeps.
    fn name(&self) -> Result<String> {
        match self {
            Self::Etcd(etcd) => Ok(etcd.place()),
            Self::Directory(_, data) => {
                let path = std::path::absolute(data);
                Ok(path.map_err(|e| Failure::file("cannot determine the current directory", &e))?.display().to_string())
            }
        }
    }

    /// Checks that a catalogue can be moved there. Changes nothing.
    async fn check_unused(&self) -> Result {
        let is_used = match self {
            Self::Directory(_, data) => {
                !matches!(DirectoryContents::of(data)?, DirectoryContents::Missing | DirectoryContents::Empty)
            }
            Self::Etcd(etcd) => {
                let etcd = Etcd::new(&etcd.config()?)?;
                matches!(MoveTarget::Etcd(&etcd).state().await?, MoveTargetState::Complete(_))
            }
        };
        match is_used {
            true => Err(Failure::conflict(format!("{} is not empty", self.name()?))
                .hint("Name a new directory, or another namespace of etcd.")),
            false => Ok(()),
        }
    }
}

/// The catalogue that is moved.
struct Source {
    catalogue: Arc<dyn MetaStore>,
    /// The same, and the store that it is in.
    stored: Option<(Embedded, Store, Purpose)>,
    place: String,
}

impl Source {
    fn open(place: &Place) -> Result<Self> {
        let name = place.name()?;
        match place {
            Place::Etcd(etcd) => {
                Ok(Self { catalogue: Arc::new(Etcd::new(&etcd.config()?)?), stored: None, place: name })
            }
            Place::Directory(settings, data) => {
                let none = || Failure::not_found(format!("there is no catalogue in {}", data.display()));
                if matches!(DirectoryContents::of(data)?, DirectoryContents::Missing | DirectoryContents::Empty) {
                    return Err(none());
                }
                let store = Store::open(data, store_options(settings)).map_err(|error| explain_open(error, data))?;
                let purpose = Purpose::of(&store)?.ok_or_else(none)?;
                if purpose == Purpose::Brick {
                    return Err(Failure::usage(format!(
                        "{} is a brick's directory: it has no catalogue",
                        data.display()
                    )));
                }
                let embedded = Embedded::open(&store)?;
                let catalogue = Arc::new(embedded.clone());
                Ok(Self { catalogue, stored: Some((embedded, store, purpose)), place: name })
            }
        }
    }

    /// Whether it shares its store with the first brick of a cluster.
    fn is_whole(&self) -> bool {
        matches!(&self.stored, Some((_, _, Purpose::Whole)))
    }

    /// Closes the store. A brick's store of which the catalogue was moved becomes that of a brick alone.
    async fn close(self, is_moved_out: bool) -> Result {
        let Some((embedded, store, _)) = self.stored else { return Ok(()) };
        drop(self.catalogue);
        embedded.close().await?;
        if is_moved_out {
            Purpose::keep_brick_only(&store)?;
        }
        Ok(store.close()?)
    }
}

/// Where the catalogue goes.
enum Target {
    Etcd(Etcd),
    Store(Store),
}

impl Target {
    fn open(place: &Place) -> Result<Self> {
        match place {
            Place::Etcd(etcd) => Ok(Self::Etcd(Etcd::new(&etcd.config()?)?)),
            Place::Directory(settings, _) => Ok(Self::Store(open(settings, Purpose::Catalogue)?)),
        }
    }

    fn as_move_target(&self) -> MoveTarget<'_> {
        match self {
            Self::Etcd(etcd) => MoveTarget::Etcd(etcd),
            Self::Store(store) => MoveTarget::Embedded(store),
        }
    }

    fn close(self) -> Result {
        match self {
            Self::Etcd(_) => Ok(()),
            Self::Store(store) => Ok(store.close()?),
        }
    }
}
