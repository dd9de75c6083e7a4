/**
 * The DataNucleus store plugin of Mortar: plain Java classes as objects of a Mortar cluster, through JDO and Jakarta
 * Persistence.
 *
 * <p>{@link io.mortar.jdo.MortarStoreManager} is the entry. A persistence context has a session for each transaction
 * ({@code StoreSession}), which buffers writes. {@code io.mortar.jdo.mapping} stores classes and their members;
 * {@code io.mortar.jdo.query} translates queries.
 */
package io.mortar.jdo;
