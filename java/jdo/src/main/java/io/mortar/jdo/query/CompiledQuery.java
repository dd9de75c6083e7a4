package io.mortar.jdo.query;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;

/**
 * A compiled query with its properties that are not expressions.
 *
 * @param query the query, or the one around a subquery of the typed or the criteria API, which has none of its own
 * @param compilation the expressions
 * @param isOwn whether the properties of the query are those of the expressions
 */
record CompiledQuery(Query<?> query, QueryCompilation compilation, boolean isOwn) {
    /**
     * The key of a compilation in the cache of DataNucleus. The text of a query does not have the subqueries outside of
     * its filter.
     */
    static String cacheKey(
            String text, Map<String, Query.SubqueryDefinition> subqueries, Function<Query<?>, String> keyOfSubquery) {
        if (subqueries == null) {
            return text;
        }
        StringBuilder key = new StringBuilder(text);
        new TreeMap<>(subqueries)
                .forEach((name, subquery) -> key.append('\n')
                        .append(List.of(
                                name,
                                String.valueOf(subquery.getCandidateExpression()),
                                String.valueOf(subquery.getParameterMap()),
                                keyOfSubquery.apply(subquery.getQuery()))));
        return key.toString();
    }

    ExecutionContext context() {
        return query.getExecutionContext();
    }

    boolean isDistinct() {
        return compilation.getResultDistinct() || isOwn && query.getResultDistinct();
    }

    boolean isWithSubclasses() {
        return !isOwn || query.isSubclasses();
    }

    /** Whether the query also finds objects that soft delete has kept. */
    boolean findsDeleted() {
        return query.getBooleanExtensionProperty("datanucleus.query.includesoftdeletes", false);
    }

    boolean hasRange() {
        return isOwn && query.getRange() != null;
    }

    long rangeFrom(Map<?, ?> values) {
        return bound(values, query.getRangeFromInclParam(), query.getRangeFromIncl());
    }

    long rangeTo(Map<?, ?> values) {
        return bound(values, query.getRangeToExclParam(), query.getRangeToExcl());
    }

    private static long bound(Map<?, ?> values, String parameter, long fixed) {
        return parameter != null && values.get(parameter) instanceof Number number ? number.longValue() : fixed;
    }
}
