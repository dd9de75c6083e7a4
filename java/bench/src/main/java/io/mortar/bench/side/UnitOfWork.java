package io.mortar.bench.side;

import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.util.function.Consumer;
import java.util.function.Function;

/** Runs work with an entity manager of its own. */
public final class UnitOfWork {
    private UnitOfWork() {}

    /** Runs work in a transaction and commits it. */
    public static <T> T call(EntityManagerFactory factory, Function<EntityManager, T> work) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            T result = work.apply(manager);
            manager.getTransaction().commit();
            return result;
        } finally {
            if (manager.getTransaction().isActive()) {
                manager.getTransaction().rollback();
            }
            manager.close();
        }
    }

    /** Runs work in a transaction and commits it. */
    public static void run(EntityManagerFactory factory, Consumer<EntityManager> work) {
        call(factory, manager -> {
            work.accept(manager);
            return null;
        });
    }
}
