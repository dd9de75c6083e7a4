package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.containers.PersistentArrayList;
import io.mortar.jdo.model.Desk;
import io.mortar.jdo.model.Person;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.TreeMap;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
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

    /** Methods that {@link List} has since Java 21. */
    @Test
    void the_ends_of_a_list_are_found_and_removed() {
        Object id = STORE.call(manager -> {
            Person ann = new Person("Ann", 1);
            ann.getTags().addAll(List.of("a", "b", "c"));
            return manager.getObjectId(manager.makePersistent(ann));
        });
        STORE.run(manager -> {
            PersistentArrayList<?> tags =
                    assertInstanceOf(PersistentArrayList.class, ((Person) manager.getObjectById(id)).getTags());
            assertEquals("a", tags.getFirst());
            assertEquals("c", tags.getLast());
            assertEquals("a", tags.removeFirst());
            assertEquals("c", tags.removeLast());
        });
        STORE.run(manager -> {
            PersistentArrayList<?> tags =
                    assertInstanceOf(PersistentArrayList.class, ((Person) manager.getObjectById(id)).getTags());
            assertEquals(List.of("b"), tags);
            tags.clear();
            assertThrows(NoSuchElementException.class, tags::getFirst);
            assertThrows(NoSuchElementException.class, tags::getLast);
            assertThrows(NoSuchElementException.class, tags::removeFirst);
            assertThrows(NoSuchElementException.class, tags::removeLast);
        });
    }

    static Stream<Named<Consumer<Deque<String>>>> changesOfQueues() {
        return Stream.of(
                Named.of("offer", queue -> queue.offer("x")),
                Named.of("offer at both ends", queue -> {
                    queue.offerFirst("x");
                    queue.offerLast("y");
                }),
                Named.of("poll", queue -> assertEquals("c", queue.poll())),
                Named.of("poll at both ends", queue -> assertEquals("cb", queue.pollFirst() + queue.pollLast())),
                Named.of("peek", queue -> assertEquals("ccb", queue.peek() + queue.peekFirst() + queue.peekLast())),
                Named.of("element and remove", queue -> assertEquals(queue.element(), queue.remove())),
                Named.of("push and pop", queue -> {
                    queue.push("x");
                    queue.push("y");
                    assertEquals("y", queue.pop());
                }),
                Named.of("occurrences", queue -> {
                    assertTrue(queue.removeLastOccurrence("b"));
                    assertFalse(queue.removeFirstOccurrence("x"));
                }),
                Named.of("descending iterator", queue -> {
                    var each = queue.descendingIterator();
                    assertEquals("b", each.next());
                    each.remove();
                }),
                Named.of("removeIf", queue -> queue.removeIf("b"::equals)),
                Named.of("emptied", queue -> {
                    queue.clear();
                    assertNull(queue.poll());
                    assertNull(queue.peekLast());
                    assertThrows(NoSuchElementException.class, queue::remove);
                }));
    }

    @ParameterizedTest
    @MethodSource("changesOfQueues")
    void a_change_of_a_queue_is_stored(Consumer<Deque<String>> change) {
        List<String> before = List.of("c", "b", "a", "b");
        Deque<String> after = new LinkedList<>(before);
        change.accept(after);
        Object id = STORE.call(manager -> {
            Desk desk = new Desk();
            desk.getNotes().addAll(before);
            return manager.getObjectId(manager.makePersistent(desk));
        });
        STORE.run(manager -> change.accept(((Desk) manager.getObjectById(id)).getNotes()));
        STORE.run(manager -> assertEquals(after, ((Desk) manager.getObjectById(id)).getNotes()));
    }

    @Test
    void queues_give_their_elements_in_order() {
        Object id = STORE.call(manager -> {
            Desk desk = manager.makePersistent(new Desk());
            desk.getVisitors().addAll(List.of("Bob", "Ann"));
            desk.getTickets().addAll(List.of(5, 3, 4));
            desk.getCalls().addAll(List.of(5, 4, 3));
            return manager.getObjectId(desk);
        });
        STORE.run(manager -> {
            Desk desk = (Desk) manager.getObjectById(id);
            assertEquals("Bob", desk.getVisitors().poll());
            desk.getTickets().offer(1);
            assertEquals(1, desk.getTickets().poll());
            assertEquals(3, desk.getTickets().poll());
            assertEquals(3, desk.getCalls().poll());
        });
        STORE.run(manager -> {
            Desk desk = (Desk) manager.getObjectById(id);
            assertEquals(List.of("Ann"), List.copyOf(desk.getVisitors()));
            assertEquals(4, desk.getTickets().peek());
            assertEquals(List.of(4, 5), List.copyOf(desk.getCalls()));
        });
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
                Named.of(
                        "entrySet",
                        (map, key) ->
                                map.entrySet().removeIf(entry -> entry.getKey().equals(key))));
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
