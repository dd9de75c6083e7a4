package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Rack;
import io.mortar.jdo.model.Tray;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** JDO 3.2, section 18.14: a dependent element is deleted when it is removed from its container. */
class DependentElementsTest {

    private static Store store(boolean isFixed, boolean isOptimistic) {
        Store store = Store.with(Map.of("javax.jdo.option.Optimistic", isOptimistic));
        store.run(manager -> {
            Rack left = new Rack("left");
            List.of("1", "2", "3").forEach(name -> left.getTrays(isFixed).add(new Tray(name)));
            manager.makePersistent(left);
            manager.makePersistent(new Rack("right"));
        });
        return store;
    }

    private static Rack rack(PersistenceManager manager, String name) {
        return manager.newQuery(Rack.class, "name == '" + name + "'")
                .executeList()
                .get(0);
    }

    private static List<String> names(Collection<Tray> trays) {
        return trays.stream().map(Tray::getName).sorted().toList();
    }

    private static void assertStored(
            Store store, boolean isFixed, List<String> left, List<String> right, List<String> all) {
        store.run(manager -> {
            assertEquals(left, names(rack(manager, "left").getTrays(isFixed)));
            assertEquals(right, names(rack(manager, "right").getTrays(isFixed)));
            assertEquals(all, names(manager.newQuery(Tray.class).executeList()));
        });
    }

    @ParameterizedTest
    @CsvSource({"true, true", "true, false", "false, true", "false, false"})
    void elements_at_other_places_of_a_list_are_kept(boolean isFixed, boolean isOptimistic) {
        try (Store store = store(isFixed, isOptimistic)) {
            store.run(manager -> Collections.swap(rack(manager, "left").getTrays(isFixed), 0, 1));
            store.run(manager -> Collections.rotate(rack(manager, "left").getTrays(isFixed), 1));
            assertStored(store, isFixed, List.of("1", "2", "3"), List.of(), List.of("1", "2", "3"));
        }
    }

    @ParameterizedTest
    @CsvSource({"true, true", "true, false", "false, true", "false, false"})
    void an_element_moves_to_another_owner(boolean isFixed, boolean isOptimistic) {
        try (Store store = store(isFixed, isOptimistic)) {
            store.run(manager -> {
                Rack left = rack(manager, "left");
                Rack right = rack(manager, "right");
                right.getTrays(isFixed).add(left.getTrays(isFixed).remove(0));
            });
            store.run(manager -> {
                Rack left = rack(manager, "left");
                Rack right = rack(manager, "right");
                Tray moved = left.getTrays(isFixed).get(0);
                right.getTrays(isFixed).add(moved);
                left.getTrays(isFixed).remove(moved);
            });
            assertStored(store, isFixed, List.of("3"), List.of("1", "2"), List.of("1", "2", "3"));
        }
    }

    @ParameterizedTest
    @CsvSource({"true, true", "true, false", "false, true", "false, false"})
    void a_removed_element_is_deleted_and_cannot_return(boolean isFixed, boolean isOptimistic) {
        try (Store store = store(isFixed, isOptimistic)) {
            store.run(manager -> {
                Rack left = rack(manager, "left");
                left.getTrays(isFixed).remove(0);
                manager.flush();
                assertEquals(2, manager.newQuery(Tray.class).executeList().size());
            });
            assertStored(store, isFixed, List.of("2", "3"), List.of(), List.of("2", "3"));
            JDOUserException refused = assertThrows(
                    JDOUserException.class,
                    () -> store.run(manager -> {
                        Rack left = rack(manager, "left");
                        Tray removed = left.getTrays(isFixed).remove(0);
                        manager.flush();
                        left.getTrays(isFixed).add(removed);
                        manager.flush();
                    }));
            assertTrue(refused.getMessage().contains("deleted"), refused.getMessage());
            assertStored(store, isFixed, List.of("2", "3"), List.of(), List.of("2", "3"));
        }
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void an_element_whose_reference_was_ended_is_kept(boolean isOptimistic) {
        try (Store store = store(true, isOptimistic)) {
            store.run(manager -> rack(manager, "left").getTrays(true).get(0).setRack(null));
            assertStored(store, true, List.of("2", "3"), List.of(), List.of("1", "2", "3"));
        }
    }
}
