package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * Translates conditions. {@code docs/decisions/filter-nulls.md} says how tests of null fields, which are neither true
 * nor false, become tests that are: a negation moves down to the tests.
 */
final class Conditions {
    static final String ALWAYS = "1 == 1";
    static final String NEVER = "1 == 2";

    private final Operands operands;
    private final Comparisons comparisons;
    private final Memberships memberships;
    private final QueryCompilation compilation;
    private final boolean isJpql;
    private int variables;

    /**
     * A translated filter.
     *
     * @param text what could be translated; null for nothing
     * @param remaining the parts that could not, each with the reason
     * @param present the tests of {@link Operands#presences} that all objects satisfy which the filter finds
     */
    record Filter(String text, List<String> remaining, Set<String> present) {}

    Conditions(Operands operands, QueryCompilation compilation, boolean isJpql) {
        this.operands = operands;
        this.comparisons = new Comparisons(operands, isJpql);
        this.memberships = new Memberships(operands, comparisons, isJpql);
        this.compilation = compilation;
        this.isJpql = isJpql;
    }

    /** Translates each operand of the outermost conjunction that can be translated. */
    Filter filter(Expression filter) {
        List<Expression> parts = new ArrayList<>();
        if (filter != null) {
            Evaluator.flatten(filter, Expression.OP_AND, parts);
        }
        List<String> texts = new ArrayList<>();
        List<String> remaining = new ArrayList<>();
        Set<String> present = new HashSet<>();
        for (List<Expression> group : groups(parts)) {
            try {
                String text = and(group);
                if (group.size() == 1 && isTest(group.get(0))) {
                    present.addAll(operands.presences(group.get(0)));
                    present.add(text);
                }
                texts.add(text);
            } catch (Untranslatable why) {
                remaining.add(group + ": " + why.getMessage());
            }
        }
        return new Filter(texts.isEmpty() ? null : joined(texts, " && "), remaining, present);
    }

    /** Whether a condition does not consist of others. */
    private static boolean isTest(Expression condition) {
        Expression.Operator operator = condition.getOperator();
        return condition instanceof InvokeExpression
                || condition instanceof PrimaryExpression
                || operator != null
                        && (Comparisons.isComparison(operator)
                                || operator == Expression.OP_IN
                                || operator == Expression.OP_NOTIN);
    }

    private static String joined(List<String> texts, String operator) {
        return texts.size() == 1
                ? texts.get(0)
                : texts.stream().map(text -> '(' + text + ')').collect(Collectors.joining(operator));
    }

    // ------------------------------------------------------------------------------------------- conjunctions

    /** The parts that share variables belong together. */
    private List<List<Expression>> groups(List<Expression> parts) {
        List<List<Expression>> groups = new ArrayList<>();
        List<Expression> rest = new ArrayList<>(parts);
        while (!rest.isEmpty()) {
            List<Expression> group = new ArrayList<>(List.of(rest.remove(0)));
            Set<String> shared = new HashSet<>(freeVariables(group.get(0)));
            for (boolean grown = !shared.isEmpty(); grown; ) {
                grown = false;
                for (Expression other : List.copyOf(rest)) {
                    Set<String> ofOther = freeVariables(other);
                    if (ofOther.stream().anyMatch(shared::contains)) {
                        shared.addAll(ofOther);
                        group.add(other);
                        rest.remove(other);
                        grown = true;
                    }
                }
            }
            groups.add(group);
        }
        return groups;
    }

    private Set<String> freeVariables(Expression expression) {
        Set<String> found = new HashSet<>();
        ExpressionTree.forEach(expression, each -> {
            if (each instanceof PrimaryExpression primary
                    && primary.getLeft() == null
                    && operands.scope().isJoined(primary.getTuples().get(0))) {
                found.add(primary.getTuples().get(0));
            } else if (each instanceof VariableExpression variable
                    && compilation.getCompilationForSubquery(variable.getId()) == null) {
                found.add(variable.getId());
            }
        });
        found.removeIf(
                name -> operands.scope().named(name) != null || operands.scope().isCandidate(name));
        return found;
    }

    /**
     * A conjunction. {@code collection.contains(variable)} becomes an {@code any} with the operands of the variable.
     */
    private String and(List<Expression> parts) {
        for (Expression part : parts) {
            if (isContains(part)) {
                InvokeExpression contains = (InvokeExpression) part;
                VariableExpression variable =
                        (VariableExpression) contains.getArguments().get(0);
                if (!freeVariables(variable).isEmpty()) {
                    return any(contains, variable.getId(), parts);
                }
            }
        }
        List<String> texts = new ArrayList<>();
        for (Expression part : parts) {
            texts.add(condition(part, false));
        }
        return joined(texts, " && ");
    }

    private static boolean isContains(Expression part) {
        return part instanceof InvokeExpression invoke
                && invoke.getOperation().equals("contains")
                && invoke.getLeft() != null
                && invoke.getArguments().get(0) instanceof VariableExpression;
    }

    private String any(InvokeExpression contains, String variable, List<Expression> parts) {
        Term collection = operands.values(contains.getLeft());
        if (collection.isConstant()) {
            throw new Untranslatable("the variable " + variable + " is an element of a parameter");
        }
        if (!(collection instanceof Term.Container container) || container.isMap()) {
            throw new Untranslatable("the elements of the collection are found by their references to its owner");
        }
        List<Expression> others = new ArrayList<>(parts);
        others.remove(contains);
        List<Expression> inside = new ArrayList<>();
        List<Expression> outside = new ArrayList<>();
        for (List<Expression> group : groups(others)) {
            // What shares a variable with the condition of the element belongs to it.
            boolean isInside =
                    group.stream().anyMatch(part -> freeVariables(part).contains(variable));
            (isInside ? inside : outside).addAll(group);
        }
        List<String> texts = new ArrayList<>();
        if (!outside.isEmpty()) {
            texts.add(and(outside));
        }
        String name = "v" + ++variables + '_';
        Term element = operands.scope().element(container.mapping(), name);
        Class<?> declared = Variables.type(compilation, variable);
        if (element instanceof Term.Reference reference
                && reference.type() != null
                && declared != null
                && !declared.isAssignableFrom(operands.scope().javaType(reference.type()))) {
            throw new Untranslatable("the variable " + variable + " is of a subclass of the elements");
        }
        operands.scope().define(variable, element);
        try {
            String condition = inside.isEmpty() ? ALWAYS : and(inside);
            texts.add(container.text() + ".any(" + name + " => " + condition + ')');
        } finally {
            operands.scope().remove(variable);
        }
        return joined(texts, " && ");
    }

    // ------------------------------------------------------------------------------------------- conditions

    /** The text of a condition, or of its negation. */
    String condition(Expression expression, boolean negated) {
        if (negated && !isJpql && testsElements(expression)) {
            // There is no element for which it is true.
            return "!(" + condition(expression, false) + ')';
        }
        if (expression instanceof DyadicExpression) {
            return dyadic(expression, negated);
        }
        if (isContains(expression) && !negated && !freeVariables(expression).isEmpty()) {
            return and(List.of(expression));
        }
        return present(
                expression,
                expression instanceof InvokeExpression invoke
                        ? invocation(invoke, negated)
                        : truth(operands.term(expression), negated));
    }

    /**
     * Whether a condition tests the elements of a collection, perhaps in a conjunction with others. It is true or false
     * then. An operand that has all uses of a variable is negated by itself.
     */
    private boolean testsElements(Expression condition) {
        List<Expression> parts = new ArrayList<>();
        Evaluator.flatten(condition, Expression.OP_AND, parts);
        return parts.stream()
                        .anyMatch(
                                part -> isContains(part) && !freeVariables(part).isEmpty())
                || groups(parts).size() < parts.size();
    }

    private static boolean isOr(Expression expression) {
        return expression.getOperator() == Expression.OP_OR || expression.getOperator() == Expression.OP_BIT_OR;
    }

    /** A test, which is unknown if an embedded object is null that has one of its operands. */
    private String present(Expression expression, String test) {
        List<String> tests = new ArrayList<>(operands.presences(expression));
        tests.add(test);
        return joined(tests, " && ");
    }

    private String dyadic(Expression expression, boolean negated) {
        Expression.Operator operator = expression.getOperator();
        if (operator == Expression.OP_NOT) {
            return condition(expression.getLeft(), !negated);
        }
        boolean isAnd = operator == Expression.OP_AND || operator == Expression.OP_BIT_AND;
        boolean isOr = isOr(expression);
        if (isAnd && !negated) {
            List<Expression> parts = new ArrayList<>();
            Evaluator.flatten(expression, operator, parts);
            return and(parts);
        }
        if (isAnd || isOr) {
            List<Expression> parts = new ArrayList<>();
            Evaluator.flatten(expression, operator, parts);
            List<String> texts =
                    parts.stream().map(part -> condition(part, negated)).toList();
            return joined(texts, isAnd == negated ? " || " : " && ");
        }
        String comparison = Comparisons.operator(operator);
        if (comparison != null) {
            String onFunction = comparisonOfFunction(expression.getLeft(), comparison, expression.getRight(), negated);
            return present(
                    expression,
                    onFunction != null
                            ? onFunction
                            : comparisons.comparison(expression.getLeft(), comparison, expression.getRight(), negated));
        }
        if (operator == Expression.OP_IN || operator == Expression.OP_NOTIN) {
            boolean isNot = negated != (operator == Expression.OP_NOTIN);
            return present(expression, memberships.in(expression.getLeft(), expression.getRight(), isNot));
        }
        if (operator == Expression.OP_LIKE) {
            Term value = operands.term(expression.getLeft());
            return Comparisons.guarded(
                    TextPattern.ofLike(constantText(expression.getRight()), TextPattern.escape(null))
                            .test(value, operands),
                    negated,
                    value);
        }
        throw new Untranslatable("the operator " + operator + " has no counterpart");
    }

    /** A boolean value as a condition. */
    private String truth(Term term, boolean negated) {
        if (term.isConstant() && term.constant() instanceof Boolean value) {
            return value != negated ? ALWAYS : NEVER;
        }
        if (!term.isBoolean()) {
            throw new Untranslatable("a value that is not a boolean is used as a condition");
        }
        return term.text() + " == " + !negated;
    }

    /**
     * A comparison of {@code size()} or {@code indexOf()} with a constant that a test without them can replace; else
     * null.
     */
    private String comparisonOfFunction(Expression left, String operator, Expression right, boolean negated) {
        if (left instanceof Literal && right instanceof InvokeExpression) {
            return comparisonOfFunction(right, Comparisons.mirrored(operator), left, negated);
        }
        if (!(left instanceof InvokeExpression invoke)
                || invoke.getLeft() == null
                || !(right instanceof Literal literal)
                || !(literal.getLiteral() instanceof Number number)) {
            return null;
        }
        String test = operator + ' ' + Values.decimal(number).stripTrailingZeros();
        if (invoke.getOperation().equals("size")) {
            return switch (test) {
                case "== 0", "<= 0", "< 1" -> memberships.empty(operands.values(invoke.getLeft()), negated);
                case "> 0", "!= 0", ">= 1" -> memberships.empty(operands.values(invoke.getLeft()), !negated);
                default -> null;
            };
        }
        if (invoke.getOperation().equals("indexOf") && invoke.getArguments().size() == 1) {
            Term text = operands.term(invoke.getLeft());
            return switch (test) {
                case ">= 0", "> -1", "!= -1" -> call(text, "contains", invoke, negated);
                case "< 0", "== -1", "<= -1" -> call(text, "contains", invoke, !negated);
                case "== 0" -> call(text, "startsWith", invoke, negated);
                default -> null;
            };
        }
        return null;
    }

    // ------------------------------------------------------------------------------------------- functions

    private String invocation(InvokeExpression invoke, boolean negated) {
        if (invoke.getLeft() == null) {
            throw new Untranslatable("the function " + invoke.getOperation() + " has no counterpart");
        }
        switch (invoke.getOperation()) {
            case "contains":
                return containsElement(invoke, negated);
            case "containsKey":
                return memberships.containsKey(invoke, negated);
            case "isEmpty":
                return memberships.empty(operands.values(invoke.getLeft()), negated);
            case "isPresent":
                return operands.term(invoke.getLeft()).text() + (negated ? " == null" : " != null");
            default:
        }
        Term receiver = operands.values(invoke.getLeft());
        if (receiver.isConstant()) {
            throw new Untranslatable("a function of a constant");
        }
        return switch (invoke.getOperation()) {
            case "startsWith", "endsWith" -> call(receiver, invoke.getOperation(), invoke, negated);
            case "matches" -> Comparisons.guarded(pattern(invoke).test(receiver, operands), negated, receiver);
            default -> truth(operands.term(invoke), negated);
        };
    }

    private TextPattern pattern(InvokeExpression invoke) {
        String pattern = constantText(invoke.getArguments().get(0));
        if (!isJpql) {
            return TextPattern.ofRegularExpression(pattern);
        }
        // DataNucleus compiles LIKE as matches with the pattern of LIKE.
        boolean hasEscape = invoke.getArguments().size() > 1;
        return TextPattern.ofLike(
                pattern,
                TextPattern.escape(
                        hasEscape ? constantText(invoke.getArguments().get(1)) : null));
    }

    private String constantText(Expression expression) {
        Term term = operands.term(expression);
        if (term.isConstant() && term.constant() != null) {
            return term.constant().toString();
        }
        throw new Untranslatable("a pattern is not constant");
    }

    /** A function of two strings that is true or false. */
    private String call(Term receiver, String function, InvokeExpression invoke, boolean negated) {
        if (!receiver.isText() || invoke.getArguments().size() != 1) {
            throw new Untranslatable("the function " + invoke.getOperation() + " has no counterpart");
        }
        Term argument = operands.term(invoke.getArguments().get(0));
        if (argument.isNull()) {
            return NEVER;
        }
        if (!argument.isConstant() && !argument.isText()) {
            throw new Untranslatable("the argument of " + invoke.getOperation() + " is not a string");
        }
        String text = argument.isConstant() ? operands.parameters().string(argument.constant()) : argument.text();
        return Comparisons.guarded(receiver.text() + '.' + function + '(' + text + ')', negated, receiver, argument);
    }

    private String containsElement(InvokeExpression invoke, boolean negated) {
        Expression element = invoke.getArguments().get(0);
        Term collection = operands.values(invoke.getLeft());
        if (collection.isConstant()) {
            if (collection.constant() instanceof String) {
                throw new Untranslatable("a function of a constant");
            }
            return memberships.in(element, invoke.getLeft(), negated);
        }
        if (collection.isText()) {
            return call(collection, "contains", invoke, negated);
        }
        return memberships.contains(collection, operands.term(element), negated);
    }
}
