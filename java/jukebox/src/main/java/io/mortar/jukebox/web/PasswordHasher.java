package io.mortar.jukebox.web;

import io.mortar.jukebox.model.Refusal;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;

/**
 * Hashes passwords by PBKDF2 with SHA-256, as {@code pbkdf2-sha256$ROUNDS$SALT$HASH}. A hash keeps its own number of
 * rounds, so the number can grow. As each hash needs a core for a while, only few are computed at once.
 */
final class PasswordHasher {
    private static final String SCHEME = "pbkdf2-sha256";
    private static final int SALT_BYTES = 16;
    private static final int HASH_BITS = 256;
    private static final int WAIT_SECONDS = 10;

    private final SecureRandom random = new SecureRandom();
    private final Semaphore atOnce =
            new Semaphore(Math.max(1, Runtime.getRuntime().availableProcessors() / 2));
    private final int rounds;
    /** What the password of an unknown account is compared with, so that the time does not tell whether it exists. */
    private final String unknownAccountHash;

    PasswordHasher(int rounds) {
        this.rounds = rounds;
        this.unknownAccountHash = hash("");
    }

    String hash(String password) {
        byte[] salt = new byte[SALT_BYTES];
        random.nextBytes(salt);
        Base64.Encoder text = Base64.getEncoder();
        return String.join(
                "$",
                SCHEME,
                Integer.toString(rounds),
                text.encodeToString(salt),
                text.encodeToString(hash(password, salt, rounds)));
    }

    /** @param hash null if there is no such account: the answer is false, after the same time */
    boolean matches(String password, String hash) {
        String[] parts = (hash == null ? unknownAccountHash : hash).split("\\$");
        if (parts.length != 4 || !parts[0].equals(SCHEME)) {
            // An account without a password, such as the one of imported music.
            return false;
        }
        Base64.Decoder text = Base64.getDecoder();
        byte[] computed = hash(password, text.decode(parts[2]), Integer.parseInt(parts[1]));
        return MessageDigest.isEqual(computed, text.decode(parts[3])) && hash != null;
    }

    private byte[] hash(String password, byte[] salt, int withRounds) {
        PBEKeySpec key = new PBEKeySpec(password.toCharArray(), salt, withRounds, HASH_BITS);
        try {
            if (!atOnce.tryAcquire(WAIT_SECONDS, TimeUnit.SECONDS)) {
                throw new Refusal(Refusal.Reason.UNAVAILABLE, "too many people log in at this moment; try again");
            }
            try {
                return SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256")
                        .generateSecret(key)
                        .getEncoded();
            } finally {
                atOnce.release();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new Refusal(Refusal.Reason.UNAVAILABLE, "the service is stopping", interrupted);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("this Java platform lacks PBKDF2 with SHA-256", error);
        } finally {
            key.clearPassword();
        }
    }
}
