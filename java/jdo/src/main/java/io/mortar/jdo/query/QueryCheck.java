package io.mortar.jdo.query;

import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;
import org.datanucleus.util.ClassUtils;

/**
 * Refuses JDOQL queries that cannot be right, when they are compiled: names that are neither members, nor parameters, nor variables, and
 * results of a wrong type. DataNucleus takes an unknown name of a filter for a variable, and does not check results.
 */
final class QueryCheck {
    private final QueryCompilation compilation;
    private final ExecutionContext context;
    private final Class<?> candidate;

    private QueryCheck(QueryCompilation compilation, ExecutionContext context) {
        this.compilation = compilation;
        this.context = context;
        this.candidate = compilation.getCandidateClass();
    }

    static void check(QueryCompilation compilation, Class<?> resultClass, ExecutionContext context) {
        if (compilation.getCandidateClass() == null) {
            return;
        }
        QueryCheck check = new QueryCheck(compilation, context);
        check.checkFilter();
        Expression[] result = compilation.getExprResult() == null ? new Expression[0] : compilation.getExprResult();
        ExpressionTree.forEach(result, check::checkResult);
        for (Expression each : result) {
            check.checkSingle(each);
        }
        boolean isValue = resultClass != null && resultClass.getName().startsWith("java.lang.") && resultClass != Object.class;
        if (isValue && result.length > 1) {
            throw new NucleusUserException("the result has " + result.length + " values, and the result class is " + resultClass.getName());
        }
    }

    private void checkFilter() {
        Set<String> elements = Variables.elements(compilation.getExprFilter());
        ExpressionTree.forEach(compilation.getExprFilter(), each -> {
            if (each instanceof VariableExpression variable && !isCandidate(variable.getId())
                    && !elements.contains(variable.getId()) && !isOverObjects(variable.getId())) {
                throw new NucleusUserException("the filter contains " + variable.getId() + ", which is neither a member of "
                        + candidate.getName() + " nor a variable over objects or elements");
            }
        });
    }

    private boolean isCandidate(String name) {
        return name.equals(compilation.getCandidateAlias());
    }

    private boolean isOverObjects(String variable) {
        Class<?> type = Variables.type(compilation, variable);
        return compilation.getCompilationForSubquery(variable) != null
                || type != null && (type.isInterface() || context.getApiAdapter().isPersistable(type));
    }

    private void checkResult(Expression expression) {
        if (expression instanceof PrimaryExpression path) {
            type(path);
        } else if (expression instanceof VariableExpression variable && !isCandidate(variable.getId())
                && !Variables.isDeclared(compilation, variable.getId())) {
            throw new NucleusUserException("the result contains " + variable.getId() + ", which is neither a member of "
                    + candidate.getName() + " nor a variable");
        } else if (expression instanceof InvokeExpression aggregate && ResultColumns.isAggregate(aggregate)
                && Set.of("sum", "avg").contains(aggregate.getOperation().toLowerCase(Locale.ROOT))
                && aggregate.getArguments().get(0) instanceof PrimaryExpression path) {
            Class<?> type = type(path);
            Class<?> boxed = type == null ? null : ClassUtils.getWrapperTypeForPrimitiveType(type);
            if (type != null && !Number.class.isAssignableFrom(boxed == null ? type : boxed)) {
                throw new NucleusUserException("the result contains " + aggregate.getOperation() + " of " + path.getId() + ", a "
                        + type.getName());
            }
        }
    }

    private void checkSingle(Expression expression) {
        Class<?> type = expression instanceof PrimaryExpression path ? type(path) : null;
        if (type != null && (Collection.class.isAssignableFrom(type) || Map.class.isAssignableFrom(type))) {
            throw new NucleusUserException("the result contains " + ((PrimaryExpression) expression).getId()
                    + ", a container: use a variable for its elements");
        }
    }

    /** The type of the member to which a path leads; null if it is not known. */
    private Class<?> type(PrimaryExpression path) {
        List<String> names = path.getTuples();
        if (path.getLeft() == null) {
            return type(candidate, isCandidate(names.get(0)) ? names.subList(1, names.size()) : names);
        }
        if (path.getLeft() instanceof VariableExpression variable) {
            return type(isCandidate(variable.getId()) ? candidate : Variables.type(compilation, variable.getId()), names);
        }
        return null;
    }

    private Class<?> type(Class<?> from, List<String> path) {
        Class<?> type = from;
        for (String name : path) {
            AbstractClassMetaData metadata = type == null
                    ? null : context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
            AbstractMemberMetaData member = metadata == null ? null : metadata.getMetaDataForMember(name);
            if (metadata != null && member == null && ClassUtils.getFieldForClass(type, name) == null) {
                throw new NucleusUserException(type.getName() + " has no member " + name + ", which the result contains");
            }
            type = member == null || member.getType() == Optional.class ? null : member.getType();
        }
        return type;
    }
}
