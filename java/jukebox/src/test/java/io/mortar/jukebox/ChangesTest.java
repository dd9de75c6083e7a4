package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.mortar.jukebox.sample.TestPiece;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Two instances of the service on one store. */
class ChangesTest {
    private static RunningJukebox jukebox;
    private static Visitor here;
    private static Visitor there;

    @BeforeAll
    static void start() {
        jukebox = new RunningJukebox(2);
        here = jukebox.visitor(0).register("ann");
        there = here.at(jukebox.address(1));
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    @Test
    void a_change_of_a_play_list_is_told_at_the_other_instance() throws Exception {
        String track = here.uploaded(TestPiece.wav("Told", "Artist", "Album", "", 1))
                .get("id")
                .asText();
        String list = here.newList("Shared");
        try (ChangeStream changes = there.changes("list:" + list)) {
            here.post("lists/" + list + "/tracks", Map.of("track", track));
            assertEquals("changed [\"list:" + list + "\"]", changes.next());
            assertEquals(
                    "Told", there.json("lists/" + list).at("/tracks/0/title").asText());
            here.delete("lists/" + list);
            assertEquals("changed [\"list:" + list + "\"]", changes.next());
        }
    }

    @Test
    void new_play_lists_and_new_music_are_told() throws Exception {
        try (ChangeStream changes = there.changes("account", "library")) {
            here.newList("New");
            assertEquals("changed [\"account\"]", changes.next());
            here.uploaded(TestPiece.wav("New music", "Artist", "Album", "", 2));
            assertEquals("changed [\"library\"]", changes.next());
        }
    }

    @Test
    void each_change_of_a_play_list_is_a_change_of_the_account() throws Exception {
        String list = here.newList("Of the account");
        try (ChangeStream changes = there.changes("account")) {
            here.withJson("PATCH", "lists/" + list, Map.of("name", "Other name"));
            assertEquals("changed [\"account\"]", changes.next());
        }
    }

    @Test
    void other_changes_are_not_told() throws Exception {
        String watched = here.newList("Watched");
        String other = here.newList("Other");
        try (ChangeStream changes = there.changes("list:" + watched)) {
            here.withJson("PATCH", "lists/" + other, Map.of("name", "Other name"));
            here.withJson("PATCH", "lists/" + watched, Map.of("name", "Watched name"));
            assertEquals("changed [\"list:" + watched + "\"]", changes.next());
            assertEquals(
                    "Watched name",
                    there.json("lists/" + watched).at("/list/name").asText());
        }
    }

    @Test
    void new_tracks_of_an_artist_an_album_and_a_genre_are_told() throws Exception {
        JsonNode first = here.uploaded(TestPiece.wav("First", "Watched", "Watched", "Watched", 1));
        int number = 1;
        for (String kind : List.of("artist", "album", "genre")) {
            String topic = kind + ":" + first.at("/" + kind + "/id").asText();
            try (ChangeStream changes = there.changes(topic)) {
                number++;
                here.uploaded(TestPiece.wav("Track " + number, "Watched", "Watched", "Watched", number));
                assertEquals("changed [\"" + topic + "\"]", changes.next());
            }
        }
    }

    @Test
    void the_identifier_of_a_topic_names_an_object_of_its_kind() throws IOException {
        JsonNode track = here.uploaded(TestPiece.wav("Kinds", "Kinds", "Kinds", "Kinds", 1));
        for (String kind : List.of("artist", "album", "genre")) {
            String topic = kind + ":" + track.get("id").asText();
            assertEquals(
                    404,
                    here.send(here.request("changes?topic=" + topic).header("Accept", "text/event-stream"))
                            .statusCode());
        }
    }

    @Test
    void changes_of_one_play_list_at_both_instances_all_count() throws Exception {
        String track = here.uploaded(TestPiece.wav("Contended", "Artist", "Album", "", 3))
                .get("id")
                .asText();
        String list = here.newList("Contended");
        ExecutorService together = Executors.newFixedThreadPool(4);
        try {
            List<Future<Integer>> additions = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                Visitor visitor = i % 2 == 0 ? here : there;
                additions.add(together.submit(() -> visitor.post("lists/" + list + "/tracks", Map.of("track", track))
                        .statusCode()));
            }
            for (Future<Integer> addition : additions) {
                assertEquals(204, addition.get());
            }
            assertEquals(20, there.json("lists/" + list).get("tracks").size());
        } finally {
            together.shutdown();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "changes",
                "changes?topic=nothing",
                "changes?topic=artist:x",
                "changes?topic=artist:7fff.1.1.1.1",
                "changes?topic=album:1.ffffffff.1.1.1",
                "changes?topic=genre:1.2.3.4.5",
                "changes?topic=list:1.2.3.4.5",
                "changes?topic=account&topic=b&topic=c&topic=d&topic=e&topic=f&topic=g&topic=h&topic=i"
            })
    void improper_topics_are_refused(String path) {
        int status = here.send(here.request(path).header("Accept", "text/event-stream"))
                .statusCode();
        assertTrue(status == 400 || status == 404, path + ": " + status);
    }

    @Test
    void changes_of_a_play_list_of_another_account_are_not_told() {
        String list = here.newList("Mine");
        Visitor bob = jukebox.visitor(0).register("bob");
        assertEquals(
                404,
                bob.send(bob.request("changes?topic=list:" + list).header("Accept", "text/event-stream"))
                        .statusCode());
        assertEquals(
                401,
                jukebox.visitor(0)
                        .send(bob.request("changes?topic=library").header("Accept", "text/event-stream"))
                        .statusCode());
    }
}
