//! Object identifiers, values, record encoding and filters of Mortar. No I/O.

#[cfg(test)]
mod arbitrary;
pub mod checksum;
mod class;
mod content_id;
mod content_patch;
mod decimal;
mod entry;
mod error;
mod field_type;
mod filter;
mod kind;
pub mod limits;
mod object;
mod oid;
mod order;
pub mod planted_bug;
mod policy;
mod record;
mod space_map;
mod time;
mod value;
#[cfg(feature = "serde")]
pub mod value_json;

pub use class::{Class, ClassDefinition, Field, FieldDefinition};
pub use content_id::{ContentId, ContentOrigin, UploadId};
pub use content_patch::{ContentOp, ContentPatch};
pub use decimal::{Decimal, DecimalRef};
pub use entry::{Entry, EntryKey};
pub use error::{Error, ErrorKind, Result};
pub use field_type::{FieldType, is_class_name, is_identifier, nearest_double};
pub use filter::{Comparison, Filter, Operand, Operands};
pub use kind::Kind;
pub use object::{Attributes, ContentRef, Object, check_attribute};
pub use oid::{ClassId, NodeId, Oid, PageId, ParseOidError, SpaceId};
pub use policy::FailurePolicy;
pub use record::{Elements, Entries, FieldNumber, RecordBuilder, RecordRef, ValueRef};
pub use space_map::{SpaceMap, SpaceNodes};
pub use time::{Date, Timestamp};
pub use value::Value;
