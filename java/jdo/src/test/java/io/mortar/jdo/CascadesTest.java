package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.mortar.jdo.entities.Machine;
import io.mortar.jdo.entities.Machine.Container;
import io.mortar.jdo.entities.Part;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Jakarta Persistence 3.1, sections 2.9 and 3.2: only an orphan of a relation with {@code orphanRemoval} is removed.
 */
class CascadesTest {
    private static final Map<Boolean, EntityManagerFactory> FACTORIES =
            Map.of(true, factory(true), false, factory(false));
    private static final Set<Container> WITHOUT_ORPHAN_REMOVAL = EnumSet.of(Container.CASCADED, Container.SHARED);
    private static final Set<Container> IN_ORDER = EnumSet.of(Container.ORDERED, Container.SEQUENCE);

    private static EntityManagerFactory factory(boolean isOptimistic) {
        return Persistence.createEntityManagerFactory(
                "music",
                Map.of(
                        "jakarta.persistence.jdbc.url",
                        "mortar:memory:" + UUID.randomUUID(),
                        "datanucleus.Optimistic",
                        isOptimistic));
    }

    @AfterAll
    static void close() {
        FACTORIES.values().forEach(EntityManagerFactory::close);
    }

    @BeforeEach
    void clear() {
        for (boolean isOptimistic : List.of(true, false)) {
            run(
                    isOptimistic,
                    manager -> manager.createQuery("SELECT m FROM Machine m")
                            .getResultList()
                            .forEach(manager::remove));
            run(
                    isOptimistic,
                    manager -> manager.createQuery("SELECT p FROM Part p")
                            .getResultList()
                            .forEach(manager::remove));
        }
    }

    private static void run(boolean isOptimistic, Consumer<EntityManager> body) {
        Store.inTransaction(FACTORIES.get(isOptimistic), body);
    }

    private static void store(boolean isOptimistic, Container container) {
        run(isOptimistic, manager -> {
            Machine lathe = new Machine("lathe");
            for (String name : List.of("1", "2", "3")) {
                lathe.get(container).add(new Part(name));
            }
            Machine press = new Machine("press");
            press.get(container).add(new Part("9"));
            manager.persist(lathe);
            manager.persist(press);
        });
    }

    private static Part part(Machine machine, Container container, String name) {
        return machine.get(container).stream()
                .filter(each -> each.getName().equals(name))
                .findAny()
                .orElseThrow();
    }

    private static List<String> names(Collection<Part> parts) {
        return parts.stream().map(Part::getName).sorted().toList();
    }

    private static void assertStored(
            boolean isOptimistic, Container container, List<String> lathe, List<String> press, List<String> all) {
        run(isOptimistic, manager -> {
            assertEquals(lathe, names(manager.find(Machine.class, "lathe").get(container)));
            assertEquals(press, names(manager.find(Machine.class, "press").get(container)));
            assertEquals(
                    all,
                    names(manager.createQuery("SELECT p FROM Part p", Part.class)
                            .getResultList()));
        });
    }

    private static Stream<Arguments> containers() {
        return Arrays.stream(Container.values())
                .flatMap(each -> Stream.of(Arguments.of(each, true), Arguments.of(each, false)));
    }

    private static Stream<Arguments> orders() {
        List<Named<Consumer<List<?>>>> orders = List.of(
                Named.of("swap", list -> Collections.swap(list, 0, 1)),
                Named.of("reverse", Collections::reverse),
                Named.of("rotate", list -> Collections.rotate(list, 1)),
                Named.of("shuffle", list -> Collections.shuffle(list, new Random(1))),
                Named.of(
                        "sort",
                        list -> ((List<Part>) list)
                                .sort((left, right) -> right.getName().compareTo(left.getName()))));
        return containers()
                .filter(each -> each.get()[0] != Container.PILE)
                .flatMap(each -> orders.stream().map(order -> Arguments.of(each.get()[0], each.get()[1], order)));
    }

    @ParameterizedTest
    @MethodSource("orders")
    void elements_at_other_places_of_a_list_are_kept(
            Container container, boolean isOptimistic, Consumer<List<?>> order) {
        store(isOptimistic, container);
        List<String> expected = new ArrayList<>();
        run(isOptimistic, manager -> {
            List<Part> parts = (List<Part>) manager.find(Machine.class, "lathe").get(container);
            order.accept(parts);
            parts.forEach(each -> expected.add(each.getName()));
        });
        assertStored(isOptimistic, container, List.of("1", "2", "3"), List.of("9"), List.of("1", "2", "3", "9"));
        run(isOptimistic, manager -> {
            Collection<Part> parts = manager.find(Machine.class, "lathe").get(container);
            if (IN_ORDER.contains(container)) {
                assertEquals(expected, parts.stream().map(Part::getName).toList());
            }
        });
    }

    @ParameterizedTest
    @MethodSource("containers")
    void an_element_moves_to_another_owner(Container container, boolean isOptimistic) {
        for (boolean removesFirst : List.of(true, false)) {
            clear();
            store(isOptimistic, container);
            run(isOptimistic, manager -> {
                Machine lathe = manager.find(Machine.class, "lathe");
                Machine press = manager.find(Machine.class, "press");
                Part moved = part(lathe, container, "1");
                if (removesFirst) {
                    lathe.get(container).remove(moved);
                }
                press.get(container).add(moved);
                if (!removesFirst) {
                    lathe.get(container).remove(moved);
                }
            });
            assertStored(isOptimistic, container, List.of("2", "3"), List.of("1", "9"), List.of("1", "2", "3", "9"));
        }
    }

    @ParameterizedTest
    @MethodSource("containers")
    void an_element_moves_to_a_new_owner(Container container, boolean isOptimistic) {
        store(isOptimistic, container);
        run(isOptimistic, manager -> {
            Machine lathe = manager.find(Machine.class, "lathe");
            Part moved = part(lathe, container, "1");
            lathe.get(container).remove(moved);
            Machine saw = new Machine("saw");
            saw.get(container).add(moved);
            manager.persist(saw);
        });
        assertStored(isOptimistic, container, List.of("2", "3"), List.of("9"), List.of("1", "2", "3", "9"));
        run(
                isOptimistic,
                manager -> assertEquals(
                        List.of("1"), names(manager.find(Machine.class, "saw").get(container))));
    }

    @ParameterizedTest
    @MethodSource("containers")
    void an_element_returns_after_a_flush(Container container, boolean isOptimistic) {
        store(isOptimistic, container);
        run(isOptimistic, manager -> {
            Machine lathe = manager.find(Machine.class, "lathe");
            Part part = lathe.get(container).iterator().next();
            lathe.get(container).remove(part);
            manager.flush();
            lathe.get(container).add(part);
        });
        assertStored(isOptimistic, container, List.of("1", "2", "3"), List.of("9"), List.of("1", "2", "3", "9"));
    }

    @ParameterizedTest
    @MethodSource("containers")
    void only_an_orphan_is_deleted(Container container, boolean isOptimistic) {
        store(isOptimistic, container);
        run(isOptimistic, manager -> {
            Machine lathe = manager.find(Machine.class, "lathe");
            lathe.get(container).remove(part(lathe, container, "1"));
            manager.flush();
            assertEquals(List.of("2", "3"), names(lathe.get(container)));
        });
        boolean isKept = WITHOUT_ORPHAN_REMOVAL.contains(container);
        List<String> all = isKept ? List.of("1", "2", "3", "9") : List.of("2", "3", "9");
        assertStored(isOptimistic, container, List.of("2", "3"), List.of("9"), all);
        run(isOptimistic, manager -> {
            manager.find(Machine.class, "lathe").get(container).clear();
            assertEquals(
                    isKept ? 4L : 1L,
                    manager.createQuery("SELECT count(p) FROM Part p").getSingleResult());
        });
        run(isOptimistic, manager -> manager.remove(manager.find(Machine.class, "press")));
        run(
                isOptimistic,
                manager -> assertEquals(
                        isKept ? 3L : 0L,
                        manager.createQuery("SELECT count(p) FROM Part p").getSingleResult()));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_orphan_whose_reference_was_also_ended_is_deleted(boolean isOptimistic) {
        store(isOptimistic, Container.OWNED);
        run(isOptimistic, manager -> {
            Machine lathe = manager.find(Machine.class, "lathe");
            Part part = part(lathe, Container.OWNED, "1");
            lathe.get(Container.OWNED).remove(part);
            part.setOwned(null);
        });
        assertStored(isOptimistic, Container.OWNED, List.of("2", "3"), List.of("9"), List.of("2", "3", "9"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void an_element_of_another_owner_is_kept_when_it_is_removed(boolean isOptimistic) {
        store(isOptimistic, Container.SHARED);
        run(
                isOptimistic,
                manager -> manager.find(Machine.class, "press")
                        .get(Container.SHARED)
                        .add(part(manager.find(Machine.class, "lathe"), Container.SHARED, "1")));
        run(
                isOptimistic,
                manager -> manager.find(Machine.class, "press")
                        .get(Container.SHARED)
                        .removeIf(each -> each.getName().equals("1")));
        assertStored(isOptimistic, Container.SHARED, List.of("1", "2", "3"), List.of("9"), List.of("1", "2", "3", "9"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void a_single_object_without_orphan_removal_is_kept(boolean isOptimistic) {
        run(isOptimistic, manager -> {
            Machine lathe = new Machine("lathe");
            lathe.setSpare(new Part("1"));
            manager.persist(lathe);
        });
        run(isOptimistic, manager -> {
            Machine lathe = manager.find(Machine.class, "lathe");
            assertEquals("1", lathe.getSpare().getName());
            lathe.setSpare(null);
        });
        run(isOptimistic, manager -> {
            assertNull(manager.find(Machine.class, "lathe").getSpare());
            assertEquals(1L, manager.createQuery("SELECT count(p) FROM Part p").getSingleResult());
        });
    }
}
