package io.mortar.jdo;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.ClassDefinition;
import io.mortar.Client;
import io.mortar.FieldDefinition;
import io.mortar.FieldType;
import io.mortar.MortarException;
import io.mortar.Record;
import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Person;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import javax.jdo.JDOException;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Connection URLs, several factories on one store, and classes that grow. */
class StoreLocationTest {
    /** The type of the first record of a connection over TLS. */
    private static final int TLS_HANDSHAKE = 22;

    private static Store at(String url) {
        return Store.with(Map.of("javax.jdo.option.ConnectionURL", url));
    }

    @Test
    void a_directory_keeps_the_objects(@TempDir Path directory) {
        Object id;
        try (Store store = at("mortar:embedded:" + directory.resolve("data"))) {
            id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 5))));
        }
        try (Store store = at("mortar:embedded:" + directory.resolve("data"))) {
            store.run(manager -> assertEquals("Ann", ((Person) manager.getObjectById(id)).getName()));
        }
    }

    @ParameterizedTest
    @CsvSource({
        "mortar.cacheBytes, 64m, mortar.cachebytes is 64m, 1 to 9223372036854775807",
        "mortar.cacheBytes, 0, mortar.cachebytes is 0, 1 to 9223372036854775807",
        "javax.jdo.option.DatastoreReadTimeoutMillis, -1, datanucleus.datastorereadtimeout is -1, 0 to 2147483647",
        "javax.jdo.option.DatastoreWriteTimeoutMillis, -1, datanucleus.datastorewritetimeout is -1, 0 to 2147483647",
    })
    void a_property_that_is_out_of_its_range_is_named(String name, String value, String named, String range) {
        JDOException error = assertThrows(
                JDOException.class, () -> Store.with(Map.of(name, value)).manager());
        assertTrue(error.toString().toLowerCase(Locale.ROOT).contains(named), error::toString);
        assertTrue(error.toString().contains(range), error::toString);
    }

    @Test
    void factories_of_one_process_share_a_store() {
        String url = "mortar:memory:" + UUID.randomUUID();
        try (Store first = at(url);
                Store second = at(url)) {
            Object id = first.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 5))));
            second.run(manager -> ((Person) manager.getObjectById(id)).setAge(6));
            first.run(manager -> assertEquals(6, ((Person) manager.getObjectById(id)).getAge()));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mortar://127.0.0.1:1/main", "mortar+unix:///nowhere/mortar.sock/main"})
    void a_cluster_that_cannot_be_reached_is_an_error_of_the_client(String url) {
        JDOException error = assertThrows(JDOException.class, () -> at(url).manager());
        Throwable cause = error;
        while (cause != null && !(cause instanceof MortarException)) {
            cause = cause.getCause();
        }
        assertNotNull(cause, error::toString);
    }

    @Test
    void a_cluster_is_dialled_with_tls() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            FutureTask<Integer> firstByte = new FutureTask<>(() -> {
                try (Socket dialled = listener.accept()) {
                    return dialled.getInputStream().read();
                }
            });
            new Thread(firstByte).start();
            Map<String, Object> properties = Map.of(
                    "javax.jdo.option.ConnectionURL",
                    "mortars://127.0.0.1:" + listener.getLocalPort() + "/main",
                    "mortar.caFile",
                    "src/test/resources/ca.pem");
            assertThrows(JDOException.class, () -> Store.with(properties).manager());
            assertEquals(TLS_HANDSHAKE, firstByte.get(10, TimeUnit.SECONDS));
        }
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "MORTAR_BIN", matches = ".+")
    void a_cluster_is_used_through_a_socket_of_this_machine(@TempDir Path directory) throws Exception {
        Path socket = directory.resolve("mortar.sock");
        Process server = new ProcessBuilder(
                        System.getenv("MORTAR_BIN"),
                        "dev",
                        "--memory",
                        "--listen",
                        "none",
                        "--http",
                        "none",
                        "--socket",
                        "" + socket)
                .redirectErrorStream(true)
                .start();
        try {
            BufferedReader output = new BufferedReader(new InputStreamReader(server.getInputStream(), UTF_8));
            String line = output.readLine();
            while (line != null && !line.startsWith("Mortar serves")) {
                line = output.readLine();
            }
            assertNotNull(line, "the server has not started");
            String url = "mortar+unix://" + socket + "/main";
            Object id;
            try (Store store = at(url)) {
                id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 5))));
            }
            try (Store store = at(url)) {
                store.run(manager -> assertEquals("Ann", ((Person) manager.getObjectById(id)).getName()));
            }
        } finally {
            server.destroy();
            server.waitFor(10, TimeUnit.SECONDS);
        }
    }

    @Test
    void a_url_that_is_not_understood_is_refused() {
        JDOException error =
                assertThrows(JDOException.class, () -> at("mortar:nowhere").manager());
        assertTrue(error.toString().contains("mortar:nowhere"));
    }

    @Test
    void the_longer_timeout_of_the_factory_limits_calls() {
        Map<String, Object> timeouts = Map.of(
                "javax.jdo.option.DatastoreReadTimeoutMillis",
                5_000,
                "javax.jdo.option.DatastoreWriteTimeoutMillis",
                7_000);
        try (Store store = Store.with(timeouts)) {
            String options = store.storeManager().options().toString();
            assertTrue(options.contains(", timeout=PT7S"), options);
        }
    }

    @Test
    void a_certificate_without_its_key_is_refused() {
        Map<String, Object> properties = Map.of(
                "javax.jdo.option.ConnectionURL", "mortar://localhost:1/main", "mortar.certificateFile", "x.pem");
        JDOException error =
                assertThrows(JDOException.class, () -> Store.with(properties).manager());
        assertTrue(error.toString().contains("mortar.keyFile"), error.toString());
    }

    @Test
    void a_class_grows_by_the_members_that_it_lacks() {
        try (Store store = Store.inMemory();
                PersistenceManager manager = store.manager()) {
            Client client = store.client();
            client.define(ClassDefinition.builder(Person.class.getName())
                    .field(FieldDefinition.optional("name", FieldType.STRING))
                    .field(FieldDefinition.optional("unknown", FieldType.STRING))
                    .build());
            int type = client.schema().classNumber(Person.class.getName());
            int name = client.schema().fieldNumber(Person.class.getName(), "name");
            int unknown = client.schema().fieldNumber(Person.class.getName(), "unknown");
            client.run(transaction -> transaction.create(
                    type, Record.builder().set(name, "Old").set(unknown, "kept").build()));
            List<Person> found = manager.newQuery(Person.class, "age == 0").executeList();
            assertEquals("Old", found.get(0).getName());
            found.get(0).setAge(7);
            try (var rows = client.query("from Person where age == 7")) {
                assertEquals("kept", rows.next().record().get(unknown));
            }
        }
    }

    @Test
    void a_class_is_not_created_if_that_is_forbidden() {
        try (Store store = Store.with(Map.of("datanucleus.schema.autoCreateTables", "false"))) {
            assertThrows(JDOException.class, () -> store.run(manager -> manager.makePersistent(new Person("Ann", 1))));
        }
    }

    @Test
    void a_group_snapshot_reads_and_does_not_write() {
        String url = "mortar:memory:" + UUID.randomUUID();
        Map<String, Object> snapshot = Map.of("javax.jdo.option.ConnectionURL", url, "mortar.snapshot", "true");
        try (Store reader = Store.with(snapshot);
                Store writer = at(url)) {
            Object id = writer.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 5))));
            writer.run(manager -> manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
            reader.run(manager -> assertEquals("Ann", ((Person) manager.getObjectById(id)).getName()));
            reader.run(manager ->
                    assertEquals("A", manager.getObjectById(Account.class, 1L).getIban()));
            assertThrows(
                    JDOException.class, () -> reader.run(manager -> ((Person) manager.getObjectById(id)).setAge(1)));
            assertThrows(
                    JDOException.class,
                    () -> reader.run(manager -> manager.newQuery(Person.class).execute()));
        }
    }
}
