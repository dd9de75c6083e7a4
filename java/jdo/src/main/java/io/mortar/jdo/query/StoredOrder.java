package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.mapping.ContainerMapping;
import io.mortar.jdo.mapping.Element;
import io.mortar.jdo.mapping.ValueCodec;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.CaseExpression;
import org.datanucleus.store.query.expression.ClassExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.JoinExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.VariableExpression;

/**
 * The order of values in memory, which is that of the store: the constants of an enumeration are in the order of their
 * names, or in that of their ordinals if their member is stored so.
 */
final class StoredOrder {
    private final Query<?> query;
    private final QueryCompilation compilation;
    /** How the members at the ends of paths are stored, if that is known. */
    private final Map<Expression, Optional<ValueCodec>> codecs = new IdentityHashMap<>();

    /** How the elements of containers are stored, by the names that stand for them; null until it is needed. */
    private Map<String, ValueCodec> elements;

    StoredOrder(Query<?> query, QueryCompilation compilation) {
        this.query = query;
        this.compilation = compilation;
    }

    /** The order of the values of an expression that are not null. */
    Comparator<Object> of(Expression expression) {
        return (left, right) -> compare(left, expression, right, expression);
    }

    /** Compares the values of two expressions, which are not null. */
    int compare(Object left, Expression ofLeft, Object right, Expression ofRight) {
        ValueCodec codec = left instanceof Enum<?> ? codec(ofLeft) : null;
        if (codec == null && right instanceof Enum<?>) {
            codec = codec(ofRight);
        }
        return Values.order(ordered(left, codec), ordered(right, codec));
    }

    /** Whether an expression is a member that is stored as a text. */
    boolean isText(Expression expression) {
        ValueCodec codec = codec(expression);
        return codec != null && codec.type().equals(FieldType.STRING);
    }

    /** The text as which a value of a member or an element is stored; null if it is not stored as one. */
    String text(Object value, Expression expression) {
        boolean isStored = expression instanceof PrimaryExpression || expression instanceof VariableExpression;
        return isStored && isText(expression) ? (String) codec(expression).encode(value) : null;
    }

    private static Object ordered(Object value, ValueCodec codec) {
        if (codec == null || !(value instanceof Enum<?> || value instanceof String)) {
            return value;
        }
        if (codec.keepsOrder()) {
            return codec.encode(value);
        }
        // A converter does not keep the order, so the store does not use it.
        return value instanceof Enum<?> constant ? (Object) constant.ordinal() : value;
    }

    private ValueCodec codec(Expression expression) {
        return codecs.computeIfAbsent(expression, each -> Optional.ofNullable(find(each)))
                .orElse(null);
    }

    private ValueCodec find(Expression expression) {
        if (expression instanceof VariableExpression variable) {
            return elements().get(variable.getId());
        }
        if (expression instanceof PrimaryExpression path) {
            ValueCodec ofElement = path.getLeft() == null ? elements().get(path.getId()) : null;
            return ofElement != null ? ofElement : term(path) instanceof Term.Value value ? value.codec() : null;
        }
        // A value of a member that a function, an aggregate or a condition passes on.
        List<Expression> passed = new ArrayList<>();
        if (expression instanceof InvokeExpression invoke) {
            ContainerMapping container = invoke.getOperation().equals("get") ? container(invoke.getLeft()) : null;
            if (container != null) {
                return container.element().codec();
            }
            passed.add(invoke.getLeft());
            passed.addAll(invoke.getArguments() == null ? List.of() : invoke.getArguments());
        } else if (expression instanceof CaseExpression cases) {
            cases.getConditions().forEach(each -> passed.add(each.getActionExpression()));
            passed.add(cases.getElseExpression());
        } else if (expression.getOperator() == Expression.OP_DISTINCT) {
            passed.add(expression.getLeft());
        }
        return passed.stream()
                .filter(Objects::nonNull)
                .map(this::find)
                .filter(Objects::nonNull)
                .findFirst()
                .orElse(null);
    }

    // ------------------------------------------------------------------------------------------- elements

    /** How the elements are stored that variables of {@code contains} and aliases of joined containers stand for. */
    private Map<String, ValueCodec> elements() {
        if (elements == null) {
            elements = new HashMap<>();
            ExpressionTree.forEach(compilation.getExprFilter(), each -> {
                if (Variables.isContains(each)) {
                    addVariables((InvokeExpression) each);
                }
            });
            for (Expression from : compilation.getExprFrom() == null ? new Expression[0] : compilation.getExprFrom()) {
                String candidates = ((ClassExpression) from).getCandidateExpression();
                if (candidates != null) {
                    addAlias(from.getAlias(), QueryPlan.path(candidates));
                }
                for (Expression each = from.getRight(); each instanceof JoinExpression join; each = each.getRight()) {
                    addAlias(join.getAlias(), join.getJoinedExpression());
                }
            }
        }
        return elements;
    }

    private void addVariables(InvokeExpression contains) {
        ContainerMapping container = container(contains.getLeft());
        boolean isKey = contains.getOperation().equals("containsKey")
                || contains.getOperation().equals("containsEntry");
        for (Expression argument : contains.getArguments()) {
            if (container != null && argument instanceof VariableExpression variable) {
                elements.putIfAbsent(variable.getId(), codec(isKey ? container.key() : container.element()));
            }
            // The second argument of containsEntry.
            isKey = false;
        }
    }

    private void addAlias(String alias, Expression joined) {
        boolean areKeys =
                joined instanceof PrimaryExpression path && path.getId().endsWith(Evaluator.KEY);
        ContainerMapping container = container(areKeys ? withoutKey((PrimaryExpression) joined) : joined);
        if (container != null) {
            elements.put(alias, codec(areKeys ? container.key() : container.element()));
            elements.put(alias + Evaluator.VALUE, codec(container.element()));
            elements.put(alias + Evaluator.KEY, codec(container.key()));
        }
    }

    /** How an element is stored; null for an object, and for the keys of a container that has none. */
    private static ValueCodec codec(Element element) {
        return element == null ? null : element.codec();
    }

    private static Expression withoutKey(PrimaryExpression path) {
        return QueryPlan.path(path.getId().substring(0, path.getId().length() - Evaluator.KEY.length()));
    }

    private ContainerMapping container(Expression expression) {
        return expression instanceof PrimaryExpression path && term(path) instanceof Term.Container container
                ? container.mapping()
                : null;
    }

    // ------------------------------------------------------------------------------------------- paths

    /** What a path leads to; null if that is not known. */
    private Term term(PrimaryExpression path) {
        List<String> names = path.getTuples();
        if (path.getLeft() instanceof VariableExpression variable) {
            return term(Variables.type(compilation, variable.getId()), names);
        }
        if (path.getLeft() instanceof DyadicExpression cast && cast.getOperator() == Expression.OP_CAST) {
            String name = String.valueOf(((Literal) cast.getRight()).getLiteral());
            return term(query.resolveClassDeclaration(name), names);
        }
        if (path.getLeft() != null) {
            return null;
        }
        Class<?> ofFirst = names.size() > 1 ? Variables.type(compilation, names.get(0)) : null;
        return ofFirst == null
                ? term(compilation.getCandidateClass(), names)
                : term(ofFirst, names.subList(1, names.size()));
    }

    private Term term(Class<?> root, List<String> path) {
        AbstractClassMetaData metadata = root == null
                ? null
                : query.getExecutionContext()
                        .getMetaDataManager()
                        .getMetaDataForClass(root, query.getExecutionContext().getClassLoaderResolver());
        if (metadata == null || metadata.isEmbeddedOnly()) {
            return null;
        }
        MortarStoreManager store = (MortarStoreManager) query.getStoreManager();
        Scope scope = new Scope(store, query.getExecutionContext(), store.mapping(metadata), "this", false);
        try {
            return scope.walk(scope.self(), path);
        } catch (Untranslatable inMemory) {
            return null;
        }
    }
}
