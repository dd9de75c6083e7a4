/**
 * The Java half of {@code script/bench java}: a program that applies one workload to one store and prints what it has
 * measured. {@code crates/bench/src/java} starts the stores and this program.
 */
package io.mortar.bench;
