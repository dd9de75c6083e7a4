package io.mortar.jdo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.jdo.query.NativeQuery;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
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

    /** Lets a query be evaluated in memory as a whole, or as far as possible in the store. */
    static <T> Query<T> evaluatedInMemory(Query<T> query, boolean inMemory) {
        query.addExtension("datanucleus.query.evaluateInMemory", "" + inMemory);
        return query;
    }

    /**
     * Executes a query, and checks its result and where it was evaluated.
     *
     * @param expected the result as a text; null for an empty one, as a table of tests gives it
     * @param text the text of a result
     * @param where "store", or "memory" if a part of the query was evaluated there
     */
    static void check(Query<?> query, String expected, Function<Object, String> text, String where) {
        String found = text.apply(query.execute());
        assertEquals(expected == null ? "" : expected, found, () -> "" + nativeQuery(query));
        assertEquals(where, inMemory(query).isEmpty() ? "store" : "memory", () -> "" + nativeQuery(query));
    }

    /** A result with its rows as lists. */
    static String text(Object result) {
        return result instanceof List<?> rows
                ? rows.stream().map(Queries::text).toList().toString()
                : result instanceof Object[] row ? text(Arrays.asList(row)) : String.valueOf(result);
    }
}
