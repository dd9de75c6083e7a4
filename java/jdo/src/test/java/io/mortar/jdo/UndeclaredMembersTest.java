package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Crate;
import io.mortar.jdo.entities.Owner;
import io.mortar.jdo.entities.Room;
import io.mortar.jdo.entities.Weather;
import io.mortar.jdo.model.Undeclared;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import javax.jdo.JDOException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** No member is lost silently: it is stored, its class is refused, or a warning names it. */
class UndeclaredMembersTest {
    private static final Store STORE = Store.inMemory();

    private final EntityManagerFactory factory = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));

    @AfterEach
    void close() {
        factory.close();
    }

    @AfterAll
    static void closeStore() {
        STORE.close();
    }

    private void run(Consumer<EntityManager> body) {
        Store.inTransaction(factory, body);
    }

    private static void assertSays(Throwable error, String... parts) {
        StringBuilder messages = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            messages.append(each.getMessage()).append('\n');
        }
        for (String part : parts) {
            assertTrue(messages.toString().contains(part), messages.toString());
        }
    }

    /** What is logged as a warning about metadata while an action runs. */
    private static List<String> warnings(Runnable action) {
        List<String> messages = new CopyOnWriteArrayList<>();
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord entry) {
                if (entry.getLevel() == Level.WARNING) {
                    messages.add(entry.getMessage());
                }
            }

            @Override
            public void flush() {
                // Nothing is buffered.
            }

            @Override
            public void close() {
                // Nothing is open.
            }
        };
        Logger logger = Logger.getLogger("DataNucleus.MetaData");
        logger.addHandler(handler);
        try {
            action.run();
        } finally {
            logger.removeHandler(handler);
        }
        return messages;
    }

    /** JDO 3.2: such members are not persistent by default. Programs have loggers, locks and caches in them. */
    @ParameterizedTest
    @ValueSource(classes = {Undeclared.AnyValue.class, Undeclared.SerializableValue.class, Undeclared.FinalList.class})
    void a_member_of_jdo_that_is_not_stored_is_named_in_one_warning(Class<?> type) throws Exception {
        Object object = type.getDeclaredConstructor().newInstance();
        Object next = type.getDeclaredConstructor().newInstance();
        List<String> warnings = warnings(() -> {
            STORE.run(manager -> manager.makePersistent(object));
            STORE.run(manager -> manager.makePersistent(next));
        });
        warnings.removeIf(each -> !each.contains(type.getName() + ".value"));
        assertEquals(1, warnings.size(), warnings.toString());
        assertTrue(warnings.get(0).contains("@Persistent"), warnings.toString());
        assertTrue(warnings.get(0).contains("@NotPersistent"), warnings.toString());
    }

    @Test
    void declared_members_of_jdo_are_stored() {
        Object id = STORE.call(manager -> {
            Undeclared.Declared declared = manager.makePersistent(new Undeclared.Declared(new Undeclared.Size(1, 2)));
            declared.getValues().add("text");
            return manager.getObjectId(declared);
        });
        STORE.run(manager -> {
            Undeclared.Declared declared = (Undeclared.Declared) manager.getObjectById(id);
            assertEquals(new Undeclared.Size(1, 2), declared.getValue());
            assertEquals("text", declared.getValues().get(0));
        });
    }

    @Test
    void a_member_that_is_declared_not_to_be_stored_causes_no_warning() {
        List<String> warnings = warnings(() -> STORE.run(manager -> {
            manager.makePersistent(new Undeclared.InFile());
            manager.makePersistent(new Undeclared.Declared("text"));
        }));
        warnings.removeIf(each -> !each.contains("is not stored"));
        assertEquals(List.of(), warnings);
        Object id = STORE.call(manager -> manager.getObjectId(manager.makePersistent(new Undeclared.InFile())));
        STORE.run(manager -> assertEquals(3, ((Undeclared.InFile) manager.getObjectById(id)).getNumber()));
    }

    @Test
    void a_persistent_object_is_not_copied_into_a_member_of_any_type() {
        JDOException error = assertThrows(
                JDOException.class,
                () -> STORE.run(
                        manager -> manager.makePersistent(new Undeclared.Declared(new Undeclared.Declared("text")))));
        assertSays(error, "Undeclared$Declared.value", "types");
        error = assertThrows(
                JDOException.class,
                () -> STORE.run(manager -> manager.makePersistent(new Undeclared.Declared("text"))
                        .getValues()
                        .add(new Undeclared.Declared("text"))));
        assertSays(error, "Undeclared$Declared.values", "types");
    }

    @ParameterizedTest
    @ValueSource(
            classes = {
                io.mortar.jdo.entities.Undeclared.AnyValue.class,
                io.mortar.jdo.entities.Undeclared.FinalList.class,
                io.mortar.jdo.entities.Undeclared.WithProperty.class,
                io.mortar.jdo.entities.Undeclared.Embedding.class
            })
    void an_entity_with_a_member_that_would_not_be_stored_is_refused(Class<?> type) throws Exception {
        Object entity = type.getDeclaredConstructor().newInstance();
        RuntimeException error = assertThrows(RuntimeException.class, () -> run(manager -> manager.persist(entity)));
        assertSays(error, ".value", "@Transient");
    }

    @Test
    void declared_members_of_entities_are_stored() {
        var size = new io.mortar.jdo.entities.Undeclared.Size(1, 2);
        run(manager -> manager.persist(new io.mortar.jdo.entities.Undeclared.Declared(1, "text", size)));
        run(manager -> {
            var declared = manager.find(io.mortar.jdo.entities.Undeclared.Declared.class, 1L);
            assertEquals("text", declared.getValue());
            assertEquals(size, declared.getSize());
        });
    }

    /** Jakarta Persistence 3.1, section 2.8. */
    @Test
    void members_of_serializable_types_are_stored() {
        var size = new io.mortar.jdo.entities.Undeclared.Size(1, 2);
        run(manager -> {
            manager.persist(new io.mortar.jdo.entities.Undeclared.SerializableValues(1, size));
            manager.persist(new io.mortar.jdo.entities.Undeclared.SerializableProperty(1, size));
        });
        var larger = new io.mortar.jdo.entities.Undeclared.Size(10, 20);
        run(manager -> {
            var found = manager.find(io.mortar.jdo.entities.Undeclared.SerializableValues.class, 1L);
            assertEquals(Arrays.asList(size, size, List.of(size, size), size, null), found.values());
            found.setSize(larger);
            var property = manager.find(io.mortar.jdo.entities.Undeclared.SerializableProperty.class, 1L);
            assertEquals(size, property.getSize());
            property.setSize(larger);
        });
        run(manager -> {
            var found = manager.find(io.mortar.jdo.entities.Undeclared.SerializableValues.class, 1L);
            assertEquals(larger, found.values().get(0));
            assertEquals(
                    larger,
                    manager.find(io.mortar.jdo.entities.Undeclared.SerializableProperty.class, 1L)
                            .getSize());
        });
    }

    @Test
    void a_member_with_a_converter_needs_no_other_annotation() {
        run(manager -> manager.persist(new Weather("Rome", new Weather.Temperature(31.5))));
        run(manager -> assertEquals(
                new Weather.Temperature(31.5),
                manager.find(Weather.class, "Rome").getTemperature()));
        run(manager -> assertEquals(
                1,
                manager.createQuery("SELECT w FROM Weather w WHERE w.temperature = :t")
                        .setParameter("t", new Weather.Temperature(31.5))
                        .getResultList()
                        .size()));
    }

    @Test
    void a_primary_key_is_not_null() {
        RuntimeException error =
                assertThrows(RuntimeException.class, () -> run(manager -> manager.persist(new Crate(null))));
        assertSays(error, "Coded.code is null", "primary key");
        error = assertThrows(RuntimeException.class, () -> run(manager -> manager.persist(new Room(null, 3))));
        assertSays(error, "Room$Id.house is null", "primary key");
        run(manager -> assertEquals(
                0, manager.createQuery("SELECT c FROM Crate c").getResultList().size()));
    }

    @Test
    void a_key_is_derived_from_that_of_another_entity() {
        Owner owner = new Owner();
        run(manager -> {
            Owner.Details details = new Owner.Details(owner);
            manager.persist(details);
            assertNotNull(owner.getId());
            assertEquals(owner.getId(), details.getId());
            manager.persist(new Owner.Note("first", owner));
        });
        run(manager -> {
            Owner.Details details = manager.find(Owner.Details.class, owner.getId());
            assertEquals(owner.getId(), details.getOwner().getId());
            Owner.Note note = manager.find(Owner.Note.class, new Owner.Note.Key(owner.getId(), "first"));
            assertSame(details.getOwner(), note.getOwner());
        });
    }

    @Test
    void a_key_is_not_derived_from_what_has_none() {
        RuntimeException error = assertThrows(
                RuntimeException.class, () -> run(manager -> manager.persist(new Owner.Note("first", new Owner()))));
        assertSays(error, "Note.owner is not persistent");
        error = assertThrows(RuntimeException.class, () -> run(manager -> manager.persist(new Owner.Details(null))));
        assertSays(error, "Details.owner is null");
    }
}
