package io.mortar.jukebox.web;

import java.net.InetAddress;
import java.util.Set;

/**
 * How a jukebox serves browsers.
 *
 * @param host the address on which it listens
 * @param port 0 for any free one
 * @param uploadBytes the most bytes of an uploaded file
 * @param hashRounds how slow the hash of passwords is
 * @param trustedProxies the proxies in front of the service that add the address of a browser to
 *     {@code X-Forwarded-For}
 */
public record WebOptions(String host, int port, long uploadBytes, int hashRounds, Set<InetAddress> trustedProxies) {
    /** OWASP's advice of 2023 for PBKDF2 with SHA-256. */
    public static final int DEFAULT_HASH_ROUNDS = 600_000;

    public WebOptions {
        trustedProxies = Set.copyOf(trustedProxies);
    }
}
