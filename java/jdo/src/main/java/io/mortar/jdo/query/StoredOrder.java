package io.mortar.jdo.query;

import io.mortar.FieldType;
import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.mapping.ValueCodec;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.CaseExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
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
        if (expression instanceof PrimaryExpression path) {
            return ofPath(path);
        }
        // A value of a member that a function, an aggregate or a condition passes on.
        List<Expression> passed = new ArrayList<>();
        if (expression instanceof InvokeExpression invoke) {
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

    private ValueCodec ofPath(PrimaryExpression path) {
        List<String> names = path.getTuples();
        if (path.getLeft() instanceof VariableExpression variable) {
            return find(Variables.type(compilation, variable.getId()), names);
        }
        if (path.getLeft() instanceof DyadicExpression cast && cast.getOperator() == Expression.OP_CAST) {
            String name = String.valueOf(((Literal) cast.getRight()).getLiteral());
            return find(query.resolveClassDeclaration(name), names);
        }
        if (path.getLeft() != null) {
            return null;
        }
        Class<?> ofFirst = names.size() > 1 ? Variables.type(compilation, names.get(0)) : null;
        return ofFirst == null
                ? find(compilation.getCandidateClass(), names)
                : find(ofFirst, names.subList(1, names.size()));
    }

    private ValueCodec find(Class<?> root, List<String> path) {
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
            return scope.walk(scope.self(), path).codec();
        } catch (Untranslatable inMemory) {
            return null;
        }
    }
}
