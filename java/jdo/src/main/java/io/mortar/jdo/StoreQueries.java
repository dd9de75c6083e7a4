package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.References;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;

/** Runs queries of Mortar for a persistence context. */
public final class StoreQueries {
    private final MortarStoreManager store;
    private final ExecutionContext context;

    StoreQueries(MortarStoreManager store, ExecutionContext context) {
        this.store = store;
        this.context = context;
    }

    /** Starts a query, which sees what the context has flushed. */
    public Rows run(String text, Map<String, ?> parameters) {
        return store.withSession(context, session -> {
            if (!context.isFlushing() && !context.isDelayDatastoreOperationsEnabled()) {
                session.orphans().delete(context);
            }
            return session.query(text, parameters);
        });
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
        return StoreErrors.translating(context, rows::hasNext);
    }

    /** The next row of a query. */
    public Row next(Rows rows) {
        return StoreErrors.translating(context, rows::next);
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

    /** The object with an identifier. */
    public Object object(Oid oid) {
        return References.of(context).object(oid);
    }
}
