package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.SchemaClass;
import io.mortar.jdo.entities.Pen;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.datanucleus.ExecutionContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Jakarta Persistence 3.1, section 9.4: the generation of the schema. */
class JakartaSchemaTest {
    private static final String ACTION = "jakarta.persistence.schema-generation.database.action";

    private final String url = "mortar:memory:" + UUID.randomUUID();

    private Map<String, Object> properties(String... more) {
        Map<String, Object> properties = new HashMap<>(Map.of("jakarta.persistence.jdbc.url", url));
        for (int i = 0; i < more.length; i += 2) {
            properties.put(more[i], more[i + 1]);
        }
        return properties;
    }

    private static MortarStoreManager store(EntityManager manager) {
        return (MortarStoreManager) manager.unwrap(ExecutionContext.class).getStoreManager();
    }

    private static boolean hasPens(EntityManagerFactory factory) {
        boolean[] found = new boolean[1];
        Store.inTransaction(factory, manager -> {
            List<String> names = store(manager).client().schema().classes().stream()
                    .map(SchemaClass::name)
                    .toList();
            found[0] = names.contains(Pen.class.getName());
        });
        return found[0];
    }

    @ParameterizedTest
    @ValueSource(strings = {"create", "drop-and-create"})
    void a_factory_creates_the_classes_of_its_unit(String action) {
        Map<String, Object> properties = properties(ACTION, action, "datanucleus.schema.autoCreateTables", "false");
        try (EntityManagerFactory factory = Persistence.createEntityManagerFactory("stationery", properties)) {
            assertTrue(hasPens(factory));
        }
    }

    @Test
    void the_classes_can_be_generated_and_dropped_without_a_factory() {
        try (EntityManagerFactory factory = Persistence.createEntityManagerFactory("stationery", properties())) {
            assertFalse(hasPens(factory));
            Persistence.generateSchema("stationery", properties(ACTION, "create"));
            assertTrue(hasPens(factory));
            Persistence.generateSchema("stationery", properties(ACTION, "drop"));
            assertFalse(hasPens(factory));
            Store.inTransaction(factory, manager -> manager.persist(new Pen(1, "blue")));
            Store.inTransaction(
                    factory,
                    manager -> assertEquals("blue", manager.find(Pen.class, 1L).getLabel()));
        }
    }
}
