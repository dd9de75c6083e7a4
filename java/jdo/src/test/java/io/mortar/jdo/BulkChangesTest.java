package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Album;
import io.mortar.jdo.entities.Artist;
import io.mortar.jdo.entities.Reading;
import io.mortar.jdo.entities.Tape;
import io.mortar.jdo.entities.Track;
import io.mortar.jdo.entities.Vinyl;
import io.mortar.jdo.model.Account;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import javax.jdo.listener.DeleteLifecycleListener;
import javax.jdo.listener.InstanceLifecycleEvent;
import org.datanucleus.ExecutionContext;
import org.datanucleus.api.jdo.JDOPersistenceManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Bulk updates and deletes, which change stored objects without making Java objects of them where they can. */
class BulkChangesTest {
    private static void with(boolean isOptimistic, Consumer<EntityManagerFactory> body) {
        EntityManagerFactory factory = Persistence.createEntityManagerFactory(
                "music",
                Map.of(
                        "jakarta.persistence.jdbc.url",
                        "mortar:memory:" + UUID.randomUUID(),
                        "datanucleus.Optimistic",
                        String.valueOf(isOptimistic)));
        try {
            body.accept(factory);
        } finally {
            factory.close();
        }
    }

    private static int loaded(EntityManager manager) {
        return manager.unwrap(ExecutionContext.class).getLevel1Cache().size();
    }

    private static int change(EntityManager manager, String text) {
        return manager.createQuery(text).executeUpdate();
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void objects_that_are_not_in_the_context_are_not_loaded(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            Store.inTransaction(factory, manager -> {
                for (int i = 0; i < 20; i++) {
                    manager.persist(i % 2 == 0 ? new Tape("t" + i, i, i) : new Vinyl("v" + i, i, 33));
                }
            });
            Store.inTransaction(factory, manager -> {
                assertEquals(10, change(manager, "UPDATE Medium m SET m.price = m.price * 2 + 1 WHERE m.price < 10"));
                assertEquals(0, loaded(manager));
            });
            Store.inTransaction(factory, manager -> {
                assertEquals(19, manager.find(Vinyl.class, "v9").getPrice());
                assertEquals(10, manager.find(Tape.class, "t10").getPrice());
                assertEquals(2, loaded(manager));
                assertEquals(20, change(manager, "DELETE FROM Medium m"));
                assertEquals(
                        0L, manager.createQuery("SELECT COUNT(m) FROM Medium m").getSingleResult());
            });
        });
    }

    @Test
    void loaded_objects_have_the_new_values_and_all_values_are_those_before_the_changes() {
        with(true, factory -> {
            Store.inTransaction(factory, manager -> {
                manager.persist(new Tape("a", 1, 100));
                manager.persist(new Tape("b", 2, 200));
            });
            Store.inTransaction(factory, manager -> {
                Tape loaded = manager.find(Tape.class, "a");
                assertEquals(2, change(manager, "UPDATE Tape t SET t.price = t.minutes, t.minutes = t.price"));
                assertEquals(List.of(100, 1), List.of(loaded.getPrice(), loaded.getMinutes()));
                Tape other = manager.find(Tape.class, "b");
                assertEquals(List.of(200, 2), List.of(other.getPrice(), other.getMinutes()));
            });
        });
    }

    @Test
    void functions_parameters_and_null_are_assigned_and_versions_advance() {
        with(true, factory -> {
            Store.inTransaction(factory, manager -> manager.persist(new Reading("a")));
            Store.inTransaction(factory, manager -> {
                manager.createQuery("UPDATE Reading r SET r.text = CONCAT(UPPER(r.text), :more), r.boxed = NULL,"
                                + " r.large = CASE WHEN r.brief = 1 THEN 7 ELSE 8 END, r.exact = 123456789.12")
                        .setParameter("more", "!")
                        .executeUpdate();
                assertEquals(0, loaded(manager));
            });
            Store.inTransaction(factory, manager -> {
                Object[] row = (Object[])
                        manager.createQuery("SELECT r.text, r.boxed, r.large, r.exact, r.version FROM Reading r")
                                .getSingleResult();
                assertEquals("TEXT!", row[0]);
                assertNull(row[1]);
                assertEquals(List.of(7L, 123456789.12, 2), List.of(row[2], row[3], row[4]));
            });
            RuntimeException error = assertThrows(
                    RuntimeException.class,
                    () -> Store.inTransaction(
                            factory, manager -> change(manager, "UPDATE Reading r SET r.number = NULL")));
            assertTrue(error.getMessage().contains("number"), error.getMessage());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_number_that_a_member_cannot_have_is_refused(boolean isLoaded) {
        with(true, factory -> {
            Store.inTransaction(factory, manager -> manager.persist(new Tape("a", 7, 100)));
            RuntimeException refused = assertThrows(
                    RuntimeException.class,
                    () -> Store.inTransaction(factory, manager -> {
                        assertTrue(!isLoaded || manager.find(Tape.class, "a") != null);
                        change(manager, "UPDATE Tape t SET t.price = t.price + 3000000000");
                    }));
            assertTrue(refused.getMessage().contains("3000000007"), refused.getMessage());
            Store.inTransaction(factory, manager -> {
                assertEquals(1, change(manager, "UPDATE Tape t SET t.price = t.price * 1.5"));
                assertEquals(10, manager.find(Tape.class, "a").getPrice());
            });
        });
    }

    /** Jakarta Persistence 3.1, section 4.10. */
    @Test
    void a_bulk_delete_does_not_cascade() {
        with(true, factory -> {
            Store.inTransaction(factory, manager -> {
                Artist miles = new Artist("Miles");
                miles.add("Blue", 1959).getTracks().add(new Track("So What", 545));
                miles.add("Brew", 1970).getTracks().add(new Track("Sanctuary", 660));
                manager.persist(miles);
            });
            Store.inTransaction(factory, manager -> {
                manager.createQuery("SELECT a FROM Album a WHERE a.year = 1959", Album.class)
                        .getSingleResult();
                assertEquals(2, change(manager, "DELETE FROM Album a"));
            });
            Store.inTransaction(factory, manager -> {
                assertEquals(
                        2L, manager.createQuery("SELECT COUNT(t) FROM Track t").getSingleResult());
                Artist miles = manager.createQuery("SELECT r FROM Artist r", Artist.class)
                        .getSingleResult();
                assertEquals(List.of(), List.copyOf(miles.getAlbums()));
            });
        });
    }

    @Test
    void a_bulk_delete_of_jdo_tells_listeners() {
        try (Store store = Store.inMemory()) {
            store.run(manager -> {
                manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null));
                manager.makePersistent(new Account(2, "B", BigDecimal.TEN, null));
            });
            store.run(manager -> {
                assertEquals(1L, manager.newQuery(Account.class, "balance > 5").deletePersistentAll());
                ExecutionContext context = ((JDOPersistenceManager) manager).getExecutionContext();
                assertEquals(0, context.getLevel1Cache().size());
            });
            store.run(manager -> {
                manager.makePersistent(new Account(3, "C", BigDecimal.TEN, null));
                assertEquals(1L, manager.newQuery(Account.class, "iban == 'C'").deletePersistentAll());
            });
            List<Long> deleted = new ArrayList<>();
            store.run(manager -> {
                manager.addInstanceLifecycleListener(
                        new DeleteLifecycleListener() {
                            @Override
                            public void preDelete(InstanceLifecycleEvent event) {
                                deleted.add(((Account) event.getSource()).getNumber());
                            }

                            @Override
                            public void postDelete(InstanceLifecycleEvent event) {
                                // Only the first of both is counted.
                            }
                        },
                        (Class<?>[]) null);
                assertEquals(1L, manager.newQuery(Account.class).deletePersistentAll());
            });
            assertEquals(List.of(1L), deleted);
        }
    }
}
