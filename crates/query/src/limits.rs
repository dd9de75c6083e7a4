//! Limits of queries.

/// Bytes of an encoded query, with its parameters; characters of its text.
pub const QUERY: usize = 1 << 20;
/// Nodes of a query's tree.
pub const NODES: usize = 4096;
/// Levels of a query's tree. A condition this deep still makes a filter that is not too deep.
pub const NESTING: usize = 48;
/// Bytes of a name in a query.
pub const NAME: usize = 255;
/// Names in a path through references.
pub const PATH: usize = 32;
/// Columns of a projection, and keys of a grouping.
pub const COLUMNS: usize = 256;
/// Keys of an order.
pub const ORDER: usize = 16;
/// Parameters of a query.
pub const PARAMETERS: usize = 1024;
/// Bytes of an index key.
pub const KEY: usize = 300;
/// Fields of an index.
pub const KEY_FIELDS: usize = 8;
/// Digits of a decimal quotient or average that has no end.
pub const QUOTIENT_DIGITS: u64 = 34;
/// Bytes of rows and groups that a run holds while it sorts or groups.
pub const BUFFERED: usize = 256 << 20;
/// Bytes of referenced objects that a run keeps.
pub const REFERENCED: usize = 64 << 20;
/// Referenced objects that a run asks for at a time, and candidates that wait for them.
pub const NEEDED: usize = 256;
/// Elements of collections, within each other, that a condition looks at for one object.
pub const ELEMENTS: usize = 1 << 22;
/// Work of the evaluation of one object: a unit is a node of the query, or 16 bytes that one reads. A unit takes some nanoseconds.
pub const WORK: u64 = 1 << 28;
/// Work after which a step of a run ends between two candidates.
pub const STEP_WORK: u64 = 1 << 23;
/// Work of a brief step of a run: about a millisecond.
pub const BRIEF_WORK: u64 = 1 << 16;
