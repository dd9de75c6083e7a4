package io.mortar.jukebox.web;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jukebox.model.Refusal;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import org.junit.jupiter.api.Test;

class LoginThrottleTest {
    private Instant now = Instant.EPOCH;
    private final LoginThrottle throttle = new LoginThrottle(new Clock() {
        @Override
        public Instant instant() {
            return now;
        }

        @Override
        public ZoneId getZone() {
            return ZoneOffset.UTC;
        }

        @Override
        public Clock withZone(ZoneId zone) {
            return this;
        }
    });

    private void fail(int times) {
        for (int i = 0; i < times; i++) {
            throttle.attempt("ann", "1.2.3.4");
        }
    }

    @Test
    void ten_failures_block_attempts_for_five_minutes() {
        fail(9);
        assertDoesNotThrow(() -> throttle.attempt("ann", "1.2.3.4"));
        assertThrows(Refusal.class, () -> throttle.attempt("ann", "1.2.3.4"));
        now = now.plus(Duration.ofMinutes(6));
        assertDoesNotThrow(() -> throttle.attempt("ann", "1.2.3.4"));
    }

    @Test
    void others_are_not_affected() {
        fail(10);
        assertDoesNotThrow(() -> throttle.attempt("bob", "1.2.3.4"));
        assertDoesNotThrow(() -> throttle.attempt("ann", "5.6.7.8"));
    }

    @Test
    void a_success_forgets_failures() {
        fail(9);
        throttle.succeeded("ann", "1.2.3.4");
        fail(9);
        assertDoesNotThrow(() -> throttle.attempt("ann", "1.2.3.4"));
    }
}
