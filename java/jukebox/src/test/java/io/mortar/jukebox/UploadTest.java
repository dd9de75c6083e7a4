package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.mortar.jukebox.sample.TestPiece;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class UploadTest {
    private static RunningJukebox jukebox;
    private static Visitor ann;

    @BeforeAll
    static void start() {
        jukebox = new RunningJukebox(1);
        ann = jukebox.visitor(0).register("ann");
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    @Test
    void tags_become_the_track() throws IOException {
        JsonNode track = ann.uploaded(TestPiece.wav("Song", "Singer", "Record", "Pop", 3));
        assertEquals("Song", track.get("title").asText());
        assertEquals("Singer", track.at("/artist/name").asText());
        assertEquals("Record", track.at("/album/name").asText());
        assertEquals("Pop", track.at("/genre/name").asText());
        assertEquals(3, track.get("number").asInt());
        assertTrue(track.get("seconds").asInt() >= 1);
    }

    @Test
    void audio_comes_back_as_it_was() throws Exception {
        byte[] wav = TestPiece.wav("Same", "Singer", "Record", "Pop", 1);
        HttpResponse<byte[]> response =
                ann.bytes(ann.request("tracks/" + ann.uploaded(wav).get("id").asText() + "/audio"));
        assertEquals(200, response.statusCode());
        assertEquals("audio/wav", response.headers().firstValue("Content-Type").orElseThrow());
        assertArrayEquals(wav, response.body());
    }

    @Test
    void parts_of_audio_are_sent() throws Exception {
        byte[] wav = TestPiece.wav("Parts", "Singer", "Record", "Pop", 1);
        String path = "tracks/" + ann.uploaded(wav).get("id").asText() + "/audio";
        assertPart(wav, path, "bytes=0-99", 0, 100);
        assertPart(wav, path, "bytes=1000-", 1000, wav.length);
        assertPart(wav, path, "bytes=-10", wav.length - 10, wav.length);
        assertPart(wav, path, "bytes=5-" + (wav.length + 1000), 5, wav.length);

        HttpResponse<byte[]> behind = ann.bytes(ann.request(path).header("Range", "bytes=" + wav.length + "-"));
        assertEquals(416, behind.statusCode());
        assertEquals(
                "bytes */" + wav.length,
                behind.headers().firstValue("Content-Range").orElseThrow());
        assertEquals(
                200, ann.bytes(ann.request(path).header("Range", "bytes=9-5")).statusCode());
        assertEquals(
                200,
                ann.bytes(ann.request(path).header("Range", "bytes=0-9").header("If-Range", "\"another\""))
                        .statusCode());

        HttpResponse<byte[]> head = ann.bytes(ann.request(path).method("HEAD", BodyPublishers.noBody()));
        assertEquals(200, head.statusCode());
        assertEquals(
                wav.length, head.headers().firstValueAsLong("Content-Length").orElseThrow());
    }

    private static void assertPart(byte[] all, String path, String range, int from, int end) throws Exception {
        HttpResponse<byte[]> response = ann.bytes(ann.request(path).header("Range", range));
        assertEquals(206, response.statusCode());
        assertEquals(
                "bytes " + from + "-" + (end - 1) + "/" + all.length,
                response.headers().firstValue("Content-Range").orElseThrow());
        assertArrayEquals(Arrays.copyOfRange(all, from, end), response.body());
    }

    @Test
    void files_without_audio_are_refused() {
        for (byte[] bytes : List.of(
                new byte[0],
                "<script>alert(1)</script>".getBytes(StandardCharsets.UTF_8),
                "RIFF....WAVEfmt nothing behind it".getBytes(StandardCharsets.UTF_8),
                "fLaC".getBytes(StandardCharsets.UTF_8),
                "OggS and then nothing".getBytes(StandardCharsets.UTF_8),
                new byte[] {(byte) 0xff, (byte) 0xfb, 0, 0, 0, 0, 0, 0})) {
            HttpResponse<String> response = ann.upload("page.flac", bytes);
            assertEquals(415, response.statusCode(), response.body());
        }
        assertEquals(400, ann.upload("", new byte[10]).statusCode());
    }

    @Test
    void a_file_over_the_limit_is_refused() throws Exception {
        byte[] large = new byte[(int) RunningJukebox.UPLOAD_BYTES + 1];
        HttpResponse<String> unannounced = ann.send(ann.request("tracks?name=large.wav")
                .POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(large))));
        assertEquals(413, unannounced.statusCode());
        assertTrue(unannounced.body().contains("4 MiB"), unannounced.body());
    }

    @Test
    void a_file_is_in_the_library_once() throws IOException {
        byte[] wav = TestPiece.wav("Once", "Singer", "Record", "Pop", 1);
        ann.uploaded(wav);
        assertEquals(409, ann.upload("again.wav", wav).statusCode());
    }

    @Test
    void uploads_at_the_same_time_share_a_new_artist() throws Exception {
        List<byte[]> pieces = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            pieces.add(TestPiece.wav("Piece " + i, "Newcomer", "Debut", "Jazz", i));
        }
        ExecutorService together = Executors.newFixedThreadPool(pieces.size());
        try {
            List<Future<JsonNode>> tracks = pieces.stream()
                    .map(piece -> together.submit(() -> ann.uploaded(piece)))
                    .toList();
            String artist = tracks.get(0).get().at("/artist/id").asText();
            for (Future<JsonNode> track : tracks) {
                assertEquals(artist, track.get().at("/artist/id").asText());
            }
            assertEquals(
                    pieces.size(),
                    ann.json("artists/" + artist).at("/artist/tracks").asInt());
        } finally {
            together.shutdown();
        }
    }

    @Test
    void only_the_owner_removes_a_track_and_it_leaves_the_play_lists() throws IOException {
        JsonNode track = ann.uploaded(TestPiece.wav("Short-lived", "Comet", "Tail", "Space", 1));
        String id = track.get("id").asText();
        Visitor bob = jukebox.visitor(0).register("bob");
        String list = bob.newList("Comets");
        assertEquals(
                204, bob.post("lists/" + list + "/tracks", Map.of("track", id)).statusCode());

        assertEquals(403, bob.delete("tracks/" + id).statusCode());
        assertEquals(204, ann.delete("tracks/" + id).statusCode());
        assertEquals(0, bob.json("lists/" + list).get("tracks").size());
        assertEquals(404, ann.get("tracks/" + id + "/audio").statusCode());
        assertEquals(404, ann.get("artists/" + track.at("/artist/id").asText()).statusCode());
        assertEquals(404, ann.get("albums/" + track.at("/album/id").asText()).statusCode());
        assertEquals(404, ann.get("genres/" + track.at("/genre/id").asText()).statusCode());
        assertFalse(ann.get("artists").body().contains("Comet"));
    }

    @Test
    void hostile_tags_stay_text_of_limited_length() throws IOException {
        String markup = "<img src=x onerror=alert(1)>";
        JsonNode track = ann.uploaded(TestPiece.wav(markup, "x".repeat(5000), "A\u0000B\nC", "", 1));
        assertEquals(markup, track.get("title").asText());
        assertEquals(200, track.at("/artist/name").asText().length());
        assertTrue(track.get("genre").isNull());
        assertTrue(IntStream.range(0, track.at("/album/name").asText().length())
                .noneMatch(i ->
                        Character.isISOControl(track.at("/album/name").asText().charAt(i))));
    }
}
