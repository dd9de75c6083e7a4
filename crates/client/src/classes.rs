//! The client's cache of the classes of its space, and the mapping of structs to records.
//!
//! The client fetches the classes from the peer server when it needs one that it does not know. The cache may be old: fields keep
//! their numbers for ever, a record can be read through any version of its class, and a write keeps the fields of a record
//! that the struct does not know.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{ClassId, Error, ErrorKind, Oid, Result, Value};
use query::schema::Schema;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema;

use crate::persistent::{ClassDescription, Classes, FieldDescription, Layout, Persistent};

use super::client_core::{Core, unexpected_answer_error};
use super::unique::UniqueIndex;
use crate::plant::{Bug, planted};

/// The mapping of a struct to a class.
#[derive(Debug)]
pub struct StructMapping {
    pub(super) layout: Layout,
    /// The revision of the catalogue whose classes it maps to.
    pub(super) revision: u64,
    /// The class and its subclasses.
    family: Arc<BTreeSet<ClassId>>,
}

impl StructMapping {
    /// The positions of the fields.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether objects of a class are read by this mapping.
    #[must_use]
    pub fn covers(&self, class: ClassId) -> bool {
        self.family.contains(&class)
    }
}

/// The classes and indexes at a revision of the catalogue.
#[derive(Debug, Default)]
struct ClassCache {
    /// The revision of the catalogue.
    revision: u64,
    schema: Arc<Schema>,
    unique: Arc<[Arc<UniqueIndex>]>,
    mappings: HashMap<TypeId, Arc<StructMapping>>,
    /// When it was last checked whether something has changed.
    checked_at: Option<Instant>,
}

/// The classes of a space that the client knows.
#[derive(Debug, Default)]
pub struct KnownClasses {
    cache: Mutex<ClassCache>,
    /// The revision of the cache, for readers that do not lock it.
    revision: AtomicU64,
}

impl KnownClasses {
    fn lock(&self) -> MutexGuard<'_, ClassCache> {
        // The cache is replaced as a whole: a panic leaves it consistent.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The classes.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        self.lock().schema.clone()
    }

    /// Whether the classes may be fetched again only to see whether something has changed: they were not for this long.
    pub(super) fn may_refresh(&self, interval: Duration) -> bool {
        let mut known = self.lock();
        let is_due = known.checked_at.is_none_or(|at| at.elapsed() > interval);
        if is_due {
            known.checked_at = Some(Instant::now());
        }
        is_due
    }

    /// Whether a mapping is to the classes as they are known now.
    pub(super) fn is_current(&self, mapping: &StructMapping) -> bool {
        mapping.revision == self.revision.load(Ordering::Acquire) || planted(Bug::OldMappingTaken)
    }

    /// The unique indexes.
    pub(super) fn unique(&self) -> Arc<[Arc<UniqueIndex>]> {
        self.lock().unique.clone()
    }

    /// The revision of the catalogue that they are of.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The mapping of a struct.
    ///
    /// # Errors
    /// As [`Layout::of`].
    pub fn mapping<T: Persistent>(&self) -> Result<Arc<StructMapping>> {
        let mut known = self.lock();
        if let Some(shape) = known.mappings.get(&TypeId::of::<T>()) {
            return Ok(shape.clone());
        }
        let layout = Layout::of::<T>(&known.schema)?;
        let family = known.schema.family(layout.class());
        let shape = Arc::new(StructMapping { layout, revision: known.revision, family });
        known.mappings.insert(TypeId::of::<T>(), shape.clone());
        Ok(shape)
    }

    /// Takes over the classes that a peer server has sent, unless they are older.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if they do not fit together.
    pub fn update(&self, mut message: schema::Schema) -> Result<()> {
        let (revision, unique) = (message.revision, std::mem::take(&mut message.unique));
        let schema = Arc::new(from_proto(message)?);
        let unique =
            unique.into_iter().filter_map(|unique| UniqueIndex::from_proto(unique, &schema)).map(Arc::new).collect();
        let mut known = self.lock();
        if revision >= known.revision {
            *known = ClassCache { revision, schema, unique, mappings: HashMap::new(), checked_at: known.checked_at };
            self.revision.store(revision, Ordering::Release);
        }
        Ok(())
    }
}

impl Core {
    /// The mapping of a struct to its class.
    pub(super) async fn mapping<T: Persistent>(&self) -> Result<Arc<StructMapping>> {
        if let Ok(shape) = self.classes.mapping::<T>() {
            return Ok(shape);
        }
        self.refresh_classes().await?;
        self.classes.mapping::<T>().map_err(|error| {
            let advice = format!("{}; Client::define::<…>() creates the classes of the program", error.message());
            Error::new(error.kind(), advice)
        })
    }

    /// The same for an object, which must be of the struct's class or a subclass.
    pub(super) async fn mapping_of<T: Persistent>(&self, oid: Oid) -> Result<Arc<StructMapping>> {
        let mut shape = self.mapping::<T>().await?;
        if shape.covers(oid.class()) {
            return Ok(shape);
        }
        if self.classes.schema().class(oid.class()).is_none() {
            // The class may be newer than the cache.
            self.refresh_classes().await?;
            shape = self.mapping::<T>().await?;
        }
        if shape.covers(oid.class()) {
            return Ok(shape);
        }
        let schema = self.classes.schema();
        let is = match schema.class(oid.class()) {
            Some(class) => format!("is of class {}", class.name),
            None if oid.class() == ClassId::NONE => "has no class".to_owned(),
            None => format!("is of class number {}, which does not exist", oid.class().0),
        };
        Err(Error::new(ErrorKind::Invalid, format!("{oid} {is}, and the program expects one of class {}", T::CLASS)))
    }

    /// Fetches the classes of the space.
    pub(super) async fn refresh_classes(&self) -> Result<()> {
        let revision = self.classes.lock().revision;
        self.ask_for_classes(Request::GetSchema(schema::GetSchema { revision })).await
    }

    /// Defines these classes in the space.
    pub(super) async fn define(&self, classes: &Classes) -> Result<()> {
        let classes = classes.iter().map(definition).collect::<Result<_>>()?;
        self.ask_for_classes(Request::Define(schema::Define { classes })).await
    }

    async fn ask_for_classes(&self, request: Request) -> Result<()> {
        let (Response::Schema(message), _) = self.ask(request).await? else {
            return Err(unexpected_answer_error());
        };
        self.classes.update(message)
    }
}

// ---------------------------------------------------------------------------------------------- decoding

fn from_proto(message: schema::Schema) -> Result<Schema> {
    let classes: Vec<model::Class> = message.classes.into_iter().map(model::Class::try_from).collect::<Result<_>>()?;
    let ids: BTreeMap<&str, ClassId> = classes.iter().map(|class| (class.name.as_str(), class.id)).collect();
    let by_number = |class: &model::Class| {
        class.try_map_classes(&mut |name| match ids.get(name.as_str()) {
            Some(id) => Ok(Some(*id)),
            None => {
                let message =
                    format!("class {} refers to class {name}, which the peer server does not have", class.name);
                Err(Error::new(ErrorKind::Invalid, message))
            }
        })
    };
    Schema::new(classes.iter().map(by_number).collect::<Result<Vec<_>>>()?)
}

// ---------------------------------------------------------------------------------------------- encoding

fn definition(class: &ClassDescription) -> Result<schema::ClassDefinition> {
    let own = class.fields.iter().filter(|field| field.class == class.name);
    let indexes = class.indexes.iter().map(|index| schema::IndexDefinition {
        name: index.name.clone(),
        fields: index.fields.iter().map(|&field| field.to_owned()).collect(),
        unique: index.unique,
    });
    Ok(schema::ClassDefinition {
        name: class.name.to_owned(),
        parent: class.parent.map(str::to_owned),
        fields: own.map(field_definition).collect::<Result<_>>()?,
        indexes: indexes.collect(),
    })
}

fn field_definition(field: &FieldDescription) -> Result<schema::FieldDefinition> {
    let default = field.default.as_ref().map(Value::to_bytes).transpose()?;
    Ok(schema::FieldDefinition {
        name: field.name.to_owned(),
        r#type: Some((&field.ty).into()),
        optional: field.optional,
        default: default.map(Into::into),
        number: field.number.map(|number| number.0),
    })
}
