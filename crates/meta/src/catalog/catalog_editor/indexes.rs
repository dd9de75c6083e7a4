//! Operations on indexes.

use super::classes::{CLASS, schema};
use super::spaces::SPACE;
use super::{CatalogEditor, Edited, Result, edit, jobs, require};
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::ident::IndexId;
use crate::catalog::index::{Index, IndexState};
use crate::catalog::job::JobState;
use crate::catalog::names;
use crate::catalog::schema::Schema;
use crate::catalog::space::Space;
use crate::limits;

const INDEX: &str = "index";

impl CatalogEditor {
    /// Creates an index over the objects of a class, ordered by these fields. It is [`IndexState::Building`] until
    /// [`record_index_build`](Self::record_index_build).
    ///
    /// # Errors
    /// [`CatalogError::Exists`]; [`CatalogError::Missing`] for the space, the class or a field; [`CatalogError::Invalid`] for a
    /// field without an order, or for the name.
    pub async fn create_index(
        &self,
        space: &str,
        name: &str,
        class: &str,
        fields: &[&str],
        unique: bool,
    ) -> Result<Edited<Index>> {
        names::check_index(name)?;
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let schema = schema(&draft, &record).await?;
            if schema.index(name).is_some() {
                return Err(CatalogError::Exists { what: INDEX, name: name.to_owned() });
            }
            check_index_limit(&schema, 1)?;
            let shape = require(schema.class_named(class), CLASS, class)?;
            let mut numbers = Vec::new();
            for field in fields {
                let field = require(shape.field(field), "field", field)?;
                if !field.field_type.is_scalar() {
                    let why = format!("it is {}, which has no order", field.field_type);
                    return Err(CatalogError::invalid("a field of an index", &field.name, why));
                }
                numbers.push(field.number);
            }
            let id = draft.reserve_numbers(&entry::index_counter(record.id), 1, u32::MAX.into()).await?;
            let (class, fields, state) = (shape.class().id, numbers, IndexState::Building);
            // At most `u32::MAX`.
            let (id, name, flaw) = (IndexId(id as u32), name.to_owned(), None);
            let job = jobs::reserve_jobs(&mut draft, 1).await?;
            let index = Index { id, name, class, fields, unique, state, flaw, job: Some(job) };
            draft.put(&Path::Job(job), &self.index_job(job, &record, &index))?;
            draft.put(&Path::Index(record.id, index.name.clone()), &index)?;
            index
        })
    }

    /// Records that an index has all objects, or the reason why it is not complete.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], also if the index was removed and created again in the meantime and has another number.
    pub async fn record_index_build(
        &self,
        space: &str,
        name: &str,
        id: IndexId,
        flaw: Option<String>,
    ) -> Result<Edited<Index>> {
        names::check_index(name)?;
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let path = Path::Index(record.id, name.to_owned());
            let index: Option<Index> = draft.get(&path).await?;
            let mut index = require(index.filter(|index| index.id == id), INDEX, name)?;
            if flaw.is_none() {
                index.state = IndexState::Ready;
                jobs::end_index_job(&mut draft, &index, JobState::Done).await?;
            }
            index.flaw.clone_from(&flaw);
            draft.put(&path, &index)?;
            index
        })
    }

    /// Removes an index.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn remove_index(&self, space: &str, name: &str) -> Result<Edited<Index>> {
        names::check_index(name)?;
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let path = Path::Index(record.id, name.to_owned());
            let index: Index = draft.require(&path, INDEX, name).await?;
            jobs::end_index_job(&mut draft, &index, JobState::Cancelled).await?;
            draft.remove(&path)?;
            index
        })
    }
}

/// Checks that a space can have this many more indexes.
pub(super) fn check_index_limit(schema: &Schema, more: usize) -> Result<()> {
    if schema.indexes().count() + more > limits::INDEXES {
        return Err(CatalogError::TooMany { what: "indexes in a space", limit: limits::INDEXES as u64 });
    }
    Ok(())
}
