//! The objects of a page copy, by slot.

use super::DerivedValue;
use crate::plant::{Bug, planted};

/// An object of a copy.
#[derive(Clone, Debug)]
pub(super) struct CachedObject<T> {
    /// `None` is invalid.
    pub(super) value: Option<T>,
    /// What the user of the cache has made from the value. It goes with the value.
    derived: Option<DerivedValue>,
}

/// The objects of a copy, in the order of their slots. A slot without an entry has no object.
///
/// Most pages have their objects in the slots from 0 on, so the place of a slot is its number, or is found by a binary search.
#[derive(Clone, Debug)]
pub(super) struct Slots<T> {
    objects: Vec<(u16, CachedObject<T>)>,
    /// The bytes of all derived values.
    derived_bytes: usize,
}

impl<T> Slots<T> {
    /// Objects in the order of their slots.
    pub(super) fn new(objects: impl IntoIterator<Item = (u16, T)>) -> Self {
        let cached = |(slot, value)| (slot, CachedObject { value: Some(value), derived: None });
        Self { objects: objects.into_iter().map(cached).collect(), derived_bytes: 0 }
    }

    fn place(&self, slot: u16) -> Result<usize, usize> {
        let guess = usize::from(slot);
        match self.objects.get(guess) {
            Some((found, _)) if *found == slot => Ok(guess),
            // Slots rise, so that of a place is at least the place.
            _ => self.objects[..self.objects.len().min(guess)].binary_search_by_key(&slot, |(slot, _)| *slot),
        }
    }

    pub(super) fn get(&self, slot: u16) -> Option<&CachedObject<T>> {
        self.place(slot).ok().map(|place| &self.objects[place].1)
    }

    /// Replaces an object, or makes it invalid. Its derived value is dropped.
    pub(super) fn set(&mut self, slot: u16, value: Option<T>) {
        match self.place(slot) {
            Ok(place) if planted(Bug::DerivedKept) => self.objects[place].1.value = value,
            Ok(place) => {
                let object = &mut self.objects[place].1;
                self.derived_bytes -= object.derived_bytes();
                *object = CachedObject { value, derived: None };
            }
            Err(place) => self.objects.insert(place, (slot, CachedObject { value, derived: None })),
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, slot: u16) {
        if let Ok(place) = self.place(slot) {
            let (_, before) = self.objects.remove(place);
            self.derived_bytes -= before.derived_bytes();
        }
    }

    /// Keeps a derived value with the object of this slot, if `is_source` holds for the object. Returns whether it does.
    pub(super) fn attach(&mut self, slot: u16, is_source: impl FnOnce(&T) -> bool, derived: DerivedValue) -> bool {
        let Ok(place) = self.place(slot) else { return false };
        let object = &mut self.objects[place].1;
        if !object.value.as_ref().is_some_and(is_source) {
            return false;
        }
        self.derived_bytes = self.derived_bytes - object.derived_bytes() + derived.bytes;
        object.derived = Some(derived);
        true
    }

    /// Drops all derived values.
    pub(super) fn drop_derived(&mut self) {
        self.objects.iter_mut().for_each(|(_, object)| object.derived = None);
        self.derived_bytes = 0;
    }

    /// The bytes of all derived values.
    pub(super) fn derived_bytes(&self) -> usize {
        self.derived_bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &CachedObject<T>)> {
        self.objects.iter().map(|(slot, object)| (*slot, object))
    }
}

impl<T> CachedObject<T> {
    /// The derived value.
    pub(super) fn derived_value(&self) -> Option<&DerivedValue> {
        self.derived.as_ref()
    }

    fn derived_bytes(&self) -> usize {
        self.derived.as_ref().map_or(0, |derived| derived.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn derive(bytes: usize) -> DerivedValue {
        DerivedValue { value: Arc::new(bytes), bytes }
    }

    fn list(slots: &Slots<u64>) -> Vec<(u16, Option<u64>)> {
        slots.iter().map(|(slot, object)| (slot, object.value)).collect()
    }

    #[test]
    fn objects_are_found_wherever_their_slots_are() {
        let mut slots = Slots::new([(0, 10), (1, 11), (5, 15)]);
        for (slot, value) in [(300, Some(1)), (3, Some(13)), (1, None), (2, Some(12)), (u16::MAX, Some(2))] {
            slots.set(slot, value);
        }
        slots.remove(0);
        slots.remove(0);
        slots.remove(4);
        let expected = [(1, None), (2, Some(12)), (3, Some(13)), (5, Some(15)), (300, Some(1)), (u16::MAX, Some(2))];
        assert_eq!(list(&slots), expected);
        for slot in 0..=u16::MAX {
            let found = slots.get(slot).map(|object| object.value);
            assert_eq!(found, expected.iter().find(|(listed, _)| *listed == slot).map(|(_, value)| *value));
        }
    }

    #[test]
    fn derived_value_goes_with_its_object() {
        let mut slots = Slots::new([(0, 10), (1, 11), (2, 12)]);
        for slot in 0..3 {
            assert!(slots.attach(slot, |_| true, derive(100 + usize::from(slot))));
        }
        assert!(!slots.attach(3, |_| true, derive(7)) && !slots.attach(2, |value| *value == 11, derive(7)));
        assert_eq!(slots.derived_bytes(), 303);
        slots.set(0, Some(20));
        slots.remove(1);
        assert!(slots.get(0).is_some_and(|object| object.derived_value().is_none()));
        assert_eq!(slots.derived_bytes(), 102);
        slots.set(2, None);
        assert_eq!(slots.derived_bytes(), 0);
        assert!(!slots.attach(2, |_| true, derive(7)), "an invalid object has no value to derive from");
    }

    #[test]
    fn derived_values_are_dropped_together() {
        let mut slots = Slots::new([(0, 10), (1, 11)]);
        assert!(slots.attach(0, |_| true, derive(1)) && slots.attach(0, |_| true, derive(2)));
        assert_eq!(slots.derived_bytes(), 2);
        slots.drop_derived();
        assert_eq!((slots.derived_bytes(), slots.get(0).and_then(CachedObject::derived_value).is_none()), (0, true));
        assert_eq!(list(&slots), [(0, Some(10)), (1, Some(11))]);
    }
}
