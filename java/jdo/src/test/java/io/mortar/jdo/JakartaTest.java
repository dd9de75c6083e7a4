package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Album;
import io.mortar.jdo.entities.Artist;
import io.mortar.jdo.entities.Country;
import io.mortar.jdo.entities.Crate;
import io.mortar.jdo.entities.Guest;
import io.mortar.jdo.entities.Label;
import io.mortar.jdo.entities.Medium;
import io.mortar.jdo.entities.Passport;
import io.mortar.jdo.entities.Pen;
import io.mortar.jdo.entities.Reading;
import io.mortar.jdo.entities.Room;
import io.mortar.jdo.entities.Ruler;
import io.mortar.jdo.entities.Tape;
import io.mortar.jdo.entities.Track;
import io.mortar.jdo.entities.Vinyl;
import io.mortar.jdo.query.NativeQuery;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.LockModeType;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.Persistence;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.RollbackException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import org.datanucleus.api.jakarta.JakartaQuery;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Jakarta Persistence 3.1, by its chapters: entities, operations, queries, locking. */
class JakartaTest {
    private final EntityManagerFactory factory = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));

    @AfterEach
    void close() {
        factory.close();
    }

    private <T> T call(Function<EntityManager, T> body) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            T result = body.apply(manager);
            manager.getTransaction().commit();
            return result;
        } finally {
            if (manager.getTransaction().isActive()) {
                manager.getTransaction().rollback();
            }
            manager.close();
        }
    }

    private void run(Consumer<EntityManager> body) {
        call(manager -> {
            body.accept(manager);
            return null;
        });
    }

    private Long miles() {
        return call(manager -> {
            Artist miles = new Artist("Miles");
            miles.getGenres().addAll(Set.of("jazz", "cool"));
            miles.add("Kind of Blue", 1959).setLabel(new Label("Columbia", "US"));
            miles.add("Bitches Brew", 1970);
            Album live = miles.add("Agharta", 1975);
            live.setKind(Album.Kind.LIVE);
            live.getTracks().addAll(List.of(new Track("Prelude", 1000.5), new Track("Maiysha", 790)));
            manager.persist(miles);
            assertTrue(miles.isGreeted());
            return miles.getId();
        });
    }

    @Test
    void an_entity_is_persisted_with_what_it_cascades_to() {
        Long id = miles();
        assertNotNull(id);
        run(manager -> {
            Artist miles = manager.find(Artist.class, id);
            assertEquals("Miles", miles.getName());
            assertEquals(Set.of("jazz", "cool"), miles.getGenres());
            assertEquals(
                    List.of("Kind of Blue", "Bitches Brew", "Agharta"),
                    miles.getAlbums().stream().map(Album::getTitle).toList());
            assertSame(miles, miles.getAlbums().get(0).getArtist());
            assertEquals("US", miles.getAlbums().get(0).getLabel().getCountry());
            assertNull(miles.getAlbums().get(1).getLabel());
            assertEquals("Maiysha", miles.getAlbums().get(2).getTracks().get(1).getTitle());
            assertNull(manager.find(Artist.class, 4711L));
        });
    }

    @Test
    void values_are_in_the_order_that_is_asked_for() {
        Long id = miles();
        run(manager -> {
            Artist miles = manager.find(Artist.class, id);
            miles.getInstruments().addAll(List.of("trumpet", "flugelhorn", "piano"));
            miles.getAwards().addAll(List.of(1960, 1982, 1970));
        });
        run(manager -> {
            Artist miles = manager.find(Artist.class, id);
            assertEquals(List.of("flugelhorn", "piano", "trumpet"), List.copyOf(miles.getInstruments()));
            assertEquals(List.of(1982, 1970, 1960), List.copyOf(miles.getAwards()));
            miles.getInstruments().remove(1);
            miles.getInstruments().add("bell");
        });
        run(manager -> assertEquals(
                List.of("bell", "flugelhorn", "trumpet"),
                List.copyOf(manager.find(Artist.class, id).getInstruments())));
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void a_list_of_entities_is_read_after_its_entity_manager_was_closed(boolean inTransaction) {
        miles();
        EntityManager manager = factory.createEntityManager();
        if (inTransaction) {
            manager.getTransaction().begin();
        }
        List<Album> albums = manager.createQuery("SELECT a FROM Album a ORDER BY a.year", Album.class)
                .getResultList();
        if (inTransaction) {
            manager.getTransaction().commit();
        }
        manager.close();
        assertEquals(3, albums.size());
        assertEquals(
                List.of("Kind of Blue", "Bitches Brew", "Agharta"),
                albums.stream().map(Album::getTitle).toList());
        assertEquals("Agharta", albums.get(2).getTitle());
    }

    @Test
    void orphans_and_cascaded_entities_are_removed() {
        Long id = miles();
        run(manager -> manager.find(Artist.class, id).getAlbums().remove(0));
        run(manager -> {
            assertEquals(2L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult());
            manager.remove(manager.find(Artist.class, id));
        });
        run(manager -> assertEquals(
                0L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult()));
    }

    @Test
    void a_sorted_list_has_no_orphans_and_a_filtered_one_has() {
        Long id = miles();
        run(manager -> manager.find(Artist.class, id).getAlbums().sort(Comparator.comparing(Album::getTitle)));
        run(manager -> assertEquals(
                3L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult()));
        run(manager -> manager.find(Artist.class, id).getAlbums().removeIf(album -> album.getYear() > 1960));
        run(manager -> assertEquals(
                1L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult()));
    }

    @Test
    void a_subclass_chooses_the_type_of_a_member() {
        run(manager -> {
            manager.persist(new Country(39));
            manager.persist(new Crate(7L));
        });
        run(manager -> {
            assertEquals(
                    39,
                    manager.createQuery("SELECT c FROM Country c", Country.class)
                            .getSingleResult()
                            .getCode());
            assertEquals(
                    1,
                    manager.createQuery("SELECT c FROM Crate c WHERE c.code > 6", Crate.class)
                            .getResultList()
                            .size());
        });
        assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Crate(7L))));
    }

    @Test
    void values_from_a_mapped_superclass_are_unique_within_each_entity() {
        run(manager -> {
            manager.persist(new Pen(1, "a"));
            manager.persist(new Ruler(1, "a"));
        });
        run(manager -> {
            assertEquals("a", manager.find(Pen.class, 1L).getLabel());
            assertEquals("a", manager.find(Ruler.class, 1L).getLabel());
            assertNull(manager.find(Ruler.class, 2L));
        });
        assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Pen(1, "b"))));
        assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Ruler(2, "a"))));
        run(manager -> manager.persist(new Ruler(2, "b")));
    }

    @Test
    void a_detached_entity_is_merged() {
        Long id = miles();
        Artist detached = call(manager -> {
            Artist artist = manager.find(Artist.class, id);
            artist.getName();
            return artist;
        });
        detached.setName("Davis");
        run(manager -> {
            Artist merged = manager.merge(detached);
            assertEquals("Davis", merged.getName());
        });
        run(manager -> {
            assertEquals("Davis", manager.find(Artist.class, id).getName());
            assertTrue(manager.find(Artist.class, id).getVersion() > 1);
        });
    }

    @ParameterizedTest
    @CsvSource(
            delimiterString = "=>",
            quoteCharacter = '"',
            value = {
                "a.year > 1960 => Agharta Bitches Brew",
                "a.year BETWEEN 1950 AND 1970 => Bitches Brew Kind of Blue",
                "a.title LIKE 'B%' => Bitches Brew",
                "a.title NOT LIKE '%B%' => Agharta",
                "a.title LIKE '%of%' => Kind of Blue",
                "a.year IN (1959, 1975) => Agharta Kind of Blue",
                "a.year NOT IN (1959, 1975) => Bitches Brew",
                "a.label.country = 'US' => Kind of Blue",
                "a.label.country <> 'US' => ",
                "NOT (a.label.country = 'US') => ",
                "a.label IS NULL => Agharta Bitches Brew",
                "a.artist.name = 'Miles' AND a.year < 1960 => Kind of Blue",
                "NOT (a.year > 1960 OR a.title = 'x') => Kind of Blue",
                "LOWER(a.title) = 'agharta' => Agharta",
                "LENGTH(a.title) > 10 => Bitches Brew Kind of Blue",
                "a.tracks IS EMPTY => Bitches Brew Kind of Blue",
                "a.tracks IS NOT EMPTY => Agharta",
                "a.year + 5 = 1975 => Bitches Brew",
                "'jazz' MEMBER OF a.artist.genres AND a.year = 1970 => Bitches Brew",
                "a.year = (SELECT MAX(b.year) FROM Album b) => Agharta",
            })
    void a_condition_of_jpql_is_evaluated(String condition, String expected) {
        miles();
        run(manager -> {
            var query =
                    manager.createQuery("SELECT a FROM Album a WHERE " + condition + " ORDER BY a.title", Album.class);
            List<String> titles =
                    query.getResultList().stream().map(Album::getTitle).toList();
            var nativeQuery =
                    (NativeQuery) ((JakartaQuery<?>) query).getInternalQuery().getNativeQuery();
            assertEquals(expected == null ? "" : expected, String.join(" ", titles), nativeQuery::toString);
            assertEquals(List.of(), nativeQuery.inMemory());
        });
    }

    @Test
    void results_of_jpql_are_columns_aggregates_and_constructed_objects() {
        miles();
        run(manager -> {
            assertEquals(3L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult());
            assertEquals(
                    1968.0,
                    manager.createQuery("SELECT AVG(a.year) FROM Album a").getSingleResult());
            List<?> rows = manager.createQuery("SELECT a.kind, COUNT(a) FROM Album a GROUP BY a.kind ORDER BY a.kind")
                    .getResultList();
            assertEquals(2, rows.size());
            assertEquals("[LIVE, 1]", Arrays.toString((Object[]) rows.get(0)));
            List<String> names = manager.createQuery("SELECT a.artist.name FROM Album a", String.class)
                    .getResultList();
            assertEquals(List.of("Miles", "Miles", "Miles"), names);
            List<?> made = manager.createQuery(
                            "SELECT NEW io.mortar.jdo.JakartaTest$Title(a.title, a.year) FROM Album a WHERE a.year = 1959")
                    .getResultList();
            assertEquals(new Title("Kind of Blue", 1959), made.get(0));
            assertEquals(
                    1,
                    manager.createQuery("SELECT a FROM Album a ORDER BY a.year")
                            .setFirstResult(2)
                            .setMaxResults(5)
                            .getResultList()
                            .size());
            assertEquals(
                    1,
                    manager.createNamedQuery("Album.after", Album.class)
                            .setParameter("year", 1974)
                            .getResultList()
                            .size());
            assertEquals(
                    1,
                    manager.createQuery("SELECT a FROM Album a WHERE a.kind = :kind")
                            .setParameter("kind", Album.Kind.LIVE)
                            .getResultList()
                            .size());
            assertEquals(
                    1,
                    manager.createQuery("SELECT DISTINCT a FROM Album a JOIN a.tracks t WHERE t.seconds > 900")
                            .getResultList()
                            .size());
            assertEquals(
                    List.of("Agharta", "Agharta"),
                    manager.createQuery("SELECT a.title FROM Album a JOIN a.tracks t ORDER BY t.title")
                            .getResultList());
            assertEquals(
                    List.of("Agharta", "Agharta"),
                    manager.createQuery("SELECT a.title FROM Album a LEFT JOIN a.tracks t ORDER BY t.title NULLS LAST")
                            .getResultList()
                            .subList(0, 2));
            assertEquals(
                    1790.5,
                    manager.createQuery("SELECT SUM(t.seconds) FROM Album a JOIN a.tracks t")
                            .getSingleResult());
            assertEquals(
                    3,
                    manager.createQuery("SELECT a FROM Album a, Artist r WHERE a.artist = r")
                            .getResultList()
                            .size());
            assertEquals(
                    3,
                    manager.createQuery("SELECT a FROM Album a JOIN a.artist r WHERE r.name = ?1")
                            .setParameter(1, "Miles")
                            .getResultList()
                            .size());
        });
    }

    /** A result. */
    public static final class Title {
        private final String title;
        private final int year;

        public Title(String title, Integer year) {
            this.title = title;
            this.year = year;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Title same && same.year == year && same.title.equals(title);
        }

        @Override
        public int hashCode() {
            return year;
        }

        @Override
        public String toString() {
            return title + year;
        }
    }

    @Test
    void bulk_updates_and_deletes_are_counted() {
        miles();
        run(manager -> assertEquals(
                2,
                manager.createQuery("UPDATE Album a SET a.year = a.year + 1 WHERE a.year > 1960")
                        .executeUpdate()));
        run(manager -> assertEquals(
                1976, manager.createQuery("SELECT MAX(a.year) FROM Album a").getSingleResult()));
        run(manager -> assertEquals(
                1,
                manager.createQuery("DELETE FROM Album a WHERE a.year = 1959").executeUpdate()));
        run(manager -> assertEquals(
                2L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult()));
    }

    /**
     * Jakarta Persistence 3.1, section 4.10: the operation is of the database, whatever the context does afterwards.
     */
    @Test
    void a_bulk_delete_remains_when_the_context_is_cleared() {
        miles();
        run(manager -> {
            assertEquals(3, manager.createQuery("DELETE FROM Album a").executeUpdate());
            manager.clear();
            assertEquals(0L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult());
        });
        run(manager -> assertEquals(
                0L, manager.createQuery("SELECT COUNT(a) FROM Album a").getSingleResult()));
    }

    @Test
    void a_bulk_update_changes_members_of_embedded_objects() {
        miles();
        run(manager -> assertEquals(
                1,
                manager.createQuery("UPDATE Album a SET a.label.country = 'DE' WHERE a.label.company = 'Columbia'")
                        .executeUpdate()));
        run(manager -> assertEquals(
                List.of("DE"),
                manager.createQuery("SELECT a.label.country FROM Album a WHERE a.year = 1959")
                        .getResultList()));
        assertThrows(
                PersistenceException.class,
                () -> run(manager -> manager.createQuery("UPDATE Album a SET a.artist.name = 'Bill'")
                        .executeUpdate()));
    }

    @Test
    void an_entity_with_an_embedded_object_is_refreshed() {
        miles();
        run(manager -> {
            Album blue = manager.createQuery("SELECT a FROM Album a WHERE a.year = 1959", Album.class)
                    .getSingleResult();
            blue.setLabel(new Label("Other", "DE"));
            manager.refresh(blue);
            assertEquals("US", blue.getLabel().getCountry());
        });
    }

    /** Jakarta Persistence 3.1, section 7.10. */
    @Test
    void a_factory_has_a_cache_that_keeps_nothing() {
        Long id = miles();
        run(manager -> assertNotNull(manager.find(Artist.class, id)));
        assertFalse(factory.getCache().contains(Artist.class, id));
        factory.getCache().evict(Artist.class, id);
        factory.getCache().evictAll();
    }

    @Test
    void a_value_that_a_column_must_have_is_not_null() {
        assertThrows(PersistenceException.class, () -> run(manager -> manager.persist(new Artist(null))));
        Long id = miles();
        assertThrows(
                PersistenceException.class,
                () -> run(manager ->
                        manager.createQuery("UPDATE Artist r SET r.name = NULL").executeUpdate()));
        run(manager -> assertEquals("Miles", manager.find(Artist.class, id).getName()));
    }

    @Test
    void criteria_are_translated() {
        miles();
        run(manager -> {
            var builder = manager.getCriteriaBuilder();
            var query = builder.createQuery(Album.class);
            var album = query.from(Album.class);
            query.select(album)
                    .where(builder.gt(album.<Integer>get("year"), 1960))
                    .orderBy(builder.asc(album.get("year")));
            assertEquals(
                    List.of(1970, 1975),
                    manager.createQuery(query).getResultList().stream()
                            .map(Album::getYear)
                            .toList());
        });
    }

    @Test
    void a_conflict_about_entities_that_were_detached_is_an_optimistic_lock_exception() {
        List<Long> ids = List.of(1L, 2L);
        run(manager -> ids.forEach(id -> manager.persist(new Pen(id, "old " + id))));
        EntityManager first = factory.createEntityManager();
        first.getTransaction().begin();
        ids.forEach(id -> first.find(Pen.class, id).setLabel("first " + id));
        first.flush();
        first.clear();
        ids.forEach(id -> assertEquals("first " + id, first.find(Pen.class, id).getLabel()));
        run(second -> ids.forEach(id -> second.find(Pen.class, id).setLabel("second " + id)));
        RollbackException error = assertThrows(RollbackException.class, first.getTransaction()::commit);
        assertInstanceOf(OptimisticLockException.class, error.getCause());
        first.close();
    }

    @Test
    void a_conflict_is_an_optimistic_lock_exception() {
        Long id = miles();
        EntityManager first = factory.createEntityManager();
        EntityManager second = factory.createEntityManager();
        first.getTransaction().begin();
        second.getTransaction().begin();
        first.find(Artist.class, id).setName("A");
        second.find(Artist.class, id).setName("B");
        first.getTransaction().commit();
        RollbackException error = assertThrows(RollbackException.class, second.getTransaction()::commit);
        assertInstanceOf(OptimisticLockException.class, error.getCause());
        assertTrue(
                error.getCause().getMessage().contains("Artist"),
                error.getCause().getMessage());
        assertFalse(second.getTransaction().isActive());
        first.close();
        second.close();
    }

    @Test
    void a_new_transaction_reads_anew_if_values_are_not_retained() {
        Long id = miles();
        EntityManager manager = factory.createEntityManager(Map.of("datanucleus.RetainValues", "false"));
        manager.getTransaction().begin();
        Artist miles = manager.find(Artist.class, id);
        assertEquals("Miles", miles.getName());
        manager.getTransaction().commit();
        run(other -> other.find(Artist.class, id).setName("Davis"));
        manager.getTransaction().begin();
        assertEquals("Davis", miles.getName());
        manager.getTransaction().commit();
        manager.close();
    }

    @Test
    void a_locked_entity_is_current() {
        Long id = miles();
        run(manager -> {
            Artist miles = manager.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE);
            miles.setName("C");
            manager.lock(miles, LockModeType.PESSIMISTIC_WRITE);
        });
        run(manager -> assertEquals("C", manager.find(Artist.class, id).getName()));
    }

    @Test
    void subclasses_are_queried_together_and_alone() {
        run(manager -> {
            manager.persist(new Vinyl("v1", 20, 12));
            manager.persist(new Tape("t1", 5, 90));
        });
        run(manager -> {
            assertEquals(
                    2,
                    manager.createQuery("SELECT m FROM Medium m", Medium.class)
                            .getResultList()
                            .size());
            assertEquals(
                    12,
                    manager.createQuery("SELECT v FROM Vinyl v WHERE v.price > 10", Vinyl.class)
                            .getSingleResult()
                            .getInches());
            assertInstanceOf(Tape.class, manager.find(Medium.class, "t1"));
        });
    }

    @Test
    void identities_of_several_members_and_relations_of_both_sides_are_kept() {
        run(manager -> {
            Room room = new Room("North", 7);
            room.getLabels().add(new Label("Bed", "SE"));
            room.getPrices().put("night", 80);
            Guest ann = new Guest("Ann");
            ann.setPassport(new Passport("DE", 123));
            room.getGuests().add(ann);
            manager.persist(room);
        });
        run(manager -> {
            Room room = manager.find(Room.class, new Room.Id("North", 7));
            assertEquals(java.time.Instant.ofEpochSecond(1), room.getCreated());
            assertEquals("SE", room.getLabels().get(0).getCountry());
            assertEquals(Map.of("night", 80), room.getPrices());
            Guest ann = room.getGuests().iterator().next();
            assertTrue(ann.getId() > 0);
            assertEquals(123, ann.getPassport().getNumber());
            assertEquals(Set.of(room), ann.getRooms());
        });
        run(manager -> {
            Passport passport = manager.find(Passport.class, new Passport.Key("DE", 123));
            assertEquals("Ann", passport.getGuest().getName());
            assertEquals(
                    1,
                    manager.createQuery("SELECT r FROM Room r WHERE r.id.number = 7 AND r.created IS NOT NULL")
                            .getResultList()
                            .size());
            assertNull(manager.find(Room.class, new Room.Id("North", 8)));
            var numbers = manager.createQuery("SELECT r.id.number FROM Room r ORDER BY r.id.number");
            assertEquals(List.of(7), numbers.getResultList());
            // An identity is never null, so its members need no test of it.
            var nativeQuery =
                    (NativeQuery) ((JakartaQuery<?>) numbers).getInternalQuery().getNativeQuery();
            assertEquals(List.of(), nativeQuery.inMemory());
        });
    }

    @Test
    void values_of_a_unique_column_are_unique() {
        miles();
        assertThrows(RollbackException.class, () -> run(manager -> manager.persist(new Artist("Miles"))));
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
    void the_first_assignment_to_an_object_that_is_not_loaded_is_stored(int member) {
        run(manager -> manager.persist(new Reading("a")));
        run(manager -> assertFalse(manager.find(Reading.class, "a").isReset(member)));
        run(manager -> manager.getReference(Reading.class, "a").reset(member));
        run(manager -> {
            Reading reading = manager.find(Reading.class, "a");
            for (int each = 0; each <= 12; each++) {
                assertEquals(each == member, reading.isReset(each));
            }
        });
    }
}
