package io.mortar.jukebox.web;

import io.mortar.jukebox.model.Refusal;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** Slows down the guessing of passwords: after some failures, an address may not try an account for a while. */
final class LoginThrottle {
    private static final int FAILURES = 10;
    private static final Duration PERIOD = Duration.ofMinutes(5);
    private static final int REMEMBERED = 10_000;

    private final Clock clock;
    private final Map<String, Failures> failures = new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Failures> eldest) {
            return size() > REMEMBERED;
        }
    };

    private record Failures(Instant since, int count) {}

    LoginThrottle(Clock clock) {
        this.clock = clock;
    }

    /**
     * Counts an attempt as a failure until it succeeds, so that attempts at the same time are not more than the limit.
     *
     * @throws Refusal TOO_MANY, after too many failures
     */
    synchronized void attempt(String name, String address) {
        String key = key(name, address);
        Failures before = current(key);
        if (before == null) {
            failures.put(key, new Failures(clock.instant(), 1));
        } else if (before.count() < FAILURES) {
            failures.put(key, new Failures(before.since(), before.count() + 1));
        } else {
            throw new Refusal(Refusal.Reason.TOO_MANY, "too many wrong passwords; try again in some minutes");
        }
    }

    synchronized void succeeded(String name, String address) {
        failures.remove(key(name, address));
    }

    private Failures current(String key) {
        Failures known = failures.get(key);
        if (known != null && known.since().plus(PERIOD).isBefore(clock.instant())) {
            failures.remove(key);
            return null;
        }
        return known;
    }

    private static String key(String name, String address) {
        return address + ' ' + name;
    }
}
