//! Classes, objects and indexes for tests.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use model::{ClassId, FieldNumber, NodeId, Oid, PageId, RecordBuilder, RecordRef, SpaceId, Value};

use crate::key::IndexEntry;
use crate::{CandidateSource, Class, Plan, Schema, Type};

pub(crate) struct World {
    pub(crate) schema: Schema,
    pub(crate) objects: BTreeMap<Oid, Bytes>,
}

/// Name, age, boss and friends.
pub(crate) type Person<'a> = (&'a str, Option<i64>, Option<u16>, &'a [u16]);

pub(crate) fn oid(class: u32, slot: u16) -> Oid {
    Oid::new(ClassId(class), PageId { space: SpaceId(1), node: NodeId(0), number: 1 }, slot)
}

pub(crate) fn record(fields: &BTreeMap<FieldNumber, Value>) -> Bytes {
    let mut builder = RecordBuilder::new();
    for (number, value) in fields {
        builder.set_value(*number, value).unwrap();
    }
    builder.build().unwrap()
}

impl World {
    /// People, numbered from 1.
    pub(crate) fn people(people: &[Person<'_>]) -> Self {
        let class = Class::new(ClassId(1), "Person")
            .field(0, "name", Type::String)
            .field(1, "age", Type::Int64)
            .field(2, "boss", Type::Reference(Some(ClassId(1))))
            .field(3, "friends", Type::set(Type::Reference(Some(ClassId(1)))));
        let mut world = Self { schema: Schema::new([class]).unwrap(), objects: BTreeMap::new() };
        for (number, (name, age, boss, friends)) in (1..).zip(people) {
            world.add_person(number, name, *age, *boss, friends);
        }
        world
    }

    pub(crate) fn add_person(&mut self, number: u16, name: &str, age: Option<i64>, boss: Option<u16>, friends: &[u16]) {
        let friends = friends.iter().map(|friend| oid(1, *friend).into()).collect();
        let fields = [name.into(), age.into(), boss.map(|boss| oid(1, boss)).into(), Value::Set(friends)];
        let fields = (0..).map(FieldNumber).zip(fields).collect();
        self.objects.insert(oid(1, number), record(&fields));
    }

    /// What the bricks send of every `parts`-th object, in the order of the index if there is one.
    pub(crate) fn candidates(&self, plan: &Plan, part: u32, parts: u32) -> VecDeque<(Oid, Bytes)> {
        let mine = self.objects.iter().filter(|(oid, _)| u32::from(oid.slot()) % parts == part);
        let scanned: Vec<(Oid, Bytes)> = match plan.source() {
            CandidateSource::Nothing => vec![],
            CandidateSource::Extent => mine.map(|(oid, record)| (*oid, record.clone())).collect(),
            CandidateSource::Index(index) => {
                let entry =
                    |record: &Bytes| IndexEntry::of(&RecordRef::new(record).unwrap(), &index.fields).unwrap().key;
                let mut entries: Vec<(Vec<u8>, Oid, Bytes)> =
                    mine.map(|(oid, record)| (entry(record), *oid, record.clone())).collect();
                entries.sort();
                assert!(index.ranges.windows(2).all(|pair| pair[0].to < pair[1].from));
                entries.retain(|(key, ..)| index.ranges.iter().any(|range| range.contains(key)));
                if index.reverse {
                    entries.reverse();
                }
                entries.into_iter().map(|(_, oid, record)| (oid, record)).collect()
            }
        };
        let passes = |(oid, record): &(Oid, Bytes)| {
            plan.classes().contains(&oid.class()) && plan.filter().matches(&RecordRef::new(record).unwrap()).unwrap()
        };
        scanned.into_iter().filter(passes).collect()
    }
}
