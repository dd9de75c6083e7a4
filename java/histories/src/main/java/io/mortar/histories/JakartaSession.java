package io.mortar.histories;

import io.mortar.histories.Request.Option;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.LockModeType;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.QueryTimeoutException;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import org.datanucleus.api.jakarta.DataNucleusHelperJakarta;
import org.datanucleus.exceptions.NucleusException;

/**
 * An entity manager of Jakarta Persistence. It retains the values of entities, which are checked only when they are
 * written, so an entity that is only read is refreshed.
 */
final class JakartaSession implements Session {
    private final EntityManagerFactory factory;
    private EntityManager manager;
    private Request request;

    JakartaSession(EntityManagerFactory factory) {
        this.factory = factory;
    }

    @Override
    public void begin(Request request) {
        this.request = request;
        if (request.has(Option.NEW_MANAGER)) {
            close();
        }
        if (manager == null) {
            manager = factory.createEntityManager();
        }
        manager.getTransaction().begin();
    }

    @Override
    public <T> T find(Class<T> type, String key, String oid, boolean isRead) {
        T found = request.has(Option.BY_QUERY) ? query(type, key) : byIdentity(type, oid);
        if (isRead) {
            manager.refresh(found);
        }
        return found;
    }

    private <T> T query(Class<T> type, String key) {
        return manager.createQuery("SELECT o FROM " + type.getName() + " o WHERE o.name = :name", type)
                .setParameter("name", key)
                .getSingleResult();
    }

    private <T> T byIdentity(Class<T> type, String oid) {
        LockModeType mode = request.has(Option.FOR_UPDATE) ? LockModeType.PESSIMISTIC_WRITE : LockModeType.NONE;
        return manager.find(type, oid, mode);
    }

    @Override
    public void commit() {
        manager.getTransaction().commit();
    }

    @Override
    public void rollBack() {
        if (manager != null && manager.getTransaction().isActive()) {
            manager.getTransaction().rollback();
        }
        // Entities have values of the transaction that has failed.
        close();
    }

    @Override
    public Failure describe(RuntimeException error) {
        List<Throwable> chain = Failure.chain(error, each -> List.of());
        String text = Failure.text(chain);
        if (chain.stream().anyMatch(OptimisticLockException.class::isInstance)) {
            return new Failure(Failure.Kind.CONFLICT, failedObjects(chain), text);
        }
        if (Failure.isUnknown(chain)) {
            return new Failure(Failure.Kind.UNKNOWN, Set.of(), text);
        }
        // The API has no class of exceptions for what may be tried again.
        boolean isRetryable = error instanceof QueryTimeoutException
                || error instanceof PersistenceException && Failure.isRetryable(chain);
        return new Failure(isRetryable ? Failure.Kind.RETRYABLE : Failure.Kind.ERROR, Set.of(), text);
    }

    /**
     * DataNucleus gives the entity to the cause of an {@link OptimisticLockException}, and not to the exception itself.
     */
    private static Set<String> failedObjects(List<Throwable> chain) {
        return Failure.identifiers(chain.stream()
                .flatMap(each -> each instanceof NucleusException conflict
                        ? Stream.ofNullable(conflict.getFailedObject())
                        : Stream.of())
                .map(DataNucleusHelperJakarta::getObjectId));
    }

    @Override
    public void close() {
        // Closing detaches the entities, which may read them, so it may fail.
        EntityManager closing = manager;
        manager = null;
        if (closing != null) {
            closing.close();
        }
    }
}
