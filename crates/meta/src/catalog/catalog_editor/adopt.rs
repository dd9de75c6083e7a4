//! The operation that creates or extends the classes and indexes of a program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Class, ClassDefinition, ClassId, FieldNumber};

use super::classes::{CLASS, ClassBuilder, check_list, schema};
use super::indexes::check_index_limit;
use super::spaces::SPACE;
use super::{CatalogEditor, Edited, Result, edit, jobs, require};
use crate::catalog::adoption::{self, WantedClass};
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::evolution;
use crate::catalog::ident::{IndexId, JobId};
use crate::catalog::index::{Index, IndexState};
use crate::catalog::names;
use crate::catalog::schema::Schema;
use crate::catalog::space::Space;
use crate::limits;

/// Changes of a write beside those of classes and indexes: the counters of classes, indexes and jobs, and the mark of the schema.
const OTHER_CHANGES: usize = 4;
/// Changes for an index: it and the job that builds it.
const INDEX_CHANGES: usize = 2;

impl CatalogEditor {
    /// Creates the classes and indexes of a program in a space, or extends existing ones to match. Either all classes are created or
    /// extended, or nothing is done. Indexes for which the write of the classes has no room follow in writes of their own; if these fail,
    /// calling this again goes on. Returns the indexes that were created; they are [`IndexState::Building`].
    ///
    /// Fields that the program does not know stay, so programs of several versions can do this in any order.
    ///
    /// # Errors
    /// [`CatalogError::Incompatible`] and [`CatalogError::Evolution`] if a class cannot be extended to match; the error of
    /// `may_change` if a change would be necessary.
    pub async fn adopt(
        &self,
        space: &str,
        wanted: &[WantedClass],
        may_change: model::Result<()>,
    ) -> Result<Edited<Vec<Index>>> {
        let mut denied = may_change.err();
        check_list(wanted.iter().map(|wanted| &wanted.class))?;
        for index in wanted.iter().flat_map(|wanted| &wanted.indexes) {
            names::check_index(&index.name)?;
        }
        let mut made = Vec::new();
        loop {
            let step = self.adopt_in_one_write(space, wanted, &mut denied).await?;
            let (indexes, is_all) = step.value;
            made.extend(indexes);
            if is_all {
                return Ok(Edited { value: made, revision: step.revision });
            }
        }
    }

    /// Does what one write has room for. Returns the indexes that were created, and whether that was all.
    async fn adopt_in_one_write(
        &self,
        space: &str,
        wanted: &[WantedClass],
        denied: &mut Option<model::Error>,
    ) -> Result<Edited<(Vec<Index>, bool)>> {
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let before = schema(&draft, &record).await?;
            let new: Vec<ClassDefinition> = new_classes(&before, wanted)?;
            let mut adopting = Adoption::new(&before);
            if !new.is_empty() {
                let count = new.len() as u64;
                let first =
                    draft.reserve_numbers(&entry::class_counter(record.id), count, ClassId::MAX.0.into()).await?;
                // It is at most `ClassId::MAX`.
                let made = ClassBuilder::new(&before, &new)?.build(first as u32)?;
                adopting.replace_classes(made);
            }
            adopting.evolve(&before, wanted)?;
            let mut indexes = adopting.indexes(wanted)?;
            check_index_limit(&before, indexes.len())?;
            let count = adopting.index_room().min(indexes.len());
            let is_all = count == indexes.len();
            indexes.truncate(count);
            if !indexes.is_empty() {
                let count = indexes.len() as u64;
                let first = draft.reserve_numbers(&entry::index_counter(record.id), count, u32::MAX.into()).await?;
                let first_job = jobs::reserve_jobs(&mut draft, count).await?;
                for (index, (number, job)) in indexes.iter_mut().zip((first..).zip(first_job.0..)) {
                    // It is at most `u32::MAX`.
                    (index.id, index.job) = (IndexId(number as u32), Some(JobId(job)));
                    draft.put(&Path::Job(JobId(job)), &self.index_job(JobId(job), &record, index))?;
                    draft.put(&Path::Index(record.id, index.name.clone()), index)?;
                }
            }
            if adopting.changed.is_empty() && indexes.is_empty() {
                // Nothing to write, so the draft need not expect anything.
                draft = self.draft();
            } else if let Some(denied) = denied.take() {
                return Err(denied.into());
            }
            for class in &adopting.old {
                draft.put(&Path::Version(record.id, class.id, class.version), class)?;
            }
            for id in &adopting.changed {
                if let Some(shape) = adopting.schema.class(*id) {
                    draft.put(&Path::Class(record.id, shape.class().name.clone()), &**shape.class())?;
                }
            }
            (indexes, is_all)
        })
    }
}

/// The classes that do not exist yet.
fn new_classes(schema: &Schema, wanted: &[WantedClass]) -> Result<Vec<ClassDefinition>> {
    let new = wanted.iter().filter(|wanted| schema.class_named(&wanted.class.name).is_none());
    let definition = |wanted: &WantedClass| match adoption::preset_number_error(wanted) {
        Some(error) => Err(error),
        None => Ok(wanted.class.clone()),
    };
    new.map(definition).collect()
}

/// Classes that are being extended to match a program.
struct Adoption {
    /// The schema after the change.
    schema: Schema,
    changed: BTreeSet<ClassId>,
    /// The old versions of changed classes.
    old: Vec<Class>,
}

impl Adoption {
    fn new(before: &Schema) -> Self {
        Self { schema: before.clone(), changed: BTreeSet::new(), old: Vec::new() }
    }

    /// Replaces classes, or adds them.
    fn replace_classes(&mut self, classes: impl IntoIterator<Item = Class>) {
        let known = self.schema.classes().map(|shape| (shape.class().id, shape.class().clone()));
        let mut all: BTreeMap<ClassId, Arc<Class>> = known.collect();
        for class in classes {
            self.changed.insert(class.id);
            all.insert(class.id, Arc::new(class));
        }
        let indexes = self.schema.indexes().map(|index| (index.name.clone(), index.clone())).collect();
        // The classes were checked before.
        self.schema = Schema::new(all.into_values(), indexes).0;
    }

    fn evolve(&mut self, before: &Schema, wanted: &[WantedClass]) -> Result<()> {
        for wanted in wanted.iter().filter(|wanted| before.class_named(&wanted.class.name).is_some()) {
            let name = &wanted.class.name;
            let shape = require(self.schema.class_named(name), CLASS, name)?;
            let steps = adoption::steps(&self.schema, shape, wanted)?;
            let refuse = |why| CatalogError::Evolution { class: name.clone(), why };
            if let Some(evolved) = evolution::evolve(&self.schema, shape, &steps).map_err(refuse)? {
                self.old.push(shape.class().as_ref().clone());
                self.replace_classes(std::iter::once(evolved.class).chain(evolved.root));
            }
        }
        Ok(())
    }

    /// The number of indexes that fit into the write of the classes.
    fn index_room(&self) -> usize {
        let taken = OTHER_CHANGES + self.changed.len() + self.old.len();
        limits::CHANGES.saturating_sub(taken) / INDEX_CHANGES
    }

    /// The indexes that do not exist yet, without their numbers.
    fn indexes(&self, wanted: &[WantedClass]) -> Result<Vec<Index>> {
        let mut new: Vec<Index> = Vec::new();
        for wanted in wanted {
            let shape = require(self.schema.class_named(&wanted.class.name), CLASS, &wanted.class.name)?;
            for index in &wanted.indexes {
                let fields: Option<Vec<FieldNumber>> = adoption::index(&self.schema, shape, wanted, index)?;
                let Some(fields) = fields else { continue };
                if new.iter().any(|other| other.name == index.name) {
                    return Err(CatalogError::Exists { what: "index", name: index.name.clone() });
                }
                let (class, name, unique) = (shape.class().id, index.name.clone(), index.unique);
                let (id, state, flaw, job) = (IndexId(0), IndexState::Building, None, None);
                new.push(Index { id, name, class, fields, unique, state, flaw, job });
            }
        }
        Ok(new)
    }
}
