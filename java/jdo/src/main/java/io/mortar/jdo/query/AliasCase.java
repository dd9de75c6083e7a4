package io.mortar.jdo.query;

import java.util.HashSet;
import java.util.Set;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.PrimaryExpression;

/**
 * Gives paths of JPQL the alias as it is declared: {@code SELECT c FROM Customer C}. Identification variables do not
 * depend on the case. DataNucleus finds the types of such paths, and leaves them as they are written.
 */
final class AliasCase {
    private final Set<String> aliases;

    private AliasCase(Set<String> aliases) {
        this.aliases = aliases;
    }

    /** Renames the aliases in the paths of a query and its subqueries. */
    static void unify(QueryCompilation compilation) {
        unify(compilation, Set.of());
    }

    private static void unify(QueryCompilation compilation, Set<String> outer) {
        Set<String> aliases = new HashSet<>(outer);
        aliases.add(compilation.getCandidateAlias());
        addDeclared(compilation.getExprFrom(), aliases);
        AliasCase paths = new AliasCase(aliases);
        paths.unifyFrom(compilation.getExprFrom());
        ExpressionTree.forEach(compilation.getExprResult(), paths::rename);
        ExpressionTree.forEach(compilation.getExprUpdate(), paths::rename);
        ExpressionTree.forEach(compilation.getExprFilter(), paths::rename);
        ExpressionTree.forEach(compilation.getExprGrouping(), paths::rename);
        ExpressionTree.forEach(compilation.getExprHaving(), paths::rename);
        ExpressionTree.forEach(compilation.getExprOrdering(), paths::rename);
        String[] subqueries = compilation.getSubqueryAliases();
        for (String name : subqueries == null ? new String[0] : subqueries) {
            unify(compilation.getCompilationForSubquery(name), aliases);
        }
    }

    private static void addDeclared(Expression[] from, Set<String> aliases) {
        ExpressionTree.forEach(from, each -> {
            if (each instanceof ClassExpression root) {
                aliases.add(root.getAlias());
            } else if (each instanceof JoinExpression join) {
                aliases.add(join.getAlias());
            }
        });
        aliases.remove(null);
    }

    private void unifyFrom(Expression[] from) {
        ExpressionTree.forEach(from, each -> {
            if (each instanceof JoinExpression join) {
                ExpressionTree.forEach(join.getJoinedExpression(), this::rename);
                ExpressionTree.forEach(join.getOnExpression(), this::rename);
            }
        });
    }

    private void rename(Expression expression) {
        if (expression instanceof PrimaryExpression path
                && path.getLeft() == null
                && !path.getTuples().isEmpty()) {
            String written = path.getTuples().get(0);
            if (!aliases.contains(written)) {
                aliases.stream()
                        .filter(written::equalsIgnoreCase)
                        .findAny()
                        .ifPresent(alias -> path.getTuples().set(0, alias));
            }
        }
    }
}
