package io.mortar.jdo.query;

import java.util.function.Consumer;
import org.datanucleus.store.query.expression.ArrayExpression;
import org.datanucleus.store.query.expression.CaseExpression;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;

/** Walks through expressions. */
final class ExpressionTree {
    private ExpressionTree() {}

    /** Passes an expression and all that it consists of, or nothing for null. */
    static void forEach(Expression expression, Consumer<Expression> action) {
        if (expression == null) {
            return;
        }
        action.accept(expression);
        forEach(expression.getLeft(), action);
        forEach(expression.getRight(), action);
        if (expression instanceof InvokeExpression invoke && invoke.getArguments() != null) {
            invoke.getArguments().forEach(argument -> forEach(argument, action));
        } else if (expression instanceof CreatorExpression creator) {
            creator.getArguments().forEach(argument -> forEach(argument, action));
        } else if (expression instanceof ArrayExpression array) {
            for (int i = 0; i < array.getArraySize(); i++) {
                forEach(array.getElement(i), action);
            }
        } else if (expression instanceof CaseExpression cases) {
            cases.getConditions().forEach(pair -> {
                forEach(pair.getWhenExpression(), action);
                forEach(pair.getActionExpression(), action);
            });
            forEach(cases.getElseExpression(), action);
        }
    }

    /** Passes all of several expressions; none for null. */
    static void forEach(Expression[] expressions, Consumer<Expression> action) {
        if (expressions != null) {
            for (Expression each : expressions) {
                forEach(each, action);
            }
        }
    }
}
