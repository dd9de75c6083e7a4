package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Diary;
import io.mortar.jdo.model.Person;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import javax.jdo.JDODetachedFieldAccessException;
import javax.jdo.JDOHelper;
import javax.jdo.ObjectState;
import javax.jdo.PersistenceManager;
import javax.jdo.listener.CreateLifecycleListener;
import javax.jdo.listener.InstanceLifecycleEvent;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** JDO 3.2, chapters 5, 10 and 12: states, callbacks, fetch groups, generated values. */
class LifecycleTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    @Test
    void an_object_passes_through_its_states() {
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().setOptimistic(false);
            Person ann = new Person("Ann", 1);
            assertEquals(ObjectState.TRANSIENT, JDOHelper.getObjectState(ann));
            manager.currentTransaction().begin();
            manager.makePersistent(ann);
            assertEquals(ObjectState.PERSISTENT_NEW, JDOHelper.getObjectState(ann));
            manager.currentTransaction().commit();
            assertEquals(ObjectState.HOLLOW_PERSISTENT_NONTRANSACTIONAL, JDOHelper.getObjectState(ann));
            manager.currentTransaction().begin();
            ann.getAge();
            assertEquals(ObjectState.PERSISTENT_CLEAN, JDOHelper.getObjectState(ann));
            ann.setAge(2);
            assertEquals(ObjectState.PERSISTENT_DIRTY, JDOHelper.getObjectState(ann));
            manager.deletePersistent(ann);
            assertEquals(ObjectState.PERSISTENT_DELETED, JDOHelper.getObjectState(ann));
            manager.currentTransaction().commit();
            assertEquals(ObjectState.TRANSIENT, JDOHelper.getObjectState(ann));
        }
    }

    @Test
    void a_transactional_object_becomes_persistent() {
        store.run(manager -> {
            Account account = new Account(7, "DE7", BigDecimal.ONE, null);
            manager.makeTransactional(account);
            account.setBalance(BigDecimal.TEN);
            manager.makePersistent(account);
        });
        assertEquals(
                BigDecimal.TEN,
                store.call(manager -> manager.getObjectById(Account.class, 7L).getBalance()));
    }

    @Test
    void transactional_objects_have_no_identity_and_are_rolled_back() {
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().setRestoreValues(true);
            Person ann = new Person("Ann", 50);
            for (int i = 0; i < 3; i++) {
                manager.currentTransaction().begin();
                // Each of them got the identity that one before had got.
                manager.makeTransactionalAll(ann, new Person("Bob", 1));
                ann.setAge(51);
                manager.currentTransaction().rollback();
                assertEquals(50, ann.getAge());
            }
            manager.currentTransaction().begin();
            Person cid = manager.makePersistent(new Person("Cid", 7));
            ann.setAge(52);
            manager.makePersistent(ann);
            manager.currentTransaction().commit();
            assertNotEquals(manager.getObjectId(cid), manager.getObjectId(ann));
        }
        store.run(manager -> assertEquals(
                52,
                manager.newQuery(Person.class, "name == 'Ann'")
                        .executeList()
                        .get(0)
                        .getAge()));
    }

    @Test
    void callbacks_and_listeners_are_called() {
        Diary.CALLS.clear();
        String id = store.call(manager -> manager.makePersistent(new Diary("x")).getId());
        assertEquals(List.of("store"), Diary.CALLS);
        store.run(manager -> {
            Diary diary = manager.getObjectById(Diary.class, id);
            assertEquals("stored", diary.getStamp());
            manager.deletePersistent(diary);
        });
        assertTrue(Diary.CALLS.containsAll(List.of("load", "delete")));
        List<Object> created = new ArrayList<>();
        try (PersistenceManager manager = store.manager()) {
            manager.addInstanceLifecycleListener(
                    new CreateLifecycleListener() {
                        @Override
                        public void postCreate(InstanceLifecycleEvent event) {
                            created.add(event.getPersistentInstance());
                        }
                    },
                    Person.class);
            manager.currentTransaction().begin();
            Person bob = new Person("Bob", 1);
            bob.setBoss(new Person("Ann", 2));
            manager.makePersistent(bob);
            manager.currentTransaction().commit();
        }
        assertEquals(2, created.size());
    }

    @Test
    void values_are_generated() {
        store.run(manager -> {
            Diary first = manager.makePersistent(new Diary("x"));
            Diary second = manager.makePersistent(new Diary("y"));
            assertNotEquals(first.getId(), second.getId());
            assertTrue(first.getPage() >= 100);
            assertEquals(first.getPage() + 1, second.getPage());
            javax.jdo.datastore.Sequence sequence = manager.getSequence("io.mortar.jdo.model.pages");
            assertTrue(sequence.nextValue() > 0);
        });
    }

    @Test
    void a_fetch_group_says_what_a_detached_object_has() {
        String id =
                store.call(manager -> manager.makePersistent(new Diary("long")).getId());
        Diary without = store.call(manager -> manager.detachCopy(manager.getObjectById(Diary.class, id)));
        assertThrows(JDODetachedFieldAccessException.class, without::getText);
        Diary with = store.call(manager -> {
            manager.getFetchPlan().addGroup("text");
            return manager.detachCopy(manager.getObjectById(Diary.class, id));
        });
        assertEquals("long", with.getText());
    }

    @Test
    void an_object_that_is_not_reachable_at_the_commit_is_not_stored() {
        store.run(manager -> {
            Person bob = new Person("Bob", 1);
            bob.setBoss(new Person("Ann", 2));
            manager.makePersistent(bob);
            bob.setBoss(null);
        });
        store.run(manager ->
                assertEquals(1, manager.newQuery(Person.class).executeList().size()));
    }

    @Test
    void an_object_can_be_made_transient() {
        Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 1))));
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            manager.retrieve(ann);
            manager.makeTransient(ann);
            assertFalse(JDOHelper.isPersistent(ann));
            assertEquals("Ann", ann.getName());
        });
    }

    @Test
    void many_objects_are_persisted_and_deleted_together() {
        store.run(manager -> {
            List<Person> all = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                all.add(new Person("P" + i, i));
            }
            manager.makePersistentAll(all);
        });
        store.run(manager -> manager.deletePersistentAll(
                manager.newQuery(Person.class, "age < 90").executeList()));
        store.run(manager ->
                assertEquals(10, manager.newQuery(Person.class).executeList().size()));
    }
}
