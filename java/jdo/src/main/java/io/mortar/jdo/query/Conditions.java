package io.mortar.jdo.query;

import io.mortar.FieldType;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ArrayExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.ParameterExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * Translates conditions. {@code docs/decisions/filter-nulls.md} says how tests of null fields, which are neither true
 * nor false, become tests that are: a negation moves down to the tests.
 */
final class Conditions {
    private static final Map<Expression.Operator, String> COMPARISONS = Map.of(
            Expression.OP_EQ,
            "==",
            Expression.OP_NOTEQ,
            "!=",
            Expression.OP_LT,
            "<",
            Expression.OP_LTEQ,
            "<=",
            Expression.OP_GT,
            ">",
            Expression.OP_GTEQ,
            ">=");
    private static final Map<String, String> OPPOSITES =
            Map.of("==", "!=", "!=", "==", "<", ">=", "<=", ">", ">", "<=", ">=", "<");
    private static final Map<String, String> MIRRORED =
            Map.of("==", "==", "!=", "!=", "<", ">", "<=", ">=", ">", "<", ">=", "<=");
    private static final String ALWAYS = "1 == 1";
    static final String NEVER = "1 == 2";

    private final Operands operands;
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
                        && (isComparison(operator) || operator == Expression.OP_IN || operator == Expression.OP_NOTIN);
    }

    static boolean isComparison(Expression.Operator operator) {
        return COMPARISONS.containsKey(operator);
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
        String comparison = COMPARISONS.get(operator);
        if (comparison != null) {
            return present(expression, comparison(expression.getLeft(), comparison, expression.getRight(), negated));
        }
        if (operator == Expression.OP_IN || operator == Expression.OP_NOTIN) {
            boolean isNot = negated != (operator == Expression.OP_NOTIN);
            return present(expression, in(expression.getLeft(), expression.getRight(), isNot));
        }
        if (operator == Expression.OP_LIKE) {
            Term value = operands.term(expression.getLeft());
            return guarded(
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

    // ------------------------------------------------------------------------------------------- comparisons

    private String comparison(Expression leftExpression, String operator, Expression rightExpression, boolean negated) {
        String onFunction = comparisonOfFunction(leftExpression, operator, rightExpression, negated);
        if (onFunction != null) {
            return onFunction;
        }
        boolean areIdentities = isIdentity(leftExpression) || isIdentity(rightExpression);
        if (areIdentities && !operator.equals("==") && !operator.equals("!=")) {
            throw new Untranslatable("identities have no order in the store");
        }
        Term left = areIdentities ? identified(leftExpression) : operands.term(leftExpression);
        Term right = areIdentities ? identified(rightExpression) : operands.term(rightExpression);
        boolean isNothing = left.isNull() && operands.isSubquery(leftExpression)
                || right.isNull() && operands.isSubquery(rightExpression);
        if (isNothing && !(left.isConstant() && right.isConstant())) {
            return NEVER;
        }
        if (left.isConstant() && !right.isConstant()) {
            return comparison(right, MIRRORED.get(operator), left, leftExpression, negated);
        }
        return comparison(left, operator, right, rightExpression, negated);
    }

    private static boolean isIdentity(Expression expression) {
        return expression instanceof InvokeExpression invoke
                && invoke.getLeft() == null
                && Functions.GET_OBJECT_ID.contains(invoke.getOperation());
    }

    /**
     * The object of an identity: the argument of {@code JDOHelper.getObjectId}, or the object that a constant
     * identifies.
     */
    private Term identified(Expression expression) {
        if (isIdentity(expression)) {
            Term object =
                    operands.term(((InvokeExpression) expression).getArguments().get(0));
            if (!object.isConstant() && !(object instanceof Term.Reference)) {
                throw new Untranslatable("an identity of something else than an object");
            }
            return object;
        }
        Term identity = operands.term(expression);
        if (!identity.isConstant()) {
            throw new Untranslatable("an identity is compared with a member");
        }
        return new Term.Constant(operands.parameters().identified(identity.constant()));
    }

    private String comparison(Term left, String operator, Term right, Expression rightExpression, boolean negated) {
        String used = negated ? OPPOSITES.get(operator) : operator;
        boolean isEquality = operator.equals("==") || operator.equals("!=");
        if (left.isConstant()) {
            throw new Untranslatable("two constants are compared");
        }
        if (right.isNull()) {
            if (left instanceof Term.Inverse) {
                throw new Untranslatable("the other side of a relation has the reference");
            }
            boolean isUnknown = isJpql && rightExpression instanceof ParameterExpression;
            return !isEquality || isUnknown ? NEVER : nullTest(left, used);
        }
        if (right.isConstant()) {
            if (!isEquality && !hasOrder(left)) {
                throw new Untranslatable(
                        "the stored values of " + left.text() + " do not have the order of the Java values");
            }
            boolean isPromoted = rightExpression instanceof ParameterExpression
                    && left.codec() != null
                    && left.codec().type().equals(FieldType.INT64)
                    && Promotion.isPromoting(right.constant());
            return isPromoted
                    ? Promotion.test(left, used, right.constant())
                    : left.text() + ' ' + used + ' ' + operands.parameters().text(right.constant(), left);
        }
        if (!haveOneForm(left, right) || !isEquality && !(hasOrder(left) && hasOrder(right))) {
            throw new Untranslatable("the stored values of two members cannot be compared");
        }
        return between(left, used, right);
    }

    /** Whether the store can compare two values. */
    private static boolean haveOneForm(Term left, Term right) {
        return left.isNumber() && right.isNumber()
                || left instanceof Term.Value
                        && right instanceof Term.Value
                        && left.codec() != null
                        && right.codec() != null
                        && left.codec().type().equals(right.codec().type())
                || left instanceof Term.Reference && right instanceof Term.Reference;
    }

    /** Whether the stored values have the order of the Java values. Objects have none. */
    private static boolean hasOrder(Term term) {
        return term instanceof Term.Value
                && (term.codec() == null || term.codec().keepsOrder());
    }

    /**
     * A test whether a member is null. In JPQL there is no member behind a reference that is null, unless an outer join
     * gives null.
     */
    private String nullTest(Term left, String operator) {
        requireNoZero(left);
        String test = left.text() + ' ' + operator + " null";
        return operator.equals("==") ? joinedInner(left, test) : test;
    }

    /** Refuses a value that is stored as zero if an embedded object is null, in a test that is true for null. */
    private static void requireNoZero(Term value) {
        if (!value.presences().isEmpty()) {
            throw new Untranslatable("a member of an embedded object that is null is stored as zero");
        }
    }

    /** A test that is not true in JPQL behind a reference that is null. */
    private String joinedInner(Term term, String test) {
        List<String> tests = new ArrayList<>();
        if (isJpql) {
            term.references().stream()
                    .filter(reference -> !operands.scope().isOuter(reference))
                    .forEach(reference -> tests.add(reference + " != null"));
        }
        tests.add(test);
        return String.join(" && ", tests);
    }

    /** A comparison of two members. Two nulls are equal in JDOQL. */
    private String between(Term left, String operator, Term right) {
        String test = left.text() + ' ' + operator + ' ' + right.text();
        if (isJpql || !operator.equals("==") || !left.isNullable() || !right.isNullable()) {
            return test;
        }
        requireNoZero(left);
        requireNoZero(right);
        return '(' + test + " || " + left.text() + " == null && " + right.text() + " == null)";
    }

    /**
     * A comparison of {@code size()} or {@code indexOf()} with a constant that a test without them can replace; else
     * null.
     */
    private String comparisonOfFunction(Expression left, String operator, Expression right, boolean negated) {
        if (left instanceof Literal && right instanceof InvokeExpression) {
            return comparisonOfFunction(right, MIRRORED.get(operator), left, negated);
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
                case "== 0", "<= 0", "< 1" -> empty(operands.values(invoke.getLeft()), negated);
                case "> 0", "!= 0", ">= 1" -> empty(operands.values(invoke.getLeft()), !negated);
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

    /** A test of values, whose negation is false if one of them is null. */
    private static String guarded(String test, boolean negated, Term... values) {
        if (!negated) {
            return test;
        }
        StringBuilder text = new StringBuilder("!(").append(test).append(')');
        for (Term value : values) {
            if (!value.isConstant()) {
                text.append(" && ").append(value.text()).append(" != null");
            }
        }
        return text.toString();
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
                return containsKey(invoke, negated);
            case "isEmpty":
                return empty(operands.values(invoke.getLeft()), negated);
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
            case "matches" -> guarded(pattern(invoke).test(receiver, operands), negated, receiver);
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
        return guarded(receiver.text() + '.' + function + '(' + text + ')', negated, receiver, argument);
    }

    private String empty(Term collection, boolean negated) {
        if (!(collection instanceof Term.Container container) || container.isMap()) {
            throw new Untranslatable("the size of the collection is not stored");
        }
        String any = container.text() + ".any(e_ => " + ALWAYS + ')';
        return joinedInner(container, negated ? any : '!' + any);
    }

    /** A test whether a collection has an element. In JPQL it is not known whether it has null. */
    private String membership(Term collection, Term element, String test, boolean negated) {
        if (!negated) {
            return joinedInner(collection, test);
        }
        boolean mayBeNull = isJpql && !element.isConstant() && !element.isCandidate();
        return joinedInner(collection, (mayBeNull ? element.text() + " != null && " : "") + "!(" + test + ')');
    }

    private String containsElement(InvokeExpression invoke, boolean negated) {
        Expression element = invoke.getArguments().get(0);
        Term collection = operands.values(invoke.getLeft());
        if (collection.isConstant()) {
            if (collection.constant() instanceof String) {
                throw new Untranslatable("a function of a constant");
            }
            return in(element, invoke.getLeft(), negated);
        }
        if (collection.isText()) {
            return call(collection, "contains", invoke, negated);
        }
        Term value = operands.term(element);
        if (isJpql && value.isNull()) {
            // It is not known whether null is an element.
            return NEVER;
        }
        String test = collection instanceof Term.Inverse inverse ? isOwner(inverse, value) : isIn(value, collection);
        return membership(collection, value, test, negated);
    }

    /** A test whether a list or a set has a value. In JDOQL it may have null, unless its elements are objects. */
    private String isIn(Term value, Term collection) {
        if (!(collection instanceof Term.Container container) || container.isMap()) {
            throw new Untranslatable("the collection is not a list or a set");
        }
        boolean mayHaveNull = container.mapping().mayHaveNull();
        String hasNull = mayHaveNull ? container.text() + ".any(e_ => e_ == null)" : NEVER;
        if (value.isNull()) {
            return hasNull;
        }
        String test = among(value, operands.scope().element(container.mapping(), "e_"), container);
        if (isJpql || value.isConstant() || !value.isNullable()) {
            return test;
        }
        requireNoZero(value);
        return mayHaveNull ? '(' + test + " || " + value.text() + " == null && " + hasNull + ')' : test;
    }

    /** A test whether a container has a value among its elements or keys, which have the form of a term. */
    private String among(Term value, Term form, Term.Container container) {
        if (!value.isConstant() && !haveOneForm(value, form)) {
            throw new Untranslatable("the stored values of a member and a container cannot be compared");
        }
        String text = value.isConstant() ? operands.parameters().text(value.constant(), form) : value.text();
        return text + " in " + container.text();
    }

    /** A constant object is in an inverse collection if it refers to the owner of the collection. */
    private String isOwner(Term.Inverse collection, Term value) {
        if (!value.isConstant() || value.constant() == null) {
            throw new Untranslatable("the elements of the collection are found by their references to its owner");
        }
        Object owner = operands.parameters()
                .member(value.constant(), collection.mapping().elementMember());
        if (owner instanceof Collection<?> owners) {
            return collection.owner().text() + " in " + operands.parameters().listText(owners, collection.owner());
        }
        return owner == null
                ? NEVER
                : collection.owner().text() + " == " + operands.parameters().text(owner, collection.owner());
    }

    private String containsKey(InvokeExpression invoke, boolean negated) {
        Term map = operands.term(invoke.getLeft());
        Term key = operands.term(invoke.getArguments().get(0));
        if (!(map instanceof Term.Container container) || !container.isMap()) {
            throw new Untranslatable("the map is not stored as one");
        }
        if (!isJpql) {
            requireNoZero(key);
        }
        return membership(map, key, among(key, operands.scope().key(container.mapping(), "e_"), container), negated);
    }

    /** A test whether a value is one of a list of constants, or one of several expressions. */
    private String in(Expression element, Expression list, boolean negated) {
        Term value = operands.term(element);
        if (value.isConstant()) {
            throw new Untranslatable("two constants are compared");
        }
        List<Object> constants = new ArrayList<>();
        if (list instanceof ArrayExpression array) {
            for (int i = 0; i < array.getArraySize(); i++) {
                Term each = operands.values(array.getElement(i));
                if (!each.isConstant()) {
                    throw new Untranslatable("a list has elements that are not constant");
                }
                boolean isList = each.constant() instanceof Collection;
                constants.addAll(
                        isList ? Parameters.elements(each.constant()) : Collections.singleton(each.constant()));
            }
        } else {
            Term each = operands.values(list);
            if (!each.isConstant()) {
                if (list instanceof PrimaryExpression) {
                    return membership(each, value, isIn(value, each), negated);
                }
                throw new Untranslatable("a list is not constant");
            }
            if (each.constant() == null) {
                return NEVER;
            }
            boolean isOne = !(each.constant() instanceof Collection)
                    && !each.constant().getClass().isArray();
            constants.addAll(isOne ? List.of(each.constant()) : Parameters.elements(each.constant()));
        }
        // JPQL does not know whether a value differs from null.
        if (negated && isJpql && constants.contains(null)) {
            return NEVER;
        }
        String test = value.text() + " in " + operands.parameters().listText(constants, value);
        if (isJpql) {
            return guarded(test, negated, value);
        }
        if (constants.contains(null) != negated) {
            requireNoZero(value);
        }
        boolean hasNull = constants.contains(null) && value.isNullable();
        String found = hasNull ? test + " || " + value.text() + " == null" : test;
        return negated ? "!(" + found + ')' : hasNull ? '(' + found + ')' : found;
    }
}
