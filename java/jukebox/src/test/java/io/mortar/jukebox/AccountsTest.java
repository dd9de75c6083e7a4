package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jukebox.model.Accounts;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AccountsTest {
    private static RunningJukebox jukebox;

    @BeforeAll
    static void start() {
        jukebox = new RunningJukebox(2);
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    @Test
    void a_new_account_is_logged_in_and_can_log_out_and_in() {
        Visitor ann = jukebox.visitor(0).register("ann");
        assertEquals("ann", ann.json("me").at("/account/name").asText());
        assertEquals(204, ann.post("logout", Map.of()).statusCode());
        assertEquals(401, ann.get("me").statusCode());
        assertEquals("ann", ann.login("ANN").json("me").at("/account/name").asText());
    }

    @Test
    void a_session_holds_at_all_instances_and_ends_at_all() {
        Visitor here = jukebox.visitor(0).register("bob");
        Visitor there = here.at(jukebox.address(1));
        assertEquals("bob", there.json("me").at("/account/name").asText());
        here.post("logout", Map.of());
        assertEquals(401, there.get("me").statusCode());
    }

    @Test
    void the_cookie_is_out_of_reach_of_scripts_and_other_sites() {
        HttpResponse<String> plain =
                jukebox.visitor(0).post("register", Map.of("name", "carl", "password", "a long password"));
        String cookie = plain.headers().firstValue("Set-Cookie").orElseThrow();
        assertTrue(
                cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("Secure"),
                cookie);

        Visitor byProxy = jukebox.visitor(0);
        String body = "{\"name\": \"carl\", \"password\": \"a long password\"}";
        String secure = byProxy.send(byProxy.request("login")
                        .header("Content-Type", "application/json")
                        .header("X-Forwarded-Proto", "https")
                        .POST(BodyPublishers.ofString(body)))
                .headers()
                .firstValue("Set-Cookie")
                .orElseThrow();
        assertTrue(secure.startsWith("__Host-") && secure.contains("Secure") && secure.contains("HttpOnly"), secure);
    }

    @Test
    void a_name_is_given_once_whatever_its_case() {
        jukebox.visitor(0).register("dora");
        HttpResponse<String> second =
                jukebox.visitor(1).post("register", Map.of("name", "Dora", "password", "a long password"));
        assertEquals(409, second.statusCode());
        assertTrue(second.body().contains("taken"), second.body());
        assertEquals(
                409,
                jukebox.visitor(0)
                        .post("register", Map.of("name", "jukebox", "password", "a long password"))
                        .statusCode());
    }

    @ParameterizedTest
    @CsvSource({
        "a,a long password",
        "' ann',a long password",
        "<b>,a long password",
        "ann/e,a long password",
        "emil,short",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,a long password"
    })
    void improper_names_and_passwords_are_refused(String name, String password) {
        HttpResponse<String> response = jukebox.visitor(0).post("register", Map.of("name", name, "password", password));
        assertEquals(400, response.statusCode(), response.body());
    }

    @Test
    void a_wrong_password_says_no_more_than_an_unknown_name() {
        jukebox.visitor(0).register("fred");
        HttpResponse<String> wrong =
                jukebox.visitor(0).post("login", Map.of("name", "fred", "password", "another password"));
        HttpResponse<String> unknown =
                jukebox.visitor(0).post("login", Map.of("name", "unknown", "password", "another password"));
        assertEquals(401, wrong.statusCode());
        assertEquals(401, unknown.statusCode());
        assertEquals(wrong.body(), unknown.body());
    }

    @Test
    void the_account_of_imported_music_has_no_login() {
        jukebox.store().accounts().register(Accounts.HOUSE, "");
        assertEquals(
                401,
                jukebox.visitor(0)
                        .post("login", Map.of("name", "jukebox", "password", ""))
                        .statusCode());
    }

    @Test
    void guessing_is_slowed_down() {
        jukebox.visitor(0).register("gina");
        Visitor guesser = jukebox.visitor(0);
        for (int i = 0; i < 10; i++) {
            assertEquals(
                    401,
                    guesser.post("login", Map.of("name", "gina", "password", "guess " + i))
                            .statusCode());
        }
        assertEquals(
                429,
                guesser.post("login", Map.of("name", "gina", "password", "a long password"))
                        .statusCode());
    }

    @Test
    void nothing_is_shown_without_a_session() {
        Visitor stranger = jukebox.visitor(0);
        for (String path : new String[] {
            "me", "totals", "artists", "albums", "genres", "newest", "search?q=a", "lists", "tracks/1.2.3.4.5/audio"
        }) {
            HttpResponse<String> response = stranger.get(path);
            assertEquals(401, response.statusCode(), path);
            assertFalse(response.headers().map().containsKey("set-cookie"));
        }
        assertEquals(401, stranger.upload("a.wav", new byte[10]).statusCode());
    }
}
