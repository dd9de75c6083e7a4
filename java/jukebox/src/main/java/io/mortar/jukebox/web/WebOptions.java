package io.mortar.jukebox.web;

/**
 * How a jukebox serves browsers.
 *
 * @param host the address on which it listens
 * @param port 0 for any free one
 * @param uploadBytes the most bytes of an uploaded file
 * @param hashRounds how slow the hash of passwords is
 */
public record WebOptions(String host, int port, long uploadBytes, int hashRounds) {
    public static final long DEFAULT_UPLOAD_BYTES = 200L << 20;
    /** OWASP's advice of 2023 for PBKDF2 with SHA-256. */
    public static final int DEFAULT_HASH_ROUNDS = 600_000;

    public static WebOptions on(String host, int port) {
        return new WebOptions(host, port, DEFAULT_UPLOAD_BYTES, DEFAULT_HASH_ROUNDS);
    }
}
