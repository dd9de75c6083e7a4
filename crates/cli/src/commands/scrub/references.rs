//! Follows what leads from one object to another, wherever that is: names, members of sets, references in records.
//!
//! An object that seems to be missing is looked for again, in a transaction with what leads to it. Its commit says that both were so at one
//! moment, so nothing is reported that a running transaction is about to make or to remove.

use std::collections::BTreeSet;

use client::{Client, ProblemRepair, Transaction};
use model::{ErrorKind, Kind, Object, Oid, RecordRef, Value, ValueRef};

use super::FoundProblem;
use crate::failure::Result;
use crate::progress::Progress;

/// Most problems that are listed; further ones are counted.
const MAX_LISTED: usize = 1000;
/// Members of a set in one step.
const MEMBERS: usize = 1000;

/// What was found in a space.
#[derive(Default)]
pub(super) struct References {
    pub(super) problems: Vec<FoundProblem>,
    /// How many more there are.
    pub(super) unlisted: u64,
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

/// Checks the names, sets and records of a space. `removes` says whether names and members that lead nowhere are removed.
pub(super) async fn check(cluster: &Client, removes: bool, progress: &Progress) -> Result<References> {
    let mut check = Check { cluster, removes, progress, found: References::default() };
    check.names().await?;
    check.objects().await?;
    Ok(check.found)
}

struct Check<'a> {
    cluster: &'a Client,
    removes: bool,
    progress: &'a Progress,
    found: References,
}

impl Check<'_> {
    async fn names(&mut self) -> Result<()> {
        let mut names = self.cluster.names("/").with_directories();
        while let Some(portion) = names.next().await? {
            self.progress.advance(0, portion.len() as u64);
            for name in portion {
                self.look(Lead::Path(name.path), name.oid).await?;
            }
        }
        Ok(())
    }

    async fn objects(&mut self) -> Result<()> {
        let mut objects = self.cluster.objects();
        while let Some(portion) = objects.next().await? {
            self.progress.advance(0, portion.len() as u64);
            for listed in portion {
                match listed.kind {
                    Kind::Record => self.record(listed.oid).await?,
                    Kind::Collection => self.members(listed.oid).await?,
                    // Names have been followed; blobs lead to nothing.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn record(&mut self, oid: Oid) -> Result<()> {
        let object = match self.cluster.get(oid).await {
            // It is reported as damage.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            read => read?,
        };
        let Some(object) = object else { return Ok(()) };
        for target in references(&object)? {
            self.look(Lead::Reference(oid), target).await?;
        }
        Ok(())
    }

    async fn members(&mut self, set: Oid) -> Result<()> {
        let mut after = None;
        loop {
            let members = self.cluster.members(set, after, MEMBERS).await?;
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
        let (seen, removes) = (lead.clone(), self.removes);
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
        if self.found.problems.len() == MAX_LISTED {
            self.found.unlisted += 1;
            return Ok(());
        }
        let (kind, what) = (lead.kind().to_owned(), lead.describe(target));
        self.found.problems.push(FoundProblem { brick: None, kind, what, dangling: true, repair });
        Ok(())
    }
}

async fn confirm(transaction: &Transaction, lead: &Lead, target: Oid, removes: bool) -> client::Result<Confirmed> {
    if !lead.leads(transaction, target).await? || transaction.get(target).await?.is_some() {
        return Ok(Confirmed::Sound);
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
