//! What queries have to know of classes.
//!
//! A [`Schema`] is plain data, made from the meta-server's catalogue and checked once, when it is made. Records keep only the
//! numbers of their fields, so an old record is read through today's class without being rewritten:
//!
//! - a field that the class did not have yet is absent from the record, and has the field's default; so does null if the field may
//!   not be null any more;
//! - a field that the class has no more is not looked at;
//! - a field that was renamed keeps its number;
//! - a number whose type was widened is compared by its value as it stands, and converted where its type matters: in
//!   arithmetic, and when it is read ([`Type::convert`]).

mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ClassId, Error, ErrorKind, FieldNumber, FieldType, RecordRef, Result, Value, ValueRef};

/// What a field holds, with classes by number.
pub type Type = FieldType<ClassId>;

/// The classes of a space.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    classes: BTreeMap<ClassId, ClassEntry>,
    names: BTreeMap<String, ClassId>,
}

/// A class of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its number, part of its objects' identifiers.
    pub id: ClassId,
    /// Its name: `Person`, or `com.example.Person`.
    pub name: String,
    /// The class that it extends.
    pub parent: Option<ClassId>,
    /// Counts the changes of the class.
    pub version: u32,
    /// The fields that it adds to its parent's.
    pub fields: Vec<Field>,
}

/// A field of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What records know it by; never changes, and no class uses a number of its ancestors.
    pub number: FieldNumber,
    /// What people know it by.
    pub name: String,
    /// What it holds.
    pub ty: Type,
    /// What it is in records that were written before it existed; null if nothing was said.
    pub default: Value,
    /// What it is in new objects whose creator says nothing.
    pub initial: Value,
    /// Whether it may not be null: then it has its default also in records in which it is.
    pub required: bool,
}

/// A class with what follows from it.
#[derive(Clone, Debug)]
struct ClassEntry {
    class: Class,
    /// Its fields and those of its ancestors, by number.
    fields: Vec<Field>,
    /// The class and all that extend it.
    family: Arc<BTreeSet<ClassId>>,
}

impl Class {
    /// A class without parent and fields, in its first version.
    pub fn new(id: ClassId, name: impl Into<String>) -> Self {
        Self { id, name: name.into(), parent: None, version: 1, fields: vec![] }
    }

    /// The class as one that extends another.
    #[must_use]
    pub fn extends(mut self, parent: ClassId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// The class in another version.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The class with one more field, which is null in records older than it.
    #[must_use]
    pub fn field(self, number: u32, name: impl Into<String>, ty: Type) -> Self {
        self.field_with_default(number, name, ty, Value::Null)
    }

    /// The class with one more field, which has this default in records older than it.
    #[must_use]
    pub fn field_with_default(
        mut self,
        number: u32,
        name: impl Into<String>,
        ty: Type,
        default: impl Into<Value>,
    ) -> Self {
        let (number, name, default) = (FieldNumber(number), name.into(), default.into());
        let initial = default.clone();
        self.fields.push(Field { number, name, ty, default, initial, required: false });
        self
    }

    /// The class with one more field, which has this default in records older than it, and where it is null.
    #[must_use]
    pub fn required(self, number: u32, name: impl Into<String>, ty: Type, default: impl Into<Value>) -> Self {
        let mut class = self.field_with_default(number, name, ty, default);
        class.fields.iter_mut().rev().take(1).for_each(|field| field.required = true);
        class
    }
}

impl Schema {
    /// The most bytes of a class's or field's name.
    pub const NAME: usize = 255;

    /// A schema of these classes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if they do not fit together: two of one number or name, a parent or a referenced class that is
    /// not there, ancestors in a circle, a field whose number or name is its class's or an ancestor's already, a default
    /// that its field cannot hold.
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

    /// The class of this name; a name behind the last dot will do if no other class has it there.
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

    /// The class at the top of a class's tree: the eldest that it extends, or itself.
    #[must_use]
    pub fn root(&self, id: ClassId) -> ClassId {
        let mut at = id;
        // A schema that was made has no circles.
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

    /// The fields of a class and of those it extends, by number.
    #[must_use]
    pub fn fields(&self, id: ClassId) -> &[Field] {
        self.classes.get(&id).map_or(&[], |entry| &entry.fields)
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

    /// Reads a record of any age as one of today's class: every field of it, by number, with its value.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such class, [`ErrorKind::Corrupt`] if the record is damaged.
    pub fn read(&self, record: &RecordRef<'_>, class: ClassId) -> Result<Vec<(&Field, Value)>> {
        let entry = self.classes.get(&class).ok_or_else(|| no_class(&class.0.to_string()))?;
        let value = |field: &Field| -> Result<Value> {
            match record.field(field.number)? {
                None => Ok(field.default.clone()),
                Some(ValueRef::Null) if field.required => Ok(field.default.clone()),
                Some(value) => Ok(field.ty.convert(value.to_value()?)),
            }
        };
        entry.fields.iter().map(|field| Ok((field, value(field)?))).collect()
    }

    /// A type as text, with the names of classes.
    #[must_use]
    pub fn type_name(&self, ty: &Type) -> String {
        let name = |id: &ClassId| self.class(*id).map_or_else(|| format!("class {}", id.0), |class| class.name.clone());
        ty.map_classes(&|id| Some(name(id))).to_string()
    }

    /// The class and its ancestors, the eldest last.
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
                if !field.ty.classes().into_iter().all(|id| self.classes.contains_key(id)) {
                    return Err(invalid(format!("{} refers to a class that is not there", place())));
                }
                if !field.ty.is_within_nesting_limit() {
                    let levels = field.ty.depth();
                    let message = format!("{}: its type has {levels} levels within each other", place());
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                if let Some(default) =
                    [&field.default, &field.initial].into_iter().find(|value| !field.ty.accepts_or_null(value))
                {
                    let ty = self.type_name(&field.ty);
                    return Err(invalid(format!("{} has the default {default}, and its type is {ty}", place())));
                }
                if !names.insert(&field.name) {
                    return Err(invalid(format!("{} is there twice, or in an ancestor already", place())));
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
mod tests;
