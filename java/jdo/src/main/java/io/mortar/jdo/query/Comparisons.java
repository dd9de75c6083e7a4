package io.mortar.jdo.query;

import io.mortar.FieldType;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.ParameterExpression;

/**
 * Translates comparisons of two values, and tests for null. A member of an embedded object that is null may be stored
 * as zero, and the stored values of some types do not have the order of the Java values: such comparisons are refused.
 */
final class Comparisons {
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

    private final Operands operands;
    private final boolean isJpql;

    Comparisons(Operands operands, boolean isJpql) {
        this.operands = operands;
        this.isJpql = isJpql;
    }

    /** Whether an operator compares two values. */
    static boolean isComparison(Expression.Operator operator) {
        return COMPARISONS.containsKey(operator);
    }

    /** The name of an operator that compares two values; null for another one. */
    static String operator(Expression.Operator operator) {
        return COMPARISONS.get(operator);
    }

    /** The operator for the exchanged operands. */
    static String mirrored(String operator) {
        return MIRRORED.get(operator);
    }

    /** The text of a comparison of two expressions, or of its negation. */
    String comparison(Expression leftExpression, String operator, Expression rightExpression, boolean negated) {
        boolean areIdentities = isIdentity(leftExpression) || isIdentity(rightExpression);
        if (areIdentities && !operator.equals("==") && !operator.equals("!=")) {
            throw new Untranslatable("identities have no order in the store");
        }
        Term left = areIdentities ? identified(leftExpression) : operands.term(leftExpression);
        Term right = areIdentities ? identified(rightExpression) : operands.term(rightExpression);
        boolean isNothing = left.isNull() && operands.isSubquery(leftExpression)
                || right.isNull() && operands.isSubquery(rightExpression);
        if (isNothing && !(left.isConstant() && right.isConstant())) {
            return Conditions.NEVER;
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
            return !isEquality || isUnknown ? Conditions.NEVER : nullTest(left, used);
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
    static boolean haveOneForm(Term left, Term right) {
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
    static void requireNoZero(Term value) {
        if (!value.presences().isEmpty()) {
            throw new Untranslatable("a member of an embedded object that is null is stored as zero");
        }
    }

    /** A test that is not true in JPQL behind a reference that is null. */
    String joinedInner(Term term, String test) {
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

    /** A test of values, whose negation is false if one of them is null. */
    static String guarded(String test, boolean negated, Term... values) {
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
}
