package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RequestGuardTest {
    private static RunningJukebox jukebox;

    @BeforeAll
    static void start() {
        jukebox = new RunningJukebox(1);
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    private static HttpResponse<String> send(HttpRequest.Builder request) throws Exception {
        return HttpClient.newHttpClient().send(request.build(), BodyHandlers.ofString());
    }

    private static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(jukebox.address(0) + path));
    }

    @ParameterizedTest
    @CsvSource({
        "Origin,http://elsewhere.example",
        "Origin,null",
        "Origin,http://127.0.0.1:1",
        "Sec-Fetch-Site,cross-site",
        "Sec-Fetch-Site,same-site",
        "Accept,*/*",
        "Origin,%%%"
    })
    void other_sites_change_nothing(String header, String value) throws Exception {
        HttpResponse<String> response = send(request("/api/register")
                .header(header, value)
                .header("Content-Type", "application/json")
                .POST(BodyPublishers.ofString("{\"name\": \"eve\", \"password\": \"a long password\"}")));
        assertEquals(403, response.statusCode(), response.body());
    }

    @Test
    void a_form_of_another_type_is_refused() throws Exception {
        HttpResponse<String> response = send(request("/api/login")
                .header("Origin", jukebox.address(0))
                .header("Content-Type", "text/plain")
                .POST(BodyPublishers.ofString("{\"name\": \"eve\", \"password\": \"x\"}")));
        assertEquals(415, response.statusCode());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "{", "[]", "null", "{\"name\": {}}", "\"text\""})
    void malformed_bodies_are_refused(String body) throws Exception {
        HttpResponse<String> response = send(request("/api/register")
                .header("Origin", jukebox.address(0))
                .header("Content-Type", "application/json")
                .POST(BodyPublishers.ofString(body)));
        assertEquals(400, response.statusCode(), response.body());
    }

    @Test
    void a_large_body_is_refused() throws Exception {
        HttpResponse<String> response = send(request("/api/login")
                .header("Origin", jukebox.address(0))
                .header("Content-Type", "application/json")
                .POST(BodyPublishers.ofString("\"" + "x".repeat(100_000) + "\"")));
        assertEquals(413, response.statusCode(), response.body());
    }

    @ParameterizedTest
    @ValueSource(strings = {"/", "/style.css", "/js/main.js", "/api/me", "/nothing"})
    void every_response_restricts_the_page(String path) throws Exception {
        HttpResponse<String> response = send(request(path));
        String policy = response.headers().firstValue("Content-Security-Policy").orElse("");
        assertTrue(policy.startsWith("default-src 'none'; script-src 'self'"), path + ": " + policy);
        assertEquals(
                "nosniff",
                response.headers().firstValue("X-Content-Type-Options").orElse(""));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/../logging.properties",
                "/%2e%2e/logging.properties",
                "/js/..%2f..%2flogging.properties",
                "/js/",
                "/WEB-INF/",
                "/io/mortar/jukebox/Jukebox.class"
            })
    void only_the_files_of_the_pages_are_served(String path) throws Exception {
        int status = send(request(path)).statusCode();
        assertTrue(status >= 400 && status < 500, path + ": " + status);
    }

    @Test
    void the_pages_have_no_inline_scripts_or_styles() throws Exception {
        String page = send(request("/")).body();
        assertTrue(page.contains("<title>Jukebox</title>"));
        assertEquals(-1, page.indexOf(" style="));
        assertEquals(-1, page.indexOf(" onclick="));
        assertEquals(1, page.split("<script", -1).length - 1);
    }

    @Test
    void the_state_of_the_service_is_public() throws Exception {
        HttpResponse<String> health = send(request("/api/health"));
        assertEquals(200, health.statusCode());
        assertEquals(List.of(), health.headers().allValues("Set-Cookie"));
    }
}
