package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.Client;
import io.mortar.Oid;
import io.mortar.jdo.model.OpenBox;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.jdo.JDOHelper;
import javax.jdo.JDOUserException;
import javax.jdo.PersistenceManager;
import org.datanucleus.identity.DatastoreId;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What docs/java.md says about identities, members, threads and results. */
class ProgramsTest {
    private static final int KEPT = 10_000;

    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private Object stored(String label) {
        return store.call(manager -> manager.getObjectId(manager.makePersistent(new OpenBox(label))));
    }

    @Test
    void a_datastore_identity_contains_the_identifier_of_the_client() {
        DatastoreId id = (DatastoreId) stored("box");
        Oid oid = (Oid) id.getKeyAsObject();
        Client client = store.client();
        assertTrue(client.get(oid).isPresent());
        store.run(manager -> {
            Object same = manager.newObjectIdInstance(OpenBox.class, oid + "[OID]" + OpenBox.class.getName());
            assertEquals(id, same);
            assertEquals("box", ((OpenBox) manager.getObjectById(same)).getLabel());
        });
    }

    @Test
    void a_class_that_is_not_enhanced_neither_reads_nor_changes_members() {
        Object id = stored("box");
        store.run(manager -> {
            OpenBox box = (OpenBox) manager.getObjectById(id, false);
            assertNull(box.label);
            assertEquals("box", box.getLabel());
            assertEquals("box", box.label);
            box.label = "other";
        });
        store.run(manager -> {
            OpenBox box = (OpenBox) manager.getObjectById(id);
            assertEquals("box", box.getLabel());
            box.label = "third";
            JDOHelper.makeDirty(box, "label");
            box.label = "third";
        });
        store.run(manager -> assertEquals("third", ((OpenBox) manager.getObjectById(id)).getLabel()));
    }

    /** The thread waits for a lock until it gets it, and stays interrupted. */
    @Test
    void an_interruption_does_not_end_a_call() throws InterruptedException {
        Object id = stored("box");
        AtomicBoolean wasInterrupted = new AtomicBoolean();
        CountDownLatch waits = new CountDownLatch(1);
        Thread second = new Thread(() -> {
            try (PersistenceManager manager = store.manager()) {
                manager.currentTransaction().setOptimistic(false);
                manager.currentTransaction().begin();
                waits.countDown();
                OpenBox box = (OpenBox) manager.getObjectById(id);
                JDOHelper.makeDirty(box, "label");
                box.label = box.getLabel() + "2";
                manager.currentTransaction().commit();
                wasInterrupted.set(Thread.currentThread().isInterrupted());
            }
        });
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().setOptimistic(false);
            manager.currentTransaction().begin();
            OpenBox box = (OpenBox) manager.getObjectById(id);
            JDOHelper.makeDirty(box, "label");
            box.label = "1";
            manager.flush();
            second.start();
            assertTrue(waits.await(30, TimeUnit.SECONDS));
            second.interrupt();
            manager.currentTransaction().commit();
        }
        second.join(60_000);
        assertTrue(wasInterrupted.get());
        store.run(manager -> assertEquals("12", ((OpenBox) manager.getObjectById(id)).getLabel()));
    }

    @Test
    void a_transaction_does_not_keep_a_result_that_the_program_has_forgotten() {
        stored("box");
        store.run(manager -> {
            Reference<List<OpenBox>> forgotten =
                    new WeakReference<>(manager.newQuery(OpenBox.class).executeList());
            for (int i = 0; i < 100 && !forgotten.refersTo(null); i++) {
                System.gc();
            }
            assertTrue(forgotten.refersTo(null));
        });
    }

    @Test
    void a_closed_result_keeps_its_first_objects_only() {
        store.run(manager -> {
            for (int i = 0; i < KEPT + 2; i++) {
                manager.makePersistent(new OpenBox("box"));
            }
        });
        PersistenceManager manager = store.manager();
        manager.currentTransaction().begin();
        List<OpenBox> boxes = manager.newQuery(OpenBox.class).executeList();
        manager.currentTransaction().commit();
        assertEquals(KEPT + 2, boxes.size());
        assertEquals("box", boxes.get(KEPT).getLabel());
        assertEquals("box", boxes.get(0).getLabel());
        manager.close();
        boxes.get(KEPT - 1);
        assertThrows(JDOUserException.class, () -> boxes.get(KEPT));
    }
}
