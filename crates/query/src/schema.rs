//! The classes of a space, as queries need them.
//!
//! A [`Schema`] is plain data, built from the meta-server's catalogue and checked once. Records store only the numbers of their
//! fields, so an old record is read through the current class without being rewritten:
//!
//! - a field that was added later is absent from the record and has [`Field::missing`] as its value; so does a null if the field
//!   cannot be null any more;
//! - a field that was removed is ignored;
//! - a field that was renamed keeps its number;
//! - a value whose type was widened is compared as it is stored. It is converted in arithmetic and when it is returned
//!   ([`Type::convert`]).

pub(crate) mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ClassId, Error, ErrorKind, FieldNumber, FieldType, RecordRef, Result, Value};

use crate::plant::{Bug, planted};

/// What a field holds, with classes by number.
pub type Type = FieldType<ClassId>;
/// A class whose references name classes by number.
pub type Class = model::Class<ClassId>;
/// A field of such a class.
pub type Field = model::Field<ClassId>;

/// The classes of a space.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    classes: BTreeMap<ClassId, ClassEntry>,
    names: BTreeMap<String, ClassId>,
}

/// A class with its resolved fields and descendants.
#[derive(Clone, Debug)]
struct ClassEntry {
    class: Class,
    /// Its fields and those of its ancestors, by number.
    fields: Vec<Field>,
    /// The class and all that extend it.
    family: Arc<BTreeSet<ClassId>>,
}

impl Schema {
    /// The most bytes of a class's or field's name.
    pub const NAME: usize = 255;

    /// A schema of these classes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if two classes have the same number or name, a parent or a referenced class does not exist, ancestors
    /// form a cycle, two fields of a class and its ancestors have the same number or name, or a default is not of its field's type;
    /// [`ErrorKind::TooLarge`] if a type nests too deep.
    pub fn new(classes: impl IntoIterator<Item = Class>) -> Result<Self> {
        let mut schema = Self::default();
        for class in classes {
            check_name(&class.name)?;
            if class.id == ClassId::NONE || class.id > ClassId::MAX {
                return Err(invalid(format!(
                    "class {} has the number {}, which no class can have",
                    class.name, class.id.0
                )));
            }
            if let Some(other) = schema.names.insert(class.name.clone(), class.id) {
                return Err(invalid(format!(
                    "the classes {} and {} are both named {}",
                    other.0, class.id.0, class.name
                )));
            }
            let entry = ClassEntry { fields: vec![], family: Arc::default(), class };
            if let Some(other) = schema.classes.insert(entry.class.id, entry) {
                return Err(invalid(format!(
                    "two classes have the number {}; one is {}",
                    other.class.id.0, other.class.name
                )));
            }
        }
        let ids: Vec<ClassId> = schema.classes.keys().copied().collect();
        let mut families: BTreeMap<ClassId, BTreeSet<ClassId>> = BTreeMap::new();
        for &id in &ids {
            let ancestors = schema.lineage(id)?;
            let fields = schema.fields_of(&ancestors)?;
            for ancestor in ancestors {
                families.entry(ancestor).or_default().insert(id);
            }
            if let Some(entry) = schema.classes.get_mut(&id) {
                entry.fields = fields;
            }
        }
        for (id, family) in families {
            if let Some(entry) = schema.classes.get_mut(&id) {
                entry.family = Arc::new(family);
            }
        }
        Ok(schema)
    }

    /// The class of this number.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(&id).map(|entry| &entry.class)
    }

    /// The class of this name. The part after its last dot is enough if it is unambiguous.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::Invalid`] if there are several.
    pub fn class_named(&self, name: &str) -> Result<&Class> {
        if let Some(class) = self.names.get(name).and_then(|id| self.class(*id)) {
            return Ok(class);
        }
        let ends = |full: &str| full.strip_suffix(name).is_some_and(|start| start.ends_with('.'));
        let found: Vec<&String> = self.names.keys().filter(|full| !name.is_empty() && ends(full)).take(3).collect();
        match found.as_slice() {
            [one] => self.names.get(*one).and_then(|id| self.class(*id)).ok_or_else(|| no_class(name)),
            [] => Err(no_class(name)),
            [one, two, ..] => Err(invalid(format!("{name} may be {one} or {two}: write which"))),
        }
    }

    /// Every class, by number.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.values().map(|entry| &entry.class)
    }

    /// The topmost ancestor of a class, or the class itself.
    #[must_use]
    pub fn root(&self, id: ClassId) -> ClassId {
        let mut at = id;
        // Schemas have no cycles.
        while let Some(parent) = self.class(at).and_then(|class| class.parent) {
            at = parent;
        }
        at
    }

    /// The class and all that extend it, directly or not; empty if there is no such class.
    #[must_use]
    pub fn family(&self, id: ClassId) -> Arc<BTreeSet<ClassId>> {
        self.classes.get(&id).map(|entry| Arc::clone(&entry.family)).unwrap_or_default()
    }

    /// The classes of these names with all that extend them, by number; every class without a name.
    ///
    /// # Errors
    /// As [`Schema::class_named`].
    pub fn families(&self, names: &[String]) -> Result<BTreeSet<ClassId>> {
        if names.is_empty() {
            return Ok(self.classes().map(|class| class.id).collect());
        }
        let mut classes = BTreeSet::new();
        for name in names {
            classes.extend(self.family(self.class_named(name)?.id).iter().copied());
        }
        Ok(classes)
    }

    /// The fields of a class and of those it extends, by number.
    #[must_use]
    pub fn fields(&self, id: ClassId) -> &[Field] {
        self.classes.get(&id).map_or(&[], |entry| &entry.fields)
    }

    /// The last field number that was given in the tree of a class: numbers ascend and are never used again, so a larger one is newer than
    /// this schema. The field with the last number may have been removed.
    #[must_use]
    pub fn last_number(&self, id: ClassId) -> FieldNumber {
        let root = self.root(id);
        let given = self.class(root).map(|class| class.last_number).filter(|_| !planted(Bug::RemovedTakenForNewer));
        let family = self.family(root);
        let there = family.iter().flat_map(|id| self.fields(*id)).map(|field| field.number);
        there.max().unwrap_or(FieldNumber(0)).max(FieldNumber(given.unwrap_or(0)))
    }

    /// A field of a class, or of one it extends, by its name.
    #[must_use]
    pub fn field_named(&self, id: ClassId, name: &str) -> Option<&Field> {
        self.fields(id).iter().find(|field| field.name == name)
    }

    /// A field of a class, or of one it extends, by its number.
    #[must_use]
    pub fn field(&self, id: ClassId, number: FieldNumber) -> Option<&Field> {
        let fields = self.fields(id);
        fields.binary_search_by_key(&number, |field| field.number).ok().and_then(|index| fields.get(index))
    }

    /// Reads a record of any version through the current class: every field of the class, by number, with its value.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such class, [`ErrorKind::Corrupt`] if the record is damaged.
    pub fn read(&self, record: &RecordRef<'_>, class: ClassId) -> Result<Vec<(&Field, Value)>> {
        let entry = self.classes.get(&class).ok_or_else(|| no_class(&class.0.to_string()))?;
        let value = |field: &Field| -> Result<Value> {
            let stored = record.field(field.number)?.map(|value| value.to_value()).transpose()?;
            Ok(field.upgrade_value(stored))
        };
        entry.fields.iter().map(|field| Ok((field, value(field)?))).collect()
    }

    /// A type as text, with the names of classes.
    #[must_use]
    pub fn type_name(&self, ty: &Type) -> String {
        let name = |id: &ClassId| self.class(*id).map_or_else(|| format!("class {}", id.0), |class| class.name.clone());
        ty.map_classes(&|id| Some(name(id))).to_string()
    }

    /// The class and its ancestors, the topmost last.
    fn lineage(&self, id: ClassId) -> Result<Vec<ClassId>> {
        let mut lineage = vec![id];
        let mut at = self.classes.get(&id);
        while let Some((entry, parent)) = at.and_then(|entry| entry.class.parent.map(|parent| (entry, parent))) {
            let name = &entry.class.name;
            if lineage.contains(&parent) {
                return Err(invalid(format!("class {name} is among its own ancestors")));
            }
            at = self.classes.get(&parent);
            if at.is_none() {
                return Err(invalid(format!("class {name} extends class {}, which is not there", parent.0)));
            }
            lineage.push(parent);
        }
        Ok(lineage)
    }

    /// The fields of all these classes, by number.
    fn fields_of(&self, lineage: &[ClassId]) -> Result<Vec<Field>> {
        let (mut fields, mut names) = (BTreeMap::new(), BTreeSet::new());
        for class in lineage.iter().rev().filter_map(|id| self.class(*id)) {
            for field in &class.fields {
                check_name(&field.name)?;
                let place = || format!("field {} of class {}", field.name, class.name);
                if !field.field_type.classes().into_iter().all(|id| self.classes.contains_key(id)) {
                    return Err(invalid(format!("{} refers to a class that is not there", place())));
                }
                if !field.field_type.is_within_nesting_limit() {
                    let levels = field.field_type.depth();
                    let message = format!("{}: its type has {levels} levels within each other", place());
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                if let Some(default) = [&field.missing, &field.default]
                    .into_iter()
                    .flatten()
                    .find(|value| !field.field_type.accepts_or_null(value))
                {
                    let ty = self.type_name(&field.field_type);
                    return Err(invalid(format!("{} has the default {default}, and its type is {ty}", place())));
                }
                if !names.insert(&field.name) {
                    return Err(invalid(format!("{} exists twice, or in an ancestor already", place())));
                }
                if let Some(other) = fields.insert(field.number, field.clone()) {
                    let number = field.number;
                    return Err(invalid(format!("{} has number {number}, which is {}'s", place(), other.name)));
                }
            }
        }
        Ok(fields.into_values().collect())
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > Schema::NAME || name.chars().any(char::is_control) {
        let most = Schema::NAME;
        return Err(invalid(format!("{name:?} is no name: one has 1 to {most} bytes and no control characters")));
    }
    Ok(())
}

fn no_class(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no class {name} in this space"))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
pub(crate) mod tests;
