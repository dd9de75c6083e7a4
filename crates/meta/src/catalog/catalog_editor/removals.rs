//! Removal of spaces and classes that must have no objects.
//!
//! ```text
//!   begin ─▶ marked: bricks refuse new work ─▶ are there objects? ─ no ──▶ finish: removed
//!                                                     └── yes ──▶ cancel: as before
//! ```
//!
//! 1. The mark has a number that is never given again. The write that finishes a removal requires the number of its mark, so a removal
//!    that was taken back or begun again meanwhile removes nothing.
//! 2. A new removal replaces the mark of an unfinished one, so a mark that an interrupted command has left blocks no later removal.

use model::{Class, ClassId};

use super::classes::{CLASS, schema};
use super::spaces::SPACE;
use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::names;
use crate::catalog::schema::Schema;
use crate::catalog::space::Space;
use crate::limits;
use crate::plant::{Bug, planted};

/// A removal that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The space that is being removed, or whose class is.
    pub space: Space,
    /// The class that is being removed; `None`: the whole space.
    pub class: Option<ClassId>,
    /// The number of the mark.
    pub number: u64,
}

impl CatalogEditor {
    /// Marks a space as being removed: bricks accept nothing new for it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn begin_space_removal(&self, space: &str) -> Result<Edited<Removal>> {
        let path = Path::Space(space.to_owned());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            let number = draft.reserve_numbers("removals", 1, u64::MAX - 1).await?;
            record.removals.space = Some(number);
            draft.put(&path, &record)?;
            Removal { space: record, class: None, number }
        })
    }

    /// Marks a class as being removed: bricks accept no objects of it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::InUse`] with what stands in the way.
    pub async fn begin_class_removal(&self, space: &str, class: &str) -> Result<Edited<Removal>> {
        names::check_class(class)?;
        let path = Path::Space(space.to_owned());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let id = removable_class(&schema(&draft, &record).await?, class)?.id;
            let number = draft.reserve_numbers("removals", 1, u64::MAX - 1).await?;
            record.removals.classes.insert(id.0, number);
            draft.put(&path, &record)?;
            Removal { space: record, class: Some(id), number }
        })
    }

    /// Takes a removal back, if its mark is still there. What was marked is as before.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] if there is no such space any more.
    pub async fn take_back_removal(&self, removal: &Removal) -> Result<Edited<Space>> {
        let name = removal.space.name.clone();
        let path = Path::Space(name.clone());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, &name).await?;
            if is_marked(&record, removal) {
                clear_mark(&mut record, removal.class);
                draft.put(&path, &record)?;
            }
            record
        })
    }

    /// Cancels the removal of a space, no matter which process began it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::NotBeingRemoved`].
    pub async fn cancel_space_removal(&self, space: &str) -> Result<Edited<Space>> {
        let path = Path::Space(space.to_owned());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            if !clear_mark(&mut record, None) {
                return Err(CatalogError::NotBeingRemoved { what: SPACE, name: space.to_owned() });
            }
            draft.put(&path, &record)?;
            record
        })
    }

    /// Cancels the removal of a class, no matter which process began it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::NotBeingRemoved`].
    pub async fn cancel_class_removal(&self, space: &str, class: &str) -> Result<Edited<Class>> {
        names::check_class(class)?;
        let path = Path::Space(space.to_owned());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            let class: Class = draft.require(&Path::Class(record.id, class.to_owned()), CLASS, class).await?;
            if !clear_mark(&mut record, Some(class.id)) {
                return Err(CatalogError::NotBeingRemoved { what: CLASS, name: class.name });
            }
            draft.put(&path, &record)?;
            class
        })
    }

    /// Removes the space that was found to be empty: see [`CatalogEditor::remove_space`].
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::RemovalEnded`] if it was taken back or begun again.
    pub async fn finish_space_removal(&self, removal: &Removal) -> Result<Edited<Space>> {
        self.remove_space_if(&removal.space.name, |record| check_mark(record, removal)).await
    }

    /// Removes the class of which no objects were found, with its earlier versions. Its number is never given again.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::RemovalEnded`] if it was taken back or begun again; [`CatalogError::InUse`] with what
    /// stands in the way since.
    pub async fn finish_class_removal(&self, removal: &Removal, class: &str) -> Result<Edited<Class>> {
        names::check_class(class)?;
        let name = removal.space.name.clone();
        let path = Path::Space(name.clone());
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, &name).await?;
            check_mark(&record, removal)?;
            draft.touch(&Path::Schema(record.id)).await?;
            let removed = removable_class(&schema(&draft, &record).await?, class)?.clone();
            if Some(removed.id) != removal.class {
                return Err(CatalogError::RemovalEnded { what: CLASS, name: class.to_owned() });
            }
            remove_class(&mut draft, &record, &removed).await?;
            clear_mark(&mut record, removal.class);
            draft.put(&path, &record)?;
            removed
        })
    }
}

/// Removes a class and its earlier versions, the oldest of which stay if they are too many for one write: nothing reads them.
async fn remove_class(draft: &mut CatalogDraft<'_>, space: &Space, class: &Class) -> Result<()> {
    let versions = draft.scan::<Class>(entry::versions(space.id, class.id)?).await?;
    // The space, the counter of the schema and the class itself are written as well.
    for (path, _) in versions.iter().rev().take(limits::CHANGES - 10) {
        draft.remove(path)?;
    }
    draft.remove(&Path::Class(space.id, class.name.clone()))
}

fn is_marked(space: &Space, removal: &Removal) -> bool {
    let mark = match removal.class {
        None => space.removals.space,
        Some(class) => space.removals.classes.get(&class.0).copied(),
    };
    space.id == removal.space.id && mark == Some(removal.number)
}

fn check_mark(space: &Space, removal: &Removal) -> Result<()> {
    match is_marked(space, removal) || planted(Bug::RemovalMarkIgnored) {
        true => Ok(()),
        false => {
            let what = if removal.class.is_none() { SPACE } else { CLASS };
            Err(CatalogError::RemovalEnded { what, name: space.name.clone() })
        }
    }
}

/// Removes a mark. Returns whether there was one.
fn clear_mark(space: &mut Space, class: Option<ClassId>) -> bool {
    let mark = match class {
        None => space.removals.space.take(),
        Some(class) => space.removals.classes.remove(&class.0),
    };
    mark.is_some()
}

/// A class that nothing else in the schema needs.
///
/// # Errors
/// [`CatalogError::Missing`]; [`CatalogError::InUse`].
fn removable_class<'a>(schema: &'a Schema, name: &str) -> Result<&'a Class> {
    let class = require(schema.class_named(name), CLASS, name)?.class();
    let in_use = |by: String, remedy| Err(CatalogError::InUse { what: CLASS, name: name.to_owned(), by, remedy });
    if let Some(below) = schema.classes().find(|other| other.class().parent == Some(class.id)) {
        return in_use(format!("class {:?}, which extends it", below.class().name), "remove that first");
    }
    if let Some(index) = schema.indexes().find(|index| index.class == class.id) {
        return in_use(format!("index {:?}", index.name), "remove that first");
    }
    for other in schema.classes().filter(|other| other.class().id != class.id) {
        if let Some(field) =
            other.class().fields.iter().find(|field| field.field_type.classes().into_iter().any(|of| of == name))
        {
            let by = format!("field {:?} of class {:?}, which refers to it", field.name, other.class().name);
            return in_use(by, "remove the field, or widen its type, first");
        }
    }
    Ok(class)
}
