//! `mortar import`, `export` and `verify`: whole trees of files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use client::Client;
use serde::Serialize;

use super::moment::run_at_one_moment;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{HumanBytes, Report, pluralize};
use crate::progress::{HumanDuration, Progress, rate};
use crate::quota_limit;
use crate::tree::plan::TreePlan;
use crate::tree::walk::Prefix;
use crate::tree::{export, import, verify};

const IMPORT: &str = "\
Examples:
  mortar import /usr/share/doc                    names begin with /doc
  mortar import ~/photos --prefix /ann/photos
  mortar import /data --max-bytes 500MB           at most 500 MB of files

Files become blobs, directories become directories, symbolic links become blobs with their target, marked by the \
attribute posix.type=symlink. Attributes: posix.mode, posix.mtime, content-type. Sockets, pipes and devices are \
left out. A second import passes over what has not changed (size and time), replaces what has, and removes nothing.";

const EXPORT: &str = "\
Examples:
  mortar export restored --prefix /doc
  mortar export restored --prefix /doc --verify   then read everything back and compare checksums
  mortar export friday --moment                   all files as they are at one moment, while they are changed";

const VERIFY: &str = "\
Examples:
  mortar verify /usr/share/doc                    compare with what `mortar import /usr/share/doc` made
  mortar verify restored --prefix /doc --json";

/// Store a tree of files; continues where an earlier import stopped
#[derive(Args)]
#[command(after_help = IMPORT)]
pub(crate) struct Import {
    #[command(flatten)]
    tree: Tree,
}

/// Write a tree of files from the store
#[derive(Args)]
#[command(after_help = EXPORT)]
pub(crate) struct Export {
    /// The directory to write; it must be empty or not exist
    dir: PathBuf,
    /// Export the names below this one [default: all names]
    #[arg(long, value_name = "NAME", default_value = "/", hide_default_value = true)]
    prefix: String,
    /// Write into a directory that is not empty, and replace files there
    #[arg(long)]
    overwrite: bool,
    /// Afterwards read everything back, from disk and from the store, and compare
    #[arg(long)]
    verify: bool,
    /// Write the files as they are at one moment, from a clone of the space that is removed afterwards. Requires an administrator
    #[arg(long)]
    moment: bool,
}

/// Compare a tree of files with the store, by checksums
#[derive(Args)]
#[command(after_help = VERIFY)]
pub(crate) struct Verify {
    #[command(flatten)]
    tree: Tree,
    /// Compare with the store as it is at one moment, from a clone of the space that is removed afterwards. Requires an administrator
    #[arg(long)]
    moment: bool,
}

/// A tree on disk and its names.
#[derive(Args)]
struct Tree {
    /// The directory
    dir: PathBuf,
    /// Prefix of the names [default: / and the directory's name]
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Maximum bytes of files (`10GiB`, `500MB`), in the order of the tree; files that do not fit are left out
    #[arg(long, value_name = "SIZE", value_parser = quota_limit::parse_size)]
    max_bytes: Option<u64>,
}

impl Tree {
    fn plan(self) -> Result<TreePlan> {
        let root = directory(&self.dir)?;
        let prefix = match &self.prefix {
            Some(prefix) => prefix_of(prefix)?,
            None => Prefix::of(&root),
        };
        Ok(TreePlan { root, prefix, max_bytes: self.max_bytes })
    }
}

/// The prefix that an option has; it is written like a name.
fn prefix_of(text: &str) -> Result<Prefix> {
    let path: crate::target::NamePath =
        text.parse().map_err(|why| Failure::usage(format!("--prefix {text}: {why}")))?;
    Ok(Prefix::new(path.as_str()))
}

fn directory(path: &Path) -> Result<PathBuf> {
    let cannot = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let root = fs::canonicalize(path).map_err(cannot)?;
    if !fs::metadata(&root).map_err(cannot)?.is_dir() {
        return Err(
            Failure::usage(format!("{} is not a directory", path.display())).hint("`mortar put` stores one file.")
        );
    }
    Ok(root)
}

#[derive(Serialize)]
struct ImportReport {
    prefix: String,
    #[serde(flatten)]
    tally: import::Tally,
    seconds: f64,
}

impl Report for ImportReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let tally = &self.tally;
        let time = Duration::from_secs_f64(self.seconds);
        let objects = pluralize(tally.objects(), "object", "objects");
        writeln!(out, "{objects} under {}, in {}", self.prefix, HumanDuration(time))?;
        let lines = [
            (tally.imported, "new"),
            (tally.replaced, "changed, replaced"),
            (tally.updated, "with other attributes, updated"),
            (tally.unchanged, "already there, unchanged"),
            (tally.skipped, "left out: sockets, pipes and devices"),
            (tally.left_out, "left out: no room within --max-bytes"),
            (tally.failed, "FAILED, see above"),
        ];
        for (count, what) in lines.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {:>10} {what}", crate::output::HumanCount(count).to_string())?;
        }
        if tally.bytes > 0 {
            writeln!(out, "  {} imported, {}/s", HumanBytes(tally.bytes), HumanBytes(rate(tally.bytes, time)))?;
        }
        Ok(())
    }
}

pub(crate) async fn import(args: Import, session: &mut CommandContext) -> Result {
    let plan = args.tree.plan()?;
    let cluster = session.cluster().await?;
    let progress = Progress::start("importing", &session.output);
    let done = import::import(&cluster, &plan, &progress, session.output.json()).await;
    progress.end();
    let report =
        ImportReport { prefix: plan.prefix.root().to_owned(), tally: done?, seconds: progress.elapsed().as_secs_f64() };
    session.output.print(&report)?;
    match report.tally.failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{} could not be imported", pluralize(failed, "file", "files")))),
    }
}

#[derive(Serialize)]
struct ExportReport {
    #[serde(flatten)]
    tally: export::Tally,
    seconds: f64,
}

impl Report for ExportReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let tally = &self.tally;
        let time = Duration::from_secs_f64(self.seconds);
        writeln!(
            out,
            "wrote {}, {} and {} in {}: {}, {}/s",
            pluralize(tally.files, "file", "files"),
            pluralize(tally.links, "link", "links"),
            pluralize(tally.directories, "directory", "directories"),
            HumanDuration(time),
            HumanBytes(tally.bytes),
            HumanBytes(rate(tally.bytes, time))
        )
    }
}

impl Export {
    /// Whether it reads a clone of the space.
    pub(crate) fn is_of_moment(&self) -> bool {
        self.moment
    }
}

pub(crate) async fn export(args: Export, session: &mut CommandContext) -> Result {
    let (prefix, is_of_moment) = (prefix_of(&args.prefix)?, args.moment);
    if is_of_moment {
        // A clone of the whole space for a wrong command line would be a waste.
        export::check_target(&args.dir, args.overwrite)?;
    }
    let export = async |session: &mut CommandContext| export_tree(args, prefix, session).await;
    match is_of_moment {
        true => run_at_one_moment(session, "stopped; files that were written so far stay", export).await,
        false => export(session).await,
    }
}

async fn export_tree(args: Export, prefix: Prefix, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let progress = Progress::start("exporting", &session.output);
    let plan = export::ExportPlan { prefix: prefix.clone(), root: args.dir.clone(), overwrite: args.overwrite };
    let done = export::export(&cluster, plan, &progress, session.output.json()).await;
    progress.end();
    let report = ExportReport { tally: done?, seconds: progress.elapsed().as_secs_f64() };
    // What was written is verified also if the reader of the output has gone.
    let printed = session.output.print(&report).and_then(|()| session.output.flush());
    let verified = match args.verify {
        true => verify_tree(TreePlan { root: directory(&args.dir)?, prefix, max_bytes: None }, &cluster, session).await,
        false => Ok(()),
    };
    check_damage(report.tally.damaged)?;
    verified?;
    match report.tally.failed {
        0 => printed,
        failed => Err(Failure::new(format!("{} could not be exported", pluralize(failed, "object", "objects")))),
    }
}

#[derive(Serialize)]
struct VerifyReport {
    prefix: String,
    #[serde(flatten)]
    tally: verify::Tally,
    seconds: f64,
}

impl Report for VerifyReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let tally = &self.tally;
        let time = Duration::from_secs_f64(self.seconds);
        writeln!(
            out,
            "{} under {} as on disk, every checksum equal: {} in {}, {}/s",
            pluralize(tally.same, "object", "objects"),
            self.prefix,
            HumanBytes(tally.bytes),
            HumanDuration(time),
            HumanBytes(rate(tally.bytes, time))
        )?;
        let lines = [
            (tally.different, "DIFFERENT, see above"),
            (tally.missing, "MISSING in the store, see above"),
            (tally.damaged, "DAMAGED in the store, see above"),
            (tally.failed, "UNREADABLE on disk, see above"),
            (tally.extra, "more in the store than in this tree"),
        ];
        for (count, what) in lines.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {:>10} {what}", crate::output::HumanCount(count).to_string())?;
        }
        Ok(())
    }
}

pub(crate) async fn verify(args: Verify, session: &mut CommandContext) -> Result {
    let plan = args.tree.plan()?;
    if args.moment {
        check_prefix(&plan.prefix, &session.cluster().await?).await?;
    }
    let compare = async |session: &mut CommandContext| {
        let cluster = session.cluster().await?;
        verify_tree(plan, &cluster, session).await
    };
    match args.moment {
        true => run_at_one_moment(session, "stopped before everything was compared", compare).await,
        false => compare(session).await,
    }
}

/// Fails if objects are damaged in the store, however the others are.
pub(super) fn check_damage(damaged: u64) -> Result {
    match damaged {
        0 => Ok(()),
        damaged => {
            let objects = pluralize(damaged, "object is", "objects are");
            Err(Failure::corrupt(format!("{objects} damaged in the store"))
                .hint("`mortar scrub` lists all damage. `mortar rm` removes an object whose content is damaged; then import its file again. If rows of the B-tree are damaged, stop the server: `mortar repair` says what is lost."))
        }
    }
}

/// Checks that something has the name below which the tree is.
async fn check_prefix(prefix: &Prefix, cluster: &Client) -> Result {
    match cluster.resolve(prefix.root()).await? {
        Some(_) => Ok(()),
        None => Err(Failure::not_found(format!("nothing has the name {}", prefix.root()))
            .hint("`mortar import` stores the tree; --prefix names where it is.")),
    }
}

async fn verify_tree(plan: TreePlan, cluster: &Client, session: &mut CommandContext) -> Result {
    check_prefix(&plan.prefix, cluster).await?;
    let progress = Progress::start("verifying", &session.output);
    let done = verify::verify(cluster, &plan, &progress, session.output.json()).await;
    progress.end();
    let report =
        VerifyReport { prefix: plan.prefix.root().to_owned(), tally: done?, seconds: progress.elapsed().as_secs_f64() };
    session.output.print(&report)?;
    check_damage(report.tally.damaged)?;
    if report.tally.differs() {
        return Err(Failure::conflict("the tree and the store differ")
            .hint("`mortar import` brings the store up to date with the tree; `mortar scrub` looks for damage."));
    }
    match report.tally.failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{} could not be read on disk", pluralize(failed, "file", "files")))),
    }
}
