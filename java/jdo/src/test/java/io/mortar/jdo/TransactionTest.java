package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Person;
import java.math.BigDecimal;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;
import javax.jdo.JDOException;
import javax.jdo.JDOHelper;
import javax.jdo.JDOOptimisticVerificationException;
import javax.jdo.PersistenceManager;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** JDO 3.2, chapter 13: transactions. */
class TransactionTest {
    private final Store store = Store.inMemory();

    @AfterEach
    void close() {
        store.close();
    }

    private Object ann() {
        return store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 50))));
    }

    @Test
    void a_rollback_changes_nothing() {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            ((Person) manager.getObjectById(id)).setAge(1);
            Person bob = manager.makePersistent(new Person("Bob", 2));
            manager.flush();
            manager.currentTransaction().rollback();
            assertFalse(JDOHelper.isPersistent(bob));
        }
        store.run(manager -> {
            assertEquals(50, ((Person) manager.getObjectById(id)).getAge());
            assertEquals(1, manager.newQuery(Person.class).executeList().size());
        });
    }

    @Test
    void a_conflict_has_the_object_as_its_failed_object() {
        Object id = ann();
        try (PersistenceManager first = store.manager();
                PersistenceManager second = store.manager()) {
            first.currentTransaction().begin();
            second.currentTransaction().begin();
            Person inSecond = (Person) second.getObjectById(id);
            inSecond.setAge(52);
            ((Person) first.getObjectById(id)).setAge(51);
            first.currentTransaction().commit();
            JDOOptimisticVerificationException error =
                    assertThrows(JDOOptimisticVerificationException.class, second.currentTransaction()::commit);
            JDOOptimisticVerificationException nested =
                    (JDOOptimisticVerificationException) error.getNestedExceptions()[0];
            assertEquals(inSecond, nested.getFailedObject());
            assertTrue(nested.getMessage().contains(id.toString()));
        }
        store.run(manager -> assertEquals(51, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void a_conflict_has_an_error_for_each_object() {
        List<Object> ids = List.of(ann(), ann(), ann(), ann());
        try (PersistenceManager first = store.manager();
                PersistenceManager second = store.manager()) {
            second.currentTransaction().begin();
            List<Person> people =
                    ids.stream().map(id -> (Person) second.getObjectById(id)).toList();
            people.subList(0, 3).forEach(each -> each.setAge(each.getAge() + 1));
            second.deletePersistent(people.get(3));
            first.currentTransaction().begin();
            ((Person) first.getObjectById(ids.get(0))).setAge(1);
            first.deletePersistent(first.getObjectById(ids.get(1)));
            ((Person) first.getObjectById(ids.get(3))).setAge(1);
            first.currentTransaction().commit();
            JDOOptimisticVerificationException error =
                    assertThrows(JDOOptimisticVerificationException.class, second.currentTransaction()::commit);
            List<Object> failed = Stream.of(error.getNestedExceptions())
                    .map(each -> ((JDOException) each).getFailedObject())
                    .toList();
            assertEquals(3, failed.size());
            assertTrue(failed.containsAll(List.of(people.get(0), people.get(1), people.get(3))));
        }
    }

    @Test
    void a_datastore_transaction_waits_for_a_locked_object() throws Exception {
        Object id = ann();
        CountDownLatch locked = new CountDownLatch(1);
        Thread other = new Thread(() -> {
            try (PersistenceManager manager = store.manager()) {
                manager.currentTransaction().setOptimistic(false);
                manager.currentTransaction().begin();
                Person person = (Person) manager.getObjectById(id);
                person.setAge(person.getAge() + 1);
                manager.flush();
                locked.countDown();
                Thread.sleep(100);
                manager.currentTransaction().commit();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        });
        other.start();
        assertTrue(locked.await(20, TimeUnit.SECONDS));
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().setOptimistic(false);
            manager.currentTransaction().setSerializeRead(true);
            manager.currentTransaction().begin();
            Person person = (Person) manager.getObjectById(id);
            person.setAge(person.getAge() + 1);
            manager.currentTransaction().commit();
        }
        other.join();
        store.run(manager -> assertEquals(52, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void objects_can_be_read_and_written_outside_of_transactions() {
        Object id;
        try (PersistenceManager manager = store.manager()) {
            Person bob = new Person("Bob", 2);
            bob.setBoss(new Person("Eve", 3));
            manager.makePersistent(bob);
            id = manager.getObjectId(bob);
        }
        try (PersistenceManager manager = store.manager()) {
            Person bob = (Person) manager.getObjectById(id);
            assertEquals("Eve", bob.getBoss().getName());
            bob.setAge(4);
            assertEquals(2, manager.newQuery(Person.class).executeList().size());
        }
        try (PersistenceManager manager = store.manager()) {
            Person bob = (Person) manager.getObjectById(id);
            assertEquals(4, bob.getAge());
            manager.deletePersistent(bob);
        }
        store.run(manager ->
                assertEquals(1, manager.newQuery(Person.class).executeList().size()));
    }

    /**
     * JDO 3.2, section 5.6.2: a datastore transaction stores what was changed before it, an optimistic one verifies it.
     */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_change_outside_of_transactions_is_stored_by_the_next_one(boolean isOptimistic) {
        try (Store lazy = Store.with(Map.of(
                        "datanucleus.transaction.nontx.atomic", "false",
                        "javax.jdo.option.NontransactionalWrite", "true",
                        "javax.jdo.option.Optimistic", String.valueOf(isOptimistic)));
                PersistenceManager manager = lazy.manager()) {
            Object id = lazy.call(other -> other.getObjectId(other.makePersistent(new Person("Ann", 50))));
            Person ann = (Person) manager.getObjectById(id);
            ann.setAge(ann.getAge() + 1);
            lazy.run(other -> ((Person) other.getObjectById(id)).setAge(60));
            manager.currentTransaction().begin();
            if (isOptimistic) {
                assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
            } else {
                manager.currentTransaction().commit();
            }
            int expected = isOptimistic ? 60 : 51;
            lazy.run(other -> assertEquals(expected, ((Person) other.getObjectById(id)).getAge()));
        }
    }

    @Test
    void versions_count_the_changes_of_an_object() {
        Object id = ann();
        store.run(manager -> assertEquals(1L, JDOHelper.getVersion(manager.getObjectById(id))));
        store.run(manager -> ((Person) manager.getObjectById(id)).setAge(51));
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            ann.getAge();
            assertEquals(2L, JDOHelper.getVersion(ann));
        });
    }

    @Test
    void a_detached_object_that_is_out_of_date_is_a_conflict() {
        Object id = ann();
        Person detached = store.call(manager -> manager.detachCopy((Person) manager.getObjectById(id)));
        detached.setAge(1);
        store.run(manager -> ((Person) manager.getObjectById(id)).setAge(2));
        assertThrows(
                JDOOptimisticVerificationException.class, () -> store.run(manager -> manager.makePersistent(detached)));
        store.run(manager -> assertEquals(2, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void a_detached_object_is_attached_with_its_changes() {
        Object id = store.call(manager -> {
            Person ann = new Person("Ann", 50);
            ann.setBoss(new Person("Bob", 60));
            ann.getTags().add("x");
            manager.makePersistent(ann);
            return manager.getObjectId(ann);
        });
        Person detached = store.call(manager -> {
            manager.getFetchPlan().setGroup(javax.jdo.FetchPlan.ALL).setMaxFetchDepth(-1);
            return manager.detachCopy((Person) manager.getObjectById(id));
        });
        assertTrue(JDOHelper.isDetached(detached));
        detached.setAge(51);
        detached.getBoss().setName("Eve");
        detached.getTags().add("y");
        store.run(manager -> manager.makePersistent(detached));
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            assertEquals(51, ann.getAge());
            assertEquals("Eve", ann.getBoss().getName());
            assertEquals(List.of("x", "y"), ann.getTags());
        });
    }

    @Test
    void objects_are_detached_at_the_commit_if_wanted() {
        Object id = ann();
        Person detached;
        try (PersistenceManager manager = store.manager()) {
            manager.setDetachAllOnCommit(true);
            manager.currentTransaction().begin();
            detached = (Person) manager.getObjectById(id);
            detached.getAge();
            manager.currentTransaction().commit();
        }
        assertTrue(JDOHelper.isDetached(detached));
        assertEquals("Ann", detached.getName());
    }

    @Test
    void a_read_only_factory_refuses_changes() {
        try (Store readOnly = Store.with(Map.of("datanucleus.readOnlyDatastore", "true"))) {
            assertThrows(
                    JDOException.class, () -> readOnly.run(manager -> manager.makePersistent(new Person("Ann", 1))));
        }
    }

    @Test
    void a_new_transaction_reads_anew_what_the_one_before_has_read() {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            Person ann = (Person) manager.getObjectById(id);
            assertEquals(50, ann.getAge());
            manager.currentTransaction().commit();
            store.run(other -> ((Person) other.getObjectById(id)).setAge(51));
            manager.currentTransaction().begin();
            assertEquals(51, ann.getAge());
            manager.currentTransaction().commit();
        }
    }

    /** An account whose balance a manager retains from a transaction, after another one has changed it. */
    private Account outdatedAccount(PersistenceManager manager) {
        store.run(other -> other.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        manager.currentTransaction().setRetainValues(true);
        manager.currentTransaction().begin();
        Account account = manager.getObjectById(Account.class, 1L);
        assertEquals(BigDecimal.ONE, account.getBalance());
        manager.currentTransaction().commit();
        store.run(other -> other.getObjectById(Account.class, 1L).setBalance(BigDecimal.TEN));
        return account;
    }

    @Test
    void retained_values_that_are_out_of_date_are_a_conflict() {
        try (PersistenceManager manager = store.manager()) {
            Account account = outdatedAccount(manager);
            manager.currentTransaction().begin();
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
        }
        store.run(manager -> assertEquals(
                BigDecimal.TEN, manager.getObjectById(Account.class, 1L).getBalance()));
    }

    @Test
    void retained_values_that_are_out_of_date_are_a_conflict_after_a_query_too() {
        try (PersistenceManager manager = store.manager()) {
            Account account = outdatedAccount(manager);
            manager.currentTransaction().begin();
            assertEquals(
                    List.of(account),
                    List.copyOf(manager.newQuery(Account.class).executeList()));
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
            manager.currentTransaction().begin();
            manager.refresh(account);
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            manager.currentTransaction().commit();
        }
        BigDecimal eleven = BigDecimal.TEN.add(BigDecimal.ONE);
        store.run(manager ->
                assertEquals(eleven, manager.getObjectById(Account.class, 1L).getBalance()));
    }

    @Test
    void retained_values_that_are_out_of_date_are_a_conflict_after_a_reference_to_their_object_was_followed() {
        try (PersistenceManager manager = store.manager()) {
            Account account = outdatedAccount(manager);
            store.run(other -> {
                Account child = new Account(2, "B", BigDecimal.ONE, null);
                child.setParent(other.getObjectById(Account.class, 1L));
                other.makePersistent(child);
            });
            manager.currentTransaction().begin();
            assertSame(account, manager.getObjectById(Account.class, 2L).getParent());
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
        }
    }

    /** What a transaction does with an account before it is rolled back. */
    enum Undone {
        READ,
        CHANGE,
        FLUSHED_CHANGE,
        FLUSHED_DELETION
    }

    @ParameterizedTest
    @EnumSource
    void values_that_a_rollback_restores_and_that_are_out_of_date_are_a_conflict(Undone undone) {
        store.run(other -> other.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        try (PersistenceManager manager = store.manager()) {
            Account account = restoredAccount(manager, undone);
            store.run(other -> other.getObjectById(Account.class, 1L).setBalance(BigDecimal.TEN));
            manager.currentTransaction().begin();
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
        }
        store.run(manager -> assertEquals(
                BigDecimal.TEN, manager.getObjectById(Account.class, 1L).getBalance()));
    }

    @ParameterizedTest
    @EnumSource
    void values_that_a_rollback_restores_can_be_changed(Undone undone) {
        store.run(other -> other.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        try (PersistenceManager manager = store.manager()) {
            Account account = restoredAccount(manager, undone);
            for (int i = 0; i < 2; i++) {
                manager.currentTransaction().begin();
                account.setBalance(account.getBalance().add(BigDecimal.ONE));
                manager.currentTransaction().commit();
                // What was read of a transaction that has been committed stays current.
                manager.currentTransaction().begin();
                account.getBalance();
                manager.currentTransaction().rollback();
            }
        }
        store.run(manager -> assertEquals(
                BigDecimal.valueOf(3), manager.getObjectById(Account.class, 1L).getBalance()));
    }

    /** An account with the values that it had before a transaction that is rolled back. */
    private static Account restoredAccount(PersistenceManager manager, Undone undone) {
        manager.currentTransaction().setRetainValues(true);
        manager.currentTransaction().setRestoreValues(true);
        manager.currentTransaction().begin();
        Account account = manager.getObjectById(Account.class, 1L);
        assertEquals(BigDecimal.ONE, account.getBalance());
        switch (undone) {
            case READ -> {}
            case CHANGE, FLUSHED_CHANGE -> account.setBalance(BigDecimal.valueOf(5));
            case FLUSHED_DELETION -> manager.deletePersistent(account);
        }
        if (undone != Undone.CHANGE) {
            manager.flush();
        }
        manager.currentTransaction().rollback();
        assertEquals(BigDecimal.ONE, account.getBalance());
        return account;
    }

    @Test
    void a_row_that_is_older_than_a_change_of_the_transaction_does_not_undo_it() {
        store.run(manager -> {
            manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null));
            manager.makePersistent(new Account(2, "B", BigDecimal.ONE, null));
        });
        store.run(manager -> {
            List<Account> all = manager.newQuery(Account.class).executeList();
            manager.getObjectById(Account.class, 1L).setBalance(BigDecimal.TEN);
            manager.flush();
            all.forEach(account -> account.setParent(account));
        });
        store.run(manager -> {
            Account changed = manager.getObjectById(Account.class, 1L);
            assertEquals(BigDecimal.TEN, changed.getBalance());
            assertEquals(changed, changed.getParent());
        });
    }

    /** What finds the objects of a class. */
    enum Source {
        QUERY,
        EXTENT;

        /** The objects, one at a call. The first rows are read now, and no object is made of them yet. */
        <T> Supplier<T> of(PersistenceManager manager, Class<T> type) {
            if (this == QUERY) {
                List<T> list = manager.newQuery(type).executeList();
                Iterator<Integer> numbers =
                        Stream.iterate(0, number -> number + 1).iterator();
                return () -> list.get(numbers.next());
            }
            Iterator<T> iterator = manager.getExtent(type).iterator();
            assertTrue(iterator.hasNext());
            return iterator::next;
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_transaction_reads_the_objects_that_a_query_before_it_has_found(Source source) {
        Object id = ann();
        store.run(manager -> manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null)));
        try (PersistenceManager manager = store.manager()) {
            Supplier<Person> people = source.of(manager, Person.class);
            Supplier<Account> accounts = source.of(manager, Account.class);
            changeAge(id, 60);
            store.run(other -> other.getObjectById(Account.class, 1L).setBalance(BigDecimal.TEN));
            manager.currentTransaction().begin();
            Person person = people.get();
            person.setAge(person.getAge() + 1);
            Account account = accounts.get();
            account.setBalance(account.getBalance().add(BigDecimal.ONE));
            manager.currentTransaction().commit();
        }
        store.run(manager -> {
            assertEquals(61, ((Person) manager.getObjectById(id)).getAge());
            assertEquals(
                    BigDecimal.valueOf(11),
                    manager.getObjectById(Account.class, 1L).getBalance());
        });
    }

    @ParameterizedTest
    @EnumSource
    void what_a_transaction_reads_of_a_result_before_it_is_verified(Source source) {
        Object id = ann();
        Object other = ann();
        try (PersistenceManager manager = store.manager()) {
            Supplier<Person> people = source.of(manager, Person.class);
            manager.currentTransaction().begin();
            int sum = people.get().getAge() + people.get().getAge();
            changeAge(id, 60);
            changeAge(other, 60);
            manager.makePersistent(new Person("Sum", sum));
            assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
        }
    }

    @Test
    void bulk_changes_are_counted() {
        store.run(manager -> {
            manager.makePersistent(new Account(1, "A", BigDecimal.ONE, null));
            manager.makePersistent(new Account(2, "B", BigDecimal.TEN, null));
        });
        store.run(manager ->
                assertEquals(1L, manager.newQuery(Account.class, "balance > 5").deletePersistentAll()));
        store.run(manager ->
                assertEquals(1, manager.newQuery(Account.class).executeList().size()));
    }

    private void changeAge(Object id, int age) {
        store.run(other -> ((Person) other.getObjectById(id)).setAge(age));
    }

    @Test
    void a_refreshed_object_can_be_changed_although_another_transaction_has_changed_it() {
        Object id = ann();
        Object other = ann();
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            Person bea = (Person) manager.getObjectById(other);
            ann.setAge(1);
            bea.getAge();
            changeAge(id, 60);
            manager.refresh(ann);
            assertEquals(60, ann.getAge());
            ann.setAge(ann.getAge() + 1);
            bea.setAge(bea.getAge() + 1);
        });
        store.run(manager -> {
            assertEquals(61, ((Person) manager.getObjectById(id)).getAge());
            assertEquals(51, ((Person) manager.getObjectById(other)).getAge());
        });
    }

    @Test
    void an_object_that_an_earlier_transaction_has_read_can_be_changed() {
        Object id = ann();
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            Person ann = (Person) manager.getObjectById(id);
            assertEquals(50, ann.getAge());
            manager.currentTransaction().commit();
            changeAge(id, 60);
            manager.currentTransaction().begin();
            ann.setAge(ann.getAge() + 1);
            manager.currentTransaction().commit();
        }
        store.run(manager -> assertEquals(61, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void a_refresh_does_not_hide_that_another_object_has_changed() {
        Object id = ann();
        Object other = ann();
        try (PersistenceManager manager = store.manager()) {
            manager.currentTransaction().begin();
            Person ann = (Person) manager.getObjectById(id);
            Person bea = (Person) manager.getObjectById(other);
            assertEquals(100, ann.getAge() + bea.getAge());
            changeAge(id, 60);
            changeAge(other, 60);
            manager.refresh(ann);
            ann.setAge(61);
            JDOOptimisticVerificationException error =
                    assertThrows(JDOOptimisticVerificationException.class, manager.currentTransaction()::commit);
            assertSame(bea, ((JDOException) error.getNestedExceptions()[0]).getFailedObject());
            manager.currentTransaction().begin();
            assertEquals(60, bea.getAge());
            bea.setAge(62);
            manager.currentTransaction().commit();
        }
        store.run(manager -> assertEquals(60, ((Person) manager.getObjectById(id)).getAge()));
    }

    @Test
    void a_refresh_of_all_objects_makes_them_current() {
        List<Object> ids = List.of(ann(), ann(), ann());
        store.run(manager -> {
            List<Person> people =
                    ids.stream().map(id -> (Person) manager.getObjectById(id)).toList();
            people.forEach(Person::getAge);
            ids.forEach(id -> changeAge(id, 70));
            manager.refreshAll(people);
            people.forEach(each -> each.setAge(each.getAge() + 1));
        });
        store.run(manager -> assertEquals(
                3, manager.newQuery(Person.class, "age == 71").executeList().size()));
    }

    @Test
    void a_refresh_discards_changes() {
        Object id = ann();
        store.run(manager -> {
            Person ann = (Person) manager.getObjectById(id);
            ann.setAge(9);
            manager.refresh(ann);
            assertEquals(50, ann.getAge());
            assertNull(ann.getBoss());
        });
    }
}
