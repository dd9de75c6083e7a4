//! The classes that a program has structs for.

use std::collections::BTreeMap;

use super::{ClassDescription, Persistent};

/// Descriptions of classes, each once, with all that they extend or refer to: what has to be in a space before objects of
/// one of them can be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes(BTreeMap<&'static str, ClassDescription>);

impl Classes {
    /// The class of a struct, with all that belong to it.
    #[must_use]
    pub fn of<T: Persistent>() -> Self {
        let mut classes = Self::default();
        classes.add::<T>();
        classes
    }

    /// Adds the class of a struct, with all that belong to it. Of several structs for one class the first counts.
    pub fn add<T: Persistent>(&mut self) {
        if !self.0.contains_key(T::CLASS) {
            self.0.insert(T::CLASS, T::class());
            T::related(self);
        }
    }

    /// The descriptions, by the names of the classes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ClassDescription> {
        self.0.values()
    }
}
