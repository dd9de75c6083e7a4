package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Album;
import io.mortar.jdo.entities.Artist;
import io.mortar.jdo.entities.Label;
import io.mortar.jdo.entities.Tape;
import io.mortar.jdo.entities.Track;
import io.mortar.jdo.entities.Vinyl;
import io.mortar.jdo.query.NativeQuery;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.Query;
import jakarta.persistence.criteria.CriteriaBuilder;
import jakarta.persistence.criteria.CriteriaQuery;
import jakarta.persistence.criteria.Root;
import jakarta.persistence.criteria.Subquery;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import org.datanucleus.api.jakarta.JakartaQuery;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Jakarta Persistence 3.1, chapter 4: joins, groups, aggregates and subqueries; evaluated by the store or in memory,
 * with the same rows.
 */
class JpqlTest {
    private static final EntityManagerFactory FACTORY = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));
    private static EntityManager manager;

    @BeforeAll
    static void populate() {
        manager = FACTORY.createEntityManager();
        manager.getTransaction().begin();
        Artist miles = new Artist("Miles");
        miles.getGenres().addAll(Set.of("jazz", "cool"));
        Album blue = miles.add("Blue", 1959);
        blue.setLabel(new Label("Columbia", "US"));
        blue.getTracks()
                .addAll(List.of(new Track("So What", 545), new Track("All Blues", 693), new Track("Freddie", 586)));
        miles.add("Brew", 1970);
        Album live = miles.add("Agharta", 1975);
        live.setKind(Album.Kind.LIVE);
        live.getTracks().addAll(List.of(new Track("Prelude", 1000.5), new Track("Maiysha", 790)));
        manager.persist(miles);
        manager.persist(new Artist("Bill"));
        Album unknown = new Album("Unknown", 1970, null);
        unknown.getTracks().add(new Track("Noise", 10));
        manager.persist(unknown);
        miles.getPrizes().putAll(Map.of("Grammy", 8, "Polar", 1));
        manager.persist(new Tape("t1", 5, 90));
        manager.persist(new Tape("t2", 4, 45));
        manager.persist(new Vinyl("v1", 20, 33));
        manager.getTransaction().commit();
    }

    @AfterAll
    static void close() {
        manager.close();
        FACTORY.close();
    }

    /** The rows of a query, with the values of a row joined by commas. */
    private static String rows(Query query) {
        manager.getTransaction().begin();
        try {
            List<?> rows = query.getResultList();
            return rows.stream().map(JpqlTest::text).collect(Collectors.joining(" "));
        } finally {
            manager.getTransaction().rollback();
        }
    }

    private static String text(Object value) {
        return value instanceof Object[] row
                ? Arrays.stream(row).map(JpqlTest::text).collect(Collectors.joining(","))
                : value instanceof Album album
                        ? album.getTitle()
                        : value instanceof Artist artist
                                ? artist.getName()
                                : value instanceof Track track ? track.getTitle() : String.valueOf(value);
    }

    private static NativeQuery nativeQuery(Query query) {
        return (NativeQuery) ((JakartaQuery<?>) query).getInternalQuery().getNativeQuery();
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                // A path in the result, the order or the groups is an inner join; one to the end of a reference is not.
                "SELECT a.artist.name FROM Album a ORDER BY a.title => Miles Miles Miles",
                "SELECT a.title, a.artist.name FROM Album a ORDER BY a.title => Agharta,Miles Blue,Miles Brew,Miles",
                "SELECT a.artist FROM Album a ORDER BY a.title => Miles Miles Miles null",
                "SELECT a FROM Album a ORDER BY a.artist.name, a.title => Agharta Blue Brew",
                "SELECT a.artist.name, COUNT(a) FROM Album a GROUP BY a.artist.name => Miles,3",
                "SELECT r.name FROM Album a LEFT JOIN a.artist r ORDER BY a.title => Miles Miles Miles null",
                "SELECT a.title FROM Album a LEFT JOIN a.artist r WHERE r.name IS NULL => Unknown",
                "SELECT a.title FROM Album a WHERE a.artist.name IS NULL => ",
                "SELECT a.title FROM Album a WHERE a.artist IS NULL => Unknown",
                "SELECT a.label.country FROM Album a ORDER BY a.title => null US null null",
                "SELECT a FROM Album a JOIN FETCH a.artist ORDER BY a.title => Agharta Blue Brew",
                "SELECT a FROM Album a LEFT JOIN FETCH a.artist WHERE a.year = 1970 ORDER BY a.title => Brew Unknown",
                "SELECT DISTINCT a FROM Album a JOIN FETCH a.tracks ORDER BY a.title => Agharta Blue Unknown",
                "SELECT DISTINCT a FROM Album a LEFT JOIN FETCH a.tracks WHERE a.year = 1970 ORDER BY a.title => Brew Unknown",
                "SELECT a FROM Album a LEFT JOIN FETCH a.artist LEFT JOIN FETCH a.artist WHERE a.year = 1970 ORDER BY a.title => Brew Unknown",
                "SELECT DISTINCT a FROM Album a LEFT JOIN FETCH a.artist LEFT OUTER JOIN FETCH a.tracks ORDER BY a.title => Agharta Blue Brew Unknown",
                "SELECT a.title FROM Album a WHERE a.title <> 'So''s' AND a.title IN ('''O''''', 'Blue') => Blue",
                "SELECT a.title FROM Album a WHERE a.released < {d '1960-01-01'} => Blue",
                "SELECT a.title, a.year AS Y FROM Album a WHERE a.year <> 1970 ORDER BY Y DESC => Agharta,1975 Blue,1959",
                // Groups.
                "SELECT a.year, COUNT(a) FROM Album a GROUP BY a.year HAVING COUNT(a) > 1 => 1970,2",
                "SELECT a.year FROM Album a GROUP BY a.year HAVING COUNT(a) = 1 ORDER BY a.year => 1959 1975",
                "SELECT a.year, COUNT(a) FROM Album a GROUP BY a.year HAVING a.year > 1960 ORDER BY a.year DESC => 1975,1 1970,2",
                "SELECT a.kind, MIN(a.year) FROM Album a GROUP BY a.kind HAVING NOT (MIN(a.year) < 1960) => LIVE,1975",
                "SELECT MAX(a.year), a.kind FROM Album a GROUP BY a.kind HAVING MAX(a.year) IN (1970, 3) => 1970,STUDIO",
                "SELECT a.year, COUNT(a) AS c FROM Album a GROUP BY a.year HAVING COUNT(a) > 0 ORDER BY c DESC, a.year => 1970,2 1959,1 1975,1",
                "SELECT DISTINCT COUNT(a) FROM Album a GROUP BY a.year ORDER BY COUNT(a) => 1 2",
                "SELECT DISTINCT COUNT(a) FROM Album a GROUP BY a.year HAVING a.year > 1960 ORDER BY COUNT(a) => 1 2",
                "SELECT DISTINCT COUNT(a), a.year FROM Album a GROUP BY a.year ORDER BY a.year => 1,1959 2,1970 1,1975",
                "SELECT MAX(a.kind), MIN(a.kind) FROM Album a => STUDIO,LIVE",
                "SELECT MAX(DISTINCT a.kind) FROM Album a => STUDIO",
                // Collections behind a reference that is null.
                "SELECT a.title FROM Album a WHERE a.artist.genres IS EMPTY => ",
                "SELECT a.title FROM Album a WHERE a.artist.genres IS NOT EMPTY ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE a.artist.version + 1 IS NULL => ",
                "SELECT a.title FROM Album a WHERE -a.artist.version IS NULL => ",
                "SELECT a.title FROM Album a WHERE SIZE(a.artist.genres) = 0 => ",
                "SELECT a.title FROM Album a WHERE 'rock' NOT MEMBER OF a.artist.genres ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE a.label.country NOT MEMBER OF a.artist.genres => Blue",
                "SELECT a.title FROM Album a LEFT JOIN a.artist r WHERE r.genres IS EMPTY => Unknown",
                // A subquery stands for its one value.
                "SELECT a.title FROM Album a WHERE a.year = (SELECT b.year FROM Album b WHERE b.title = 'Blue') => Blue",
                "SELECT a.title FROM Album a WHERE a.year <> (SELECT b.year FROM Album b WHERE b.title = 'Blue') ORDER BY a.title => Agharta Brew Unknown",
                "SELECT a.title FROM Album a WHERE a.year > (SELECT b.year FROM Album b WHERE b.title = 'Blue') + 12 => Agharta",
                "SELECT a.title FROM Album a WHERE a.artist <> (SELECT r FROM Artist r WHERE r.name = 'Bill') ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE a.year <> (SELECT b.year FROM Album b WHERE b.title = 'None') => ",
                "SELECT a.title, (SELECT b.year FROM Album b WHERE b.title = 'Brew') FROM Album a WHERE a.year < 1970 => Blue,1970",
                "SELECT a.title, (SELECT b.year FROM Album b WHERE b.title = 'None') FROM Album a WHERE a.year < 1970 => Blue,null",
                "SELECT a.title FROM Album a WHERE a.year IN (SELECT MIN(b.year) FROM Album b) => Blue",
                "SELECT a.title FROM Album a WHERE a.year NOT IN (SELECT MIN(b.year) FROM Album b WHERE b.title = 'None') => ",
                "SELECT a.title FROM Album a WHERE NOT (a.artist = (SELECT r FROM Artist r WHERE r.name = 'None')) => ",
                // Aggregates of distinct values.
                "SELECT COUNT(DISTINCT a.year) FROM Album a => 3",
                "SELECT COUNT(DISTINCT a.artist) FROM Album a => 1",
                "SELECT SUM(DISTINCT a.year) FROM Album a => 5904",
                "SELECT DISTINCT a.year, a.kind FROM Album a ORDER BY a.year => 1959,STUDIO 1970,STUDIO 1975,LIVE",
                "SELECT SUM(a.year) FROM Album a WHERE a.year > 3000 => null",
                "SELECT a.title FROM Album a WHERE a.year NOT IN (SELECT b.year FROM Album b WHERE b.title LIKE 'A%') ORDER BY a.title => Blue Brew Unknown",
            })
    void a_query_is_evaluated_by_the_store(String text, String expected) {
        Query query = manager.createQuery(text);
        assertEquals(expected == null ? "" : expected, rows(query), () -> "" + nativeQuery(query));
        assertEquals(List.of(), nativeQuery(query).inMemory());
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                // Joined collections have a row for each element.
                "SELECT a.title, t.title FROM Album a JOIN a.tracks t WHERE a.year > 1960 ORDER BY t.title => Agharta,Maiysha Unknown,Noise Agharta,Prelude",
                "SELECT a.title, COUNT(t) FROM Album a LEFT JOIN a.tracks t GROUP BY a.title ORDER BY a.title => Agharta,2 Blue,3 Brew,0 Unknown,1",
                "SELECT a.title FROM Album a JOIN a.tracks t GROUP BY a.title HAVING COUNT(t) > 1 ORDER BY SUM(t.seconds) => Agharta Blue",
                "SELECT a.title, t.title FROM Album a LEFT JOIN a.tracks t ON t.seconds > 700 ORDER BY a.title, t.title => Agharta,Maiysha Agharta,Prelude Blue,null Brew,null Unknown,null",
                "SELECT a.artist.name, t.title FROM Album a JOIN a.tracks t WHERE t.seconds < 550 => Miles,So What",
                "SELECT COUNT(a), COUNT(DISTINCT a) FROM Album a JOIN a.tracks t => 6,3",
                "SELECT DISTINCT a.title, a.year FROM Album a JOIN a.tracks t ORDER BY a.title => Agharta,1975 Blue,1959 Unknown,1970",
                "SELECT SUM(t.seconds) / COUNT(t) FROM Album a JOIN a.tracks t WHERE a.kind = io.mortar.jdo.entities.Album$Kind.LIVE => 895.25",
                "SELECT r.name, g FROM Artist r JOIN r.genres g ORDER BY g => Miles,cool Miles,jazz",
                "SELECT r.name, COUNT(a) FROM Artist r LEFT JOIN r.albums a GROUP BY r.name ORDER BY r.name => Bill,0 Miles,3",
                "SELECT t.title FROM Album a, IN(a.tracks) t WHERE a.year = 1975 ORDER BY t.title => Maiysha Prelude",
                "SELECT a.title, b.title FROM Album a, Album b WHERE a.year = b.year AND a.title < b.title => Brew,Unknown",
                "SELECT a.title FROM Album a JOIN Artist r ON a.artist = r WHERE r.name = 'Miles' ORDER BY a.title => Agharta Blue Brew",
                "SELECT a FROM Album a JOIN FETCH a.tracks WHERE a.year = 1975 => Agharta Agharta",
                "SELECT t.title, INDEX(t) FROM Album a JOIN a.tracks t WHERE a.year = 1975 ORDER BY INDEX(t) DESC => Maiysha,1 Prelude,0",
                "SELECT DISTINCT a FROM Album a LEFT JOIN FETCH a.tracks LEFT JOIN a.artist r WHERE r IS NULL OR r.name = 'Miles' ORDER BY a.title => Agharta Blue Brew Unknown",
                "SELECT a.title, b.title FROM Album a LEFT JOIN FETCH a.artist, Album b WHERE a.year = b.year AND a.title < b.title => Brew,Unknown",
                // A comparison with a literal null is unknown.
                "SELECT a.title FROM Album a WHERE a.label.country IN ('US', NULL) => Blue",
                "SELECT a.title FROM Album a WHERE a.artist.name IN (NULL) => ",
                "SELECT a.title FROM Album a WHERE a.artist.name NOT IN ('Bill', NULL) => ",
                "SELECT a.title FROM Album a WHERE NOT (a.artist.name IN (NULL, 'Bill')) => ",
                "SELECT a.title FROM Album a WHERE a.artist = NULL OR a.artist <> NULL => ",
                "SELECT a.title FROM Album a WHERE NULLIF(a.title, 'in (NULL)') IN ('= NULL', 'Blue') AND a.artist IS NOT NULL => Blue",
                // Maps.
                "SELECT r.name, KEY(p), VALUE(p) FROM Artist r JOIN r.prizes p ORDER BY KEY(p) => Miles,Grammy,8 Miles,Polar,1",
                "SELECT r.name, VALUE(p) FROM Artist r LEFT JOIN r.prizes p ON KEY(p) = 'Polar' ORDER BY r.name => Bill,null Miles,1",
                "SELECT ENTRY(p) FROM Artist r JOIN r.prizes p WHERE p > 1 => Grammy=8",
                "SELECT k FROM Artist r JOIN KEY(r.prizes) k ORDER BY k => Grammy Polar",
                // Classes.
                "SELECT m.code FROM Medium m WHERE TYPE(m) IN (Tape, Vinyl) AND m.price > 4 ORDER BY m.code => t1 v1",
                "SELECT m.code FROM Medium m WHERE TYPE(m) NOT IN (Tape) => v1",
                // The class of null is unknown.
                "SELECT a.title FROM Album a WHERE TYPE(a.artist) <> Album ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE NOT (TYPE(a.artist) = Album) ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE TYPE(a.artist) NOT IN (Album) ORDER BY a.title => Agharta Blue Brew",
                "SELECT m.code FROM Medium m WHERE TREAT(m AS Tape).minutes > 60 => t1",
                "SELECT m.code FROM Medium m WHERE TREAT(m AS Tape).length > io.mortar.jdo.entities.Tape$Length.SHORT => t1",
                "SELECT m.code FROM Medium m WHERE TYPE(m) = Tape ORDER BY TREAT(m AS Tape).length => t2 t1",
                "SELECT m.code FROM Tape m WHERE EXISTS (SELECT v FROM Vinyl v WHERE m.length > io.mortar.jdo.entities.Tape$Length.SHORT) => t1",
                // Groups and aggregates.
                "SELECT a.kind, COUNT(DISTINCT a.year) FROM Album a GROUP BY a.kind ORDER BY a.kind => LIVE,1 STUDIO,2",
                // Enumerations have the order of their names, as in the store.
                "SELECT MAX(a.kind), MIN(a.kind) FROM Album a WHERE SUBSTRING(a.title, 1, 1) <> 'x' => STUDIO,LIVE",
                "SELECT a.title FROM Album a ORDER BY a.kind, SUBSTRING(a.title, 1, 2) => Agharta Blue Brew Unknown",
                "SELECT a.title FROM Album a WHERE a.kind > io.mortar.jdo.entities.Album$Kind.LIVE AND SUBSTRING(a.title, 1, 1) = 'B' ORDER BY a.title => Blue Brew",
                "SELECT MAX(a.year) - MIN(a.year) FROM Album a => 16",
                "SELECT AVG(a.year), COUNT(a) FROM Album a WHERE SUBSTRING(a.title, 1, 1) = 'B' => 1964.5,2",
                "SELECT SUM(a.year) FROM Album a WHERE SUBSTRING(a.title, 1, 1) = 'Z' => null",
                "SELECT a.label.country, COUNT(a) FROM Album a WHERE SUBSTRING(a.title, 1, 1) <> 'A' GROUP BY a.label.country ORDER BY COUNT(a) => US,1 null,2",
                // Subqueries for each candidate.
                "SELECT a.title FROM Album a WHERE NOT EXISTS (SELECT t FROM a.tracks t WHERE t.seconds > 500) ORDER BY a.title => Brew Unknown",
                "SELECT a.title FROM Album a WHERE EXISTS (SELECT t FROM Track t WHERE t.title LIKE 'P%' AND t MEMBER OF a.tracks) => Agharta",
                "SELECT r.name FROM Artist r WHERE (SELECT COUNT(a) FROM Album a WHERE a.artist = r) > 1 => Miles",
                "SELECT r.name, (SELECT COUNT(a) FROM Album a WHERE a.artist = r) FROM Artist r ORDER BY r.name => Bill,0 Miles,3",
                "SELECT a.title FROM Album a WHERE a.year > (SELECT AVG(b.year) FROM Album b WHERE b.artist = a.artist) ORDER BY a.title => Agharta Brew",
                "SELECT a.title FROM Album a WHERE a.year >= ALL (SELECT b.year FROM Album b) => Agharta",
                // Patterns.
                "SELECT a.title FROM Album a WHERE a.title LIKE 'B_ue' => Blue",
                "SELECT a.title FROM Album a WHERE a.title LIKE 'B.%' AND SUBSTRING(a.title, 1, 1) = 'B' => ",
                "SELECT a.title FROM Album a WHERE a.title LIKE 'B(%' AND SUBSTRING(a.title, 1, 1) = 'B' => ",
                "SELECT a.title FROM Album a WHERE a.title LIKE '!B!l_e' ESCAPE '!' => Blue",
                "SELECT a.title FROM Album a WHERE a.title LIKE 'B!_u_' ESCAPE '!' => ",
                // Functions.
                "SELECT SUBSTRING(a.artist.name, 1, 2) FROM Album a ORDER BY SUBSTRING(a.title, 2) => Mi Mi Mi",
                "SELECT a.title FROM Album a WHERE LOWER(SUBSTRING(a.title, 2, 20)) = 'lue' => Blue",
                "SELECT a.title FROM Album a WHERE FUNCTION('UPPER', a.title) = 'BLUE' => Blue",
                "SELECT COUNT(a) FROM Album a WHERE a.released < LOCAL_DATE AND a.released < LOCAL_DATETIME => 4",
                "SELECT CONCAT(a.artist.name, '-', a.title) FROM Album a WHERE LOCATE('g', a.title) = 2 => Miles-Agharta",
                "SELECT NULLIF(a.year, 1970), COALESCE(a.label.country, 'none') FROM Album a ORDER BY a.title => 1975,none 1959,US null,none null,none",
                "SELECT TRIM(BOTH 'B' FROM a.title), TRIM(LEADING 'B' FROM a.title), TRIM(TRAILING 'e' FROM a.title) FROM Album a WHERE a.year = 1959 => lue,lue,Blu",
                "SELECT SIGN(a.year - 1970), SIGN(1960 - a.year), POWER(a.year, 2) FROM Album a WHERE a.title = 'Agharta' => 1,-1,3900625.0",
                "SELECT CEILING(a.year / 2.0), FLOOR(a.year / 2.0), FLOOR(a.year), ROUND(a.year / 8.0, 2) FROM Album a WHERE a.year = 1959 => 980,979,1959,244.88",
                "SELECT EXP(NULLIF(a.year, 1959)), LN(NULLIF(a.year, 1959)), EXP(a.year - 1959), LN(1) FROM Album a WHERE a.year = 1959 => null,null,1.0,0.0",
                "SELECT CEILING(t.seconds), FLOOR(t.seconds), ROUND(t.seconds, 0) FROM Album a JOIN a.tracks t WHERE t.title = 'Prelude' => 1001.0,1000.0,1001.0",
                "SELECT EXTRACT(DATE FROM a.released), 'EXTRACT(DATE FROM x)' FROM Album a WHERE EXTRACT( date FROM a.released) = {d '1959-01-01'} => 1959-01-01,EXTRACT(DATE FROM x)",
                "SELECT EXTRACT(YEAR FROM a.released), EXTRACT(QUARTER FROM a.released), EXTRACT(WEEK FROM a.released) FROM Album a WHERE a.title = 'Blue' => 1959,1,1",
                "SELECT a.title FROM Album a WHERE EXTRACT(MONTH FROM a.released) = 1 AND EXTRACT(DAY FROM a.released) = 1 AND a.year < 1970 => Blue",
                // A join finds the elements of one class, and follows several members.
                "SELECT r.name, a.title FROM Artist r JOIN TREAT(r.albums AS Album) a WHERE a.year < 1970 => Miles,Blue",
                "SELECT r.name, t.title FROM Artist r JOIN r.albums.tracks t WHERE t.seconds > 900 => Miles,Prelude",
                "SELECT ABS(a.year - 2000), MOD(a.year, 10), LENGTH(a.title) FROM Album a WHERE TRIM(a.title) = 'Blue' => 41,9,4",
                "SELECT CASE WHEN a.year > 1960 THEN 'new' ELSE 'old' END FROM Album a ORDER BY a.title => new old new new",
                "SELECT a.title FROM Album a WHERE TYPE(a) = Album AND a.title NOT LIKE '_r%' ORDER BY a.title => Agharta Blue Unknown",
                "SELECT a.title FROM Album a WHERE SIZE(a.artist.albums) > 2 ORDER BY a.title => Agharta Blue Brew",
                // Unknown is not true, and neither is its negation.
                "SELECT a.title FROM Album a WHERE NOT (SUBSTRING(a.artist.name, 1, 1) = 'X') ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE a.label.country <> 'DE' AND SUBSTRING(a.title, 1, 1) <> 'x' => Blue",
                "SELECT a.title FROM Album a WHERE a.artist.albums IS EMPTY => ",
                // A path is an inner join, also of a reference that an outer join follows.
                "SELECT a.title FROM Album a LEFT JOIN a.artist r WHERE a.artist.version IS NULL => ",
                "SELECT a.title FROM Album a WHERE a.artist.genres IS EMPTY AND SUBSTRING(a.title, 1, 1) <> 'x' => ",
                "SELECT a.title FROM Album a WHERE a.label.country NOT MEMBER OF a.artist.genres AND SUBSTRING(a.title, 1, 1) <> 'x' => Blue",
                // A subquery stands for its one value.
                "SELECT a.title FROM Album a WHERE a.year = (SELECT b.year FROM Album b WHERE b.title = 'Blue' AND b.id = a.id) => Blue",
                "SELECT a.title FROM Album a WHERE a.year <> (SELECT b.year FROM Album b WHERE b.title = 'Brew' AND b.id <> a.id) ORDER BY a.title => Agharta Blue",
                "SELECT a.title FROM Album a WHERE (SELECT b.year FROM Album b WHERE b.id = a.id) * 1 < 1960 => Blue",
                "SELECT a.title, (SELECT r.name FROM Artist r WHERE r = a.artist) FROM Album a WHERE a.year = 1970 ORDER BY a.title => Brew,Miles Unknown,null",
                "SELECT COALESCE((SELECT r.name FROM Artist r WHERE r = a.artist), 'none') FROM Album a WHERE a.year = 1970 ORDER BY a.title => Miles none",
                "SELECT CONCAT(a.title, (SELECT r.name FROM Artist r WHERE r = a.artist)) FROM Album a WHERE a.year = 1959 => BlueMiles",
                "SELECT a.title FROM Album a WHERE LENGTH((SELECT r.name FROM Artist r WHERE r = a.artist)) > 4 ORDER BY a.title => Agharta Blue Brew",
                "SELECT a.title FROM Album a WHERE (SELECT r.name FROM Artist r WHERE r = a.artist) IN ('Miles', 'Bill') ORDER BY a.title => Agharta Blue Brew",
                // One row, whose value is null.
                "SELECT a.title FROM Album a WHERE a.year < 1960 AND EXISTS (SELECT MAX(b.year) FROM Album b WHERE b.id = a.id + 1000) => Blue",
                "SELECT a.title FROM Album a WHERE a.year > ALL (SELECT MAX(b.year) FROM Album b WHERE b.id = a.id + 1000) => ",
                "SELECT a.title FROM Album a WHERE (SELECT b.year FROM Album b WHERE b.title = 'None') IS NULL AND a.year < 1960 => Blue",
            })
    void a_query_is_evaluated_in_memory(String text, String expected) {
        Query query = manager.createQuery(text);
        assertEquals(expected == null ? "" : expected, rows(query), () -> "" + nativeQuery(query));
        assertTrue(!nativeQuery(query).inMemory().isEmpty(), () -> "" + nativeQuery(query));
    }

    /** What a query creates. */
    public record Named(String name, Integer year) {
        public Named {
            if (year != null && year > 1970) {
                throw new IllegalArgumentException("too late");
            }
        }
    }

    @Test
    void an_object_that_cannot_be_created_is_an_error_that_names_its_class() {
        String created = "SELECT NEW " + Named.class.getName();
        assertEquals(
                "Named[name=Blue, year=1959]",
                rows(manager.createQuery(created + "(a.title, a.year) FROM Album a WHERE a.year = 1959")));
        for (String filter : List.of("", " WHERE SUBSTRING(a.title, 1, 1) = 'B'")) {
            String message = assertThrows(
                            PersistenceException.class,
                            () -> rows(manager.createQuery(created + "(a.year, a.title) FROM Album a" + filter)))
                    .getMessage();
            assertTrue(
                    message.contains(Named.class.getName())
                            && message.contains("[java.lang.Integer, java.lang.String]"),
                    message);
        }
        String failed = assertThrows(
                        PersistenceException.class,
                        () -> rows(manager.createQuery(created + "(a.title, a.year) FROM Album a")))
                .getMessage();
        assertTrue(failed.contains("too late"), failed);
    }

    @Test
    void null_is_assigned_by_a_bulk_update() {
        manager.getTransaction().begin();
        try {
            manager.createQuery("UPDATE Album a SET a.artist = NULL WHERE a.title = 'Blue'")
                    .executeUpdate();
            assertEquals(
                    List.of("Blue", "Unknown"),
                    manager.createQuery("SELECT a.title FROM Album a WHERE a.artist IS NULL ORDER BY a.title")
                            .getResultList());
        } finally {
            manager.getTransaction().rollback();
        }
    }

    @Test
    void a_parameter_of_in_is_a_value_or_a_list() {
        for (String filter : List.of("", " AND SUBSTRING(a.title, 1, 1) <> 'x'")) {
            String text = "SELECT a.title FROM Album a WHERE a.title IN (:p)" + filter;
            assertEquals("Blue", rows(manager.createQuery(text).setParameter("p", "Blue")));
            Query list = manager.createQuery(text.replace("(:p)", ":p")).setParameter("p", List.of("Blue", "Red"));
            assertEquals("Blue", rows(list));
            Query none =
                    manager.createQuery(text.replace("IN (:p)", "NOT IN :p")).setParameter("p", null);
            assertEquals("", rows(none));
        }
    }

    @Test
    void an_average_is_a_double() {
        assertInstanceOf(
                Double.class,
                manager.createQuery("SELECT AVG(a.year * 1.5) FROM Album a").getSingleResult());
        assertInstanceOf(
                Double.class,
                manager.createQuery("SELECT AVG(DISTINCT a.year * 1.5) FROM Album a")
                        .getSingleResult());
        assertInstanceOf(
                Double.class,
                manager.createQuery("SELECT AVG(a.year * 1.5) FROM Album a WHERE SUBSTRING(a.title, 1, 1) = 'B'")
                        .getSingleResult());
    }

    @Test
    void literals_and_absolute_values_have_the_types_of_java() {
        Object[] row = (Object[]) manager.createQuery(
                        "SELECT 1.5, 1.5f, COALESCE(NULLIF(1, 1), 0.25), ABS(a.year), ABS(-2.5), -(2.5f), 123456789.125 FROM Album a WHERE a.year = 1959"
                                + " AND 123456789.12 < 123456789.125 AND '1.5' <> '1.5d'")
                .setMaxResults(1)
                .getSingleResult();
        assertEquals(List.of(1.5, 1.5f, 0.25, 1959, 2.5, -2.5f, 123456789.125), List.of(row));
    }

    @Test
    void the_type_of_an_entity_is_its_class() {
        assertEquals(
                List.of(Tape.class, Tape.class, Vinyl.class),
                manager.createQuery("SELECT TYPE(m) FROM Medium m ORDER BY m.code")
                        .getResultList());
    }

    @Test
    void the_side_of_a_relation_that_is_stored_decides_about_joins() {
        manager.getTransaction().begin();
        try {
            Artist nina = new Artist("Nina");
            manager.persist(nina);
            assertEquals(List.of(), nina.getAlbums());
            manager.persist(new Album("Pastel", 1971, nina));
            assertEquals(
                    List.of("Pastel"),
                    manager.createQuery(
                                    "SELECT a.title FROM Artist r JOIN r.albums a WHERE r.name = 'Nina' AND SIZE(r.albums) = 1")
                            .getResultList());
        } finally {
            manager.getTransaction().rollback();
        }
    }

    @Test
    void subqueries_of_the_criteria_api_are_evaluated() {
        CriteriaBuilder builder = manager.getCriteriaBuilder();
        CriteriaQuery<Album> query = builder.createQuery(Album.class);
        Root<Album> album = query.from(Album.class);
        album.alias("a");
        Subquery<Double> average = query.subquery(Double.class);
        Root<Album> other = average.from(Album.class);
        other.alias("b");
        average.select(builder.avg(other.get("year")));
        query.select(album).where(builder.gt(album.get("year"), average));
        assertEquals(
                "Agharta Brew Unknown",
                Arrays.stream(rows(manager.createQuery(query)).split(" "))
                        .sorted()
                        .collect(Collectors.joining(" ")));
        query.where(builder.exists(later(builder, query, album)));
        assertEquals(
                "Blue Brew",
                Arrays.stream(rows(manager.createQuery(query)).split(" "))
                        .sorted()
                        .collect(Collectors.joining(" ")));
    }

    /** The later albums of the artist of an album. */
    private static Subquery<Album> later(CriteriaBuilder builder, CriteriaQuery<Album> query, Root<Album> album) {
        Subquery<Album> later = query.subquery(Album.class);
        Root<Album> other = later.from(Album.class);
        other.alias("c");
        return later.select(other)
                .where(builder.and(
                        builder.equal(other.get("artist"), album.get("artist")),
                        builder.gt(other.get("year"), album.get("year"))));
    }

    @Test
    void a_range_is_taken_of_filtered_groups() {
        Query query =
                manager.createQuery("SELECT a.year FROM Album a GROUP BY a.year HAVING COUNT(a) > 0 ORDER BY a.year");
        assertEquals("1970 1975", rows(query.setFirstResult(1).setMaxResults(2)));
        Query distinct =
                manager.createQuery("SELECT DISTINCT COUNT(a) FROM Album a GROUP BY a.year ORDER BY COUNT(a) DESC");
        assertEquals("1", rows(distinct.setFirstResult(1).setMaxResults(2)));
        Query joined = manager.createQuery("SELECT t.title FROM Album a JOIN a.tracks t ORDER BY t.title");
        assertEquals("Freddie Maiysha", rows(joined.setFirstResult(1).setMaxResults(2)));
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "SELECT a.title || 'x', a.year FROM Album a => CONCAT",
                "SELECT a.title, INDEX(a) FROM Album a => INDEX",
                "SELECT EXTRACT(HOUR FROM a.released) FROM Album a => HOUR",
                "SELECT SIGN(a.title) FROM Album a => SIGN",
                "SELECT TRIM(BOTH 'xy' FROM a.title) FROM Album a => TRIM",
                "SELECT FUNCTION('NO_SUCH', a.title) FROM Album a => NO_SUCH",
                "SELECT a FROM Album a WHERE a.year = (SELECT b.year FROM Album b) => 4 values where one is needed",
                "SELECT a FROM Album a WHERE a.year > (SELECT b.year FROM Album b WHERE b.artist = a.artist) => 3 values",
                "SELECT a FROM Album a WHERE SUM(a.year) > 3 AND SUBSTRING(a.title, 1) = 'x' => SUM",
            })
    void what_is_not_supported_is_refused_with_the_expression(String text, String part) {
        String message = assertThrows(PersistenceException.class, () -> rows(manager.createQuery(text)))
                .getMessage();
        assertTrue(message.contains(part), message);
    }
}
