//! The classes of OO7 as structs.
//!
//! Each direction of a relation is stored, as OO7 defines it. Identifiers and titles are unique in the database. Fields that OO7 calls
//! `type` are called `kind` here.

use client::{Persistent, Ref};

/// A design: a tree of assemblies, and a manual.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.Module")]
pub(crate) struct Module {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    pub(crate) manual: Ref<Manual>,
    pub(crate) design_root: Ref<ComplexAssembly>,
}

/// The manual of a module.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.Manual")]
pub(crate) struct Manual {
    pub(crate) id: i64,
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) module: Ref<Module>,
}

/// A node of the tree of a module.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.Assembly")]
pub(crate) struct Assembly {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    pub(crate) module: Ref<Module>,
    /// The assembly above; none of the root.
    pub(crate) super_assembly: Option<Ref<ComplexAssembly>>,
}

/// An assembly of assemblies: of complex ones or, above the last level, of base assemblies.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.ComplexAssembly")]
pub(crate) struct ComplexAssembly {
    #[persistent(parent)]
    pub(crate) assembly: Assembly,
    pub(crate) sub_assemblies: Vec<Ref<ComplexAssembly>>,
    pub(crate) base_assemblies: Vec<Ref<BaseAssembly>>,
}

/// A leaf of the tree, which uses composite parts.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.BaseAssembly")]
pub(crate) struct BaseAssembly {
    #[persistent(parent)]
    pub(crate) assembly: Assembly,
    pub(crate) components: Vec<Ref<CompositePart>>,
}

/// A part of the library: a graph of atomic parts, with a document.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.CompositePart")]
pub(crate) struct CompositePart {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) build_date: i64,
    pub(crate) documentation: Ref<Document>,
    pub(crate) root_part: Ref<AtomicPart>,
    pub(crate) parts: Vec<Ref<AtomicPart>>,
    pub(crate) used_in: Vec<Ref<BaseAssembly>>,
}

/// The document of a composite part.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.Document")]
pub(crate) struct Document {
    pub(crate) id: i64,
    #[persistent(unique)]
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) part: Ref<CompositePart>,
}

/// A node of the graph of a composite part.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.AtomicPart")]
pub(crate) struct AtomicPart {
    #[persistent(unique)]
    pub(crate) id: i64,
    pub(crate) kind: String,
    #[persistent(index)]
    pub(crate) build_date: i64,
    pub(crate) x: i64,
    pub(crate) y: i64,
    /// The identifier of a document, by which query Q8 joins.
    pub(crate) document_id: i64,
    pub(crate) part_of: Ref<CompositePart>,
    pub(crate) outgoing: Vec<Ref<Connection>>,
    pub(crate) incoming: Vec<Ref<Connection>>,
}

/// An edge of the graph of a composite part.
#[derive(Persistent, Clone, Debug, PartialEq)]
#[persistent(class = "oo7.Connection")]
pub(crate) struct Connection {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) length: i64,
    pub(crate) source: Ref<AtomicPart>,
    pub(crate) target: Ref<AtomicPart>,
}
