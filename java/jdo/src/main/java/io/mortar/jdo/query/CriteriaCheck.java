package io.mortar.jdo.query;

import java.util.HashSet;
import java.util.Set;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.Expression;

/**
 * Refuses queries of the criteria API whose roots cannot be distinguished. DataNucleus gives all roots without an alias
 * the same one, so that a path of one root reads as a path of the other.
 */
final class CriteriaCheck {
    /** The alias of roots that the program has given none. */
    private static final String DEFAULT_ALIAS = "DN_THIS";

    private CriteriaCheck() {}

    static void check(QueryCompilation criteria) {
        if (criteria != null) {
            check(criteria, false);
        }
    }

    /** @param isTaken whether a root of a query around this one has the default alias */
    private static void check(QueryCompilation query, boolean isTaken) {
        Set<String> aliases = new HashSet<>();
        for (Expression each : query.getExprFrom() == null ? new Expression[0] : query.getExprFrom()) {
            if (each instanceof ClassExpression root && !aliases.add(root.getAlias())) {
                throw new NucleusUserException("two roots of a criteria query have the same alias, and DataNucleus"
                        + " finds members of the first root only: use a join, a subquery, or JPQL");
            }
        }
        boolean hasDefault = DEFAULT_ALIAS.equals(query.getCandidateAlias()) || aliases.contains(DEFAULT_ALIAS);
        // Without conditions a subquery has only its selection, which is of its own root.
        boolean hasConditions = query.getExprFilter() != null || query.getExprHaving() != null;
        if (isTaken && hasDefault && hasConditions) {
            throw new NucleusUserException("a subquery of a criteria query, of "
                    + query.getCandidateClass().getName() + ", and the query around it have roots without an alias, so"
                    + " that their paths cannot be distinguished: give each root an alias with alias(…), before paths"
                    + " are made of it");
        }
        String[] subqueries = query.getSubqueryAliases();
        for (String name : subqueries == null ? new String[0] : subqueries) {
            check(query.getCompilationForSubquery(name), isTaken || hasDefault);
        }
    }
}
