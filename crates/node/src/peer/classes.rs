//! Answers requests for the classes of a space, and adds the classes of clients' programs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use meta::Revision;
use meta::catalog::{ClassDefinition, FieldDefinition, IndexState, Schema, WantedClass, WantedIndex};
use model::{Error, ErrorKind, FieldNumber, Result};
use tokio::time;
use wire::proto::response::Response;
use wire::proto::schema;

use crate::cluster_view::{ClusterView, SpaceView};

/// How long a request waits for a revision of the catalogue.
const REVISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Adopts the classes of a client's program. `may_change` is the error if the client may not change classes.
pub(super) async fn handle_define(
    realm: &ClusterView,
    space: &SpaceView,
    define: schema::Define,
    may_change: Result<()>,
    caller: Option<Arc<str>>,
) -> Result<Response> {
    let wanted = define.classes.into_iter().map(class_from_proto).collect::<Result<Vec<_>>>()?;
    let adopted = realm.editor()?.with_caller(caller).adopt(&space.name, &wanted, may_change).await?;
    schema_at_revision(realm, space, adopted.revision).await
}

/// The classes of a space, as of this revision or a later one.
pub(super) async fn schema_at_revision(realm: &ClusterView, space: &SpaceView, revision: Revision) -> Result<Response> {
    let late = || {
        let what = format!("the peer server has not heard of revision {} of the catalogue yet: try again", revision.0);
        Error::new(ErrorKind::Unavailable, what)
    };
    time::timeout(REVISION_TIMEOUT, realm.wait_for_revision(revision)).await.map_err(|_| late())??;
    let catalog = realm.catalog().ok_or_else(late)?;
    schema_to_proto(&catalog.schema(space.id), catalog.revision()).map(Response::Schema)
}

// ---------------------------------------------------------------------------------------------- encoding

/// Classes as a client gets them.
///
/// # Errors
/// If a class cannot be encoded.
pub fn schema_to_proto(schema: &Schema, revision: Revision) -> Result<schema::Schema> {
    let classes = schema.classes().map(|class| class.class().as_ref().try_into()).collect::<Result<_>>()?;
    let unique = schema.indexes().filter(|index| index.unique).map(|index| schema::Unique {
        name: index.name.clone(),
        class: index.class.0,
        fields: index.fields.iter().map(|field| field.0).collect(),
        id: index.id.0,
        building: index.state == IndexState::Building,
    });
    Ok(schema::Schema { revision: revision.0, classes, unique: unique.collect() })
}

// ---------------------------------------------------------------------------------------------- decoding

fn class_from_proto(definition: schema::ClassDefinition) -> Result<WantedClass> {
    let schema::ClassDefinition { name, parent, fields, indexes } = definition;
    let numbers: BTreeMap<String, FieldNumber> =
        fields.iter().filter_map(|field| Some((field.name.clone(), FieldNumber(field.number?)))).collect();
    let fields = fields.into_iter().map(FieldDefinition::try_from).collect::<Result<_>>().map_err(|error| {
        let message = format!("class {name:.100?}: {}", error.message());
        Error::new(ErrorKind::Invalid, message).with_source(error)
    })?;
    let indexes = indexes.into_iter().map(|index| {
        let schema::IndexDefinition { name, fields, unique } = index;
        WantedIndex { name, fields, unique }
    });
    Ok(WantedClass { class: ClassDefinition { name, parent, fields }, numbers, indexes: indexes.collect() })
}
