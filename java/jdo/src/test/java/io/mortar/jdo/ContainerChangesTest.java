package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.model.Person;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Every method of a list or a map that changes it changes the stored object. */
class ContainerChangesTest {
    private static final Store STORE = Store.inMemory();

    @AfterAll
    static void close() {
        STORE.close();
    }

    static Stream<Named<Consumer<List<String>>>> changesOfLists() {
        return Stream.of(
                Named.of("removeIf", list -> list.removeIf("b"::equals)),
                Named.of("replaceAll", list -> list.replaceAll(String::toUpperCase)),
                Named.of("sort", list -> list.sort(Comparator.reverseOrder())),
                Named.of("natural sort", list -> list.sort(null)),
                Named.of("iterator", list -> {
                    var each = list.listIterator();
                    each.next();
                    each.set("x");
                    each.next();
                    each.remove();
                }),
                Named.of("subList", list -> list.subList(0, 1).clear()));
    }

    @ParameterizedTest
    @MethodSource("changesOfLists")
    void a_change_of_a_list_is_stored(Consumer<List<String>> change) {
        List<String> before = List.of("c", "b", "a", "b");
        List<String> after = new ArrayList<>(before);
        change.accept(after);
        Object id = STORE.call(manager -> {
            Person ann = new Person("Ann", 1);
            ann.getTags().addAll(before);
            return manager.getObjectId(manager.makePersistent(ann));
        });
        STORE.run(manager -> change.accept(((Person) manager.getObjectById(id)).getTags()));
        STORE.run(manager -> assertEquals(after, ((Person) manager.getObjectById(id)).getTags()));
    }

    static Stream<Named<BiFunction<Map<String, Integer>, String, Object>>> changesOfMaps() {
        return Stream.of(
                Named.of("getOrDefault", (map, key) -> map.getOrDefault(key, 9)),
                Named.of("putIfAbsent", (map, key) -> map.putIfAbsent(key, 9)),
                Named.of("computeIfAbsent", (map, key) -> map.computeIfAbsent(key, unused -> 9)),
                Named.of("computeIfPresent", (map, key) -> map.computeIfPresent(key, (unused, value) -> value + 1)),
                Named.of("compute", (map, key) -> map.compute(key, (unused, value) -> value == null ? 9 : null)),
                Named.of("merge", (map, key) -> map.merge(key, 9, Integer::sum)),
                Named.of("replace", (map, key) -> map.replace(key, 9)),
                Named.of("replace a value", (map, key) -> map.replace(key, 1, 9)),
                Named.of("remove a value", (map, key) -> map.remove(key, 1)),
                Named.of("replaceAll", (map, key) -> {
                    map.replaceAll((unused, value) -> value * 2);
                    return null;
                }),
                Named.of("keySet", (map, key) -> map.keySet().remove(key)),
                Named.of("values", (map, key) -> map.values().remove(1)),
                Named.of("entrySet", (map, key) -> map.entrySet().removeIf(entry -> entry.getKey().equals(key))));
    }

    @ParameterizedTest
    @MethodSource("changesOfMaps")
    void a_change_of_a_map_is_stored(BiFunction<Map<String, Integer>, String, Object> change) {
        for (String key : List.of("go", "chess")) {
            Map<String, Integer> after = new TreeMap<>(Map.of("go", 1, "skat", 2));
            Object returned = change.apply(after, key);
            Object id = STORE.call(manager -> {
                Person ann = new Person("Ann", 1);
                ann.getScores().putAll(Map.of("go", 1, "skat", 2));
                return manager.getObjectId(manager.makePersistent(ann));
            });
            STORE.run(manager ->
                    assertEquals(returned, change.apply(((Person) manager.getObjectById(id)).getScores(), key), key));
            STORE.run(manager -> assertEquals(after, ((Person) manager.getObjectById(id)).getScores(), key));
        }
    }
}
