package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Album;
import io.mortar.jdo.entities.Artist;
import io.mortar.jdo.entities.Track;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import jakarta.persistence.criteria.CriteriaBuilder;
import jakarta.persistence.criteria.CriteriaQuery;
import jakarta.persistence.criteria.Join;
import jakarta.persistence.criteria.JoinType;
import jakarta.persistence.criteria.Path;
import jakarta.persistence.criteria.Predicate;
import jakarta.persistence.criteria.Root;
import jakarta.persistence.criteria.Subquery;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Queries of the criteria API, Jakarta Persistence 3.1, chapter 6. */
class CriteriaTest {
    private static final EntityManagerFactory FACTORY = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));

    private EntityManager manager;
    private CriteriaBuilder builder;

    /** What a result is made of. */
    public record Line(String title, int year) {}

    @BeforeAll
    static void populate() {
        EntityManager manager = FACTORY.createEntityManager();
        manager.getTransaction().begin();
        Artist miles = new Artist("Miles");
        miles.add("Blue", 1959).getTracks().addAll(List.of(new Track("So What", 545), new Track("Freddie", 586)));
        miles.add("Brew", 1970);
        manager.persist(miles);
        Artist bill = new Artist("Bill");
        bill.add("Waltz", 1961);
        manager.persist(bill);
        manager.persist(new Artist("Silent"));
        manager.persist(new Album("Unknown", 1971, null));
        manager.getTransaction().commit();
        manager.close();
    }

    @AfterAll
    static void closeFactory() {
        FACTORY.close();
    }

    @BeforeEach
    void open() {
        manager = FACTORY.createEntityManager();
        builder = manager.getCriteriaBuilder();
    }

    @AfterEach
    void close() {
        manager.close();
    }

    private <T> List<T> sorted(CriteriaQuery<T> query) {
        return manager.createQuery(query).getResultList().stream().sorted().toList();
    }

    @Test
    void a_subquery_depends_on_the_query_around_it() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Album> album = query.from(Album.class);
        Subquery<Album> later = query.subquery(Album.class);
        Root<Album> other = later.from(Album.class);
        other.alias("other");
        later.select(other).where(later(album, other));
        query.select(album.get("title")).where(builder.exists(later));
        assertEquals(List.of("Blue"), sorted(query));
    }

    @Test
    void a_subquery_without_an_alias_is_refused_as_its_paths_are_ambiguous() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Artist> artist = query.from(Artist.class);
        Subquery<Album> old = query.subquery(Album.class);
        Root<Album> album = old.from(Album.class);
        old.select(album)
                .where(builder.equal(album.get("artist"), artist), builder.lt(album.<Integer>get("year"), 1960));
        query.select(artist.get("name")).where(builder.exists(old));
        RuntimeException error = assertThrows(RuntimeException.class, () -> sorted(query));
        assertTrue(error.getMessage().contains("alias"), error.getMessage());
    }

    @Test
    void a_subquery_without_conditions_needs_no_alias() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Album> album = query.from(Album.class);
        Subquery<Double> average = query.subquery(Double.class);
        average.select(builder.avg(average.from(Album.class).<Integer>get("year")));
        query.select(album.get("title")).where(builder.gt(album.<Integer>get("year"), average));
        assertEquals(List.of("Brew", "Unknown"), sorted(query));
    }

    @Test
    void several_roots_without_aliases_are_refused() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Album> album = query.from(Album.class);
        Root<Album> other = query.from(Album.class);
        query.select(album.get("title")).where(later(album, other));
        RuntimeException error = assertThrows(RuntimeException.class, () -> sorted(query));
        assertTrue(error.getMessage().contains("JPQL"), error.getMessage());
    }

    private Predicate later(Root<Album> album, Root<Album> other) {
        return builder.and(
                builder.equal(other.get("artist"), album.get("artist")),
                builder.gt(other.<Integer>get("year"), album.<Integer>get("year")));
    }

    private CriteriaQuery<String> withoutArtist(String alias) {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Album> album = query.from(Album.class);
        Join<Album, Artist> artist = album.join("artist", JoinType.LEFT);
        if (alias != null) {
            artist.alias(alias);
        }
        return query.select(album.get("title")).where(builder.isNull(artist.get("name")));
    }

    @Test
    void an_outer_join_has_null_where_there_is_nothing() {
        assertEquals(List.of("Unknown"), sorted(withoutArtist("who")));
        assertEquals(List.of("Unknown"), sorted(withoutArtist(null)));
    }

    @Test
    void joins_have_a_row_for_each_element() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Artist> artist = query.from(Artist.class);
        Join<Artist, Album> album = artist.join("albums");
        album.alias("album");
        query.select(artist.get("name")).where(builder.gt(album.<Integer>get("year"), 1900));
        assertEquals(List.of("Bill", "Miles", "Miles"), sorted(query));
        query.where(builder.gt(album.<Integer>get("year"), 1960));
        assertEquals(List.of("Bill", "Miles"), sorted(query));
    }

    @Test
    void joins_follow_joins() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Artist> artist = query.from(Artist.class);
        Join<Artist, Album> album = artist.join("albums");
        album.alias("album");
        Join<Album, Track> track = album.join("tracks");
        track.alias("track");
        query.select(artist.get("name")).where(builder.lt(track.<Integer>get("seconds"), 550));
        assertEquals(List.of("Miles"), sorted(query));
    }

    @Test
    void outer_joins_keep_objects_without_elements() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Artist> artist = query.from(Artist.class);
        artist.join("albums", JoinType.LEFT);
        query.select(artist.get("name"));
        assertEquals(List.of("Bill", "Miles", "Miles", "Silent"), sorted(query));
    }

    @Test
    void several_results_are_constructed_or_arrays() {
        CriteriaQuery<Line> query = builder.createQuery(Line.class);
        Root<Album> album = query.from(Album.class);
        query.multiselect(album.get("title"), album.get("year")).where(builder.lt(album.<Integer>get("year"), 1960));
        assertEquals(List.of(new Line("Blue", 1959)), manager.createQuery(query).getResultList());
        CriteriaQuery<Object[]> arrays = builder.createQuery(Object[].class);
        album = arrays.from(Album.class);
        arrays.multiselect(album.get("title"), album.get("year")).where(builder.lt(album.<Integer>get("year"), 1960));
        assertEquals(List.of("Blue", 1959), List.of(manager.createQuery(arrays).getSingleResult()));
    }

    /** Positions begin with 1, as in JPQL; in Java they begin with 0. */
    @Test
    void positions_in_texts_begin_with_one() {
        CriteriaQuery<Object[]> query = builder.createQuery(Object[].class);
        Root<Album> album = query.from(Album.class);
        Path<String> title = album.get("title");
        query.multiselect(
                        builder.substring(title, 2, 2),
                        builder.substring(title, 3),
                        builder.locate(title, "l"),
                        builder.locate(title, "z"),
                        builder.locate(title, "u", 4))
                .where(builder.equal(builder.locate(title, "u"), 3));
        for (int i = 0; i < 2; i++) {
            List<Object[]> rows = manager.createQuery(query).getResultList();
            assertEquals(1, rows.size());
            assertEquals(List.of("lu", "ue", 2, 0, 0), List.of(rows.get(0)));
        }
    }

    @Test
    void a_negated_subquery_finds_what_has_no_row() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Artist> artist = query.from(Artist.class);
        artist.alias("artist");
        Subquery<Album> albums = query.subquery(Album.class);
        Root<Album> album = albums.from(Album.class);
        album.alias("album");
        albums.select(album).where(builder.equal(album.get("artist"), artist));
        query.select(artist.get("name")).where(builder.exists(albums).not());
        assertEquals(List.of("Silent"), sorted(query));
    }

    @Test
    void nullif_compares_paths_with_values() {
        CriteriaQuery<String> query = builder.createQuery(String.class);
        Root<Album> album = query.from(Album.class);
        query.select(album.get("title")).where(builder.isNull(builder.nullif(album.<String>get("title"), "Blue")));
        assertEquals(List.of("Blue"), sorted(query));
    }

    @Test
    void what_datanucleus_does_not_compile_is_refused() {
        CriteriaQuery<String> roots = builder.createQuery(String.class);
        Root<Album> album = roots.from(Album.class);
        album.alias("a");
        roots.from(Artist.class).alias("b");
        roots.select(album.get("title")).where(builder.equal(album.get("title"), "Blue"));
        RuntimeException error = assertThrows(RuntimeException.class, () -> sorted(roots));
        assertTrue(error.getMessage().contains("several roots"), error.getMessage());
        CriteriaQuery<String> types = builder.createQuery(String.class);
        Root<Album> typed = types.from(Album.class);
        types.select(typed.get("title")).where(builder.equal(typed.type(), Album.class));
        error = assertThrows(RuntimeException.class, () -> sorted(types));
        assertTrue(error.getMessage().contains("type()"), error.getMessage());
    }
}
