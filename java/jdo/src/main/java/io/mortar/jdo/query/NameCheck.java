package io.mortar.jdo.query;

import java.util.List;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;
import org.datanucleus.util.ClassUtils;

/**
 * Refuses names of a JDOQL query that are neither members, nor parameters, nor variables. DataNucleus takes an unknown name of a filter
 * for a variable, and checks no paths of results.
 */
final class NameCheck {
    private NameCheck() {}

    static void check(QueryCompilation compilation, ExecutionContext context) {
        Class<?> candidate = compilation.getCandidateClass();
        if (candidate == null) {
            return;
        }
        checkVariables(compilation, context);
        ExpressionTree.forEach(compilation.getExprResult(), each -> {
            if (each instanceof PrimaryExpression primary && primary.getLeft() == null) {
                List<String> path = primary.getTuples();
                boolean isNamed = path.get(0).equals(compilation.getCandidateAlias());
                check(candidate, isNamed ? path.subList(1, path.size()) : path, context);
            } else if (each instanceof PrimaryExpression primary && primary.getLeft() instanceof VariableExpression variable) {
                boolean isCandidate = variable.getId().equals(compilation.getCandidateAlias());
                check(isCandidate ? candidate : Variables.type(compilation, variable.getId()), primary.getTuples(), context);
            } else if (each instanceof VariableExpression variable && !variable.getId().equals(compilation.getCandidateAlias())
                    && !Variables.isDeclared(compilation, variable.getId())) {
                throw new NucleusUserException("the result contains " + variable.getId() + ", which is neither a member of "
                        + candidate.getName() + " nor a variable");
            }
        });
    }

    private static void checkVariables(QueryCompilation compilation, ExecutionContext context) {
        Set<String> elements = Variables.elements(compilation.getExprFilter());
        ExpressionTree.forEach(compilation.getExprFilter(), each -> {
            if (each instanceof VariableExpression variable && !variable.getId().equals(compilation.getCandidateAlias())
                    && !elements.contains(variable.getId()) && !isOverObjects(compilation, variable.getId(), context)) {
                throw new NucleusUserException("the filter contains " + variable.getId() + ", which is neither a member of "
                        + compilation.getCandidateClass().getName() + " nor a variable over objects or elements");
            }
        });
    }

    private static boolean isOverObjects(QueryCompilation compilation, String variable, ExecutionContext context) {
        Class<?> type = Variables.type(compilation, variable);
        return compilation.getCompilationForSubquery(variable) != null
                || type != null && (type.isInterface() || context.getApiAdapter().isPersistable(type));
    }

    private static void check(Class<?> from, List<String> path, ExecutionContext context) {
        Class<?> type = from;
        for (String name : type == null ? List.<String>of() : path) {
            AbstractClassMetaData metadata =
                    context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
            AbstractMemberMetaData member = metadata == null ? null : metadata.getMetaDataForMember(name);
            if (metadata != null && member == null && ClassUtils.getFieldForClass(type, name) == null) {
                throw new NucleusUserException(type.getName() + " has no member " + name + ", which the result contains");
            }
            if (member == null) {
                return;
            }
            type = member.getType();
        }
    }
}
