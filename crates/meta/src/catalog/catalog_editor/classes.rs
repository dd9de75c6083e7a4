//! Operations on classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Class, ClassDefinition, ClassId};

use super::spaces::SPACE;
use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::class;
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::evolution::{self, EvolutionError, EvolutionStep};
use crate::catalog::index::Index;
use crate::catalog::names;
use crate::catalog::schema::Schema;
use crate::catalog::space::Space;
use crate::limits;

pub(super) const CLASS: &str = "class";
/// Classes that can be defined at once. Together with their ancestors they fit in one write.
const MAX_DEFINITIONS: usize = 40;

impl CatalogEditor {
    /// Creates the classes that do not exist yet. The definitions may refer to each other.
    ///
    /// Returns all of the classes in the order of the definitions. A class that exists with the same parent and fields is not
    /// changed.
    ///
    /// # Errors
    /// [`CatalogError::Differs`] if a class exists and differs: [`evolve`](Self::evolve) it.
    /// [`CatalogError::Evolution`] if an ancestor has a field of the same name, or a referenced class does not exist.
    pub async fn define(&self, space: &str, definitions: &[ClassDefinition]) -> Result<Edited<Vec<Class>>> {
        check_list(definitions.iter())?;
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let schema = schema(&draft, &record).await?;
            let mut defining = ClassBuilder::new(&schema, definitions)?;
            if defining.new.is_empty() {
                // Nothing to write, so the draft need not expect anything.
                draft = self.draft();
            } else {
                let count = defining.new.len() as u64;
                let first =
                    draft.reserve_numbers(&entry::class_counter(record.id), count, ClassId::MAX.0.into()).await?;
                // It is at most `ClassId::MAX`.
                for class in defining.build(first as u32)? {
                    draft.put(&Path::Class(record.id, class.name.clone()), &class)?;
                }
            }
            defining.result()?
        })
    }

    /// Changes a class: all steps, or none. Its objects are not rewritten; they are read through the new version.
    ///
    /// # Errors
    /// [`CatalogError::Evolution`] if a step is not allowed; [`CatalogError::Missing`].
    pub async fn evolve(&self, space: &str, class: &str, steps: &[EvolutionStep]) -> Result<Edited<Class>> {
        names::check_class(class)?;
        let refuse = |why| CatalogError::Evolution { class: class.to_owned(), why };
        edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            draft.touch(&Path::Schema(record.id)).await?;
            let schema = schema(&draft, &record).await?;
            let shape = require(schema.class_named(class), CLASS, class)?;
            match evolution::evolve(&schema, shape, steps).map_err(refuse)? {
                Some(evolved) => {
                    let before = shape.class();
                    draft.put(&Path::Version(record.id, before.id, before.version), &**before)?;
                    draft.put(&Path::Class(record.id, class.to_owned()), &evolved.class)?;
                    if let Some(root) = &evolved.root {
                        draft.put(&Path::Class(record.id, root.name.clone()), root)?;
                    }
                    evolved.class
                }
                None => shape.class().as_ref().clone(),
            }
        })
    }

    /// All versions of a class, in ascending order.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn history(&self, space: &str, class: &str) -> Result<Vec<Class>> {
        names::check_class(class)?;
        let read: Result<Edited<Vec<Class>>> = edit!(self, |draft| {
            let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
            let newest: Class = draft.require(&Path::Class(record.id, class.to_owned()), CLASS, class).await?;
            let old = draft.scan::<Class>(entry::versions(record.id, newest.id)?).await?;
            let mut versions: Vec<Class> = old.into_iter().map(|(_, version)| version).collect();
            versions.push(newest);
            versions.sort_by_key(|version| version.version);
            versions
        });
        read.map(|read| read.value)
    }
}

impl CatalogEditor {
    /// The current classes and indexes of a space.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn schema(&self, space: &str) -> Result<Schema> {
        let mut draft = self.draft();
        let record: Space = draft.require(&Path::Space(space.to_owned()), SPACE, space).await?;
        schema(&draft, &record).await
    }
}

/// Checks what does not depend on existing classes.
pub(super) fn check_list<'a>(definitions: impl ExactSizeIterator<Item = &'a ClassDefinition>) -> Result<()> {
    let count = definitions.len();
    let mut distinct = BTreeSet::new();
    for definition in definitions {
        class::check_definition(definition)?;
        distinct.insert(&*definition.name);
    }
    if count > MAX_DEFINITIONS || distinct.len() != count {
        let why = format!("it may have up to {MAX_DEFINITIONS} different classes");
        return Err(CatalogError::invalid("a list of classes", count, why));
    }
    Ok(())
}

/// The schema of a space, for a draft that touches it.
pub(super) async fn schema(draft: &CatalogDraft<'_>, space: &Space) -> Result<Schema> {
    let classes = draft.scan::<Class>(entry::classes(space.id)?).await?;
    let indexes = draft.scan::<Index>(entry::indexes(space.id)?).await?;
    let indexes = indexes.into_iter().map(|(_, index)| (index.name.clone(), Arc::new(index))).collect();
    let (schema, flawed) = Schema::new(classes.into_iter().map(|(_, class)| Arc::new(class)), indexes);
    match flawed.first() {
        Some(name) => {
            let key = Path::Class(space.id, name.clone()).to_string();
            Err(CatalogError::Damaged { key, why: "its parents do not exist, or form a cycle".to_owned() })
        }
        None => Ok(schema),
    }
}

/// Classes that are being created.
pub(super) struct ClassBuilder<'a> {
    schema: &'a Schema,
    definitions: &'a [ClassDefinition],
    /// Those that do not exist yet, parents before children.
    new: Vec<&'a ClassDefinition>,
    made: BTreeMap<&'a str, Class>,
}

impl<'a> ClassBuilder<'a> {
    pub(super) fn new(schema: &'a Schema, definitions: &'a [ClassDefinition]) -> Result<Self> {
        let mut waiting = Vec::new();
        for definition in definitions {
            match schema.class_named(&definition.name) {
                Some(shape) => check_same(schema, shape.class(), definition)?,
                None => waiting.push(definition),
            }
        }
        if schema.classes().count() + waiting.len() > limits::CLASSES {
            return Err(CatalogError::TooMany { what: "classes in a space", limit: limits::CLASSES as u64 });
        }
        let mut new: Vec<&ClassDefinition> = Vec::new();
        while !waiting.is_empty() {
            let is_known =
                |name: &str| schema.class_named(name).is_some() || new.iter().any(|known| known.name == name);
            let (ready, rest): (Vec<_>, Vec<_>) =
                waiting.iter().partition(|definition| definition.parent.as_deref().is_none_or(is_known));
            if ready.is_empty() {
                let parent = waiting[0].parent.as_deref().unwrap_or_default();
                return Err(CatalogError::missing(CLASS, parent));
            }
            new.extend(ready);
            waiting = rest;
        }
        Ok(Self { schema, definitions, new, made: BTreeMap::new() })
    }

    /// Creates the classes, numbered from `first` on. Returns all classes that must be written.
    pub(super) fn build(&mut self, first: u32) -> Result<Vec<Class>> {
        let mut all: BTreeMap<ClassId, Class> =
            self.schema.classes().map(|shape| (shape.class().id, shape.class().as_ref().clone())).collect();
        let mut changed = BTreeSet::new();
        for (definition, number) in self.new.iter().zip(first..) {
            let id = ClassId(number);
            let parent = definition.parent.as_deref();
            let parent = parent.and_then(|name| all.values().find(|class| class.name == name)).map(|class| class.id);
            let ClassDefinition { name, fields, .. } = (*definition).clone();
            all.insert(id, Class { id, name, parent, version: 1, fields: Vec::new(), last_number: 0 });
            let root = root(&all, id);
            let mut last = all.get(&root).map_or(0, |root| root.last_number);
            let refuse = |why| CatalogError::Evolution { class: definition.name.clone(), why };
            let mut numbered = Vec::new();
            for field in fields {
                check_inherited(&all, parent, &field.name).map_err(refuse)?;
                last = last.checked_add(1).ok_or_else(|| refuse(EvolutionError::Exhausted))?;
                numbered.push(evolution::numbered_field(field, last, false));
            }
            if let Some(class) = all.get_mut(&id) {
                class.fields = numbered;
            }
            if let Some(root) = all.get_mut(&root) {
                root.last_number = last;
            }
            changed.extend([id, root]);
        }
        let (schema, flawed) = Schema::new(all.values().cloned().map(Arc::new), BTreeMap::new());
        if let Some(name) = flawed.first() {
            let why = format!("it has more than {} parents", limits::PARENTS);
            return Err(CatalogError::invalid("a class", name, why));
        }
        for definition in &self.new {
            check_in_schema(&schema, definition)?;
            if let Some(shape) = schema.class_named(&definition.name) {
                self.made.insert(&definition.name, shape.class().as_ref().clone());
            }
        }
        Ok(changed.into_iter().filter_map(|id| all.get(&id).cloned()).collect())
    }

    /// The current versions of all classes of the definitions.
    fn result(&self) -> Result<Vec<Class>> {
        let class = |definition: &ClassDefinition| {
            let made = self.made.get(&*definition.name).cloned();
            let known = || self.schema.class_named(&definition.name).map(|shape| shape.class().as_ref().clone());
            require(made.or_else(known), CLASS, &definition.name)
        };
        self.definitions.iter().map(class).collect()
    }
}

/// The topmost ancestor of a class.
fn root(all: &BTreeMap<ClassId, Class>, of: ClassId) -> ClassId {
    let mut root = of;
    // Parents are created before their children, so there are no cycles.
    while let Some(parent) = all.get(&root).and_then(|class| class.parent) {
        root = parent;
    }
    root
}

fn check_inherited(all: &BTreeMap<ClassId, Class>, parent: Option<ClassId>, field: &str) -> Result<(), EvolutionError> {
    let mut next = parent;
    while let Some(class) = next.and_then(|id| all.get(&id)) {
        if class.fields.iter().any(|other| other.name == field) {
            return Err(EvolutionError::FieldExists { field: field.to_owned(), class: class.name.clone() });
        }
        next = class.parent;
    }
    Ok(())
}

/// Checks what depends on the other classes.
fn check_in_schema(schema: &Schema, definition: &ClassDefinition) -> Result<()> {
    let shape = require(schema.class_named(&definition.name), CLASS, &definition.name)?;
    class::check_count(&definition.name, shape.fields().len())?;
    for field in &definition.fields {
        if let Some(missing) = field.field_type.classes().into_iter().find(|name| schema.class_named(name).is_none()) {
            let why = EvolutionError::NoClass { field: field.name.clone(), class: missing.to_owned() };
            return Err(CatalogError::Evolution { class: definition.name.clone(), why });
        }
    }
    Ok(())
}

/// Checks that a class matches its definition.
fn check_same(schema: &Schema, class: &Class, definition: &ClassDefinition) -> Result<()> {
    let differs = |difference: String| Err(CatalogError::Differs { class: class.name.clone(), difference });
    let parent = class.parent.and_then(|id| schema.class(id)).map(|shape| &*shape.class().name);
    if parent != definition.parent.as_deref() {
        return differs(format!("its parent is {}", parent.unwrap_or("none")));
    }
    for wanted in &definition.fields {
        match class.fields.iter().find(|field| field.name == wanted.name) {
            None => return differs(format!("it has no field {:?}", wanted.name)),
            Some(field) if field.field_type != wanted.field_type => {
                return differs(format!("its field {:?} is {}", field.name, field.field_type));
            }
            Some(field) if field.optional != wanted.optional => {
                let may = if field.optional { "may" } else { "may not" };
                return differs(format!("its field {:?} {may} be null", field.name));
            }
            Some(field) if field.default != wanted.default => {
                return differs(format!("its field {:?} has another default", field.name));
            }
            Some(_) => {}
        }
    }
    match class.fields.iter().find(|field| definition.fields.iter().all(|wanted| wanted.name != field.name)) {
        Some(more) => differs(format!("it has a field {:?} too", more.name)),
        None => Ok(()),
    }
}
