package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Pen;
import io.mortar.jdo.entities.Studio;
import jakarta.persistence.EntityGraph;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.LockModeType;
import jakarta.persistence.Persistence;
import jakarta.persistence.PersistenceException;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Jakarta Persistence 3.1, sections 2.9, 3.2 and 3.4: graphs that are merged, orphans, orders and lock modes. */
class DetachedGraphsTest {
    private static void with(boolean isOptimistic, Consumer<EntityManagerFactory> body) {
        EntityManagerFactory factory = Persistence.createEntityManagerFactory(
                "music",
                Map.of(
                        "jakarta.persistence.jdbc.url",
                        "mortar:memory:" + UUID.randomUUID(),
                        "datanucleus.Optimistic",
                        String.valueOf(isOptimistic)));
        try {
            Store.inTransaction(factory, manager -> {
                Studio studio = new Studio(1, "A");
                studio.setPen(new Pen(1, "red"));
                studio.getSessions().add(new Studio.Session(1, studio));
                studio.getBranches()
                        .addAll(List.of(new Studio.Branch("Aix"), new Studio.Branch("Zug"), new Studio.Branch("Bern")));
                manager.persist(studio);
            });
            body.accept(factory);
        } finally {
            factory.close();
        }
    }

    private static Studio detached(EntityManagerFactory factory) {
        AtomicReference<Studio> found = new AtomicReference<>();
        Store.inTransaction(factory, manager -> {
            Studio studio = manager.find(Studio.class, 1L);
            studio.getSessions().size();
            studio.getBranches().size();
            found.set(studio);
        });
        return found.get();
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_new_element_of_a_changed_graph_refers_to_the_managed_owner(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            Studio studio = detached(factory);
            studio.setName("B");
            studio.getSessions().get(0).setTake("first");
            studio.getSessions().add(new Studio.Session(2, studio));
            Store.inTransaction(factory, manager -> {
                Studio merged = manager.merge(studio);
                manager.flush();
                assertEquals(2, merged.getSessions().size());
                merged.getSessions().forEach(each -> assertSame(merged, each.getStudio()));
            });
            Studio stored = detached(factory);
            assertEquals("B", stored.getName());
            assertEquals(2, stored.getSessions().size());
            assertEquals(2, stored.getVersion());
            assertThrows(
                    PersistenceException.class, () -> Store.inTransaction(factory, manager -> manager.merge(studio)));
        });
    }

    /** The state of a detached entity is merged only by relations that cascade that. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_reference_that_does_not_cascade_merges_no_state(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            Studio studio = detached(factory);
            studio.setName("not merged");
            Store.inTransaction(factory, manager -> manager.persist(new Studio.Session(3, studio)));
            Studio stored = detached(factory);
            assertEquals("A", stored.getName());
            assertEquals(2, stored.getSessions().size());
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_object_that_is_replaced_or_removed_is_an_orphan(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            Store.inTransaction(
                    factory, manager -> manager.find(Studio.class, 1L).setPen(new Pen(2, "blue")));
            Store.inTransaction(factory, manager -> {
                assertNull(manager.find(Pen.class, 1L));
                assertNotNull(manager.find(Pen.class, 2L));
                manager.find(Studio.class, 1L).setPen(null);
            });
            Store.inTransaction(factory, manager -> assertNull(manager.find(Pen.class, 2L)));
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void embedded_objects_are_in_the_order_of_their_members(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            List<String> cities = detached(factory).getBranches().stream()
                    .map(Studio.Branch::getCity)
                    .toList();
            assertEquals(List.of("Zug", "Bern", "Aix"), cities);
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void find_locks_with_the_mode_and_increments_the_version(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            int version = detached(factory).getVersion();
            Store.inTransaction(factory, manager -> {
                Studio studio = manager.find(Studio.class, 1L, LockModeType.OPTIMISTIC_FORCE_INCREMENT);
                assertEquals(LockModeType.OPTIMISTIC_FORCE_INCREMENT, manager.getLockMode(studio));
            });
            assertEquals(version + 1, detached(factory).getVersion());
            Store.inTransaction(
                    factory, manager -> manager.find(Studio.class, 1L, LockModeType.PESSIMISTIC_FORCE_INCREMENT));
            assertEquals(version + 2, detached(factory).getVersion());
            Store.inTransaction(factory, manager -> {
                Studio studio = manager.find(Studio.class, 1L, LockModeType.PESSIMISTIC_WRITE);
                assertEquals(LockModeType.PESSIMISTIC_WRITE, manager.getLockMode(studio));
            });
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_entity_graph_leads_through_relations(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            for (boolean isQuery : new boolean[] {true, false}) {
                EntityManager manager = factory.createEntityManager();
                EntityGraph<Studio.Session> graph = manager.createEntityGraph(Studio.Session.class);
                graph.addSubgraph("studio", Studio.class).addAttributeNodes("name", "branches");
                String hint = "jakarta.persistence.loadgraph";
                Studio.Session session = isQuery
                        ? manager.createQuery("SELECT s FROM Studio$Session s", Studio.Session.class)
                                .setHint(hint, graph)
                                .getSingleResult()
                        : manager.find(Studio.Session.class, 1L, Map.of(hint, graph));
                manager.close();
                assertEquals(3, session.getStudio().getBranches().size());
                assertEquals("A", session.getStudio().getName());
            }
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_removed_entity_that_is_persisted_again_is_managed(boolean isOptimistic) {
        with(isOptimistic, factory -> {
            for (boolean flushes : new boolean[] {true, false}) {
                String label = flushes ? "blue" : "green";
                Store.inTransaction(factory, manager -> {
                    Pen pen = manager.find(Pen.class, 1L);
                    manager.remove(pen);
                    if (flushes) {
                        manager.flush();
                    }
                    manager.persist(pen);
                    assertTrue(manager.contains(pen));
                });
                Store.inTransaction(factory, manager -> {
                    Pen pen = manager.find(Pen.class, 1L);
                    manager.remove(pen);
                    if (flushes) {
                        manager.flush();
                    }
                    manager.persist(pen);
                    pen.setLabel(label);
                });
                Store.inTransaction(
                        factory,
                        manager ->
                                assertEquals(label, manager.find(Pen.class, 1L).getLabel()));
            }
        });
    }
}
