package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.mortar.jdo.entities.Artist;
import io.mortar.jdo.model.Account;
import io.mortar.jdo.model.Person;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.LockModeType;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.Persistence;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.PessimisticLockException;
import jakarta.persistence.QueryTimeoutException;
import java.math.BigDecimal;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import javax.jdo.JDODataStoreException;
import javax.jdo.PersistenceManager;
import javax.jdo.Query;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Pessimistic locks of Jakarta Persistence 3.1, section 3.4.4, and of JDO 3.2, in optimistic transactions. */
class LocksTest {
    private static final Map<String, Object> SOON = Map.of("jakarta.persistence.lock.timeout", "200");

    private final EntityManagerFactory factory = Persistence.createEntityManagerFactory(
            "music", Map.of("jakarta.persistence.jdbc.url", "mortar:memory:" + UUID.randomUUID()));
    private Long id;

    /** The ways to lock an entity. */
    enum Way {
        FIND((manager, id) -> manager.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE)),
        FIND_FORCE((manager, id) -> manager.find(Artist.class, id, LockModeType.PESSIMISTIC_FORCE_INCREMENT)),
        LOCK((manager, id) -> manager.lock(manager.find(Artist.class, id), LockModeType.PESSIMISTIC_WRITE)),
        REFRESH((manager, id) -> manager.refresh(manager.find(Artist.class, id), LockModeType.PESSIMISTIC_WRITE)),
        QUERY((manager, id) -> manager.createQuery("SELECT a FROM Artist a WHERE a.id = :id", Artist.class)
                .setParameter("id", id)
                .setLockMode(LockModeType.PESSIMISTIC_WRITE)
                .getSingleResult());

        private final BiConsumer<EntityManager, Long> lock;

        Way(BiConsumer<EntityManager, Long> lock) {
            this.lock = lock;
        }
    }

    @BeforeEach
    void store() {
        EntityManager manager = factory.createEntityManager();
        manager.getTransaction().begin();
        Artist artist = new Artist("Miles");
        manager.persist(artist);
        manager.getTransaction().commit();
        manager.close();
        id = artist.getId();
    }

    @AfterEach
    void close() {
        factory.close();
    }

    private EntityManager begin() {
        EntityManager manager = factory.createEntityManager();
        manager.getTransaction().begin();
        return manager;
    }

    @ParameterizedTest
    @EnumSource(Way.class)
    void another_transaction_waits_for_the_lock(Way way) throws Exception {
        EntityManager first = begin();
        way.lock.accept(first, id);
        CountDownLatch started = new CountDownLatch(1);
        CountDownLatch locked = new CountDownLatch(1);
        Thread other = new Thread(() -> {
            EntityManager second = begin();
            started.countDown();
            Artist artist = second.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE);
            locked.countDown();
            artist.setName(artist.getName() + "!");
            second.getTransaction().commit();
            second.close();
        });
        other.start();
        assertTrue(started.await(20, TimeUnit.SECONDS));
        assertFalse(locked.await(100, TimeUnit.MILLISECONDS));
        Artist artist = first.find(Artist.class, id);
        artist.setName(artist.getName() + "?");
        first.getTransaction().commit();
        first.close();
        other.join();
        EntityManager last = factory.createEntityManager();
        assertEquals("Miles?!", last.find(Artist.class, id).getName());
        last.close();
    }

    @Test
    void a_lock_that_is_not_obtained_in_time_is_an_error() {
        EntityManager first = begin();
        first.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE);
        EntityManager second = begin();
        assertThrows(
                PessimisticLockException.class,
                () -> second.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE, SOON));
        assertTrue(second.getTransaction().getRollbackOnly());
        second.getTransaction().rollback();
        second.close();
        first.find(Artist.class, id).setName("Davis");
        first.getTransaction().commit();
        first.close();
        EntityManager third = begin();
        assertEquals(
                "Davis",
                third.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE, SOON)
                        .getName());
        third.getTransaction().commit();
        third.close();
    }

    @ParameterizedTest
    @EnumSource(names = {"FIND", "REFRESH", "QUERY"})
    void a_lock_that_is_not_obtained_within_the_limit_of_a_call_is_an_error(Way way) {
        try (EntityManagerFactory impatient = Persistence.createEntityManagerFactory(
                "music",
                Map.of(
                        "jakarta.persistence.jdbc.url",
                        "mortar:memory:" + UUID.randomUUID(),
                        "datanucleus.datastoreWriteTimeout",
                        "1000"))) {
            EntityManager first = impatient.createEntityManager();
            first.getTransaction().begin();
            Artist artist = new Artist("Miles");
            first.persist(artist);
            first.getTransaction().commit();
            first.getTransaction().begin();
            first.lock(artist, LockModeType.PESSIMISTIC_WRITE);
            EntityManager second = impatient.createEntityManager();
            second.getTransaction().begin();
            PessimisticLockException error =
                    assertThrows(PessimisticLockException.class, () -> way.lock.accept(second, artist.getId()));
            assertTrue(error.getMessage().contains("Artist"), error.getMessage());
            assertTrue(second.getTransaction().getRollbackOnly());
            second.getTransaction().rollback();
            second.close();
            first.getTransaction().rollback();
            first.close();
        }
    }

    @Test
    void an_entity_that_is_out_of_date_cannot_be_locked() {
        EntityManager manager = factory.createEntityManager();
        Artist stale = manager.find(Artist.class, id);
        EntityManager other = begin();
        other.find(Artist.class, id).setName("Davis");
        other.getTransaction().commit();
        other.close();
        manager.getTransaction().begin();
        assertThrows(OptimisticLockException.class, () -> manager.lock(stale, LockModeType.PESSIMISTIC_WRITE));
        manager.getTransaction().rollback();
        manager.getTransaction().begin();
        manager.refresh(stale, LockModeType.PESSIMISTIC_WRITE);
        assertEquals("Davis", stale.getName());
        manager.getTransaction().commit();
        manager.close();
    }

    @Test
    void a_lock_after_a_query_is_refused_in_an_optimistic_transaction() {
        EntityManager manager = begin();
        Artist artist =
                manager.createQuery("SELECT a FROM Artist a", Artist.class).getSingleResult();
        PersistenceException error =
                assertThrows(PersistenceException.class, () -> manager.lock(artist, LockModeType.PESSIMISTIC_WRITE));
        assertTrue(error.getMessage().contains("datanucleus.Optimistic"), error.getMessage());
        manager.getTransaction().rollback();
        manager.close();
    }

    @Test
    void a_query_that_takes_too_long_is_an_error() {
        EntityManager first = begin();
        first.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE).setName("Davis");
        EntityManager second = begin();
        assertThrows(
                QueryTimeoutException.class,
                () -> second.createQuery("SELECT a FROM Artist a", Artist.class)
                        .setLockMode(LockModeType.PESSIMISTIC_WRITE)
                        .setHint("jakarta.persistence.query.timeout", 200)
                        .getResultList());
        first.getTransaction().commit();
        first.close();
        second.getTransaction().rollback();
        second.close();
    }

    @Test
    void a_query_with_a_longer_limit_waits_for_locks_as_long_as_the_limit_of_locks() {
        EntityManager first = begin();
        first.find(Artist.class, id, LockModeType.PESSIMISTIC_WRITE).setName("Davis");
        EntityManager second = begin();
        SOON.forEach(second::setProperty);
        assertThrows(
                PessimisticLockException.class,
                () -> second.createQuery("SELECT a FROM Artist a", Artist.class)
                        .setLockMode(LockModeType.PESSIMISTIC_WRITE)
                        .setHint("jakarta.persistence.query.timeout", 10_000)
                        .getResultList());
        first.getTransaction().commit();
        first.close();
        second.getTransaction().rollback();
        second.close();
    }

    /** What waits, in a datastore transaction of JDO, for the lock of an account. */
    enum Wait {
        READ((manager, id) -> {
            manager.setDatastoreReadTimeoutMillis(200);
            manager.getObjectById(id);
        }),
        WRITE((manager, id) -> {
            manager.setDatastoreWriteTimeoutMillis(200);
            ((Account) manager.getObjectById(id)).setBalance(BigDecimal.TEN);
            manager.flush();
        }),
        DELETION_BY_QUERY((manager, id) -> {
            Query<Account> query = manager.newQuery(Account.class);
            query.setDatastoreWriteTimeoutMillis(200);
            query.deletePersistentAll();
            manager.flush();
        });

        private final BiConsumer<PersistenceManager, Object> use;

        Wait(BiConsumer<PersistenceManager, Object> use) {
            this.use = use;
        }
    }

    /** JDO 3.2, section 12.6.9. */
    @ParameterizedTest
    @EnumSource(Wait.class)
    void a_persistence_manager_and_a_query_limit_their_waits(Wait wait) {
        try (Store store = Store.with(Map.of("javax.jdo.option.Optimistic", "false"))) {
            assertTrue(store.factory().supportedOptions().contains("javax.jdo.option.DatastoreTimeout"));
            Object id = store.call(manager -> manager.getObjectId(
                    manager.makePersistent(new Account(7, "DE7", BigDecimal.ONE, new Person("Ann", 50)))));
            try (PersistenceManager first = store.manager();
                    PersistenceManager second = store.manager()) {
                first.currentTransaction().begin();
                Account account = (Account) first.getObjectById(id);
                if (wait == Wait.READ) {
                    account.setBalance(BigDecimal.ZERO);
                    first.flush();
                }
                second.currentTransaction().begin();
                assertThrows(JDODataStoreException.class, () -> wait.use.accept(second, id));
                second.currentTransaction().rollback();
                first.currentTransaction().commit();
                second.currentTransaction().begin();
                wait.use.accept(second, id);
                second.currentTransaction().commit();
            }
        }
    }

    @Test
    void a_read_by_identity_has_the_limit_of_the_persistence_manager() {
        try (Store store = Store.with(Map.of("javax.jdo.option.Optimistic", "false"))) {
            Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 50))));
            try (PersistenceManager first = store.manager();
                    PersistenceManager second = store.manager()) {
                first.currentTransaction().begin();
                ((Person) first.getObjectById(id)).setAge(51);
                first.flush();
                second.currentTransaction().begin();
                second.setDatastoreReadTimeoutMillis(200);
                assertThrows(JDODataStoreException.class, () -> second.getObjectById(id));
                assertTrue(second.currentTransaction().getRollbackOnly());
                second.currentTransaction().rollback();
                first.currentTransaction().commit();
            }
        }
    }

    @Test
    void serialized_reads_of_jdo_lock() throws Exception {
        try (Store store = Store.inMemory()) {
            Object person = store.call(manager -> manager.getObjectId(manager.makePersistent(new Person("Ann", 50))));
            CountDownLatch locked = new CountDownLatch(1);
            Thread other = new Thread(() -> store.run(manager -> {
                manager.currentTransaction().setSerializeRead(true);
                Person ann = (Person) manager.getObjectById(person);
                ann.setAge(ann.getAge() + 1);
                locked.countDown();
            }));
            try (PersistenceManager manager = store.manager()) {
                manager.currentTransaction().setSerializeRead(true);
                manager.currentTransaction().begin();
                Person ann = (Person) manager.getObjectById(person);
                other.start();
                assertFalse(locked.await(100, TimeUnit.MILLISECONDS));
                ann.setAge(ann.getAge() + 1);
                manager.currentTransaction().commit();
            }
            other.join();
            store.run(manager -> assertEquals(52, ((Person) manager.getObjectById(person)).getAge()));
        }
    }
}
