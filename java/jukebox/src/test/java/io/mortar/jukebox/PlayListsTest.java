package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import io.mortar.jukebox.sample.TestPiece;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class PlayListsTest {
    private static final List<String> TRACKS = new ArrayList<>();
    private static RunningJukebox jukebox;
    private static Visitor ann;

    @BeforeAll
    static void start() throws IOException {
        jukebox = new RunningJukebox(1);
        ann = jukebox.visitor(0).register("ann");
        for (String title : List.of("A", "B", "C")) {
            TRACKS.add(ann.uploaded(TestPiece.wav(title, "Artist", "Album", "", 1))
                    .get("id")
                    .asText());
        }
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    private static String listOf(String name, int... tracks) {
        String list = ann.newList(name);
        for (int track : tracks) {
            assertEquals(
                    204,
                    ann.post("lists/" + list + "/tracks", Map.of("track", TRACKS.get(track)))
                            .statusCode());
        }
        return list;
    }

    private static String titles(String list) {
        JsonNode tracks = ann.json("lists/" + list).get("tracks");
        return String.join(
                "",
                StreamSupport.stream(tracks.spliterator(), false)
                        .map(each -> each.get("title").asText())
                        .toList());
    }

    private static int move(String list, int from, int to, int track) {
        return ann.post("lists/" + list + "/moves", Map.of("from", from, "to", to, "track", TRACKS.get(track)))
                .statusCode();
    }

    @Test
    void lists_are_created_renamed_and_deleted() {
        Visitor visitor = jukebox.visitor(0).register("lister");
        String list = visitor.newList("First");
        visitor.newList("Second");
        assertEquals(
                204,
                visitor.withJson("PATCH", "lists/" + list, Map.of("name", " Renamed "))
                        .statusCode());
        assertEquals("Renamed", visitor.json("lists").at("/0/name").asText());
        assertEquals("Second", visitor.json("lists").at("/1/name").asText());
        assertEquals(204, visitor.delete("lists/" + list).statusCode());
        assertEquals(404, visitor.get("lists/" + list).statusCode());
        assertEquals(1, visitor.json("lists").size());
    }

    @Test
    void tracks_keep_their_order_and_can_repeat() {
        assertEquals("ABCA", titles(listOf("Order", 0, 1, 2, 0)));
    }

    @Test
    void a_track_moves_up_and_down() {
        String list = listOf("Moves", 0, 1, 2);
        assertEquals(204, move(list, 0, 2, 0));
        assertEquals("BCA", titles(list));
        assertEquals(204, move(list, 2, 1, 0));
        assertEquals("BAC", titles(list));
        assertEquals(400, move(list, 0, 3, 1));
        assertEquals(400, move(list, 0, -1, 1));
    }

    @Test
    void a_track_is_removed_from_its_position_only() {
        String list = listOf("Removal", 0, 1, 0);
        assertEquals(
                204,
                ann.delete("lists/" + list + "/tracks/2?track=" + TRACKS.get(0)).statusCode());
        assertEquals("AB", titles(list));
    }

    @Test
    void a_change_of_an_older_state_is_refused() {
        String list = listOf("Conflict", 0, 1, 2);
        assertEquals(409, move(list, 0, 1, 2));
        assertEquals(
                409,
                ann.delete("lists/" + list + "/tracks/0?track=" + TRACKS.get(1)).statusCode());
        assertEquals(
                409,
                ann.delete("lists/" + list + "/tracks/7?track=" + TRACKS.get(1)).statusCode());
        assertEquals("ABC", titles(list));
    }

    @Test
    void a_list_belongs_to_its_account() {
        String list = listOf("Private", 0);
        Visitor bob = jukebox.visitor(0).register("bob");
        assertEquals(404, bob.get("lists/" + list).statusCode());
        assertEquals(404, bob.delete("lists/" + list).statusCode());
        assertEquals(
                404,
                bob.post("lists/" + list + "/tracks", Map.of("track", TRACKS.get(0)))
                        .statusCode());
        assertEquals(0, bob.json("lists").size());
    }

    @Test
    void improper_changes_are_refused() {
        String list = listOf("Improper");
        assertEquals(400, ann.post("lists", Map.of("name", "")).statusCode());
        assertEquals(400, ann.post("lists", Map.of("name", "x".repeat(201))).statusCode());
        assertEquals(400, ann.post("lists", Map.of()).statusCode());
        assertEquals(
                404,
                ann.post("lists/" + list + "/tracks", Map.of("track", "1.2.3.4.5"))
                        .statusCode());
        assertEquals(
                400,
                ann.post("lists/" + list + "/moves", Map.of("from", "here")).statusCode());
        assertEquals(
                400,
                ann.delete("lists/" + list + "/tracks/first?track=" + TRACKS.get(0))
                        .statusCode());
    }
}
