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

    /** Refuses an attempt after too many failures. */
    synchronized void check(String name, String address) {
        Failures before = current(key(name, address));
        if (before != null && before.count() >= FAILURES) {
            throw new Refusal(Refusal.Reason.TOO_MANY, "too many wrong passwords; try again in some minutes");
        }
    }

    synchronized void failed(String name, String address) {
        String key = key(name, address);
        Failures before = current(key);
        failures.put(
                key,
                before == null ? new Failures(clock.instant(), 1) : new Failures(before.since(), before.count() + 1));
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
