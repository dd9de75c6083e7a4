/** Queries of JDOQL and JPQL as queries of Mortar, and what remains of them in memory. */
package io.mortar.jdo.query;
