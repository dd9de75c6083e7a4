package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Paths, directories and sets in transactions. */
@RequiresLibrary
class NamesTest {
    private TestCluster cluster;
    private Client client;
    private Oid ann;

    @BeforeEach
    void open() {
        cluster = new TestCluster();
        client = cluster.client;
        ann = cluster.create("Ann", 50);
    }

    @AfterEach
    void close() {
        cluster.close();
    }

    private static List<String> namesOf(List<DirectoryEntry> entries) {
        return entries.stream().map(DirectoryEntry::name).toList();
    }

    @Test
    void pathsAreBoundAndResolved() {
        client.run(t -> {
            t.bind("a/b/c", ann);
            t.bind("/a/blob", t.createBlob(new byte[1]));
            assertEquals(Optional.of(ann), t.resolve("a/b/c"));
            assertEquals(Optional.of(t.root()), t.resolve(""));
            assertTrue(t.resolve("a/b").orElseThrow().isTemporary());
            assertEquals(Optional.empty(), t.resolve("a/x"));
            assertEquals(List.of("b", "blob"), namesOf(t.list("a", null, 10)));
            assertEquals(List.of("blob"), namesOf(t.list("a", "b", 10)));
        });
        client.run(t -> {
            assertTrue(t.unbind("a/blob"));
            assertFalse(t.unbind("a/blob"));
            t.rename("a/b", "a/moved");
        });
        assertEquals(Optional.of(ann), client.resolve("a/moved/c"));
        assertEquals(List.of("/a/moved/c"), client.namesOf(ann));
        try (Transaction t = client.begin()) {
            assertThrows(InvalidRequestException.class, () -> t.bind("a//b", ann));
            assertThrows(AlreadyExistsException.class, () -> t.bind("a", ann));
            assertThrows(InvalidRequestException.class, () -> t.unbind("a"));
            assertThrows(NotFoundException.class, () -> t.rename("x", "y"));
            assertThrows(NotFoundException.class, () -> t.list("x", null, 1));
        }
    }

    @Test
    void directoriesAreCreatedAndRemoved() {
        try (Transaction t = client.begin()) {
            Oid directory = t.createDirectory("d/e");
            assertTrue(directory.isTemporary());
            assertThrows(AlreadyExistsException.class, () -> t.createDirectory("d/e"));
            assertThrows(InvalidRequestException.class, () -> t.removeDirectory("d"));
            t.commit().orThrow();
            assertEquals(t.realOid(directory), client.resolve("d/e"));
        }
        client.run(t -> t.removeDirectory("d/e"));
        assertEquals(Optional.empty(), client.resolve("d/e"));
    }

    @Test
    void objectIsDeletedWithItsNames() {
        client.run(t -> {
            t.bind("one", ann);
            t.bind("two/three", ann);
        });
        client.run(t -> t.deleteWithNames(ann));
        assertEquals(Optional.empty(), client.resolve("one"));
        assertEquals(Optional.empty(), client.resolve("two/three"));
        assertTrue(client.readLatest(ann).isEmpty());
    }

    @Test
    void entriesOfADirectoryAreChanged() {
        client.run(t -> t.createDirectory("d"));
        Oid directory = client.resolve("d").orElseThrow();
        client.run(t -> {
            for (String name : List.of("b1", "b2", "a")) {
                t.putEntry(directory, name, ann);
            }
            t.addEntry(directory, "c", t.createBlob(new byte[1]));
            assertThrows(AlreadyExistsException.class, () -> t.addEntry(directory, "c", ann));
            assertTrue(t.removeEntry(directory, "a"));
            assertFalse(t.removeEntry(directory, "a"));
            assertEquals(Optional.of(ann), t.entry(directory, "b1"));
            assertEquals(Optional.empty(), t.entry(directory, "a"));
            assertEquals(List.of("b1", "b2", "c"), namesOf(t.entries(directory, null, "", 10)));
            assertEquals(List.of("b1", "b2"), namesOf(t.entries(directory, null, "b", 10)));
            assertEquals(List.of("b2"), namesOf(t.entries(directory, "b1", "b", 10)));
            assertEquals(3, t.count(directory));
            assertThrows(InvalidRequestException.class, () -> t.putEntry(directory, "x/y", ann));
            assertThrows(InvalidRequestException.class, () -> t.entries(directory, null, "", -1));
        });
    }

    @Test
    void membersOfASetAreChanged() {
        Oid bob = cluster.create("Bob", 20);
        List<Oid> sorted = List.of(ann, bob).stream().sorted().toList();
        client.run(t -> {
            Oid set = t.createCollection();
            t.bind("set", set);
            t.addMember(set, ann);
            t.addMember(set, bob);
            t.addMember(set, bob);
            assertEquals(sorted, t.members(set, null, 10));
            assertThrows(InvalidRequestException.class, () -> t.addMember(set, t.createBlob(new byte[1])));
        });
        Oid set = client.resolve("set").orElseThrow();
        client.run(t -> {
            assertTrue(t.contains(set, ann));
            assertEquals(2, t.count(set));
            assertTrue(t.removeMember(set, ann));
            assertFalse(t.removeMember(set, ann));
            assertFalse(t.contains(set, ann));
            assertEquals(List.of(bob), t.members(set, null, 10));
            assertEquals(List.of(), t.members(set, bob, 10));
            assertThrows(MortarException.class, () -> t.addMember(ann, bob));
        });
    }
}
