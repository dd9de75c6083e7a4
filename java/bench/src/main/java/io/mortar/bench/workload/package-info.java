/** What is applied to the stores and measured. */
package io.mortar.bench.workload;
