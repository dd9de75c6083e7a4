package io.mortar.histories;

import io.mortar.histories.Request.Option;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import javax.jdo.JDOCanRetryException;
import javax.jdo.JDODataStoreException;
import javax.jdo.JDOException;
import javax.jdo.JDOHelper;
import javax.jdo.JDOOptimisticVerificationException;
import javax.jdo.PersistenceManager;
import javax.jdo.PersistenceManagerFactory;
import javax.jdo.Query;
import javax.jdo.Transaction;

/** A persistence manager of JDO. */
final class JdoSession implements Session {
    private final PersistenceManagerFactory factory;
    private final boolean retainsValues;
    private PersistenceManager manager;
    private boolean isByQuery;

    JdoSession(PersistenceManagerFactory factory, boolean retainsValues) {
        this.factory = factory;
        this.retainsValues = retainsValues;
    }

    @Override
    public void begin(Request request) {
        if (request.has(Option.NEW_MANAGER)) {
            close();
        }
        if (manager == null) {
            manager = factory.getPersistenceManager();
        }
        isByQuery = request.has(Option.BY_QUERY);
        manager.setProperty("mortar.snapshot", Boolean.toString(request.has(Option.SNAPSHOT)));
        Transaction transaction = manager.currentTransaction();
        transaction.setOptimistic(!request.has(Option.LOCKS));
        transaction.setSerializeRead(request.has(Option.FOR_UPDATE));
        transaction.setRetainValues(retainsValues);
        transaction.begin();
    }

    @Override
    public <T> T find(Class<T> type, String key, String oid, boolean isRead) {
        if (!isByQuery) {
            return manager.getObjectById(type, oid);
        }
        try (Query<T> query = manager.newQuery(type, "name == :name")) {
            return query.setParameters(key).executeUnique();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException("a query cannot be closed", error);
        }
    }

    @Override
    public void commit() {
        manager.currentTransaction().commit();
    }

    @Override
    public void rollBack() {
        if (manager != null && manager.currentTransaction().isActive()) {
            manager.currentTransaction().rollback();
        }
    }

    @Override
    public Failure describe(RuntimeException error) {
        List<Throwable> chain = Failure.chain(error, JdoSession::nested);
        String text = Failure.text(chain);
        if (error instanceof JDOOptimisticVerificationException) {
            return new Failure(Failure.Kind.CONFLICT, failedObjects(chain), text);
        }
        if (Failure.isUnknown(chain)) {
            return new Failure(Failure.Kind.UNKNOWN, Set.of(), text);
        }
        boolean isRetryable =
                error instanceof JDOCanRetryException && Failure.isRetryable(chain) || isTimedOutQuery(error);
        return new Failure(isRetryable ? Failure.Kind.RETRYABLE : Failure.Kind.ERROR, Set.of(), text);
    }

    /** The API has no class of exceptions for a query that takes longer than its limit, and this one has no cause. */
    private static boolean isTimedOutQuery(RuntimeException error) {
        return error instanceof JDODataStoreException
                && String.valueOf(error.getMessage()).startsWith("Query has timed out");
    }

    private static Collection<Throwable> nested(Throwable error) {
        return error instanceof JDOException jdo && jdo.getNestedExceptions() != null
                ? List.of(jdo.getNestedExceptions())
                : List.of();
    }

    private static Set<String> failedObjects(List<Throwable> chain) {
        return Failure.identifiers(chain.stream()
                .flatMap(each ->
                        each instanceof JDOException jdo ? Stream.ofNullable(jdo.getFailedObject()) : Stream.of())
                .map(JDOHelper::getObjectId));
    }

    @Override
    public void close() {
        PersistenceManager closing = manager;
        manager = null;
        if (closing != null) {
            closing.close();
        }
    }
}
