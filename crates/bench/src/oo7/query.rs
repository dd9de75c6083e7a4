//! The queries of OO7. Each covers all modules of the database, and returns the number of objects that it has found.

use std::collections::HashSet;
use std::ops::Deref;

use client::Result;

use super::design::Design;
use super::generate::{DATES, LEAST_DATE, title_of};
use super::model::{AtomicPart, BaseAssembly, Document};
use super::objects::Objects;
use super::random::JavaRandom;
use super::traversal::visit;

/// Atomic parts that Q1 looks up.
const LOOKUPS: usize = 10;
/// Documents that Q4 looks up.
const DOCUMENTS: usize = 100;

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// Q1: atomic parts by identifiers, which are random and the same in each run.
    Lookups,
    /// Q2, Q3 and Q7: the atomic parts with the latest build dates, in per cent of the dates.
    BuildDates { percent: i64 },
    /// Q4: documents by title, and the base assemblies that use their composite parts.
    Documents,
    /// Q5: the base assemblies that use a composite part with a later build date.
    Make,
    /// Q6: the base assemblies of Q5, and all assemblies above them.
    MultiLevelMake,
    /// Q8: the pairs of documents and atomic parts with the identifier of the document.
    Join,
}

impl Query {
    /// Runs the query.
    pub(crate) async fn run(self, objects: &impl Objects, design: &Design) -> Result<u64> {
        match self {
            Self::Lookups => look_up(objects, design).await,
            Self::BuildDates { percent } => parts_since(objects, percent).await,
            Self::Documents => users_of_documents(objects, design).await,
            Self::Make => Ok(outdated_assemblies(objects).await?.len() as u64),
            Self::MultiLevelMake => count_outdated_with_ancestors(objects).await,
            Self::Join => join(objects).await,
        }
    }
}

/// The identifiers that Q1 looks up.
pub(super) fn looked_up_ids(design: &Design) -> Vec<usize> {
    JavaRandom::new(LOOKUPS as u64).numbers(LOOKUPS, design.all_atomic_parts())
}

/// The titles that Q4 looks up.
pub(super) fn looked_up_titles(design: &Design) -> Vec<String> {
    let ids = JavaRandom::new(DOCUMENTS as u64).numbers(DOCUMENTS, design.all_composite_parts());
    ids.into_iter().map(|id| title_of(id as i64)).collect()
}

/// The first of the latest build dates.
pub(super) fn first_date(percent: i64) -> i64 {
    LEAST_DATE + DATES - DATES * percent / 100
}

async fn look_up(objects: &impl Objects, design: &Design) -> Result<u64> {
    let mut found = 0;
    for id in looked_up_ids(design) {
        found += visit(&*objects.atomic_part(id as i64).await?);
    }
    Ok(found)
}

async fn parts_since(objects: &impl Objects, percent: i64) -> Result<u64> {
    Ok(objects.atomic_parts_since(first_date(percent)).await?.iter().map(|part| visit(part)).sum())
}

async fn users_of_documents(objects: &impl Objects, design: &Design) -> Result<u64> {
    let mut found = 0;
    for title in looked_up_titles(design) {
        let part = objects.document(&title).await?.part;
        for base in &objects.get(part).await?.used_in {
            found += u64::from(objects.get(*base).await?.assembly.build_date > 0);
        }
    }
    Ok(found)
}

/// The base assemblies that use a composite part with a later build date.
async fn outdated_assemblies(objects: &impl Objects) -> Result<Vec<impl Deref<Target = BaseAssembly>>> {
    let mut found = Vec::new();
    for base in objects.all::<BaseAssembly>().await? {
        if uses_later_part(objects, &base).await? {
            found.push(base);
        }
    }
    Ok(found)
}

async fn uses_later_part(objects: &impl Objects, base: &BaseAssembly) -> Result<bool> {
    for part in &base.components {
        if objects.get(*part).await?.build_date > base.assembly.build_date {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn count_outdated_with_ancestors(objects: &impl Objects) -> Result<u64> {
    let bases = outdated_assemblies(objects).await?;
    let mut found = HashSet::new();
    for base in &bases {
        let mut above = base.assembly.super_assembly;
        while let Some(assembly) = above
            && found.insert(assembly)
        {
            above = objects.get(assembly).await?.assembly.super_assembly;
        }
    }
    Ok((bases.len() + found.len()) as u64)
}

async fn join(objects: &impl Objects) -> Result<u64> {
    let documents: HashSet<i64> = objects.all::<Document>().await?.iter().map(|document| document.id).collect();
    let parts = objects.all::<AtomicPart>().await?;
    Ok(parts.iter().filter(|part| documents.contains(&part.document_id)).count() as u64)
}
