/**
 * The client of Mortar, a transactional object store for clusters.
 *
 * <p>{@link io.mortar.Client} is the entrance. It connects to a cluster, or runs one within the process, and its
 * {@link io.mortar.Transaction}s read and write {@link io.mortar.StoredObject}s: {@link io.mortar.Record}s of classes,
 * blobs, sets and directories. {@link io.mortar.Rows} are the results of queries. All errors are
 * {@link io.mortar.MortarException}s, whose class says what the caller should do.
 *
 * <p>The client is a native library with an encoding of requests and replies. The library of the platform is in the
 * jar, or is the file that the system property {@code mortar.library} names.
 */
package io.mortar;
