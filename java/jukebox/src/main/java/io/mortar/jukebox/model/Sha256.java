package io.mortar.jukebox.model;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Hashes as the store has them: SHA-256, as 64 hexadecimal digits. */
public final class Sha256 {
    private Sha256() {}

    public static MessageDigest digest() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java platform has SHA-256", error);
        }
    }

    public static String hex(byte[] hash) {
        return HexFormat.of().formatHex(hash);
    }

    /** The hash of the bytes of a file. */
    public static String of(Path file) throws IOException {
        MessageDigest digest = digest();
        try (InputStream bytes = new DigestInputStream(Files.newInputStream(file), digest)) {
            bytes.transferTo(OutputStream.nullOutputStream());
        }
        return hex(digest.digest());
    }
}
