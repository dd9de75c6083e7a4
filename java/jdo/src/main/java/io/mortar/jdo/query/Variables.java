package io.mortar.jdo.query;

import io.mortar.jdo.query.Evaluator.Row;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.compiler.Symbol;
import org.datanucleus.store.query.compiler.SymbolTable;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * Finds the values that the variables of JDOQL may have, for an evaluation in memory.
 *
 * <p>A variable gets its values where a conjunction uses it: the elements of a container that {@code contains} names,
 * the value that it equals, or all objects of its type. A conjunction is true if it is true for one of them. A variable
 * that only a part below a {@code ||} or a {@code !} uses gets its values there, except for a {@code !} without
 * {@code contains} for the variable.
 */
final class Variables {
    private static final Set<String> CONTAINS = Set.of("contains", "containsKey", "containsValue", "containsEntry");

    private final QueryCompilation compilation;
    private final Evaluator evaluator;
    private final Evaluator.Source source;
    private final Map<Expression, Set<String>> used = new IdentityHashMap<>();
    /** The objects of the type of a variable, by the values of a path of it. */
    private final Map<Expression, ValueIndex> indexes = new IdentityHashMap<>();

    /**
     * The values of a variable in a conjunction.
     *
     * @param rows the row of the conjunction with each of the values
     * @param parts the operands that remain to be evaluated for each row
     */
    record Binding(List<Row> rows, List<Expression> parts) {}

    Variables(QueryCompilation compilation, Evaluator evaluator, Evaluator.Source source) {
        this.compilation = compilation;
        this.evaluator = evaluator;
        this.source = source;
    }

    /** Whether an expression contains variables, other than subqueries. */
    boolean areUsed(Expression expression) {
        return !used(expression).isEmpty();
    }

    private Set<String> used(Expression expression) {
        Set<String> known = used.get(expression);
        if (known == null) {
            Set<String> found = new HashSet<>();
            ExpressionTree.forEach(expression, each -> {
                if (each instanceof VariableExpression variable
                        && compilation.getCompilationForSubquery(variable.getId()) == null) {
                    found.add(variable.getId());
                }
            });
            used.put(expression, found);
            return found;
        }
        return known;
    }

    /** The variables that an expression contains and that have no value yet. */
    private Set<String> free(Expression expression, Row row) {
        Set<String> free = new HashSet<>(used(expression));
        free.removeIf(row.names()::containsKey);
        return free;
    }

    // ------------------------------------------------------------------------------------------- conjunctions

    /**
     * The values of one of the variables of a conjunction; null if the variables of each operand get values in it, or
     * all have.
     */
    Binding binding(List<Expression> parts, Row row) {
        if (parts.stream().allMatch(part -> free(part, row).isEmpty())) {
            return null;
        }
        for (Expression part : parts) {
            List<Row> rows = elements(part, row);
            if (rows != null) {
                return new Binding(rows, isDecided((InvokeExpression) part) ? without(parts, part) : parts);
            }
        }
        for (Expression part : parts) {
            List<Row> rows = equal(part, row);
            if (rows != null) {
                return new Binding(rows, without(parts, part));
            }
        }
        String variable = shared(parts, row);
        return variable == null ? null : new Binding(rows(variable, parts, row), parts);
    }

    private static List<Expression> without(List<Expression> parts, Expression part) {
        List<Expression> rest = new ArrayList<>(parts);
        rest.removeIf(each -> each == part);
        return rest;
    }

    /** Whether nothing of a {@code contains} is left to evaluate when its arguments are elements. */
    private static boolean isDecided(InvokeExpression contains) {
        return contains.getArguments().stream().allMatch(VariableExpression.class::isInstance);
    }

    /** Whether an expression is a function by which variables stand for elements of a container. */
    static boolean isContains(Expression expression) {
        return expression instanceof InvokeExpression invoke
                && invoke.getLeft() != null
                && CONTAINS.contains(invoke.getOperation());
    }

    /**
     * A row for each element of a container that the variables of {@code contains} may be; null for another expression.
     */
    private List<Row> elements(Expression part, Row row) {
        if (!isContains(part) || !free(part.getLeft(), row).isEmpty()) {
            return null;
        }
        List<Expression> arguments = ((InvokeExpression) part).getArguments();
        if (arguments.stream()
                .noneMatch(each ->
                        each instanceof VariableExpression && !free(each, row).isEmpty())) {
            return null;
        }
        Object container = evaluator.values(part.getLeft(), row);
        String operation = ((InvokeExpression) part).getOperation();
        List<Row> rows = new ArrayList<>();
        if (operation.equals("containsEntry")) {
            for (Map.Entry<?, ?> entry :
                    container instanceof Map<?, ?> map ? map.entrySet() : Set.<Map.Entry<?, ?>>of()) {
                Row withKey = with(row, arguments.get(0), entry.getKey());
                Row withBoth = withKey == null ? null : with(withKey, arguments.get(1), entry.getValue());
                add(withBoth, rows);
            }
            return rows;
        }
        boolean isKey = operation.equals("containsKey");
        Object elements = !isKey ? container : container instanceof Map<?, ?> map ? map.keySet() : null;
        Evaluator.elements(elements).forEach(each -> add(with(row, arguments.get(0), each), rows));
        return rows;
    }

    private static void add(Row row, List<Row> rows) {
        if (row != null) {
            rows.add(row);
        }
    }

    /**
     * A row in which a variable has a value; null if the value is not of its type, or is another one than the variable
     * has.
     */
    private Row with(Row row, Expression argument, Object value) {
        if (!(argument instanceof VariableExpression variable)) {
            return row;
        }
        if (row.names().containsKey(variable.getId())) {
            Object known = row.names().get(variable.getId());
            return known == value || known != null && value != null && Values.isSame(known, value) ? row : null;
        }
        Class<?> type = type(compilation, variable.getId());
        boolean isOther =
                type != null && value != null && evaluator.paths().isPersistent(type) && !type.isInstance(value);
        return isOther ? null : row.with(variable.getId(), value);
    }

    /** The row with the one value that a variable equals; null if a part is no such comparison. */
    private List<Row> equal(Expression part, Row row) {
        if (!(part instanceof DyadicExpression) || part.getOperator() != Expression.OP_EQ) {
            return null;
        }
        List<Row> rows = equal(part.getLeft(), part.getRight(), row);
        return rows != null ? rows : equal(part.getRight(), part.getLeft(), row);
    }

    private List<Row> equal(Expression side, Expression other, Row row) {
        if (!(side instanceof VariableExpression)
                || free(side, row).isEmpty()
                || !free(other, row).isEmpty()) {
            return null;
        }
        // A variable is an object: it never equals null.
        Object value = evaluator.value(other, row);
        List<Row> rows = new ArrayList<>();
        add(value == null ? null : with(row, side, value), rows);
        return rows;
    }

    /** A variable that several operands use, or one that does not give it values itself. */
    private String shared(List<Expression> parts, Row row) {
        Map<String, Integer> uses = new LinkedHashMap<>();
        for (Expression part : parts) {
            for (String variable : free(part, row)) {
                boolean isLocal = part.getOperator() == Expression.OP_OR
                        || part.getOperator() == Expression.OP_NOT
                                && elements(part).contains(variable);
                uses.merge(variable, isLocal ? 1 : 2, Integer::sum);
            }
        }
        List<String> shared = uses.entrySet().stream()
                .filter(each -> each.getValue() > 1)
                .map(Map.Entry::getKey)
                .toList();
        for (String variable : shared) {
            if (parts.stream().anyMatch(part -> indexed(variable, part, row) != null)) {
                return variable;
            }
        }
        return shared.isEmpty() ? null : shared.get(0);
    }

    // ------------------------------------------------------------------------------------------- ranges

    /** A row for each object that a variable may be, by a {@code contains} elsewhere in the filter or by its type. */
    private List<Row> rows(String variable, List<Expression> parts, Row row) {
        VariableExpression expression = new VariableExpression(variable);
        InvokeExpression declaration = declaration(compilation.getExprFilter(), variable);
        if (declaration != null && !declaration.getOperation().equals("containsEntry")) {
            List<Row> elements = elements(declaration, row);
            if (elements != null) {
                return elements;
            }
        }
        List<Row> rows = new ArrayList<>();
        objects(variable, parts, row).forEach(each -> add(with(row, expression, each), rows));
        return rows;
    }

    private Collection<Object> objects(String variable, List<Expression> parts, Row row) {
        for (Expression part : parts) {
            Expression path = indexed(variable, part, row);
            if (path != null) {
                ValueIndex index = indexes.computeIfAbsent(path, each -> index(variable, each));
                Expression other = path == part.getLeft() ? part.getRight() : part.getLeft();
                return index.candidates(evaluator.value(other, row));
            }
        }
        return extent(variable);
    }

    /** The path of a variable that an operand compares with a known value; null for another operand. */
    private Expression indexed(String variable, Expression part, Row row) {
        if (!(part instanceof DyadicExpression) || part.getOperator() != Expression.OP_EQ) {
            return null;
        }
        return isPath(part.getLeft(), variable) && free(part.getRight(), row).isEmpty()
                ? part.getLeft()
                : isPath(part.getRight(), variable) && free(part.getLeft(), row).isEmpty() ? part.getRight() : null;
    }

    private static boolean isPath(Expression expression, String variable) {
        return expression instanceof PrimaryExpression path
                && path.getLeft() instanceof VariableExpression of
                && of.getId().equals(variable);
    }

    private ValueIndex index(String variable, Expression path) {
        return new ValueIndex(extent(variable), each -> evaluator.value(path, new Row(Map.of(variable, each), null)));
    }

    List<Object> extent(String variable) {
        Class<?> type = type(compilation, variable);
        if (type == null || !evaluator.paths().isPersistent(type)) {
            throw new NucleusUserException(
                    "the variable " + variable + " is neither an element of a collection that contains names nor"
                            + " declared with a persistent class");
        }
        return source.extent(type);
    }

    /**
     * The declared type of a variable of a query or of one around it, or the one that its use implies; null if there is
     * none.
     */
    static Class<?> type(QueryCompilation compilation, String variable) {
        for (SymbolTable table = compilation.getSymbolTable(); table != null; table = table.getParentSymbolTable()) {
            Symbol symbol = table.getSymbol(variable);
            if (symbol != null) {
                return symbol.getValueType();
            }
        }
        return null;
    }

    /** Whether a variable has a type, an element of a container, or a subquery that it stands for. */
    static boolean isDeclared(QueryCompilation compilation, String variable) {
        return type(compilation, variable) != null
                || compilation.getCompilationForSubquery(variable) != null
                || declaration(compilation.getExprFilter(), variable) != null;
    }

    /** The variables that are an argument of a {@code contains}. */
    static Set<String> elements(Expression expression) {
        Set<String> elements = new HashSet<>();
        ExpressionTree.forEach(expression, each -> {
            if (isContains(each)) {
                for (Expression argument : ((InvokeExpression) each).getArguments()) {
                    if (argument instanceof VariableExpression variable) {
                        elements.add(variable.getId());
                    }
                }
            }
        });
        return elements;
    }

    /** A {@code contains} that a variable is an argument of, outside of negations; null if there is none. */
    private static InvokeExpression declaration(Expression expression, String variable) {
        if (isContains(expression)) {
            InvokeExpression contains = (InvokeExpression) expression;
            boolean isArgument = contains.getArguments().stream()
                    .anyMatch(each -> each instanceof VariableExpression argument
                            && argument.getId().equals(variable));
            return isArgument ? contains : null;
        }
        if (!(expression instanceof DyadicExpression) || expression.getOperator() == Expression.OP_NOT) {
            return null;
        }
        InvokeExpression left = declaration(expression.getLeft(), variable);
        return left != null ? left : declaration(expression.getRight(), variable);
    }

    // ------------------------------------------------------------------------------------------- results

    /** The variables that clauses contain, with those whose elements they are. */
    Set<String> wanted(Expression[]... clauses) {
        Set<String> wanted = new HashSet<>();
        for (Expression[] clause : clauses) {
            for (Expression each : clause) {
                wanted.addAll(used(each));
            }
        }
        for (boolean grown = !wanted.isEmpty(); grown; ) {
            grown = false;
            for (String variable : Set.copyOf(wanted)) {
                InvokeExpression declaration = declaration(compilation.getExprFilter(), variable);
                grown |= declaration != null && wanted.addAll(used(declaration.getLeft()));
            }
        }
        return wanted;
    }

    /** A row for each value of one of several variables; null if all have a value. */
    List<Row> extended(Row row, List<Expression> parts, Set<String> wanted) {
        List<String> missing = wanted.stream()
                .filter(each -> !row.names().containsKey(each))
                .sorted()
                .toList();
        if (missing.isEmpty()) {
            return null;
        }
        for (Expression part : parts) {
            List<Row> rows = missing.stream().anyMatch(each -> declaration(part, each) != null) && isContains(part)
                    ? elements(part, row)
                    : null;
            if (rows != null) {
                return rows;
            }
        }
        for (String variable : missing) {
            InvokeExpression declaration = declaration(compilation.getExprFilter(), variable);
            boolean isReady =
                    declaration == null || free(declaration.getLeft(), row).isEmpty();
            if (isReady) {
                return rows(variable, parts, row);
            }
        }
        return rows(missing.get(0), parts, row);
    }
}
