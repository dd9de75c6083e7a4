//! The identifiers of a clone of a space.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ContentId, ContentRef, EntryKey, Error, ErrorKind, Kind, NodeId, Object, Oid, PageId, RecordBuilder, RecordRef,
    Result, SpaceId, Value, ValueRef,
};

/// Maps the identifiers of a space to those of its clone.
///
/// A clone has as many logical nodes as the space that it is a clone of. Its objects have the same classes, page numbers and slots, so only
/// the space and the logical node of an identifier change. The order of the identifiers of a space does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceMap {
    from: SpaceNodes,
    to: SpaceNodes,
    nodes: u32,
}

/// A space and its first logical node; the others follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceNodes {
    /// The space.
    pub space: SpaceId,
    /// Its first logical node.
    pub first_node: NodeId,
}

impl SpaceMap {
    /// Maps a space with this number of logical nodes to its clone.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if an identifier would not fit its bits, or both have a logical node in common.
    pub fn new(from: SpaceNodes, to: SpaceNodes, nodes: u32) -> Result<Self> {
        let fits = |place: SpaceNodes| {
            let end = place.first_node.0.checked_add(nodes);
            place.space <= SpaceId::MAX && end.is_some_and(|end| end <= NodeId::MAX.0)
        };
        let (first, second) = (from.first_node.0.min(to.first_node.0), from.first_node.0.max(to.first_node.0));
        if nodes > 0 && fits(from) && fits(to) && second - first >= nodes && from.space != to.space {
            return Ok(Self { from, to, nodes });
        }
        let what = format!("{nodes} logical nodes of {from:?} cannot be cloned as {to:?}");
        Err(Error::new(ErrorKind::Invalid, what))
    }

    /// The space that is cloned.
    #[must_use]
    pub fn source(&self) -> SpaceNodes {
        self.from
    }

    /// The clone.
    #[must_use]
    pub fn target(&self) -> SpaceNodes {
        self.to
    }

    /// How many logical nodes both have.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The logical node of the clone; `None` if the given one is not of the space.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<NodeId> {
        let index = node.0.checked_sub(self.from.first_node.0).filter(|index| *index < self.nodes)?;
        Some(NodeId(self.to.first_node.0 + index))
    }

    /// The identifier of an object's copy. What is not of the space stays as it is.
    #[must_use]
    pub fn oid(&self, oid: Oid) -> Oid {
        let PageId { space, node, number } = oid.page();
        match self.node(node).filter(|_| space == self.from.space && !oid.is_temporary()) {
            Some(node) => Oid::new(oid.class(), PageId { space: self.to.space, node, number }, oid.slot()),
            None => oid,
        }
    }

    /// The page of the clone; `None` if the given one is not of the space.
    #[must_use]
    pub fn page(&self, page: PageId) -> Option<PageId> {
        let node = self.node(page.node).filter(|_| page.space == self.from.space)?;
        Some(PageId { space: self.to.space, node, number: page.number })
    }

    /// The content of the clone; `None` if the given one is not of the space.
    #[must_use]
    pub fn content(&self, id: ContentId) -> Option<ContentId> {
        let node = self.node(id.node()).filter(|_| id.space() == self.from.space)?;
        Some(ContentId::new(self.to.space, node, id.moves(), id.origin(), id.number()))
    }

    /// The key of an entry with this target. The key of a member of a set is the identifier of the member.
    #[must_use]
    pub fn entry_key(&self, key: &EntryKey, target: Oid) -> EntryKey {
        if *key == EntryKey::member(target) { EntryKey::member(self.oid(target)) } else { key.clone() }
    }

    /// A value with the references of the clone.
    #[must_use]
    pub fn value(&self, value: Value) -> Value {
        let map = |value| self.value(value);
        match value {
            Value::Reference(oid) => Value::Reference(self.oid(oid)),
            Value::List(values) => Value::List(values.into_iter().map(map).collect()),
            Value::Set(values) => Value::Set(values.into_iter().map(map).collect::<BTreeSet<_>>()),
            Value::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| (map(key), map(value)));
                Value::Map(entries.collect::<BTreeMap<_, _>>())
            }
            scalar => scalar,
        }
    }

    /// An object with the references and the content of the clone.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the object is damaged, or its content is one of another space.
    pub fn object(&self, object: &Object) -> Result<Object> {
        if let Some(content) = object.content() {
            let foreign = || Error::new(ErrorKind::Corrupt, format!("content {} is of another space", content.id));
            let id = self.content(content.id).ok_or_else(foreign)?;
            return Ok(object.with_content(ContentRef { id, ..content }));
        }
        match object.kind {
            Kind::Record => self.record(object),
            Kind::Blob | Kind::Collection | Kind::Directory => Ok(object.clone()),
        }
    }

    /// A record with the references of the clone.
    fn record(&self, object: &Object) -> Result<Object> {
        let record = RecordRef::new(&object.data)?;
        let (mut mapped, mut is_changed) = (RecordBuilder::new(), false);
        for field in record.fields() {
            let (number, value) = field?;
            match value {
                ValueRef::Reference(oid) => {
                    is_changed = true;
                    mapped.set(number, ValueRef::Reference(self.oid(oid)))?;
                }
                ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_) => {
                    is_changed = true;
                    mapped.set_value(number, &self.value(value.to_value()?))?;
                }
                scalar => drop(mapped.set(number, scalar)?),
            }
        }
        if is_changed { Ok(object.with_data(mapped.build()?)) } else { Ok(object.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassId, ContentOrigin, FieldNumber};

    const FROM: SpaceNodes = SpaceNodes { space: SpaceId(3), first_node: NodeId(8) };
    const TO: SpaceNodes = SpaceNodes { space: SpaceId(7), first_node: NodeId(64) };

    fn map() -> SpaceMap {
        SpaceMap::new(FROM, TO, 4).unwrap()
    }

    fn oid(space: u16, node: u32, slot: u16) -> Oid {
        Oid::new(ClassId(5), PageId { space: SpaceId(space), node: NodeId(node), number: 9 }, slot)
    }

    #[test]
    fn only_identifiers_of_the_space_change_and_keep_their_order() {
        let map = map();
        assert_eq!(map.oid(oid(3, 8, 1)), oid(7, 64, 1));
        assert_eq!(map.oid(oid(3, 11, 2)), oid(7, 67, 2));
        for other in [oid(3, 7, 1), oid(3, 12, 1), oid(4, 8, 1), Oid::temporary(SpaceId(3), ClassId(5), 1)] {
            assert_eq!(map.oid(other), other);
        }
        let mut before: Vec<Oid> = (8..12).flat_map(|node| [oid(3, node, 9), oid(3, node, 1)]).collect();
        before.sort_unstable();
        assert!(before.iter().map(|oid| map.oid(*oid)).is_sorted());
    }

    #[test]
    fn parts_of_contents_are_kept() {
        for origin in [ContentOrigin::Record, ContentOrigin::Upload] {
            let id = |space, node| ContentId::new(SpaceId(space), NodeId(node), 77, origin, u64::MAX - 1);
            assert_eq!(map().content(id(3, 9)), Some(id(7, 65)));
            assert_eq!((map().content(id(4, 9)), map().content(id(3, 12))), (None, None));
        }
    }

    #[test]
    fn references_change_wherever_they_are_in_a_record() {
        let value = |oid: Oid| {
            let reference = || Value::Reference(oid);
            let nested = Value::List(vec![reference(), Value::Int64(1)]);
            let set = Value::Set([reference(), Value::String("x".to_owned())].into());
            Value::List(vec![reference(), nested, set, Value::Map([(reference(), reference())].into())])
        };
        let record = |oid: Oid| {
            let mut record = RecordBuilder::new();
            record.set(FieldNumber(0), "name").unwrap().set(FieldNumber(2), ValueRef::Reference(oid)).unwrap();
            record.set_value(FieldNumber(4), &value(oid)).unwrap();
            let mut object = Object::record(ClassId(5), record.build().unwrap());
            object.set_attribute("kept".into(), Some("as it is".into()));
            object
        };
        assert_eq!(map().object(&record(oid(3, 10, 4))).unwrap(), record(oid(7, 66, 4)));
        assert_eq!(map().object(&record(oid(4, 10, 4))).unwrap(), record(oid(4, 10, 4)));
        assert!(map().object(&Object::record(ClassId(5), "damaged".into())).is_err());
    }

    #[test]
    fn contents_and_members_change_and_names_do_not() {
        let content = |space, node| {
            let id = ContentId::new(SpaceId(space), NodeId(node), 1, ContentOrigin::Upload, 5);
            Object::blob_with_content(ContentRef { id, size: 10, generation: 2 })
        };
        assert_eq!(map().object(&content(3, 8)).unwrap(), content(7, 64));
        assert_eq!(map().object(&content(4, 8)).unwrap_err().kind(), ErrorKind::Corrupt);
        let blob = Object::blob("bytes".into());
        assert_eq!(map().object(&blob).unwrap(), blob);
        let (member, name) = (EntryKey::member(oid(3, 8, 1)), EntryKey::name("a").unwrap());
        assert_eq!(map().entry_key(&member, oid(3, 8, 1)), EntryKey::member(oid(7, 64, 1)));
        assert_eq!(map().entry_key(&name, oid(3, 8, 1)), name);
    }

    #[test]
    fn clones_that_overlap_or_do_not_fit_are_refused() {
        let place = |space, node| SpaceNodes { space: SpaceId(space), first_node: NodeId(node) };
        for (to, nodes) in
            [(TO, 0), (place(3, 64), 4), (place(7, 11), 4), (place(7, NodeId::MAX.0), 4), (TO, u32::MAX), (FROM, 4)]
        {
            assert_eq!(SpaceMap::new(FROM, to, nodes).unwrap_err().kind(), ErrorKind::Invalid, "{to:?}");
        }
        assert!(SpaceMap::new(FROM, place(7, 12), 4).is_ok() && SpaceMap::new(FROM, place(7, 4), 4).is_ok());
    }
}
