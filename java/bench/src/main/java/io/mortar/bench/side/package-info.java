/** The stores that are compared, each with its settings. */
package io.mortar.bench.side;
