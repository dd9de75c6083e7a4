//! What a client knows of the classes of its space, and where its structs' fields are in their records.
//!
//! It asks the peer server for them when it needs one that it does not know. What it knows may be old: fields keep their
//! numbers for ever, records are read through any version of their class, and a record keeps what is newer than the
//! struct that is written over it.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{ClassId, Error, ErrorKind, Oid, Result, Value};
use query::persistent::{ClassDescription, Classes, FieldDescription, Layout, Persistent};
use query::schema::Schema;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema;

use super::core::Core;
use super::unique::UniqueIndex;

/// A struct as the space has it.
#[derive(Debug)]
pub(super) struct StructMapping {
    pub(super) layout: Layout,
    /// The class, and all that extend it.
    family: Arc<BTreeSet<ClassId>>,
}

/// What is known.
#[derive(Debug, Default)]
struct ClassCache {
    /// That of the catalogue.
    revision: u64,
    schema: Arc<Schema>,
    unique: Arc<[UniqueIndex]>,
    mappings: HashMap<TypeId, Arc<StructMapping>>,
}

/// The classes of a space, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct KnownClasses(Mutex<ClassCache>);

impl KnownClasses {
    fn lock(&self) -> MutexGuard<'_, ClassCache> {
        // Whoever panicked has left it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn schema(&self) -> Arc<Schema> {
        self.lock().schema.clone()
    }

    /// Where no two objects may have the same values.
    pub(super) fn unique(&self) -> Arc<[UniqueIndex]> {
        self.lock().unique.clone()
    }

    fn mapping<T: Persistent>(&self) -> Result<Arc<StructMapping>> {
        let mut known = self.lock();
        if let Some(shape) = known.mappings.get(&TypeId::of::<T>()) {
            return Ok(shape.clone());
        }
        let layout = Layout::of::<T>(&known.schema)?;
        let family = known.schema.family(layout.class());
        let shape = Arc::new(StructMapping { layout, family });
        known.mappings.insert(TypeId::of::<T>(), shape.clone());
        Ok(shape)
    }

    fn update(&self, mut told: schema::Schema) -> Result<()> {
        let (revision, unique) = (told.revision, std::mem::take(&mut told.unique));
        let schema = Arc::new(from_proto(told)?);
        let unique = unique.into_iter().filter_map(|unique| UniqueIndex::from_proto(unique, &schema)).collect();
        let mut known = self.lock();
        if revision >= known.revision {
            *known = ClassCache { revision, schema, unique, mappings: HashMap::new() };
        }
        Ok(())
    }
}

impl Core {
    /// A struct as the space has it.
    pub(super) async fn mapping<T: Persistent>(&self) -> Result<Arc<StructMapping>> {
        if let Ok(shape) = self.classes.mapping::<T>() {
            return Ok(shape);
        }
        self.refresh_classes().await?;
        self.classes.mapping::<T>().map_err(|error| {
            let advice = format!("{}; Cluster::define::<…>() brings the program's classes", error.message());
            Error::new(error.kind(), advice)
        })
    }

    /// The same, for an object that has to be of the struct's class.
    pub(super) async fn mapping_of<T: Persistent>(&self, oid: Oid) -> Result<Arc<StructMapping>> {
        let mut shape = self.mapping::<T>().await?;
        if shape.family.contains(&oid.class()) {
            return Ok(shape);
        }
        if self.classes.schema().class(oid.class()).is_none() {
            // It may be newer than what is known here.
            self.refresh_classes().await?;
            shape = self.mapping::<T>().await?;
        }
        if shape.family.contains(&oid.class()) {
            return Ok(shape);
        }
        let schema = self.classes.schema();
        let is = match schema.class(oid.class()) {
            Some(class) => format!("is of class {}", class.name),
            None if oid.class() == ClassId::NONE => "has no class".to_owned(),
            None => format!("is of class number {}, which is not there", oid.class().0),
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{oid} {is}, and the program takes it for one of class {}", T::CLASS),
        ))
    }

    /// Asks what classes there are.
    pub(super) async fn refresh_classes(&self) -> Result<()> {
        let revision = self.classes.lock().revision;
        self.ask_for_classes(Request::GetSchema(schema::GetSchema { revision })).await
    }

    /// Brings the classes of the space up to these.
    pub(super) async fn define(&self, classes: &Classes) -> Result<()> {
        let classes = classes.iter().map(definition).collect::<Result<_>>()?;
        self.ask_for_classes(Request::Define(schema::Define { classes })).await
    }

    async fn ask_for_classes(&self, request: Request) -> Result<()> {
        let (Response::Schema(told), _) = self.ask(request).await? else {
            return Err(Error::new(ErrorKind::Internal, "the peer server has answered something else"));
        };
        self.classes.update(told)
    }
}

// ---------------------------------------------------------------------------------------------- being told

fn from_proto(told: schema::Schema) -> Result<Schema> {
    let classes: Vec<model::Class> = told.classes.into_iter().map(model::Class::try_from).collect::<Result<_>>()?;
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

// ---------------------------------------------------------------------------------------------- telling

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
