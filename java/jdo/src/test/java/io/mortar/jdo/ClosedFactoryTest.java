package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Tape;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.Persistence;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** A factory that is closed while entity managers are in use. Their calls fail with an error that says so. */
class ClosedFactoryTest {
    private static EntityManagerFactory factory() {
        return Persistence.createEntityManagerFactory(
                "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));
    }

    private static String messages(Throwable error) {
        StringBuilder all = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            assertFalse(each instanceof NullPointerException, () -> "a NullPointerException within " + error);
            all.append(each.getMessage()).append('\n');
        }
        return all.toString();
    }

    @Test
    void calls_after_the_factory_was_closed_say_so() {
        EntityManagerFactory factory = factory();
        EntityManager manager = factory.createEntityManager();
        manager.getTransaction().begin();
        manager.persist(new Tape("a", 1, 2));
        manager.flush();
        manager.persist(new Tape("b", 1, 2));
        factory.close();
        RuntimeException error = assertThrows(
                RuntimeException.class, () -> manager.getTransaction().commit());
        assertTrue(messages(error).contains("was closed"), messages(error));
    }

    @Test
    void threads_that_use_a_closed_factory_end_without_null_pointers() throws InterruptedException {
        EntityManagerFactory factory = factory();
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        CountDownLatch busy = new CountDownLatch(4);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            String prefix = "t" + i + "-";
            Thread thread = new Thread(() -> {
                for (int number = 0; factory.isOpen(); number++) {
                    try {
                        use(factory, prefix + number);
                    } catch (RuntimeException error) {
                        errors.add(error);
                    }
                    busy.countDown();
                }
            });
            thread.start();
            threads.add(thread);
        }
        assertTrue(busy.await(60, TimeUnit.SECONDS));
        factory.close();
        for (Thread each : threads) {
            each.join(60_000);
            assertFalse(each.isAlive());
        }
        errors.forEach(ClosedFactoryTest::messages);
    }

    private static void use(EntityManagerFactory factory, String code) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            manager.persist(new Tape(code, 1, 2));
            manager.createQuery("SELECT COUNT(t) FROM Tape t WHERE t.code = :code")
                    .setParameter("code", code)
                    .getSingleResult();
            manager.getTransaction().commit();
        } finally {
            if (manager.isOpen()) {
                if (manager.getTransaction().isActive()) {
                    manager.getTransaction().rollback();
                }
                manager.close();
            }
        }
    }
}
