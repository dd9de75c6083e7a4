package io.mortar.jukebox.web;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class PasswordHasherTest {
    private final PasswordHasher hasher = new PasswordHasher(1000);

    @Test
    void only_the_same_password_matches() {
        String hash = hasher.hash("correct");
        assertTrue(hasher.matches("correct", hash));
        assertFalse(hasher.matches("Correct", hash));
        assertFalse(hasher.matches("", hash));
    }

    @Test
    void two_hashes_of_a_password_differ() {
        assertNotEquals(hasher.hash("same"), hasher.hash("same"));
    }

    @Test
    void a_hash_with_other_rounds_matches() {
        assertTrue(hasher.matches("older", new PasswordHasher(500).hash("older")));
    }

    @Test
    void without_an_account_or_a_hash_nothing_matches() {
        assertFalse(hasher.matches("", null));
        assertFalse(hasher.matches("", ""));
        assertFalse(hasher.matches("x", "plain$1$x$x"));
    }
}
