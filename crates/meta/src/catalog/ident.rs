//! Identifiers of the catalogue, and the JSON form of identifiers of `model`: numbers, checked against their range.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identifier! {
    /// A brick, identified with its store: a brick that has lost its store gets another number.
    BrickId(u32)
}
identifier! {
    /// A peer server, identified by its configuration across restarts.
    PeerId(u32)
}
identifier! {
    /// An index of a space.
    IndexId(u32)
}
identifier! {
    /// A job of the cluster. No number is given twice.
    JobId(u64)
}
identifier! {
    /// The number of changes of the placement map.
    Epoch(u64)
}
identifier! {
    /// The number of a start of a process: unique in the cluster, and larger than those of all earlier starts.
    StartNumber(u64)
}

/// Defines how a newtype of `model` is serialized: `#[serde(with = "ident::space")]`.
macro_rules! written_as_number {
    ($module:ident, $type:ident, $inner:ty, $max:expr) => {
        pub(super) mod $module {
            use model::$type;
            use serde::de::Error;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(in crate::catalog) fn serialize<S: Serializer>(id: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                id.0.serialize(serializer)
            }

            pub(in crate::catalog) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                check_number(<$inner>::deserialize(deserializer)?)
            }

            pub(in crate::catalog) fn check_number<E: Error>(number: $inner) -> Result<$type, E> {
                if number > $max {
                    return Err(E::custom(format_args!(
                        "{number} is not a valid {}: the largest is {}",
                        stringify!($type),
                        $max
                    )));
                }
                Ok($type(number))
            }
        }
    };
}

written_as_number!(space, SpaceId, u16, SpaceId::MAX.0);
written_as_number!(class, ClassId, u32, ClassId::MAX.0);
written_as_number!(node, NodeId, u32, NodeId::MAX.0);

/// Field numbers.
pub(super) mod fields {
    use model::FieldNumber;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::catalog) fn serialize<S: Serializer>(
        fields: &[FieldNumber],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        fields.iter().map(|field| field.0).collect::<Vec<_>>().serialize(serializer)
    }

    pub(in crate::catalog) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<FieldNumber>, D::Error> {
        Ok(Vec::<u32>::deserialize(from)?.into_iter().map(FieldNumber).collect())
    }
}
