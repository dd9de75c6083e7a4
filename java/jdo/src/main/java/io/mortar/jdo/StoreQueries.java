package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.References;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Supplier;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;
import org.datanucleus.store.query.QueryTimeoutException;

/** Runs queries of Mortar for a persistence context. */
public final class StoreQueries {
    private final MortarStoreManager store;
    private final ExecutionContext context;
    /** The limit of the time of queries; 0 if there is none. */
    private long limitMs;

    private long deadline;

    StoreQueries(MortarStoreManager store, ExecutionContext context) {
        this.store = store;
        this.context = context;
    }

    /** Limits the time of the queries from now on, in milliseconds; 0 for no limit. */
    public void limit(long milliseconds) {
        limitMs = milliseconds;
        deadline = System.nanoTime() + milliseconds * 1_000_000;
    }

    /** Makes changes, each of whose writes may take a number of milliseconds; null if the context says how long. */
    public <T> T limitingWrites(Integer milliseconds, Supplier<T> changes) {
        if (milliseconds == null || milliseconds <= 0 && TimeLimit.ofWrites(context) < 0) {
            return changes.get();
        }
        return store.withSession(context, session -> {
            session.limitWrites(milliseconds);
            try {
                return changes.get();
            } finally {
                session.limitWrites(null);
            }
        });
    }

    /** Makes the transaction one with locks, before a query whose objects are going to be locked. */
    public void beginLocks() {
        store.useSession(context, session -> MortarPersistenceHandler.beginLocks(session, context, null));
    }

    /** Locks objects exclusively that a query has found. It fails if one of them has changed since. */
    public void lock(Collection<?> objects) {
        store.useSession(context, session -> {
            List<MortarStateManager> managers = objects.stream()
                    .map(context::findStateManager)
                    .filter(MortarStateManager.class::isInstance)
                    .map(MortarStateManager.class::cast)
                    .distinct()
                    .toList();
            if (managers.isEmpty()) {
                return;
            }
            List<Oid> oids = managers.stream().map(each -> each.oid(session)).toList();
            List<Record> records =
                    limitMs <= 0 ? session.getAll(oids, true) : session.lockAll(oids, remainingMs(), this::tooLong);
            for (int i = 0; i < records.size(); i++) {
                Record basis = managers.get(i).basis();
                if (basis != null && !basis.equals(records.get(i))) {
                    throw StoreErrors.outdated(List.of(managers.get(i)));
                }
            }
        });
    }

    private long remainingMs() {
        return Math.max(0, (deadline - System.nanoTime()) / 1_000_000);
    }

    /** Starts a query, which sees what the context has flushed. */
    public Rows run(String text, Map<String, ?> parameters) {
        return store.withSession(context, session -> {
            if (!context.isFlushing() && !context.isDelayDatastoreOperationsEnabled()) {
                session.orphans().delete(context);
            }
            return limitMs <= 0
                    ? session.query(text, parameters)
                    : session.query(text, parameters, remainingMs(), this::tooLong);
        });
    }

    private QueryTimeoutException tooLong() {
        return new QueryTimeoutException("the query has taken longer than " + limitMs + " ms");
    }

    /** Runs a query and converts all its rows. */
    public <T> List<T> all(String text, Map<String, ?> parameters, Function<Row, ? extends T> conversion) {
        List<T> all = new ArrayList<>();
        try (Rows rows = run(text, parameters)) {
            while (hasNext(rows)) {
                all.add(conversion.apply(next(rows)));
            }
        }
        return all;
    }

    /** Whether a query has another row. */
    public boolean hasNext(Rows rows) {
        if (limitMs > 0 && System.nanoTime() > deadline) {
            throw tooLong();
        }
        return StoreErrors.translating(context, rows::hasNext);
    }

    /** The next row of a query. */
    public Row next(Rows rows) {
        return StoreErrors.translating(context, rows::next);
    }

    /** Runs a query and makes the changes that depend on it, in one transaction of the store. */
    public <T> T changing(Supplier<T> change) {
        return store.changing(context, session -> change.get());
    }

    /** Changes and deletes objects that a query has found. */
    public BulkChanges bulkChanges() {
        return new BulkChanges(store, context);
    }

    /** The object of a row. Its members of the fetch plan are loaded from the row. */
    public Object object(Row row, FetchPlan plan, boolean ignoreCache) {
        ClassMapping mapping = store.mapping(row.oid(), context.getClassLoaderResolver());
        return store.withSession(context, session -> {
            Object id = store.identities().id(context, mapping, row.oid(), row.record());
            Class<?> type = context.getClassLoaderResolver().classForName(mapping.name());
            RecordValues values = new RecordValues(session, mapping, row.oid(), row.record(), plan);
            return context.findObject(id, values, type, ignoreCache, false);
        });
    }

    /** A number of the current transaction of the context; outside of transactions, one that no transaction has. */
    public long epoch() {
        return store.withSession(context, StoreSession::epoch);
    }

    /**
     * The object of a row that a query has found before. In another transaction than that of the query, the row only
     * says which object it is, so that the transaction reads the members itself.
     *
     * @param epoch the number of the transaction of the query
     */
    public Object object(Row row, long epoch, FetchPlan plan, boolean ignoreCache) {
        if (!context.getTransaction().isActive() || epoch() == epoch) {
            return object(row, plan, ignoreCache);
        }
        return new ObjectReferences(store, context).object(row);
    }

    /** The object with an identifier. */
    public Object object(Oid oid) {
        if (context.isClosed()) {
            throw store.getNucleusContext()
                    .getApiAdapter()
                    .getUserExceptionForException(
                            "the persistence manager or entity manager was closed, and the result of its query does not"
                                    + " keep this object: copy the list before, or use its iterator",
                            null);
        }
        return References.of(context).object(oid);
    }
}
