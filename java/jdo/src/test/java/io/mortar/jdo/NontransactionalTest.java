package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.mortar.jdo.model.Person;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.jdo.JDOOptimisticVerificationException;
import javax.jdo.PersistenceManager;
import javax.jdo.listener.DeleteLifecycleListener;
import javax.jdo.listener.InstanceLifecycleEvent;
import javax.jdo.listener.StoreLifecycleListener;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Calls outside of transactions that change objects: each of them is a transaction. */
class NontransactionalTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private Object ann() {
        return store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 50))));
    }

    private void changeAge(Object id, int age) {
        store.run(other -> ((Person) other.getObjectById(id)).setAge(age));
    }

    /** Runs an action once, when a manager has written or deleted an object and has not committed that. */
    private static void beforeCommit(PersistenceManager manager, Runnable action) {
        AtomicBoolean isDone = new AtomicBoolean();
        class Listener implements StoreLifecycleListener, DeleteLifecycleListener {
            private void run() {
                if (!isDone.getAndSet(true)) {
                    action.run();
                }
            }

            @Override
            public void preStore(InstanceLifecycleEvent event) {
                // Nothing is written yet.
            }

            @Override
            public void postStore(InstanceLifecycleEvent event) {
                run();
            }

            @Override
            public void preDelete(InstanceLifecycleEvent event) {
                // Nothing is deleted yet.
            }

            @Override
            public void postDelete(InstanceLifecycleEvent event) {
                run();
            }
        }
        manager.addInstanceLifecycleListener(new Listener(), (Class<?>[]) null);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_change_outside_of_transactions_does_not_undo_another_one(boolean isRead) {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            Person ann = (Person) manager.getObjectById(id);
            if (isRead) {
                assertEquals(50, ann.getAge());
            }
            beforeCommit(manager, () -> changeAge(id, 60));
            assertThrows(JDOOptimisticVerificationException.class, () -> ann.setName("Anna"));
            manager.refresh(ann);
            assertEquals("Ann", ann.getName());
            ann.setName("Anne");
        }
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            assertEquals("Anne", ann.getName());
            assertEquals(60, ann.getAge());
        });
    }

    @Test
    void a_deletion_outside_of_transactions_does_not_undo_a_change() {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            beforeCommit(manager, () -> changeAge(id, 60));
            Object ann = manager.getObjectById(id);
            assertThrows(JDOOptimisticVerificationException.class, () -> manager.deletePersistent(ann));
        }
        store.run(manager -> assertEquals(60, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void a_bulk_deletion_outside_of_transactions_deletes_all_that_there_is_or_nothing() {
        ann();
        try (PersistenceManager manager = store.manager()) {
            beforeCommit(manager, this::ann);
            assertThrows(
                    JDOOptimisticVerificationException.class,
                    () -> manager.newQuery(Person.class).deletePersistentAll());
        }
        try (PersistenceManager manager = store.manager()) {
            assertEquals(2, manager.newQuery(Person.class, "age == 50").deletePersistentAll());
        }
    }

    /** Makes a manager refuse to store the person with a name. */
    private static void refuse(PersistenceManager manager, String name) {
        StoreLifecycleListener refusing = new StoreLifecycleListener() {
            @Override
            public void preStore(InstanceLifecycleEvent event) {
                if (((Person) event.getSource()).getName().equals(name)) {
                    throw new IllegalArgumentException(name + " is refused");
                }
            }

            @Override
            public void postStore(InstanceLifecycleEvent event) {
                // It was not refused.
            }
        };
        manager.addInstanceLifecycleListener(refusing, Person.class);
    }

    @Test
    void a_call_outside_of_transactions_that_fails_stores_nothing() {
        try (PersistenceManager manager = store.manager()) {
            refuse(manager, "Bob");
            Person ann = new Person("Ann", 50);
            ann.setBoss(new Person("Bob", 60));
            assertThrows(IllegalArgumentException.class, () -> manager.makePersistent(ann));
            assertEquals(List.of(), List.copyOf(manager.newQuery(Person.class).executeList()));
            manager.makePersistent(new Person("Cid", 70));
        }
        store.run(manager -> assertEquals(
                "Cid", manager.newQuery(Person.class).executeList().get(0).getName()));
    }

    @Test
    void reads_after_a_call_outside_of_transactions_that_fails_are_of_no_transaction() {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            refuse(manager, "Bob");
            assertThrows(IllegalArgumentException.class, () -> manager.makePersistent(new Person("Bob", 60)));
            Person ann = (Person) manager.getObjectById(id);
            assertEquals(50, ann.getAge());
            changeAge(id, 60);
            manager.refresh(ann);
            assertEquals(60, ann.getAge());
        }
    }
}
