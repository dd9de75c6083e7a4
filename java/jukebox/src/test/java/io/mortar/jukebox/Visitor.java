package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.net.CookieManager;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;

/** An HTTP client that keeps cookies as the browser of one person does. */
public final class Visitor {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PASSWORD = "a long password";

    private final String address;
    private final CookieManager cookies = new CookieManager();
    private final HttpClient client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .cookieHandler(cookies)
            .build();

    public Visitor(String address) {
        this.address = address;
    }

    /** The same person at another instance: the browser keeps the cookies. */
    public Visitor at(String otherAddress) {
        Visitor visitor = new Visitor(otherAddress);
        cookies.getCookieStore()
                .getCookies()
                .forEach(cookie -> visitor.cookies.getCookieStore().add(null, cookie));
        return visitor;
    }

    public Visitor register(String name) {
        return enter("register", name);
    }

    public Visitor login(String name) {
        return enter("login", name);
    }

    private Visitor enter(String action, String name) {
        assertEquals(
                200, post(action, Map.of("name", name, "password", PASSWORD)).statusCode());
        return this;
    }

    public HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(address + "/api/" + path))
                .header("Origin", address)
                .timeout(Duration.ofSeconds(20));
    }

    public HttpResponse<String> get(String path) {
        return send(request(path));
    }

    public JsonNode json(String path) {
        HttpResponse<String> response = get(path);
        assertEquals(200, response.statusCode(), response.body());
        return parse(response);
    }

    public HttpResponse<String> post(String path, Map<String, ?> body) {
        return withJson("POST", path, body);
    }

    public HttpResponse<String> withJson(String method, String path, Map<String, ?> body) {
        try {
            return send(request(path)
                    .header("Content-Type", "application/json")
                    .method(method, BodyPublishers.ofString(JSON.writeValueAsString(body))));
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    public HttpResponse<String> delete(String path) {
        return send(request(path).DELETE());
    }

    public HttpResponse<String> upload(String name, byte[] bytes) {
        return send(request("tracks?name=" + encode(name)).POST(BodyPublishers.ofByteArray(bytes)));
    }

    /** Uploads audio that is taken, and returns the track. */
    public JsonNode uploaded(byte[] bytes) {
        HttpResponse<String> response = upload("file.wav", bytes);
        assertEquals(201, response.statusCode(), response.body());
        return parse(response);
    }

    /** Creates a play list and returns its identifier. */
    public String newList(String name) {
        HttpResponse<String> response = post("lists", Map.of("name", name));
        assertEquals(201, response.statusCode(), response.body());
        return parse(response).get("id").asText();
    }

    public HttpResponse<String> send(HttpRequest.Builder request) {
        try {
            return client.send(request.build(), BodyHandlers.ofString());
        } catch (IOException error) {
            throw new AssertionError(error);
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    public HttpResponse<byte[]> bytes(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofByteArray());
    }

    /** Opens a stream of changes; its first event has arrived. */
    public ChangeStream changes(String... topics) throws IOException, InterruptedException {
        String query = String.join("&topic=", topics);
        HttpResponse<InputStream> response = client.send(
                request("changes?topic=" + query)
                        .header("Accept", "text/event-stream")
                        .build(),
                BodyHandlers.ofInputStream());
        assertEquals(200, response.statusCode());
        return new ChangeStream(response.body());
    }

    public static JsonNode parse(HttpResponse<String> response) {
        try {
            return JSON.readTree(response.body());
        } catch (IOException error) {
            throw new AssertionError(response.body(), error);
        }
    }

    public static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
