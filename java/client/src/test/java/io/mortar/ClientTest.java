package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Clients, and what they do outside of transactions. */
@RequiresLibrary
class ClientTest {
    private static TestCluster cluster;

    @BeforeAll
    static void open() {
        cluster = new TestCluster();
    }

    @AfterAll
    static void close() {
        cluster.close();
    }

    @Test
    void directoryKeepsObjectsUntilItIsOpenedAgain(@TempDir Path directory) {
        Path data = directory.resolve("data");
        Oid ann;
        try (TestCluster first = new TestCluster(Client.open(data))) {
            ann = first.create("Ann", 50);
            first.client.run(t -> t.bind("people/ann", ann));
            assertThrows(UnavailableException.class, () -> Client.open(data));
        }
        try (TestCluster second = new TestCluster(Client.open(data))) {
            assertEquals(Optional.of(ann), second.client.resolve("/people/ann"));
            assertEquals("Ann", second.nameOf(ann));
        }
    }

    @Test
    void directoryWithOtherFilesIsRefused(@TempDir Path directory) throws Exception {
        Files.writeString(directory.resolve("letter.txt"), "dear");
        assertTrue(assertThrows(InvalidRequestException.class, () -> Client.open(directory))
                .getMessage()
                .contains("letter.txt"));
    }

    @Test
    void urlsAreChecked() {
        assertThrows(InvalidRequestException.class, () -> Client.connect("http://localhost"));
        ConnectOptions impatient = ConnectOptions.builder()
                .connectTimeout(Duration.ofSeconds(1))
                .timeout(Duration.ofSeconds(1))
                .build();
        assertThrows(UnavailableException.class, () -> Client.connect("mortar://127.0.0.1:1/main", impatient));
        ConnectOptions untrusted = ConnectOptions.builder()
                .trustedCertificates(Path.of("missing.pem"))
                .build();
        assertThrows(MortarException.class, () -> Client.connect("mortars://127.0.0.1:1/main", untrusted));
    }

    @Test
    void optionsAreCheckedAndDoNotShowThePassword() {
        ConnectOptions.Builder options = ConnectOptions.builder();
        assertThrows(InvalidRequestException.class, () -> options.timeout(Duration.ZERO));
        assertThrows(InvalidRequestException.class, () -> options.connectTimeout(Duration.ofNanos(1)));
        assertThrows(InvalidRequestException.class, () -> options.cacheBytes(0));
        String shown =
                options.credentials("ann", "secret").agent("test").build().toString();
        assertTrue(shown.contains("ann") && !shown.contains("secret"), shown);
    }

    @Test
    void objectsAreReadAndReplaced() {
        Client client = cluster.client;
        Oid oid = cluster.create("Ann", 50);
        assertEquals(cluster.person, oid.classNumber());
        assertEquals(client.space(), oid.space());
        assertTrue(client.nodes().contains(oid.node()));
        StoredObject ann = client.get(oid).orElseThrow();
        assertEquals(ObjectKind.RECORD, ann.kind());
        assertEquals(cluster.person("Ann", 50), ann.record());
        client.put(
                oid,
                ann.withRecord(ann.record().toBuilder().set(cluster.age, 51).build()));
        assertEquals(51L, client.readLatest(oid).orElseThrow().record().get(cluster.age));
        Oid missing = Oid.of(oid.space(), oid.classNumber(), oid.node(), oid.page(), 0xffff);
        assertTrue(client.get(missing).isEmpty()
                && client.readLatest(missing).isEmpty()
                && client.stat(missing).isEmpty());
        assertThrows(InvalidRequestException.class, () -> client.get(Oid.of(99, 0, 1, 1, 1)));
        assertThrows(InvalidRequestException.class, () -> client.put(oid, StoredObject.blob(new byte[1])));
    }

    @Test
    void propertiesOfObjectsAreRead() {
        Client client = cluster.client;
        Instant before = Instant.now().minusSeconds(60);
        Oid blob = cluster.createBlob(TestCluster.utf8("hello"));
        client.run(t -> t.setAttribute(blob, "type", TestCluster.utf8("text/plain")));
        client.run(t -> t.bind("stat/blob", blob));
        ObjectStat stat = client.stat(blob).orElseThrow();
        assertEquals(5, stat.size());
        assertEquals(ObjectKind.BLOB, stat.kind());
        assertEquals(blob, stat.oid());
        assertTrue(stat.entryChanged().isEmpty());
        assertArrayEquals(
                TestCluster.utf8("text/plain"), stat.object().attribute("type").orElseThrow());
        Oid directory = client.resolve("stat").orElseThrow();
        ObjectStat directoryStat = client.stat(directory).orElseThrow();
        assertEquals(ObjectKind.DIRECTORY, directoryStat.kind());
        assertEquals(1, directoryStat.size());
        assertTrue(directoryStat.entryChanged().orElseThrow().isAfter(before));
        assertEquals(1, client.totals(directory).count());
        assertTrue(client.totals(directory).changed().orElseThrow().isAfter(before));
    }

    @Test
    void allObjectsAreListed() {
        Oid ann = cluster.create("Ann", 50);
        Oid blob = cluster.createBlob(new byte[77]);
        try (Listing<ListedObject> objects = cluster.client.objects()) {
            Set<ListedObject> listed = objects.stream().collect(Collectors.toSet());
            assertTrue(listed.contains(new ListedObject(blob, ObjectKind.BLOB, 77)), listed.toString());
            assertTrue(
                    listed.stream().anyMatch(object -> object.oid().equals(ann) && object.kind() == ObjectKind.RECORD));
        }
    }

    @Test
    void namesAreListedInOrder() {
        Client client = cluster.client;
        Oid blob = cluster.createBlob(new byte[0]);
        client.run(t -> {
            for (String path : List.of("list/b", "list/a/2", "list/a/1", "list/c")) {
                t.bind(path, blob);
            }
        });
        assertEquals(List.of("/list/a/1", "/list/a/2", "/list/b", "/list/c"), paths(NameListOptions.prefix("list/")));
        assertEquals(
                List.of("/list/a", "/list/a/1", "/list/a/2", "/list/b", "/list/c"),
                paths(NameListOptions.prefix("/list/").withDirectories()));
        assertEquals(
                List.of("/list/a", "/list/b", "/list/c"),
                paths(NameListOptions.prefix("list/").oneLevel()));
        assertEquals(
                List.of("/list/b", "/list/c"),
                paths(NameListOptions.prefix("list/").after("list/a/2")));
        assertEquals(List.of("/list/a/1", "/list/a/2", "/list/b", "/list/c"), client.namesOf(blob));
        try (Listing<ListedName> names = client.names("list/c")) {
            assertEquals(new ListedName("/list/c", blob, false), names.next());
            assertFalse(names.hasNext());
        }
    }

    private static List<String> paths(NameListOptions options) {
        try (Listing<ListedName> names = cluster.client.names(options)) {
            return names.stream().map(ListedName::path).toList();
        }
    }

    @Test
    void collectionsAreReadOutsideOfTransactions() {
        Client client = cluster.client;
        Oid ann = cluster.create("Ann", 50);
        Oid bob = cluster.create("Bob", 20);
        List<Oid> sorted = List.of(ann, bob).stream().sorted().toList();
        Transaction created = client.transact(t -> {
            Oid set = t.createCollection();
            t.addMember(set, ann);
            t.addMember(set, bob);
            t.bind("sets/people", set);
            t.bind("sets/blob", t.createBlob(new byte[0]));
            return t;
        });
        assertTrue(created.isOver());
        Oid set = client.resolve("sets/people").orElseThrow();
        assertEquals(sorted, client.members(set, null, 10));
        assertEquals(sorted.subList(1, 2), client.members(set, sorted.get(0), 10));
        assertEquals(sorted.subList(0, 1), client.members(set, null, 1));
        assertEquals(List.of(set), client.collectionsOf(ann));
        Oid directory = client.resolve("sets").orElseThrow();
        assertEquals(
                List.of("blob", "people"),
                client.entries(directory, null, 10).stream()
                        .map(DirectoryEntry::name)
                        .toList());
        assertEquals(List.of(new DirectoryEntry("people", set)), client.entries(directory, "blob", 10));
        assertEquals(Optional.of(set), client.entry(directory, "people"));
        assertEquals(Optional.empty(), client.entry(directory, "nothing"));
        assertThrows(InvalidRequestException.class, () -> client.members(set, null, -1));
    }

    @Test
    void appendsReturnTheirOffsets() throws Exception {
        Oid log = cluster.createBlob(TestCluster.utf8("head "));
        assertEquals(5, cluster.client.append(log, TestCluster.utf8("one ")));
        assertEquals(9, cluster.client.append(log, TestCluster.utf8("two")));
        assertArrayEquals(
                TestCluster.utf8("head one two"), cluster.client.read(log).readAllBytes());
        assertThrows(
                NotFoundException.class,
                () -> cluster.client.append(Oid.of(log.space(), 0, log.node(), log.page(), 0xfffe), new byte[1]));
    }
}
