//! Follows what leads from one object to another, wherever that is: names, members of sets, references in records. Compares records with the values
//! that unique indexes have of them, which are at other logical nodes, too.
//!
//! An object that seems to be missing is looked for again, in a transaction with what leads to it. Its commit says that both were so at one
//! moment, so nothing is reported that a running transaction is about to make or to remove.

use std::collections::BTreeSet;

use client::{Client, ListedName, ProblemRepair, Transaction, UniqueProblem};
use model::{ErrorKind, Kind, Object, Oid, RecordRef, Value, ValueRef};

use super::FoundProblem;
use crate::failure::Result;
use crate::progress::Progress;

/// Most problems that are listed; further ones are counted.
const MAX_LISTED: usize = 1000;
/// Members of a set in one step.
const MEMBERS: usize = 1000;
/// Records whose unique values are looked up in one step.
const RECORDS: usize = 64;

/// What was found in a space.
#[derive(Default)]
pub(super) struct References {
    pub(super) problems: Vec<FoundProblem>,
    /// How many more contradictions there are, and how much more that leads nowhere.
    pub(super) unlisted: u64,
    pub(super) unlisted_dangling: u64,
}

/// What is put right.
#[derive(Clone, Copy)]
pub(super) struct Repairs {
    /// Values of unique indexes that are bound to no object are bound to the one that has them.
    pub(super) binds: bool,
    /// Names and members that lead nowhere are removed.
    pub(super) removes: bool,
}

/// Something that leads to an object.
#[derive(Clone)]
enum Lead {
    /// A path.
    Path(String),
    /// The membership in a set.
    Member(Oid),
    /// A reference in a record.
    Reference(Oid),
}

impl Lead {
    fn kind(&self) -> &'static str {
        match self {
            Self::Path(_) | Self::Member(_) => "target_missing",
            Self::Reference(_) => "reference_missing",
        }
    }

    fn describe(&self, target: Oid) -> String {
        match self {
            Self::Path(path) => format!("the name {path} leads to object {target}, which does not exist"),
            Self::Member(set) => format!("object {set}: its member {target} does not exist"),
            Self::Reference(record) => format!("object {record}: it refers to object {target}, which does not exist"),
        }
    }

    /// Whether it still leads to the target.
    async fn leads(&self, transaction: &Transaction, target: Oid) -> client::Result<bool> {
        Ok(match self {
            Self::Path(path) => transaction.resolve(path).await? == Some(target),
            Self::Member(set) => transaction.contains(*set, target).await?,
            Self::Reference(record) => match transaction.get(*record).await? {
                Some(object) => references(&object)?.contains(&target),
                None => false,
            },
        })
    }

    /// Removes it. Says whether it can be removed: a reference is part of a record, which belongs to an application.
    async fn remove(&self, transaction: &Transaction, target: Oid) -> client::Result<bool> {
        match self {
            Self::Path(path) => transaction.unbind(path).await,
            Self::Member(set) => transaction.remove_member(*set, target).await,
            Self::Reference(_) => Ok(false),
        }
    }
}

/// What a second look has shown.
enum Confirmed {
    /// It leads to an object, or does not exist any more.
    Sound,
    Dangling,
    Removed,
}

/// Checks the names, sets and records of a space. What was found before an error is in `found`, too.
pub(super) async fn check(
    cluster: &Client,
    repairs: Repairs,
    progress: &Progress,
    found: &mut References,
) -> Result<()> {
    let mut check = Check { cluster, repairs, progress, found };
    check.names().await?;
    check.objects().await
}

struct Check<'a> {
    cluster: &'a Client,
    repairs: Repairs,
    progress: &'a Progress,
    found: &'a mut References,
}

impl Check<'_> {
    async fn names(&mut self) -> Result<()> {
        let mut names = self.cluster.names("/").with_directories().below_damage();
        while let Some(portion) = names.next().await? {
            self.progress.advance(0, portion.len() as u64);
            for name in portion {
                // Other damaged objects are found by the scrub of their brick, as are the rows of this one.
                if let Some(problem) = damaged_directory(&name) {
                    self.report(problem);
                    continue;
                }
                self.look(Lead::Path(name.path), name.oid).await?;
            }
        }
        Ok(())
    }

    async fn objects(&mut self) -> Result<()> {
        let mut objects = self.cluster.objects();
        loop {
            let portion = match objects.next().await {
                // The scrub of the brick reports it.
                Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                portion => portion?,
            };
            let Some(portion) = portion else { return Ok(()) };
            self.progress.advance(0, portion.len() as u64);
            let mut records = Vec::new();
            for listed in portion {
                match listed.kind {
                    Kind::Record => records.extend(self.record(listed.oid).await?.map(|object| (listed.oid, object))),
                    Kind::Collection => self.members(listed.oid).await?,
                    // Names have been followed; blobs lead to nothing.
                    _ => {}
                }
                if records.len() == RECORDS {
                    self.unique_values(&std::mem::take(&mut records)).await?;
                }
            }
            self.unique_values(&records).await?;
        }
    }

    /// Follows the references of a record, and returns it.
    async fn record(&mut self, oid: Oid) -> Result<Option<Object>> {
        let object = match self.cluster.get(oid).await {
            // It is reported as damage.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
            read => read?,
        };
        if let Some(object) = &object {
            for target in references(object)? {
                self.look(Lead::Reference(oid), target).await?;
            }
        }
        Ok(object)
    }

    async fn unique_values(&mut self, records: &[(Oid, Object)]) -> Result<()> {
        let found = match self.cluster.check_unique_values(records, self.repairs.binds).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let what = format!("values of unique indexes cannot be compared with records: {error}");
                let (kind, repair) = ("unique_values_unreadable", ProblemRepair::Impossible);
                self.report(FoundProblem::followed(kind, what, false, repair));
                return Ok(());
            }
            found => found?,
        };
        for problem in found {
            let UniqueProblem { oid, index, holder, is_repaired } = problem;
            let (kind, what, repair) = match holder {
                Some(holder) => {
                    let what =
                        format!("objects {holder} and {oid} have the same values, and index {index:?} is unique");
                    ("unique_values_shared", what, ProblemRepair::Impossible)
                }
                None => {
                    let what = format!("object {oid}: its values in the unique index {index:?} are bound to no object");
                    let repair = if is_repaired { ProblemRepair::Done } else { ProblemRepair::Possible };
                    ("unique_values_unbound", what, repair)
                }
            };
            self.report(FoundProblem::followed(kind, what, false, repair));
        }
        Ok(())
    }

    fn report(&mut self, problem: FoundProblem) {
        let unlisted = if problem.dangling { &mut self.found.unlisted_dangling } else { &mut self.found.unlisted };
        match self.found.problems.len() {
            MAX_LISTED => *unlisted += 1,
            _ => self.found.problems.push(problem),
        }
    }

    async fn members(&mut self, set: Oid) -> Result<()> {
        let mut after = None;
        loop {
            let members = match self.cluster.members(set, after, MEMBERS).await {
                // The scrub of its brick reports it.
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
                members => members?,
            };
            after = members.last().copied();
            for member in &members {
                self.look(Lead::Member(set), *member).await?;
            }
            if members.len() < MEMBERS {
                return Ok(());
            }
        }
    }

    /// Whether an object exists, as far as the nearest copy tells. A damaged one does.
    async fn exists(&self, oid: Oid) -> Result<bool> {
        match self.cluster.get(oid).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(true),
            read => Ok(read?.is_some()),
        }
    }

    /// Looks whether an object exists to which something leads.
    async fn look(&mut self, lead: Lead, target: Oid) -> Result<()> {
        if target.space() != self.cluster.space() || self.exists(target).await? {
            return Ok(());
        }
        let (seen, removes) = (lead.clone(), self.repairs.removes);
        let confirmed = self.cluster.transact(|transaction| {
            let lead = seen.clone();
            async move { confirm(&transaction, &lead, target, removes).await }
        });
        let repair = match confirmed.await? {
            Confirmed::Sound => return Ok(()),
            Confirmed::Removed => ProblemRepair::Done,
            Confirmed::Dangling if matches!(lead, Lead::Reference(_)) => ProblemRepair::Impossible,
            Confirmed::Dangling => ProblemRepair::Loses,
        };
        let (kind, what) = (lead.kind(), lead.describe(target));
        self.report(FoundProblem::followed(kind, what, true, repair));
        Ok(())
    }
}

/// What is reported of a directory that is damaged, or has damaged entries. Its other entries are followed.
fn damaged_directory(ListedName { path, oid, is_directory, damage }: &ListedName) -> Option<FoundProblem> {
    let why = damage.as_ref().filter(|_| *is_directory)?;
    let what = format!(
        "the directory {path}, object {oid}, is damaged, and some of its names may not have been followed: {why}"
    );
    let (kind, repair) = ("directory_damaged", ProblemRepair::Impossible);
    Some(FoundProblem::followed(kind, what, false, repair))
}

async fn confirm(transaction: &Transaction, lead: &Lead, target: Oid, removes: bool) -> client::Result<Confirmed> {
    if !lead.leads(transaction, target).await? || transaction.get(target).await?.is_some() {
        return Ok(Confirmed::Sound);
    }
    // A set or a directory of which only the object is lost: the scrub of its brick reports it, and creates it again.
    match transaction.members(target, None, 1).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Confirmed::Sound),
        members => {
            if !members?.is_empty() {
                return Ok(Confirmed::Sound);
            }
        }
    }
    if removes && lead.remove(transaction, target).await? {
        return Ok(Confirmed::Removed);
    }
    Ok(Confirmed::Dangling)
}

/// The objects that a record refers to.
fn references(object: &Object) -> model::Result<BTreeSet<Oid>> {
    let mut found = BTreeSet::new();
    if object.kind == Kind::Record {
        let record = RecordRef::new(&object.data)?;
        for field in record.fields() {
            let (_, value) = field?;
            if may_refer(value) {
                collect(&value.to_value()?, &mut found);
            }
        }
    }
    Ok(found)
}

fn may_refer(value: ValueRef<'_>) -> bool {
    matches!(value, ValueRef::Reference(_) | ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_))
}

/// Records nest at most 32 levels of values.
fn collect(value: &Value, found: &mut BTreeSet<Oid>) {
    match value {
        Value::Reference(oid) => {
            found.insert(*oid);
        }
        Value::List(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Set(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Map(entries) => entries.iter().for_each(|(key, value)| {
            collect(key, found);
            collect(value, found);
        }),
        _ => {}
    }
}
