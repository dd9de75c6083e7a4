//! The contents of a module, as numbers that follow from a fixed seed.
//!
//! The first module of the small size is the database of the Java programs (java/bench, `Design`): random numbers are drawn in the same
//! order. Each further module has a seed of its own.

use serde::Serialize;

use super::design::Design;
use super::random::JavaRandom;

pub(crate) const LEAST_DATE: i64 = 1000;
/// Build dates of atomic parts and assemblies are this many days from the least one on.
pub(crate) const DATES: i64 = 1000;

const SEED: u64 = 1993;
const POSITIONS: i32 = 100_000;
const KINDS: i32 = 10;
/// One composite part in this many is younger than every assembly; the others may be older.
const YOUNG: i32 = 10;

/// The contents of a module.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModuleData {
    /// The number of the module, from 1 on.
    pub(crate) number: u32,
    pub(crate) composite_parts: Vec<CompositePartData>,
    /// The assemblies, each after the one above it.
    pub(crate) assemblies: Vec<AssemblyData>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CompositePartData {
    /// The identifier, also of the document.
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    /// The atomic parts. The first one is the root of the graph.
    pub(crate) parts: Vec<AtomicPartData>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AtomicPartData {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    pub(crate) x: i64,
    pub(crate) y: i64,
    pub(crate) document_id: i64,
    /// The parts that its connections lead to, as indexes in the composite part.
    pub(crate) targets: Vec<usize>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AssemblyData {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    /// The index of the assembly above; none of the root.
    pub(crate) parent: Option<usize>,
    /// The indexes of the composite parts of a base assembly; none of a complex one.
    pub(crate) components: Option<Vec<usize>>,
}

impl ModuleData {
    /// The contents of the module with this number.
    pub(crate) fn generate(design: &Design, number: u32) -> Self {
        let before = number - 1;
        let random = JavaRandom::new(SEED + u64::from(before));
        let mut generator = Generator { design, before: before as usize, random, assemblies: Vec::new() };
        let composite_parts = (0..design.composite_parts).map(|index| generator.composite_part(index)).collect();
        generator.add_assembly(None, 1);
        Self { number, composite_parts, assemblies: generator.assemblies }
    }
}

/// The title of the document of a composite part.
pub(crate) fn title_of(composite_part: i64) -> String {
    format!("Composite Part {composite_part:08}")
}

struct Generator<'a> {
    design: &'a Design,
    /// The number of modules before this one, whose identifiers are smaller.
    before: usize,
    random: JavaRandom,
    assemblies: Vec<AssemblyData>,
}

impl Generator<'_> {
    fn composite_part(&mut self, index: usize) -> CompositePartData {
        let parts = (0..self.design.atomic_parts).map(|part| self.atomic_part(index, part)).collect();
        let is_young = self.random.below(YOUNG) == 0;
        let build_date = if is_young { LEAST_DATE + DATES } else { 0 } + self.day();
        let id = self.id(self.design.composite_parts, index);
        CompositePartData { id, kind: self.kind(), build_date, parts }
    }

    fn atomic_part(&mut self, composite_part: usize, index: usize) -> AtomicPartData {
        let Design { composite_parts, atomic_parts, connections, .. } = *self.design;
        // The first connections form a ring, so that all parts are reached from the root.
        let mut targets = vec![(index + 1) % atomic_parts];
        targets.extend((1..connections).map(|_| self.random.index(atomic_parts)));
        let (kind, build_date) = (self.kind(), LEAST_DATE + self.day());
        let [x, y] = [(); 2].map(|()| i64::from(self.random.below(POSITIONS)));
        let document = self.random.index(composite_parts);
        AtomicPartData {
            id: self.id(composite_parts * atomic_parts, composite_part * atomic_parts + index),
            kind,
            build_date,
            x,
            y,
            document_id: self.id(composite_parts, document),
            targets,
        }
    }

    /// Adds an assembly and those below it.
    fn add_assembly(&mut self, parent: Option<usize>, level: u32) {
        let index = self.assemblies.len();
        let id = self.id(self.design.assemblies(), index);
        let build_date = LEAST_DATE + self.day();
        let components = (level == self.design.levels).then(|| self.components());
        let kind = self.kind();
        self.assemblies.push(AssemblyData { id, kind, build_date, parent, components });
        if level < self.design.levels {
            for _ in 0..self.design.fanout {
                self.add_assembly(Some(index), level + 1);
            }
        }
    }

    /// Different composite parts for a base assembly.
    fn components(&mut self) -> Vec<usize> {
        let mut chosen = Vec::new();
        while chosen.len() < self.design.components {
            let part = self.random.index(self.design.composite_parts);
            if !chosen.contains(&part) {
                chosen.push(part);
            }
        }
        chosen
    }

    /// The identifier of an object that has this index among the `count` objects of its class in a module.
    fn id(&self, count: usize, index: usize) -> i64 {
        (self.before * count + index + 1) as i64
    }

    fn kind(&mut self) -> String {
        format!("type{:03}", self.random.below(KINDS))
    }

    fn day(&mut self) -> i64 {
        i64::from(self.random.below(DATES as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oo7::design::Size;

    /// FNV-1a, as the program that computed the hash of Java's `Design`.
    struct Fnv(u64);

    impl Fnv {
        fn add_bytes(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }

        fn add(&mut self, numbers: &[i64]) {
            numbers.iter().for_each(|number| self.add_bytes(&number.to_le_bytes()));
        }
    }

    fn hash(module: &ModuleData) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        for composite_part in &module.composite_parts {
            hash.add(&[composite_part.id]);
            hash.add_bytes(composite_part.kind.as_bytes());
            hash.add(&[composite_part.build_date]);
            for part in &composite_part.parts {
                hash.add(&[part.id]);
                hash.add_bytes(part.kind.as_bytes());
                hash.add(&[part.build_date, part.x, part.y, part.document_id]);
                part.targets.iter().for_each(|target| hash.add(&[composite_part.parts[*target].id]));
            }
        }
        for assembly in &module.assemblies {
            hash.add(&[assembly.id]);
            hash.add_bytes(assembly.kind.as_bytes());
            hash.add(&[assembly.build_date, assembly.parent.map_or(0, |parent| module.assemblies[parent].id)]);
            for component in assembly.components.iter().flatten() {
                hash.add(&[module.composite_parts[*component].id]);
            }
        }
        hash.0
    }

    #[test]
    fn small_module_is_that_of_java() {
        let design = Design::new(Size::Small, 1);
        // Of `new Design()` of java/bench, in the order of `hash`.
        assert_eq!(hash(&ModuleData::generate(&design, 1)), 0xd2a2_cf5d_087e_3c70);
    }

    #[test]
    fn modules_differ_in_contents_and_identifiers() {
        let design = Design::new(Size::Tiny, 2);
        let [one, two] = [1, 2].map(|number| ModuleData::generate(&design, number));
        assert_ne!(hash(&one), hash(&two));
        assert_eq!(one.composite_parts.last().map(|part| part.id), Some(20));
        assert_eq!(two.composite_parts[0].id, 21);
        assert_eq!(two.composite_parts[0].parts[0].id, 101);
        assert_eq!(two.assemblies[0].id, 14);
    }
}
