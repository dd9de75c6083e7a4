//! The classes and indexes of a space, in the form that queries use.
//!
//! References name their class by name in the catalogue and by number in queries. The schema of queries is derived once for each
//! state of the catalogue.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use meta::catalog::{self, CatalogEditor, Follower, IndexState, SchemaAnswer, SchemaRequest};
use model::{Class, ClassId, Error, ErrorKind, Result, SpaceId};
use query::Index;
use tokio::time;
use wire::proto::schema as messages;

use super::{CatalogSource, ClusterView};
use crate::catalog_messages::{schema_answer_to_proto, schema_request_from_proto};

/// Time limit of reading the schema from the catalogue's store. After it, the local copy is returned.
const SHOW_TIMEOUT: Duration = Duration::from_millis(500);

/// The classes and indexes of a space at one moment.
#[derive(Debug)]
pub struct QuerySchema {
    /// The classes.
    pub classes: query::Schema,
    /// The indexes, those that are being built included.
    pub indexes: Vec<Index>,
}

/// The schemas that were computed, each with the catalogue's schema that it was computed from.
#[derive(Default)]
pub(super) struct SchemaCache(Mutex<BTreeMap<SpaceId, CachedSchema>>);

type CachedSchema = (Arc<catalog::Schema>, Arc<QuerySchema>);

impl ClusterView {
    /// Answers a request about the classes and indexes of a space, and waits until this view has its changes.
    /// `may_change` is the error if the caller may not change classes. Jobs that it begins show the name of the `caller`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the request cannot be decoded; `may_change`; the errors of the operation.
    pub(crate) async fn handle_schema_request(
        &self,
        space: &str,
        request: Option<messages::describe::Request>,
        may_change: Result<()>,
        caller: Option<Arc<str>>,
    ) -> Result<messages::Described> {
        let CatalogSource { editor, follower, .. } = self.source()?;
        let editor = editor.with_caller(caller);
        let described = handle_schema_request(&editor, follower, space, request, may_change).await?;
        self.update_from_catalog();
        Ok(described)
    }

    /// Waits until this view has the classes and indexes that the catalogue has now.
    ///
    /// # Errors
    /// If the catalogue cannot be read.
    pub(crate) async fn refresh_schema(&self, space: SpaceId) -> Result<()> {
        self.wait_for_revision(self.editor()?.schema_revision(space).await?).await
    }

    /// The classes and indexes of a space, as they are known now.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this realm has no catalogue, [`ErrorKind::Corrupt`] if the catalogue's classes do not fit
    /// together.
    pub fn schema(&self, space: SpaceId) -> Result<Arc<QuerySchema>> {
        let source = self.source()?.follower.catalog().schema(space);
        // The data is consistent between statements, so a poisoned lock is harmless.
        let mut known = self.schema_cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, schema)) = known.get(&space)
            && Arc::ptr_eq(from, &source)
        {
            return Ok(schema.clone());
        }
        let classes: Vec<_> = source.classes().map(|shape| shape.class().as_ref()).collect();
        let schema = Arc::new(QuerySchema::of(classes, source.indexes().map(Arc::as_ref))?);
        known.insert(space, (source, schema.clone()));
        Ok(schema)
    }
}

/// Answers a request about the classes and indexes of a space, and waits until `follower` has its changes. `may_change` is the
/// error if the caller may not change classes.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the request cannot be decoded; `may_change`; the errors of the operation.
pub(crate) async fn handle_schema_request(
    editor: &CatalogEditor,
    follower: &Follower,
    space: &str,
    request: Option<messages::describe::Request>,
    may_change: Result<()>,
) -> Result<messages::Described> {
    let asked = schema_request_from_proto(request)?;
    if !asked.only_reads() {
        may_change?;
    }
    let shows = asked == SchemaRequest::Show;
    let answering = editor.handle_schema_request(space, asked);
    let (answer, changed) = match shows {
        false => answering.await?,
        true => match time::timeout(SHOW_TIMEOUT, answering).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => (known_schema(follower, space)?, None),
            Ok(answered) => answered?,
            Err(_) => (known_schema(follower, space)?, None),
        },
    };
    if let Some(revision) = changed {
        follower.wait_for_revision(revision).await?;
    }
    schema_answer_to_proto(&answer)
}

/// The classes and indexes of a space in the local copy of the catalogue, by which queries are planned too.
fn known_schema(follower: &Follower, space: &str) -> Result<SchemaAnswer> {
    let catalog = follower.catalog();
    let no_space = || Error::new(ErrorKind::NotFound, format!("there is no space named {space:?}"));
    let schema = catalog.schema(catalog.space(space).ok_or_else(no_space)?.id);
    Ok(SchemaAnswer::of(&schema))
}

impl QuerySchema {
    /// Derives the schema of queries from classes and indexes of the catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the classes do not fit together.
    pub fn of<'a>(
        classes: impl IntoIterator<Item = &'a Class, IntoIter: Clone>,
        indexes: impl IntoIterator<Item = &'a catalog::Index>,
    ) -> Result<Self> {
        let classes = classes.into_iter();
        let ids: HashMap<&str, ClassId> = classes.clone().map(|class| (class.name.as_str(), class.id)).collect();
        // A reference to a class that the catalogue lacks (it reports that itself) is treated as one to any object.
        let by_number = |class: &Class| class.map_classes(&|name| ids.get(name.as_str()).copied());
        let classes = query::Schema::new(classes.map(by_number)).map_err(|error| {
            Error::new(ErrorKind::Corrupt, "the classes in the catalogue do not fit together").with_source(error)
        })?;
        let indexes = indexes.into_iter().map(|index| Index {
            id: index.id.0,
            name: index.name.clone(),
            class: index.class,
            fields: index.fields.clone(),
            unique: index.unique,
            ready: index.state == IndexState::Ready,
        });
        Ok(Self { classes, indexes: indexes.collect() })
    }
}

/// Whether a class must be defined in the catalogue before it can have objects.
pub(crate) fn needs_definition(class: ClassId) -> bool {
    class != ClassId::NONE
}
