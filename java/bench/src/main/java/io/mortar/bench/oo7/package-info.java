/**
 * OO7, the benchmark of object-oriented databases by Carey, DeWitt and Naughton: its small database, the traversals T1
 * and T6 and the queries Q1 to Q5, Q7 and Q8.
 */
package io.mortar.bench.oo7;
