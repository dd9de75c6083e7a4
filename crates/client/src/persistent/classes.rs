//! The classes for which a program has structs.

use std::collections::BTreeMap;

use super::{ClassDescription, Persistent};

/// Descriptions of classes, each once, with the classes that they extend or refer to: those that a space needs before it can have
/// objects of one of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes(BTreeMap<&'static str, ClassDescription>);

impl Classes {
    /// The class of a struct, with the classes that it extends or refers to.
    #[must_use]
    pub fn of<T: Persistent>() -> Self {
        let mut classes = Self::default();
        classes.add::<T>();
        classes
    }

    /// Adds the class of a struct, with the classes that it extends or refers to. Of several structs for one class the
    /// first counts.
    pub fn add<T: Persistent>(&mut self) {
        if !self.0.contains_key(T::CLASS) {
            self.0.insert(T::CLASS, T::class());
            T::add_related(self);
        }
    }

    /// The descriptions, by the names of the classes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ClassDescription> {
        self.0.values()
    }
}
