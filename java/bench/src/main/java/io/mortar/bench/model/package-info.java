/**
 * The persistent classes of the benchmark: the object of small transactions, and the design library of OO7.
 *
 * <p>All sides have these classes. Each direction of a relation is stored, as OO7 defines it: a collection is a set of
 * references in an object store, and a foreign key or a join table with an index in a relational one. Sets are what the
 * second-level caches of the rivals keep; DataNucleus' does not keep lists without an index.
 */
package io.mortar.bench.model;
