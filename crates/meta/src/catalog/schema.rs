//! The classes and indexes of a space, with inherited fields resolved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::{Class, ClassId, Field, FieldNumber};

use super::ident::IndexId;
use super::index::Index;
use crate::limits;

/// The classes and indexes of a space.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    classes: BTreeMap<ClassId, ResolvedClass>,
    names: HashMap<String, ClassId>,
    families: BTreeMap<ClassId, BTreeSet<ClassId>>,
    indexes: BTreeMap<String, Arc<Index>>,
}

/// A class with its inherited fields.
#[derive(Clone, Debug)]
pub struct ResolvedClass {
    class: Arc<Class>,
    /// The class itself, its parent, and so on.
    lineage: Vec<ClassId>,
    /// All fields by ascending number.
    fields: Vec<Arc<Field>>,
    names: HashMap<String, usize>,
}

impl Schema {
    /// The schema of these classes and indexes. Classes whose parents do not exist or form a cycle are left out; the second part
    /// of the result has their names.
    #[must_use]
    pub fn new(
        classes: impl IntoIterator<Item = Arc<Class>>,
        indexes: BTreeMap<String, Arc<Index>>,
    ) -> (Self, Vec<String>) {
        let classes: BTreeMap<ClassId, Arc<Class>> = classes.into_iter().map(|class| (class.id, class)).collect();
        let mut schema = Self { indexes, ..Self::default() };
        let mut flawed = Vec::new();
        for class in classes.values() {
            let Some(lineage) = lineage(&classes, class.id) else {
                flawed.push(class.name.clone());
                continue;
            };
            let mut fields: Vec<Arc<Field>> = lineage
                .iter()
                .filter_map(|id| classes.get(id))
                .flat_map(|class| class.fields.iter().cloned().map(Arc::new))
                .collect();
            fields.sort_by_key(|field| field.number);
            let names = fields.iter().enumerate().map(|(at, field)| (field.name.clone(), at)).collect();
            for above in &lineage {
                schema.families.entry(*above).or_default().insert(class.id);
            }
            schema.names.insert(class.name.clone(), class.id);
            schema.classes.insert(class.id, ResolvedClass { class: class.clone(), lineage, fields, names });
        }
        (schema, flawed)
    }

    /// The class with this number.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&ResolvedClass> {
        self.classes.get(&id)
    }

    /// The class with this name.
    #[must_use]
    pub fn class_named(&self, name: &str) -> Option<&ResolvedClass> {
        self.classes.get(self.names.get(name)?)
    }

    /// All classes by ascending number.
    pub fn classes(&self) -> impl Iterator<Item = &ResolvedClass> {
        self.classes.values()
    }

    /// A class and all that extend it, directly or not, by ascending number.
    pub fn family(&self, id: ClassId) -> impl Iterator<Item = &ResolvedClass> {
        self.families.get(&id).into_iter().flatten().filter_map(|id| self.classes.get(id))
    }

    /// Whether a class is another one, or extends it.
    #[must_use]
    pub fn is_a(&self, class: ClassId, of: ClassId) -> bool {
        self.families.get(&of).is_some_and(|below| below.contains(&class))
    }

    /// All indexes by name.
    pub fn indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.values()
    }

    /// The index with this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.get(name)
    }

    /// The index with this number.
    #[must_use]
    pub fn index_by_id(&self, id: IndexId) -> Option<&Arc<Index>> {
        self.indexes.values().find(|index| index.id == id)
    }

    /// The indexes that contain the objects of a class: its own and those of its ancestors.
    pub fn indexes_of(&self, class: ClassId) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.values().filter(move |index| self.is_a(class, index.class))
    }

    /// As [`Schema::is_a`], by names.
    pub(super) fn is_below(&self, class: &str, of: &str) -> bool {
        match (self.names.get(class), self.names.get(of)) {
            (Some(class), Some(of)) => self.is_a(*class, *of),
            _ => false,
        }
    }

    /// The topmost ancestor of a class.
    pub(super) fn root<'a>(&'a self, shape: &'a ResolvedClass) -> &'a Arc<Class> {
        let root = shape.lineage.last().and_then(|id| self.classes.get(id));
        &root.unwrap_or(shape).class
    }
}

/// A class and its ancestors; `None` if one does not exist, or if there are too many.
fn lineage(classes: &BTreeMap<ClassId, Arc<Class>>, id: ClassId) -> Option<Vec<ClassId>> {
    let mut lineage = Vec::new();
    let mut next = Some(id);
    while let Some(id) = next {
        if lineage.len() > limits::PARENTS {
            return None;
        }
        lineage.push(id);
        next = classes.get(&id)?.parent;
    }
    Some(lineage)
}

impl ResolvedClass {
    /// The class.
    #[must_use]
    pub fn class(&self) -> &Arc<Class> {
        &self.class
    }

    /// The numbers of the class, its parent, and so on.
    #[must_use]
    pub fn lineage(&self) -> &[ClassId] {
        &self.lineage
    }

    /// All fields, including inherited ones, by ascending number.
    #[must_use]
    pub fn fields(&self) -> &[Arc<Field>] {
        &self.fields
    }

    /// The field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Arc<Field>> {
        self.fields.get(*self.names.get(name)?)
    }

    /// The field with this number.
    #[must_use]
    pub fn field_by_number(&self, number: FieldNumber) -> Option<&Arc<Field>> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.fields[at])
    }
}
