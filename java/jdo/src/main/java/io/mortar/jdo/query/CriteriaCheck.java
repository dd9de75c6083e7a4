package io.mortar.jdo.query;

import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;

/**
 * Refuses queries of the criteria API that DataNucleus has compiled to something else than they say, and repairs
 * others.
 *
 * <ul>
 *   <li>It gives all roots without an alias the same one, so that a path of one root reads as a path of the other.
 *   <li>It knows only the first of several roots.
 *   <li>{@code locate} and {@code substring}, whose positions begin with 1, are functions of Java, whose positions
 *       begin with 0.
 *   <li>It does not compile {@code type()}, of which null is left.
 *   <li>A path of a member of an outer join without an alias begins with the root, so that it leaves out the rows in
 *       which the join has nothing.
 * </ul>
 */
final class CriteriaCheck {
    /** The alias of roots that the program has given none. */
    private static final String DEFAULT_ALIAS = "DN_THIS";

    /** What the aliases of joins begin with that the program has given none. */
    private static final String JOIN_ALIAS = "DN_JOIN_";

    private static final Field METHOD_NAME = methodName();

    private CriteriaCheck() {}

    /** The name of the function that an expression calls, which has no setter. */
    private static Field methodName() {
        try {
            Field field = InvokeExpression.class.getDeclaredField("methodName");
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException("this version of DataNucleus is not supported", error);
        }
    }

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
        for (String alias : aliases) {
            if (query.getSymbolTable().getSymbol(alias) == null) {
                throw new NucleusUserException("a criteria query has several roots, and DataNucleus knows only the"
                        + " first of them, not " + alias + ": use a join, a subquery, or JPQL");
            }
        }
        Map<List<String>, String> outerJoins = unnamedOuterJoins(query.getExprFrom());
        for (Expression[] clause : clauses(query)) {
            ExpressionTree.forEach(clause, CriteriaCheck::repair);
            ExpressionTree.forEach(clause, each -> beginWithJoin(outerJoins, each));
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

    /** The aliases that DataNucleus has given outer joins, by the paths of these. */
    private static Map<List<String>, String> unnamedOuterJoins(Expression[] from) {
        Map<List<String>, String> aliases = new HashMap<>();
        ExpressionTree.forEach(from, each -> {
            if (each instanceof JoinExpression join
                    && QueryPlan.isOuter(join)
                    && join.getAlias() != null
                    && join.getAlias().startsWith(JOIN_ALIAS)
                    && join.getJoinedExpression() instanceof PrimaryExpression path) {
                aliases.put(List.copyOf(path.getTuples()), join.getAlias());
            }
        });
        return aliases;
    }

    private static void beginWithJoin(Map<List<String>, String> joins, Expression expression) {
        if (!(expression instanceof PrimaryExpression path) || path.getLeft() != null) {
            return;
        }
        List<String> names = path.getTuples();
        joins.forEach((join, alias) -> {
            if (names.size() > join.size() && names.subList(0, join.size()).equals(join)) {
                names.subList(1, join.size()).clear();
                names.set(0, alias);
            }
        });
    }

    private static Expression[][] clauses(QueryCompilation query) {
        return new Expression[][] {
            query.getExprResult(),
            {query.getExprFilter(), query.getExprHaving()},
            query.getExprGrouping(),
            query.getExprOrdering(),
            query.getExprUpdate()
        };
    }

    private static void repair(Expression expression) {
        if (expression instanceof InvokeExpression function && function.getLeft() != null) {
            String name = function.getOperation();
            if (name.equals("indexOf") || name.equals("substring")) {
                rename(function, name.equals("indexOf") ? TextFunctions.LOCATE : TextFunctions.SUBSTRING);
            }
        } else if (expression instanceof DyadicExpression
                && Comparisons.isComparison(expression.getOperator())
                && (expression.getLeft() == null || expression.getRight() == null)) {
            throw new NucleusUserException("a criteria query compares something that DataNucleus does not compile, such"
                    + " as type(): use JPQL. What is left of it is " + expression);
        }
    }

    private static void rename(InvokeExpression function, String name) {
        try {
            METHOD_NAME.set(function, name);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }
}
