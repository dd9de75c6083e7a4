package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.InetAddress;
import java.net.http.HttpRequest.BodyPublishers;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** The test is the proxy: it names the addresses of browsers in X-Forwarded-For. */
class TrustedProxyTest {
    private static final int FAILURES = 10;

    /** Tries a wrong password and returns the status. */
    private static int guess(Visitor visitor, String forwardedFor) {
        String body = "{\"name\": \"ann\", \"password\": \"a wrong password\"}";
        return visitor.send(visitor.request("login")
                        .header("Content-Type", "application/json")
                        .header("X-Forwarded-For", forwardedFor)
                        .POST(BodyPublishers.ofString(body)))
                .statusCode();
    }

    @Test
    void wrong_passwords_are_counted_for_each_browser_behind_a_trusted_proxy() {
        try (RunningJukebox jukebox = new RunningJukebox(1, Set.of(InetAddress.getLoopbackAddress()))) {
            Visitor proxy = jukebox.visitor(0).register("ann");
            for (int i = 0; i < FAILURES; i++) {
                assertEquals(401, guess(proxy, "198.51.100." + i + ", 192.0.2.1"));
            }
            assertEquals(429, guess(proxy, "192.0.2.2, 192.0.2.1"));
            assertEquals(401, guess(proxy, "192.0.2.1, 192.0.2.2"));
        }
    }

    @Test
    void without_a_trusted_proxy_a_browser_cannot_choose_its_address() {
        try (RunningJukebox jukebox = new RunningJukebox(1)) {
            Visitor browser = jukebox.visitor(0).register("ann");
            for (int i = 0; i < FAILURES; i++) {
                assertEquals(401, guess(browser, "192.0.2." + i));
            }
            assertEquals(429, guess(browser, "192.0.2.99"));
        }
    }
}
