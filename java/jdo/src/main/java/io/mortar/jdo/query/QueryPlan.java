package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.ClassMapping;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.NullOrderingType;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.OrderExpression;
import org.datanucleus.store.query.expression.ParameterExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * The translation of a compiled query for the values of its parameters.
 *
 * <p>The filter is translated part by part. If all of it could be, so is the order, and then the range or the result.
 * Otherwise the query of Mortar returns the candidates that satisfy the translated part, and the whole query is
 * evaluated for them in memory.
 */
final class QueryPlan {
    /** As many keys as a query of the store may have in its order. */
    private static final int MAX_ORDER_KEYS = 16;

    private final CompiledQuery compiled;
    private final QueryCompilation compilation;
    private final boolean isJpql;
    private final QueryText text = new QueryText();
    private final Parameters parameters;
    private final Operands operands;
    private final Scope scope;
    private final List<String> inMemory = new ArrayList<>();
    /** The tests of embedded objects that all candidates satisfy which the store finds. */
    private final Set<String> present = new HashSet<>();

    private final StoreQueries queries;
    /** The columns of a result that the store computes; null if it returns objects. */
    private List<ResultColumn> columns;
    /** The expressions of {@code having} that have columns behind those of the result, as texts. */
    private List<String> groupFilter = List.of();
    /** The aggregate that is the result, of the distinct values that the store returns; null for another result. */
    private InvokeExpression distinctAggregate;
    /** Whether groups of the store may have equal rows, of which the result has one. */
    private boolean hasDuplicates;
    /** Whether the result may have several rows for one candidate. */
    private boolean isJoin;

    QueryPlan(
            MortarStoreManager store,
            CompiledQuery compiled,
            ClassMapping candidate,
            Map<?, ?> values,
            Function<String, List<Object>> subqueries,
            boolean isJpql,
            boolean isSubquery) {
        ExecutionContext context = compiled.context();
        this.compiled = compiled;
        this.compilation = compiled.compilation();
        this.isJpql = isJpql;
        this.queries = store.queries(context);
        parameters = new Parameters(context);
        scope = new Scope(store, context, candidate, compilation.getCandidateAlias(), isJpql && isSubquery);
        operands = new Operands(scope, parameters, parameter -> value(values, parameter), subqueries);
        text.from(candidate, !compiled.isWithSubclasses(), context, compiled.findsDeleted());
        build(values);
    }

    static Object value(Map<?, ?> values, ParameterExpression<?> parameter) {
        if (values.containsKey(parameter.getId())) {
            return values.get(parameter.getId());
        }
        if (values.containsKey(parameter.getPosition())) {
            return values.get(parameter.getPosition());
        }
        try {
            Integer number = Integer.valueOf(parameter.getId());
            if (values.containsKey(number)) {
                return values.get(number);
            }
        } catch (NumberFormatException named) {
            // The parameter has a name.
        }
        throw new NucleusUserException("the parameter " + parameter.getId() + " has no value");
    }

    NativeQuery nativeQuery() {
        return new NativeQuery(text.toString(), parameters.values(), List.copyOf(inMemory));
    }

    /** Whether nothing is left to evaluate in memory. */
    boolean isComplete() {
        return inMemory.isEmpty();
    }

    List<ResultColumn> columns() {
        return columns;
    }

    /** The expressions of {@code having} that have columns behind those of the result. */
    List<String> groupFilter() {
        return groupFilter;
    }

    /** The aggregate of the distinct values that the store returns; null if the result is another one. */
    InvokeExpression distinctAggregate() {
        return distinctAggregate;
    }

    /** Whether equal rows of the store are one row of the result. */
    boolean hasDuplicates() {
        return hasDuplicates;
    }

    /** Whether the rows of the store are filtered, aggregated or made distinct in memory. */
    boolean isProcessedFurther() {
        return distinctAggregate != null || !groupFilter.isEmpty() || hasDuplicates;
    }

    boolean isJoin() {
        return isJoin;
    }

    private void build(Map<?, ?> values) {
        List<Expression> joins = new ArrayList<>();
        List<String> conditions = new ArrayList<>();
        try {
            addJoins(conditions, joins);
        } catch (Untranslatable why) {
            inMemory.add("from: " + why.getMessage());
            isJoin = true;
            return;
        }
        if (isJpql) {
            requirePaths(conditions);
        }
        Expression filter = compilation.getExprFilter();
        for (Expression join : joins) {
            filter = filter == null ? join : new DyadicExpression(join, Expression.OP_AND, filter);
        }
        Conditions.Filter translated = new Conditions(operands, compilation, isJpql).filter(filter);
        present.addAll(conditions);
        present.addAll(translated.present());
        if (translated.text() != null) {
            conditions.add(translated.text());
        }
        if (!conditions.isEmpty()) {
            text.where(conditions.size() == 1 ? conditions.get(0) : '(' + String.join(") && (", conditions) + ')');
        }
        translated.remaining().forEach(part -> inMemory.add("filter " + part));
        if (isComplete() && hasResult()) {
            translateResult();
        }
        if (isComplete()) {
            translateOrder();
        }
        if (isComplete()) {
            translateRange(values);
        }
    }

    /** Makes a path of JPQL in the result, the order or the groups an inner join. */
    private void requirePaths(List<String> conditions) {
        for (Expression clause : navigating(compilation)) {
            ExpressionTree.forEach(clause, each -> {
                if (each instanceof PrimaryExpression primary && primary.getLeft() == null) {
                    try {
                        for (String reference : scope.navigated(primary.getTuples())) {
                            if (!conditions.contains(reference + " != null")) {
                                conditions.add(reference + " != null");
                            }
                        }
                    } catch (Untranslatable inMemory) {
                        // The clause is evaluated in memory, and the path with it.
                    }
                }
            });
        }
    }

    /** The expressions whose paths of JPQL are inner joins. */
    static List<Expression> navigating(QueryCompilation compilation) {
        List<Expression> expressions = new ArrayList<>();
        for (Expression[] clause : new Expression[][] {
            compilation.getExprResult(), compilation.getExprGrouping(), compilation.getExprOrdering()
        }) {
            expressions.addAll(clause == null ? List.of() : List.of(clause));
        }
        return expressions;
    }

    static PrimaryExpression path(String text) {
        return new PrimaryExpression(List.of(text.split("\\.")));
    }

    // ------------------------------------------------------------------------------------------- from

    /** An alias of a joined reference stands for its path; one of a joined collection is a variable. */
    private void addJoins(List<String> conditions, List<Expression> joins) {
        Expression[] from = compilation.getExprFrom();
        if (from == null) {
            return;
        }
        if (from.length > 1) {
            throw new Untranslatable("several candidates are joined");
        }
        if (((ClassExpression) from[0]).getCandidateExpression() != null) {
            throw new Untranslatable("the candidates are a collection");
        }
        for (Expression each = from[0].getRight(); each instanceof JoinExpression join; each = each.getRight()) {
            if (join.getOnExpression() != null || !(join.getJoinedExpression() instanceof PrimaryExpression path)) {
                throw new Untranslatable("a join has a condition");
            }
            Term joined = scope.resolve(path(path.getId()).getTuples());
            boolean isOuter = isOuter(join);
            // A join that only fetches gives the same rows as another one.
            String alias = join.getAlias() != null ? join.getAlias() : "#fetch" + joins.size();
            if (joined instanceof Term.Reference || joined instanceof Term.Embedded) {
                scope.define(alias, joined);
                if (isOuter) {
                    scope.addOuter(joined);
                } else {
                    conditions.add(joined.text() + " != null");
                }
            } else if (!isOuter && isDistinctSelf()) {
                joins.add(new InvokeExpression(path, "contains", List.of(new VariableExpression(alias))));
                scope.addJoined(alias);
            } else if (!isDistinctSelf() || join.getAlias() != null) {
                throw new Untranslatable("a collection is joined, and the result has a row for each element");
            }
        }
    }

    static boolean isOuter(JoinExpression join) {
        return join.getType() == JoinExpression.JoinType.JOIN_LEFT_OUTER
                || join.getType() == JoinExpression.JoinType.JOIN_LEFT_OUTER_FETCH;
    }

    private boolean isDistinctSelf() {
        return compiled.isDistinct() && !hasResult();
    }

    private boolean isSelf(Expression[] result) {
        return result != null
                && result.length == 1
                && result[0] instanceof PrimaryExpression primary
                && primary.getLeft() == null
                && primary.getTuples().size() == 1
                && scope.isCandidate(primary.getTuples().get(0));
    }

    // ------------------------------------------------------------------------------------------- result

    /** Whether the query returns something else than its candidates. */
    private boolean hasResult() {
        Expression[] result = compilation.getExprResult();
        return result != null && !isSelf(result);
    }

    /** Refuses members of embedded objects that may be null: the store would have zero for them. */
    private void requirePresent(Expression... expressions) {
        for (Expression each : expressions) {
            if (!present.containsAll(operands.presences(each))) {
                throw new Untranslatable("a member of an embedded object that is null is stored as zero");
            }
        }
    }

    private void translateResult() {
        try {
            List<Expression> result = resultExpressions();
            requirePresent(result.toArray(Expression[]::new));
            requirePresent(compilation.getExprHaving());
            if (isDistinctAggregate(result)) {
                translateDistinctAggregate((InvokeExpression) result.get(0));
                return;
            }
            ResultColumns translator = new ResultColumns(operands, queries, isJpql);
            List<ResultColumn> translated = new ArrayList<>();
            boolean aggregates = false;
            for (Expression each : result) {
                translated.add(translator.column(each));
                aggregates |= ResultColumns.isAggregate(each);
            }
            if (translated.stream().allMatch(column -> column.text() == null)) {
                throw new Untranslatable("the result is constant");
            }
            addGroups(translated, aggregates);
            if (compilation.getExprHaving() != null) {
                translateGroupFilter(translator, translated);
            }
            translated.stream().filter(column -> column.text() != null).forEach(column -> text.select(column.text()));
            columns = translated;
        } catch (Untranslatable why) {
            returnObjects();
            inMemory.add("result: " + why.getMessage());
        }
    }

    /**
     * Adds the operands of {@code having} to the columns. The store has no filter of groups, so these are filtered in
     * memory.
     */
    private void translateGroupFilter(ResultColumns translator, List<ResultColumn> translated) {
        Map<String, Expression> operandsOfFilter = new LinkedHashMap<>();
        collectOperands(compilation.getExprHaving(), operandsOfFilter);
        for (Expression operand : operandsOfFilter.values()) {
            ResultColumn column = translator.column(operand);
            if (column.text() == null) {
                throw new Untranslatable("groups are filtered by a constant");
            }
            translated.add(column);
        }
        if (operandsOfFilter.isEmpty()) {
            throw new Untranslatable("groups are filtered by a constant");
        }
        groupFilter = List.copyOf(operandsOfFilter.keySet());
    }

    private void collectOperands(Expression expression, Map<String, Expression> found) {
        if (expression == null) {
            return;
        }
        if (ResultColumns.isAggregate(expression) || expression instanceof PrimaryExpression) {
            found.put(expression.toString(), expression);
        } else if (expression instanceof DyadicExpression) {
            collectOperands(expression.getLeft(), found);
            collectOperands(expression.getRight(), found);
        } else if (!(expression instanceof Literal) && !(expression instanceof ParameterExpression)) {
            throw new Untranslatable("groups are filtered by " + expression);
        }
    }

    private boolean isDistinctAggregate(List<Expression> result) {
        return result.size() == 1
                && compilation.getExprGrouping() == null
                && compilation.getExprHaving() == null
                && ResultColumns.isAggregate(result.get(0))
                && !(compilation.getExprResult()[0] instanceof CreatorExpression)
                && ((InvokeExpression) result.get(0)).getArguments().get(0).getOperator() == Expression.OP_DISTINCT;
    }

    /** The store returns each value once. */
    private void translateDistinctAggregate(InvokeExpression aggregate) {
        Expression argument = aggregate.getArguments().get(0).getLeft();
        Term term = operands.term(argument);
        if (!(term instanceof Term.Value || term instanceof Term.Reference) || term.isCandidate()) {
            throw new Untranslatable("an aggregate of distinct objects has no counterpart");
        }
        boolean isCount = aggregate.getOperation().equalsIgnoreCase("count");
        columns = List.of(
                isCount
                        ? new ResultColumn(term.text(), stored -> stored)
                        : new ResultColumns(operands, queries, isJpql).column(argument));
        text.select(term.text());
        text.group(term.text());
        distinctAggregate = aggregate;
    }

    private List<Expression> resultExpressions() {
        Expression[] result = compilation.getExprResult();
        if (result.length == 1 && result[0] instanceof CreatorExpression creator) {
            return creator.getArguments();
        }
        return List.of(result);
    }

    private void addGroups(List<ResultColumn> translated, boolean aggregates) {
        if (compilation.getExprGrouping() != null) {
            List<String> selected = translated.stream().map(ResultColumn::text).toList();
            requirePresent(compilation.getExprGrouping());
            for (Expression key : compilation.getExprGrouping()) {
                String column = operands.term(key).text();
                text.group(column);
                hasDuplicates |= compiled.isDistinct() && !selected.contains(column);
            }
        } else if (compiled.isDistinct()) {
            if (aggregates) {
                return;
            }
            // Rows that are equal are one group.
            translated.stream().filter(column -> column.text() != null).forEach(column -> text.group(column.text()));
        }
    }

    // ------------------------------------------------------------------------------------------- order and range

    private void translateOrder() {
        Expression[] ordering = compilation.getExprOrdering();
        if (ordering == null || distinctAggregate != null) {
            return;
        }
        try {
            if (ordering.length > MAX_ORDER_KEYS) {
                throw new Untranslatable("the store orders by at most " + MAX_ORDER_KEYS + " keys");
            }
            List<String> keys = new ArrayList<>();
            for (Expression each : ordering) {
                keys.add(key((OrderExpression) each));
            }
            keys.forEach(text::order);
        } catch (Untranslatable why) {
            returnObjects();
            inMemory.add("order: " + why.getMessage());
        }
    }

    /** What is evaluated in memory needs the candidates. */
    private void returnObjects() {
        text.clearResult();
        columns = null;
        groupFilter = List.of();
        distinctAggregate = null;
        hasDuplicates = false;
    }

    private String key(OrderExpression order) {
        Expression by = aliased(compilation, order.getLeft());
        requirePresent(by);
        String key;
        if (ResultColumns.isAggregate(by)) {
            key = new ResultColumns(operands, queries, isJpql).column(by).text();
        } else {
            Term term = operands.term(by);
            if (!(term instanceof Term.Value)
                    || term.codec() != null && !term.codec().keepsOrder()) {
                throw new Untranslatable("the stored values do not have the order of the Java values");
            }
            key = term.text();
        }
        boolean descending = "descending".equalsIgnoreCase(order.getSortOrder());
        NullOrderingType nulls = order.getNullOrder();
        return key
                + (descending ? " desc" : "")
                + (nulls == null ? "" : nulls == NullOrderingType.NULLS_FIRST ? " nulls first" : " nulls last");
    }

    /** The result that a name in the order stands for. */
    static Expression aliased(QueryCompilation compilation, Expression by) {
        if (compilation.getExprResult() != null
                && by instanceof PrimaryExpression primary
                && primary.getTuples().size() == 1) {
            for (Expression result : compilation.getExprResult()) {
                if (primary.getId().equalsIgnoreCase(result.getAlias())) {
                    return result;
                }
            }
        }
        return by;
    }

    private void translateRange(Map<?, ?> values) {
        if (!compiled.hasRange() || isProcessedFurther()) {
            return;
        }
        long from = compiled.rangeFrom(values);
        long to = compiled.rangeTo(values);
        text.skip(from);
        if (to != Long.MAX_VALUE) {
            text.limit(Math.max(0, to - from));
        }
    }
}
