package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.ResultCopy;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ArrayExpression;
import org.datanucleus.store.query.expression.CaseExpression;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.ParameterExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.SubqueryExpression;
import org.datanucleus.store.query.expression.TypeExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * Evaluates expressions of JDOQL and JPQL in memory, as the translated ones are evaluated by the store. The evaluator
 * of DataNucleus does not distinguish null from unknown, and has no aggregates of rows; it is used for the functions.
 *
 * <p>A condition is true, false, or null, which means unknown. A path through a null reference is null in JDOQL, and in
 * JPQL {@link Paths#NOTHING}, which no test accepts.
 */
final class Evaluator {
    /**
     * What follows the alias of a joined map or list in the names of the key, the value and the index of its element.
     */
    static final String KEY = "#KEY";

    static final String VALUE = "#VALUE";
    static final String INDEX = "#INDEX";

    /** The functions of all that a subquery finds; others are of its one value. */
    private static final Set<String> OF_SUBQUERIES = Set.of("contains", "isEmpty", "size");

    /** The functions of texts that the store has, also of other values that it stores as texts. */
    private static final Set<String> OF_STORED_TEXTS =
            Set.of("startsWith", "endsWith", "contains", "indexOf", "matches", "length", "toLowerCase", "toUpperCase");

    private final Query<?> query;
    private final ExecutionContext context;
    private final QueryCompilation compilation;
    private final String candidate;
    private final Map<Object, Object> parameters;
    private final Source source;
    private final Variables variables;
    private final boolean isJpql;
    private final Paths paths;
    private final StoredOrder order;
    private final Functions functions;

    /** The aggregates in a filter: they are the same for all rows. */
    private final Map<InvokeExpression, Optional<Object>> aggregates = new IdentityHashMap<>();

    /** What an evaluation reads beside its rows. */
    interface Source {
        /** All that a subquery finds for a row. */
        List<Object> subquery(String name, Row row);

        /** All objects of a class. */
        List<Object> extent(Class<?> type);
    }

    /**
     * A row: the objects that names stand for.
     *
     * @param names the candidate and the variables with their values, and expressions whose values are known
     * @param group the rows of which aggregates are computed; null outside of groups
     */
    record Row(Map<String, Object> names, List<Row> group) {
        Row with(String name, Object value) {
            Map<String, Object> more = new HashMap<>(names);
            more.put(name, value);
            return new Row(more, group);
        }

        Row with(Map<String, Object> values) {
            Map<String, Object> more = new HashMap<>(names);
            more.putAll(values);
            return new Row(more, group);
        }
    }

    Evaluator(
            Query<?> query,
            QueryCompilation compilation,
            Map<Object, Object> parameters,
            Source source,
            boolean isJpql) {
        this.query = query;
        this.context = query.getExecutionContext();
        this.compilation = compilation;
        this.candidate = compilation.getCandidateAlias();
        this.parameters = parameters;
        this.source = source;
        this.isJpql = isJpql;
        this.paths = new Paths(query, isJpql);
        this.order = new StoredOrder(query, compilation);
        this.functions = new Functions(query, candidate, parameters, isJpql);
        this.variables = new Variables(compilation, this, source);
    }

    boolean isJpql() {
        return isJpql;
    }

    Variables variables() {
        return variables;
    }

    Paths paths() {
        return paths;
    }

    /** Whether a condition is true. */
    boolean isTrue(Expression condition, Row row) {
        return Boolean.TRUE.equals(condition(condition, row));
    }

    /** The value of an expression; null if it has none. A subquery stands for its one value. */
    Object value(Expression expression, Row row) {
        Object value = evaluate(expression, row);
        return value == Paths.NOTHING ? null : value;
    }

    /** The value of an expression that stands for several values: of a subquery, all that it finds. */
    Object values(Expression expression, Row row) {
        return expression instanceof VariableExpression variable && isSubquery(expression)
                ? source.subquery(variable.getId(), row)
                : value(expression, row);
    }

    /** The order of the values of an expression. */
    Comparator<Object> order(Expression expression) {
        return order.of(expression);
    }

    /** The value of an expression of the result. */
    Object result(Expression expression, Row row) {
        Object value = value(expression, row);
        Object converted = isJpql
                ? NumericResult.conversion(expression, part -> type(part, row)).apply(value)
                : value;
        return ResultCopy.of(WrittenNumber.toJava(converted), context);
    }

    private Class<?> type(Expression expression, Row row) {
        Object value = value(expression, row);
        return value == null ? null : value.getClass();
    }

    // ------------------------------------------------------------------------------------------- conditions

    private Boolean condition(Expression expression, Row row) {
        if (variables.areUsed(expression)) {
            List<Expression> parts = new ArrayList<>();
            flatten(expression, Expression.OP_AND, parts);
            return and(parts, row);
        }
        return truth(expression, row);
    }

    /** The value of a condition whose variables have values. */
    private Boolean truth(Expression expression, Row row) {
        Object value = evaluate(expression, row);
        if (value == null || value == Paths.NOTHING) {
            return null;
        }
        if (value instanceof Boolean truth) {
            return truth;
        }
        throw new NucleusUserException("a condition is not true or false: " + expression);
    }

    private Boolean not(Boolean truth) {
        return truth == null ? null : (Boolean) !truth;
    }

    private Boolean or(Expression expression, Row row) {
        Boolean left = condition(expression.getLeft(), row);
        if (Boolean.TRUE.equals(left)) {
            return true;
        }
        Boolean right = condition(expression.getRight(), row);
        return Boolean.TRUE.equals(right) ? (Boolean) true : left == null || right == null ? null : (Boolean) false;
    }

    /** A conjunction is true if its variables have values for which all its operands are true. */
    private Boolean and(List<Expression> parts, Row row) {
        Variables.Binding binding = variables.binding(parts, row);
        if (binding != null) {
            return binding.rows().stream().anyMatch(each -> Boolean.TRUE.equals(and(binding.parts(), each)));
        }
        Boolean result = true;
        for (Expression part : parts) {
            Boolean truth = truth(part, row);
            if (Boolean.FALSE.equals(truth)) {
                return false;
            }
            if (truth == null) {
                result = null;
            }
        }
        return result;
    }

    private boolean isSubquery(Expression expression) {
        return expression instanceof VariableExpression variable && isSubquery(variable.getId());
    }

    private boolean isSubquery(String name) {
        return compilation.getCompilationForSubquery(name) != null;
    }

    static void flatten(Expression expression, Expression.Operator operator, List<Expression> parts) {
        if (expression instanceof DyadicExpression && expression.getOperator() == operator) {
            flatten(expression.getLeft(), operator, parts);
            flatten(expression.getRight(), operator, parts);
        } else if (expression != null) {
            parts.add(expression);
        }
    }

    /** The elements of a container, or the one object that is not null. */
    static List<Object> elements(Object joined) {
        if (joined == null) {
            return List.of();
        }
        return Containers.isContainer(joined) ? Containers.elements(joined) : List.of(joined);
    }

    private Boolean comparison(DyadicExpression expression, Row row) {
        Expression.Operator operator = expression.getOperator();
        boolean isNullTest = isNull(expression.getLeft(), row) || isNull(expression.getRight(), row);
        if (expression.getRight() instanceof SubqueryExpression subquery) {
            return quantified(expression, subquery, row);
        }
        Object left = operand(expression.getLeft(), isNullTest, row);
        Object right = operand(expression.getRight(), isNullTest, row);
        return compare(
                promoted(left, expression.getRight(), right),
                expression,
                promoted(right, expression.getLeft(), left),
                isNullTest);
    }

    /** An integer that is compared with a parameter of a floating type has that type, as in the store. */
    private static Object promoted(Object value, Expression other, Object parameter) {
        return other instanceof ParameterExpression ? Promotion.promoted(value, parameter) : value;
    }

    /**
     * An operand of a comparison. A container that the other side of a relation decides is null if it has no elements.
     * A subquery that finds nothing is unknown, except in a test for null.
     */
    private Object operand(Expression expression, boolean isNullTest, Row row) {
        Object value = evaluate(expression, row);
        if (value == null && !isNullTest && isSubquery(expression)) {
            return Paths.NOTHING;
        }
        boolean isEmpty = isNullTest
                && value != null
                && Containers.isContainer(value)
                && Containers.elements(value).isEmpty();
        return isEmpty && expression instanceof PrimaryExpression path && isInverse(path, row) ? null : value;
    }

    private boolean isInverse(PrimaryExpression path, Row row) {
        List<String> names = path.getTuples();
        Object owner = names.size() > 1
                ? value(new PrimaryExpression(path.getLeft(), names.subList(0, names.size() - 1)), row)
                : path.getLeft() == null ? row.names().get(candidate) : value(path.getLeft(), row);
        return owner != null && paths.isInverse(owner, names.get(names.size() - 1));
    }

    /** Whether an expression is the literal null, or in JDOQL a parameter with that value. */
    private boolean isNull(Expression expression, Row row) {
        return expression instanceof Literal literal && literal.getLiteral() == null
                || !isJpql && expression instanceof ParameterExpression && evaluate(expression, row) == null;
    }

    private Boolean compare(Object left, DyadicExpression comparison, Object right, boolean isNullTest) {
        Expression.Operator operator = comparison.getOperator();
        if (left == Paths.NOTHING || right == Paths.NOTHING) {
            return null;
        }
        boolean isEquality = operator == Expression.OP_EQ || operator == Expression.OP_NOTEQ;
        if (left == null || right == null) {
            // Two nulls are equal in JDOQL.
            boolean isKnown = isEquality && (isNullTest || !isJpql && left == right);
            return isKnown ? (Boolean) ((left == right) == (operator == Expression.OP_EQ)) : null;
        }
        if (isEquality) {
            return Values.isSame(left, right) == (operator == Expression.OP_EQ);
        }
        int difference = order.compare(left, comparison.getLeft(), right, comparison.getRight());
        return operator == Expression.OP_LT
                ? difference < 0
                : operator == Expression.OP_LTEQ
                        ? difference <= 0
                        : operator == Expression.OP_GT ? difference > 0 : difference >= 0;
    }

    private Boolean in(Expression left, Expression right, Row row) {
        Object value = evaluate(left, row);
        List<Object> candidates = candidates(right, row);
        boolean isUnknown = value == null && isJpql && candidates != null && !candidates.isEmpty();
        if (value == Paths.NOTHING || candidates == null || isUnknown) {
            return null;
        }
        if (candidates.stream()
                .anyMatch(each -> each == null ? value == null : value != null && Values.isSame(value, each))) {
            return true;
        }
        return isJpql && candidates.contains(null) ? null : (Boolean) false;
    }

    /** The values of which another one may be one; null if they are a parameter that is null. */
    private List<Object> candidates(Expression list, Row row) {
        if (list instanceof SubqueryExpression subquery) {
            return subquery(subquery, row);
        }
        if (list instanceof ArrayExpression array) {
            List<Object> candidates = new ArrayList<>();
            for (int i = 0; i < array.getArraySize(); i++) {
                Object each = values(array.getElement(i), row);
                candidates.addAll(each instanceof Collection ? elements(each) : Collections.singletonList(each));
            }
            return candidates;
        }
        Object values = values(list, row);
        return values == null && list instanceof ParameterExpression ? null : new ArrayList<>(elements(values));
    }

    // ------------------------------------------------------------------------------------------- subqueries

    private List<Object> subquery(SubqueryExpression expression, Row row) {
        return source.subquery(((VariableExpression) expression.getRight()).getId(), row);
    }

    private Boolean quantified(DyadicExpression comparison, SubqueryExpression expression, Row row) {
        Object left = operand(comparison.getLeft(), false, row);
        boolean isAll = expression.getKeyword().equalsIgnoreCase("ALL");
        Boolean result = isAll;
        for (Object each : subquery(expression, row)) {
            Boolean truth = compare(left, comparison, each, false);
            if (truth == null) {
                result = null;
            } else if (truth != isAll) {
                return truth;
            }
        }
        return result;
    }

    private Object exists(SubqueryExpression expression, Row row) {
        boolean hasRows = !subquery(expression, row).isEmpty();
        return switch (expression.getKeyword().toUpperCase(Locale.ROOT)) {
            case "EXISTS" -> hasRows;
            case "NOT EXISTS" -> !hasRows;
            default -> throw unsupported(expression);
        };
    }

    // ------------------------------------------------------------------------------------------- values

    private Object evaluate(Expression expression, Row row) {
        Object value = member(expression, row);
        return value instanceof Optional<?> optional ? optional.orElse(null) : value;
    }

    /** As {@link #evaluate}, with the object of an optional member itself. */
    private Object member(Expression expression, Row row) {
        if (row.names().containsKey(expression.toString())) {
            return row.names().get(expression.toString());
        }
        if (expression instanceof PrimaryExpression primary) {
            return primary(primary, row);
        }
        if (expression instanceof Literal literal) {
            return WrittenNumber.read(DateLiteral.read(literal.getLiteral()));
        }
        if (expression instanceof CreatorExpression creator) {
            Object[] arguments = creator.getArguments().stream()
                    .map(each -> result(each, row))
                    .toArray();
            return QueryExecution.create(query.resolveClassDeclaration(creator.getId()), arguments);
        }
        if (expression instanceof ParameterExpression<?> parameter) {
            return QueryPlan.value(parameters, parameter);
        }
        if (expression instanceof VariableExpression variable) {
            return variable(variable, row);
        }
        if (expression instanceof InvokeExpression invoke) {
            return invocation(invoke, row);
        }
        if (expression instanceof DyadicExpression dyadic) {
            return dyadic(dyadic, row);
        }
        if (expression instanceof CaseExpression cases) {
            for (CaseExpression.ExpressionPair pair : cases.getConditions()) {
                if (isTrue(pair.getWhenExpression(), row)) {
                    return evaluate(pair.getActionExpression(), row);
                }
            }
            return cases.getElseExpression() == null ? null : evaluate(cases.getElseExpression(), row);
        }
        if (expression instanceof ArrayExpression array) {
            List<Object> elements = new ArrayList<>();
            for (int i = 0; i < array.getArraySize(); i++) {
                elements.add(value(array.getElement(i), row));
            }
            return elements;
        }
        if (expression instanceof SubqueryExpression subquery) {
            return exists(subquery, row);
        }
        if (expression instanceof TypeExpression type) {
            Object typed = value(type.getContainedExpression(), row);
            return typed == null ? null : typed.getClass();
        }
        throw unsupported(expression);
    }

    static NucleusUserException unsupported(Expression expression) {
        return new NucleusUserException("the query needs an evaluation in memory that is not supported: " + expression);
    }

    private Object variable(VariableExpression variable, Row row) {
        if (row.names().containsKey(variable.getId())) {
            return row.names().get(variable.getId());
        }
        if (isSubquery(variable.getId())) {
            return Operands.single(source.subquery(variable.getId(), row), variable);
        }
        throw new NucleusUserException(
                "the variable " + variable.getId() + " has no value: no condition of the filter uses it");
    }

    private Object dyadic(DyadicExpression expression, Row row) {
        Expression.Operator operator = expression.getOperator();
        if (operator == Expression.OP_AND || operator == Expression.OP_BIT_AND) {
            List<Expression> parts = new ArrayList<>();
            flatten(expression, operator, parts);
            return and(parts, row);
        }
        if (operator == Expression.OP_OR || operator == Expression.OP_BIT_OR) {
            return or(expression, row);
        }
        if (operator == Expression.OP_NOT) {
            return not(condition(expression.getLeft(), row));
        }
        if (Comparisons.isComparison(operator)) {
            return comparison(expression, row);
        }
        if (operator == Expression.OP_IN) {
            return in(expression.getLeft(), expression.getRight(), row);
        }
        if (operator == Expression.OP_NOTIN) {
            return not(in(expression.getLeft(), expression.getRight(), row));
        }
        if (operator == Expression.OP_IS || operator == Expression.OP_ISNOT) {
            return isOfType(expression, row);
        }
        if (operator == Expression.OP_CAST) {
            return cast(expression, row);
        }
        if (operator == Expression.OP_DISTINCT) {
            return evaluate(expression.getLeft(), row);
        }
        return arithmetic(expression, row);
    }

    /**
     * {@code instanceof} of JDOQL is true for subclasses and false for null; {@code TYPE} of JPQL is neither true nor
     * false for null, and true for one class.
     */
    private Boolean isOfType(DyadicExpression expression, Row row) {
        Object left = value(expression.getLeft(), row);
        if (isJpql && left == null) {
            return null;
        }
        Object right = value(expression.getRight(), row);
        Class<?> actual = left instanceof Class<?> known ? known : left == null ? null : left.getClass();
        boolean is = false;
        for (Object each : elements(right)) {
            Class<?> type =
                    each instanceof Class<?> known ? known : query.resolveClassDeclaration(String.valueOf(each));
            is |= actual != null && (isJpql ? type == actual : type.isAssignableFrom(actual));
        }
        return is == (expression.getOperator() == Expression.OP_IS);
    }

    private Object cast(DyadicExpression expression, Row row) {
        Object value = value(expression.getLeft(), row);
        String name = String.valueOf(((Literal) expression.getRight()).getLiteral());
        return value != null && query.resolveClassDeclaration(name).isInstance(value) ? value : Paths.NOTHING;
    }

    private Object arithmetic(DyadicExpression expression, Row row) {
        Object left = evaluate(expression.getLeft(), row);
        if (expression.getOperator() == Expression.OP_NEG) {
            return left == null || left == Paths.NOTHING ? left : Arithmetic.negative(left, expression);
        }
        if (expression.getOperator() == Expression.OP_COM) {
            return left == null || left == Paths.NOTHING ? left : Arithmetic.complement(left, expression);
        }
        Object right = evaluate(expression.getRight(), row);
        if (left == null || right == null || left == Paths.NOTHING || right == Paths.NOTHING) {
            return left == Paths.NOTHING || right == Paths.NOTHING ? Paths.NOTHING : null;
        }
        return Arithmetic.calculate(left, expression.getOperator(), right, expression);
    }

    // ------------------------------------------------------------------------------------------- functions

    private Object invocation(InvokeExpression invoke, Row row) {
        if (ResultColumns.isAggregate(invoke)) {
            return row.group() == null && !isJpql
                    ? aggregates.computeIfAbsent(invoke, this::ofAll).orElse(null)
                    : Aggregates.compute(invoke, row, this);
        }
        String name = invoke.getOperation();
        if (name.equals("mapEntry")) {
            String alias = ((PrimaryExpression) invoke.getLeft()).getId();
            return new AbstractMap.SimpleImmutableEntry<>(
                    joined(alias, KEY, invoke, row), joined(alias, VALUE, invoke, row));
        }
        if (name.equalsIgnoreCase("INDEX")
                && invoke.getLeft() == null
                && invoke.getArguments().get(0) instanceof PrimaryExpression element) {
            return joined(element.getId(), INDEX, invoke, row);
        }
        Object receiver = receiver(invoke, row);
        if (receiver == Paths.NOTHING) {
            return Paths.NOTHING;
        }
        if (receiver instanceof Optional<?> optional) {
            if (name.equals("isPresent")) {
                return optional.isPresent();
            }
            receiver = optional.orElse(null);
            if (name.equals("get")) {
                return receiver;
            }
        }
        if (name.equals("orElse")) {
            return receiver == null ? value(invoke.getArguments().get(0), row) : receiver;
        }
        return call(receiver, invoke, row);
    }

    /** The result of a function of a value, or of one without a receiver. */
    private Object call(Object receiver, InvokeExpression invoke, Row row) {
        String name = invoke.getOperation();
        List<Object> arguments = new ArrayList<>();
        for (Expression argument : invoke.getArguments() == null ? List.<Expression>of() : invoke.getArguments()) {
            Object value = evaluate(argument, row);
            if (value == Paths.NOTHING && isJpql && !name.equalsIgnoreCase("COALESCE")) {
                return Paths.NOTHING;
            }
            arguments.add(value == Paths.NOTHING ? null : value);
        }
        if (isJpql && invoke.getLeft() != null && name.startsWith("contains") && arguments.contains(null)) {
            // It is not known whether null is an element, unless there is none.
            boolean isEmpty = Containers.isContainer(receiver)
                    && Containers.elements(receiver).isEmpty();
            return isEmpty ? (Object) false : null;
        }
        if (receiver == null) {
            return invoke.getLeft() == null ? functions.ofArguments(invoke, arguments) : ofNull(invoke);
        }
        boolean mayBeText = OF_STORED_TEXTS.contains(name) && !(receiver instanceof String);
        String text = mayBeText ? order.text(receiver, invoke.getLeft()) : null;
        return functions.of(text != null ? text : receiver, invoke, arguments);
    }

    private Object receiver(InvokeExpression invoke, Row row) {
        if (invoke.getLeft() == null) {
            return null;
        }
        return OF_SUBQUERIES.contains(invoke.getOperation()) && isSubquery(invoke.getLeft())
                ? values(invoke.getLeft(), row)
                : member(invoke.getLeft(), row);
    }

    /** The result of a function of null: a container that is null is empty, and an optional value is absent. */
    private Object ofNull(InvokeExpression invoke) {
        return switch (invoke.getOperation()) {
            case "isEmpty" -> true;
            case "size" -> 0;
            case "isPresent" -> false;
            case "contains", "containsKey", "containsValue", "containsEntry" -> {
                boolean isContainer = invoke.getLeft() instanceof PrimaryExpression && !order.isText(invoke.getLeft());
                yield isContainer ? (Object) false : null;
            }
            default -> null;
        };
    }

    /** An aggregate in a filter of JDOQL: of all objects of the class of the candidate, or of that of its variable. */
    private Optional<Object> ofAll(InvokeExpression aggregate) {
        String[] name = {candidate};
        ExpressionTree.forEach(aggregate, each -> {
            if (each instanceof VariableExpression variable && !isSubquery(variable.getId())) {
                name[0] = variable.getId();
            }
        });
        List<Object> all =
                name[0].equals(candidate) ? source.extent(compilation.getCandidateClass()) : variables.extent(name[0]);
        List<Row> rows =
                all.stream().map(each -> new Row(Map.of(name[0], each), null)).toList();
        return Optional.ofNullable(Aggregates.compute(aggregate, new Row(Map.of(), rows), this));
    }

    /** The key, value or index of an element that a join has for a row. */
    private static Object joined(String alias, String what, InvokeExpression invoke, Row row) {
        if (!row.names().containsKey(alias + what)) {
            throw new NucleusUserException("not an element of a joined list or map: " + invoke);
        }
        return row.names().get(alias + what);
    }

    // ------------------------------------------------------------------------------------------- paths

    private Object primary(PrimaryExpression primary, Row row) {
        List<String> path = primary.getTuples();
        if (primary.getLeft() != null) {
            return paths.walk(evaluate(primary.getLeft(), row), path);
        }
        String first = path.get(0);
        if (row.names().containsKey(first)) {
            Object named = row.names().get(first);
            List<String> members = path.subList(1, path.size());
            return named == null && isJpql
                    ? paths.ofNull(Variables.type(compilation, first), members)
                    : paths.walk(named, members);
        }
        if (row.names().isEmpty()) {
            return null;
        }
        Object self = row.names().get(candidate);
        return paths.walk(self, first.equals("this") ? path.subList(1, path.size()) : path);
    }

    /** The objects that a join finds along a path, which may lead through collections and embedded objects. */
    List<Object> joined(PrimaryExpression path, Row row) {
        List<String> names = QueryPlan.path(path.getId()).getTuples();
        List<Object> objects =
                Collections.singletonList(evaluate(new PrimaryExpression(path.getLeft(), names.subList(0, 1)), row));
        for (String name : names.subList(1, names.size())) {
            List<Object> next = new ArrayList<>();
            for (Object each : objects) {
                next.addAll(elements(value(each, name)));
            }
            objects = next;
        }
        return objects;
    }

    private Object value(Object object, String name) {
        Object value = paths.walk(object, List.of(name));
        return value == Paths.NOTHING ? null : value;
    }

    /** Whether a path in an expression leads through a reference that is null, so that an inner join has no row. */
    boolean hasNullPath(Expression expression, Row row) {
        boolean[] found = {false};
        ExpressionTree.forEach(expression, each -> {
            if (each instanceof PrimaryExpression primary && primary.getLeft() == null) {
                found[0] |= primary(primary, row) == Paths.NOTHING;
            }
        });
        return found[0];
    }
}
