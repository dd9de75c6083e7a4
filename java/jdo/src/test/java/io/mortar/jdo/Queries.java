package io.mortar.jdo;

import io.mortar.jdo.query.NativeQuery;
import java.util.List;
import javax.jdo.Query;
import org.datanucleus.api.jdo.JDOQuery;

/** Looks at what became of a query. */
final class Queries {
    private Queries() {}

    static NativeQuery nativeQuery(Query<?> query) {
        return (NativeQuery) ((JDOQuery<?>) query).getInternalQuery().getNativeQuery();
    }

    /** The parts of an executed query that were evaluated in memory. */
    static List<String> inMemory(Query<?> query) {
        return nativeQuery(query).inMemory();
    }
}
