//! The durable object store of one brick: log, modified object buffer and B-tree.
