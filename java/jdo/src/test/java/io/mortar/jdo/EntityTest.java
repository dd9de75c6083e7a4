package io.mortar.jdo;

import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;

/** Tests of Jakarta Persistence, each with a new store in memory. */
abstract class EntityTest {
    final EntityManagerFactory factory = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));

    @AfterEach
    void close() {
        factory.close();
    }

    /** Runs the body in a transaction of a new entity manager. */
    void run(Consumer<EntityManager> body) {
        Store.inTransaction(factory, body);
    }
}
