package io.mortar.jdo.query;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.compiler.Symbol;
import org.datanucleus.store.query.expression.CaseExpression;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;
import org.datanucleus.util.ClassUtils;

/**
 * Refuses JDOQL queries that cannot be right, when they are compiled: names that are neither members, nor parameters,
 * nor variables, and results of a wrong type. DataNucleus takes an unknown name of a filter for a variable, and does
 * not check results.
 */
final class QueryCheck {
    /** The functions of containers that the evaluation knows. */
    private static final Set<String> OF_CONTAINERS = Set.of(
            "size", "length", "isEmpty", "contains", "containsValue", "containsKey", "containsEntry", "indexOf", "get");

    private final Query<?> query;
    private final QueryCompilation compilation;
    private final ExecutionContext context;
    private final Class<?> candidate;

    private QueryCheck(Query<?> query, QueryCompilation compilation) {
        this.query = query;
        this.compilation = compilation;
        this.context = query.getExecutionContext();
        this.candidate = compilation.getCandidateClass();
    }

    static void check(Query<?> query, QueryCompilation compilation) {
        if (compilation.getCandidateClass() == null) {
            if (query.getCandidateClassName() != null) {
                query.resolveClassDeclaration(query.getCandidateClassName());
            }
            return;
        }
        QueryCheck check = new QueryCheck(query, compilation);
        check.checkFilter();
        Expression[] result = compilation.getExprResult() == null ? new Expression[0] : compilation.getExprResult();
        ExpressionTree.forEach(result, check::checkResult);
        for (Expression each : result) {
            check.checkSingle(each);
        }
        if (query.getResultClass() != null) {
            check.checkResultClass(result);
        }
    }

    /**
     * Refuses functions that neither language nor DataNucleus has, and members in the order and the groups that there
     * are not. Without rows nothing else would notice them.
     */
    static void checkNames(Query<?> query, QueryCompilation compilation) {
        QueryCheck check = new QueryCheck(query, compilation);
        ExpressionTree.forEach(compilation.getExprFilter(), check::checkKnown);
        ExpressionTree.forEach(compilation.getExprResult(), check::checkKnown);
        ExpressionTree.forEach(compilation.getExprHaving(), check::checkKnown);
        ExpressionTree.forEach(compilation.getExprGrouping(), check::checkKnown);
        ExpressionTree.forEach(compilation.getExprOrdering(), check::checkKnown);
        ExpressionTree.forEach(compilation.getExprGrouping(), check::checkMember);
        ExpressionTree.forEach(compilation.getExprOrdering(), check::checkMember);
        String[] subqueries = compilation.getSubqueryAliases();
        for (String name : subqueries == null ? new String[0] : subqueries) {
            checkNames(query, compilation.getCompilationForSubquery(name));
        }
    }

    private void checkKnown(Expression expression) {
        if (!(expression instanceof InvokeExpression invoke)) {
            return;
        }
        String name = invoke.getOperation();
        boolean isNamedByArgument = invoke.getLeft() == null
                && name.equalsIgnoreCase("SQL_function")
                && invoke.getArguments().get(0) instanceof Literal;
        if (isNamedByArgument) {
            name = String.valueOf(((Literal) invoke.getArguments().get(0)).getLiteral());
        }
        boolean isOfText = invoke.getLeft() instanceof PrimaryExpression path && memberType(path) == String.class;
        if (invoke.getLeft() == null && !Functions.isKnownWithoutReceiver(name, context)
                || isOfText && !Functions.isKnownOfText(name, context)) {
            throw new NucleusUserException("the query contains " + name + ", which is not a function"
                    + (isOfText ? " of texts" : "") + ": " + query);
        }
    }

    /** Refuses a path from the candidate or a variable that leads to no member. */
    private void checkMember(Expression expression) {
        if (!(expression instanceof PrimaryExpression path)
                || path.getLeft() != null
                || path.getId().contains("#")) {
            return;
        }
        List<String> names = path.getTuples();
        boolean isJdoql = "this".equals(compilation.getCandidateAlias());
        if (isCandidate(names.get(0)) || isJdoql && !isResult(names.get(0))) {
            type(path);
        } else if (!isJdoql) {
            type(Variables.type(compilation, names.get(0)), names.subList(1, names.size()));
        }
    }

    /** Whether a part of the result has a name. */
    private boolean isResult(String name) {
        return compilation.getExprResult() != null
                && Arrays.stream(compilation.getExprResult()).anyMatch(each -> name.equals(each.getAlias()));
    }

    /** Refuses null for a parameter of a primitive type. */
    static void checkParameters(QueryCompilation compilation, Map<?, ?> parameters) {
        parameters.forEach((name, value) -> {
            Symbol symbol = value == null && name instanceof String
                    ? compilation.getSymbolTable().getSymbol((String) name)
                    : null;
            if (symbol != null
                    && symbol.getValueType() != null
                    && symbol.getValueType().isPrimitive()) {
                throw new NucleusUserException(
                        "the parameter " + name + " is null, and its type is " + symbol.getValueType());
            }
        });
    }

    private void checkFilter() {
        Set<String> elements = Variables.elements(compilation.getExprFilter());
        ExpressionTree.forEach(compilation.getExprFilter(), each -> {
            if (each instanceof VariableExpression variable
                    && !isCandidate(variable.getId())
                    && !elements.contains(variable.getId())
                    && !isOverObjects(variable.getId())) {
                throw new NucleusUserException(
                        "the filter contains " + variable.getId() + ", which is neither a member of "
                                + candidate.getName() + " nor a variable over objects or elements");
            } else if (each instanceof CaseExpression cases) {
                checkConditions(cases);
            } else if (each instanceof InvokeExpression invoke) {
                checkFunction(invoke);
            } else if (each instanceof DyadicExpression && Comparisons.isComparison(each.getOperator())) {
                checkCharacter(each.getLeft(), each.getRight());
                checkCharacter(each.getRight(), each.getLeft());
            }
        });
    }

    /**
     * Refuses unknown functions, those that containers do not have, and those of containers for a variable over
     * objects.
     */
    private void checkFunction(InvokeExpression invoke) {
        String name = invoke.getOperation();
        if (invoke.getLeft() == null && name.contains(".") && !Functions.isKnown(name, context)) {
            throw new NucleusUserException("the filter contains " + name + ", which is not a function");
        }
        if (invoke.getLeft() instanceof PrimaryExpression path
                && isContainer(memberType(path))
                && !OF_CONTAINERS.contains(name)) {
            throw new NucleusUserException("the filter contains " + name + " of " + path.getId() + ", a container");
        }
        if (invoke.getLeft() instanceof VariableExpression variable
                && name.startsWith("contains")
                && isOverObjects(variable.getId())
                && compilation.getCompilationForSubquery(variable.getId()) == null) {
            throw new NucleusUserException(
                    "the filter contains " + name + " of the variable " + variable.getId() + ", an object");
        }
    }

    /**
     * Refuses a condition of {@code IF} that is a member of another type than boolean, and values of which some are
     * objects and some are not.
     */
    private void checkConditions(CaseExpression cases) {
        List<Expression> values = new ArrayList<>(List.of(cases.getElseExpression()));
        for (CaseExpression.ExpressionPair each : cases.getConditions()) {
            values.add(each.getActionExpression());
            Class<?> type = each.getWhenExpression() instanceof PrimaryExpression path ? memberType(path) : null;
            if (type != null && type != boolean.class && type != Boolean.class) {
                throw new NucleusUserException("the condition " + ((PrimaryExpression) each.getWhenExpression()).getId()
                        + " of IF is a " + type.getName());
            }
        }
        List<Class<?>> types = new ArrayList<>();
        for (Expression each : values) {
            types.add(
                    each instanceof Literal literal && literal.getLiteral() != null
                            ? literal.getLiteral().getClass()
                            : each instanceof PrimaryExpression path ? memberType(path) : null);
        }
        types.removeIf(Objects::isNull);
        long objects =
                types.stream().filter(context.getApiAdapter()::isPersistable).count();
        if (objects > 0 && objects < types.size()) {
            throw new NucleusUserException("the values of IF are of the types " + types);
        }
    }

    /** Refuses the comparison of a character with a text that is none. */
    private void checkCharacter(Expression side, Expression other) {
        if (side instanceof PrimaryExpression path
                && other instanceof Literal literal
                && literal.getLiteral() instanceof String text
                && text.length() != 1) {
            Class<?> type = memberType(path);
            if (type == char.class || type == Character.class) {
                throw new NucleusUserException("the character " + path.getId() + " is compared with a text of "
                        + text.length() + " characters");
            }
        }
    }

    private void checkResultClass(Expression[] result) {
        if (result.length == 1 && result[0] instanceof CreatorExpression) {
            return;
        }
        List<ResultClassCheck.Value> values = new ArrayList<>();
        for (Expression each : result) {
            boolean isSelf =
                    each instanceof PrimaryExpression path && path.getLeft() == null && isCandidate(path.getId());
            values.add(new ResultClassCheck.Value(
                    QueryExecution.columnOf(each),
                    isSelf ? candidate : each instanceof PrimaryExpression path ? type(path) : null));
        }
        ResultClassCheck.check(
                query.getResultClass(),
                values.isEmpty() ? List.of(new ResultClassCheck.Value(null, candidate)) : values);
    }

    private boolean isCandidate(String name) {
        return name.equals(compilation.getCandidateAlias());
    }

    private boolean isOverObjects(String variable) {
        Class<?> type = Variables.type(compilation, variable);
        return compilation.getCompilationForSubquery(variable) != null
                || type != null
                        && (type.isInterface() || context.getApiAdapter().isPersistable(type));
    }

    private void checkResult(Expression expression) {
        if (expression instanceof PrimaryExpression path) {
            type(path);
        } else if (expression instanceof CaseExpression cases) {
            checkConditions(cases);
        } else if (expression instanceof CreatorExpression creator) {
            ResultClassCheck.checkConstructor(
                    query.resolveClassDeclaration(creator.getId()),
                    creator.getArguments().size());
        } else if (expression instanceof VariableExpression variable
                && !isCandidate(variable.getId())
                && !Variables.isDeclared(compilation, variable.getId())) {
            throw new NucleusUserException("the result contains " + variable.getId() + ", which is neither a member of "
                    + candidate.getName() + " nor a variable");
        } else if (expression instanceof InvokeExpression aggregate
                && ResultColumns.isAggregate(aggregate)
                && Set.of("sum", "avg").contains(aggregate.getOperation().toLowerCase(Locale.ROOT))
                && aggregate.getArguments().get(0) instanceof PrimaryExpression path) {
            Class<?> type = type(path);
            Class<?> boxed = type == null ? null : ClassUtils.getWrapperTypeForPrimitiveType(type);
            if (type != null && !Number.class.isAssignableFrom(boxed == null ? type : boxed)) {
                throw new NucleusUserException("the result contains " + aggregate.getOperation() + " of " + path.getId()
                        + ", a " + type.getName());
            }
        }
    }

    private void checkSingle(Expression expression) {
        Class<?> type = expression instanceof PrimaryExpression path ? type(path) : null;
        if (isContainer(type)) {
            throw new NucleusUserException("the result contains " + ((PrimaryExpression) expression).getId()
                    + ", a container: use a variable for its elements");
        }
    }

    private static boolean isContainer(Class<?> type) {
        return type != null && (Collection.class.isAssignableFrom(type) || Map.class.isAssignableFrom(type));
    }

    /** The type of the member to which a path leads; null if it is not known or there is no such member. */
    private Class<?> memberType(PrimaryExpression path) {
        try {
            return type(path);
        } catch (NucleusUserException unknown) {
            return null;
        }
    }

    /** The type of the member to which a path leads; null if it is not known. */
    private Class<?> type(PrimaryExpression path) {
        List<String> names = path.getTuples();
        if (path.getLeft() == null) {
            return type(candidate, isCandidate(names.get(0)) ? names.subList(1, names.size()) : names);
        }
        if (path.getLeft() instanceof VariableExpression variable) {
            return type(
                    isCandidate(variable.getId()) ? candidate : Variables.type(compilation, variable.getId()), names);
        }
        return null;
    }

    private Class<?> type(Class<?> from, List<String> path) {
        Class<?> type = from;
        for (String name : path) {
            AbstractClassMetaData metadata = type == null
                    ? null
                    : context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
            AbstractMemberMetaData member = metadata == null ? null : metadata.getMetaDataForMember(name);
            if (metadata != null && member == null && ClassUtils.getFieldForClass(type, name) == null) {
                throw new NucleusUserException(
                        type.getName() + " has no member " + name + ", which the query contains");
            }
            type = member == null || member.getType() == Optional.class ? null : member.getType();
        }
        return type;
    }
}
