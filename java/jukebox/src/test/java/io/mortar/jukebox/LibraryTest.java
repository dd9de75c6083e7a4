package io.mortar.jukebox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import io.mortar.jukebox.sample.TestPiece;
import java.io.IOException;
import java.util.List;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LibraryTest {
    private static RunningJukebox jukebox;
    private static Visitor ann;

    @BeforeAll
    static void start() throws IOException {
        jukebox = new RunningJukebox(1);
        ann = jukebox.visitor(0).register("ann");
        ann.uploaded(TestPiece.wav("Ágætis byrjun", "Sigur Rós", "Ágætis byrjun", "Post-rock", 10));
        ann.uploaded(TestPiece.wav("Svefn-g-englar", "Sigur Rós", "Ágætis byrjun", "Post-rock", 2));
        ann.uploaded(TestPiece.wav("Hoppípolla", "Sigur Rós", "Takk...", "Post-rock", 3));
        ann.uploaded(TestPiece.wav("Army of Me", "Björk", "Post", "Electronic", 1));
    }

    @AfterAll
    static void stop() {
        jukebox.close();
    }

    private static List<String> texts(JsonNode list, String field) {
        return StreamSupport.stream(list.spliterator(), false)
                .map(each -> each.at(field).asText())
                .toList();
    }

    @Test
    void artists_are_ordered_as_a_person_expects() {
        assertEquals(List.of("Björk", "Sigur Rós"), texts(ann.json("artists").get("items"), "/name"));
        assertEquals(3, ann.json("artists").at("/items/1/tracks").asInt());
    }

    @Test
    void an_artist_has_albums_and_an_album_its_tracks_in_order() {
        String artist = ann.json("artists").at("/items/1/id").asText();
        JsonNode albums = ann.json("artists/" + artist).get("albums");
        assertEquals(List.of("Ágætis byrjun", "Takk..."), texts(albums, "/title"));
        JsonNode album = ann.json("albums/" + albums.at("/0/id").asText());
        assertEquals(List.of("Svefn-g-englar", "Ágætis byrjun"), texts(album.get("tracks"), "/title"));
        assertEquals(1999, album.at("/album/year").asInt());
    }

    @Test
    void a_genre_has_its_tracks() {
        JsonNode genres = ann.json("genres");
        assertEquals(List.of("Electronic", "Post-rock"), texts(genres, "/name"));
        JsonNode page = ann.json("genres/" + genres.at("/1/id").asText());
        assertEquals(
                List.of("Ágætis byrjun", "Hoppípolla", "Svefn-g-englar"), texts(page.at("/tracks/items"), "/title"));
    }

    @Test
    void lists_come_in_pages() {
        JsonNode first = ann.json("albums?limit=2");
        assertEquals(2, first.get("items").size());
        assertTrue(first.get("more").asBoolean());
        JsonNode second = ann.json("albums?offset=2&limit=2");
        assertEquals(1, second.get("items").size());
        assertFalse(second.get("more").asBoolean());
    }

    @Test
    void the_newest_track_is_first() {
        assertEquals("Army of Me", ann.json("newest").at("/items/0/title").asText());
        assertEquals(4, ann.json("totals").get("tracks").asInt());
    }

    @ParameterizedTest
    @ValueSource(strings = {"hoppi", "HOPPÍPOLLA", "sigur polla", "takk...", "  post-rock   TAKK "})
    void a_search_finds_words_in_any_case_with_or_without_accents(String query) {
        assertEquals(
                List.of("Hoppípolla"),
                texts(ann.json("search?q=" + Visitor.encode(query)).get("items"), "/title"));
    }

    @Test
    void a_search_without_a_result_is_empty() {
        assertEquals(
                0,
                ann.json("search?q=" + Visitor.encode("\" || true || \""))
                        .get("items")
                        .size());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "artists?offset=-1",
                "artists?limit=0",
                "artists?limit=100000",
                "artists?limit=ten",
                "search",
                "search?q=",
                "search?q=%20",
                "search?q=a+b+c+d+e+f+g+h+i"
            })
    void improper_questions_are_refused(String path) {
        assertEquals(400, ann.get(path).statusCode());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "artists/1.2.3.4.5",
                "albums/x",
                "genres/..%2f..%2fetc%2fpasswd",
                "tracks/0.0.0.0.0/audio",
                "lists/%00",
                "artists/1.ffffffffffffffffffffffffffffffffffffffffffffffff.1"
            })
    void what_does_not_exist_is_not_found(String path) {
        int status = ann.get(path).statusCode();
        assertTrue(status == 404 || status == 400, path + ": " + status);
    }

    @Test
    void an_identifier_of_another_kind_is_not_found() {
        String artist = ann.json("artists").at("/items/0/id").asText();
        assertEquals(404, ann.get("albums/" + artist).statusCode());
        assertEquals(404, ann.get("tracks/" + artist + "/audio").statusCode());
        assertEquals(404, ann.get("lists/" + artist).statusCode());
    }
}
