package io.mortar.jdo;

import io.mortar.Client;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import javax.jdo.JDOHelper;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import javax.jdo.datastore.JDOConnection;
import org.datanucleus.api.jdo.JDOPersistenceManagerFactory;

/** A store in memory for the tests of one class. */
final class Store implements AutoCloseable {
    private final PersistenceManagerFactory factory;

    private Store(Map<String, Object> properties) {
        factory = JDOHelper.getPersistenceManagerFactory(properties);
    }

    static Store inMemory() {
        return with(Map.of());
    }

    /** A new store in memory with properties. */
    static Store with(Map<String, Object> more) {
        Map<String, Object> properties = new TreeMap<>();
        properties.put(
                "javax.jdo.PersistenceManagerFactoryClass", "org.datanucleus.api.jdo.JDOPersistenceManagerFactory");
        properties.put("javax.jdo.option.ConnectionURL", "mortar:memory:" + UUID.randomUUID());
        properties.put("javax.jdo.option.Optimistic", "true");
        properties.putAll(more);
        return new Store(properties);
    }

    /** Runs the body in a transaction of a new entity manager, which is rolled back if the body fails. */
    static void inTransaction(EntityManagerFactory factory, Consumer<EntityManager> body) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            body.accept(manager);
            manager.getTransaction().commit();
        } finally {
            if (manager.getTransaction().isActive()) {
                manager.getTransaction().rollback();
            }
            manager.close();
        }
    }

    PersistenceManagerFactory factory() {
        return factory;
    }

    MortarStoreManager storeManager() {
        return (MortarStoreManager)
                ((JDOPersistenceManagerFactory) factory).getNucleusContext().getStoreManager();
    }

    /** A new persistence manager. */
    PersistenceManager manager() {
        return factory.getPersistenceManager();
    }

    /** The client of the store. */
    Client client() {
        try (PersistenceManager manager = manager()) {
            JDOConnection connection = manager.getDataStoreConnection();
            try {
                return (Client) connection.getNativeConnection();
            } finally {
                connection.close();
            }
        }
    }

    /** Runs a transaction in a persistence manager of its own, and commits it. */
    <T> T call(Function<PersistenceManager, T> body) {
        try (PersistenceManager manager = manager()) {
            manager.currentTransaction().begin();
            try {
                T result = body.apply(manager);
                manager.currentTransaction().commit();
                return result;
            } finally {
                if (manager.currentTransaction().isActive()) {
                    manager.currentTransaction().rollback();
                }
            }
        }
    }

    void run(Consumer<PersistenceManager> body) {
        call(manager -> {
            body.accept(manager);
            return null;
        });
    }

    @Override
    public void close() {
        factory.close();
    }
}
