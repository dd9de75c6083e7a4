package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.mapping.ValueCodec;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.compiler.QueryCompilation;
import org.datanucleus.store.query.expression.Expression;
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
        if (!(expression instanceof PrimaryExpression path)) {
            return null;
        }
        List<String> names = path.getTuples();
        Class<?> ofFirst = path.getLeft() == null ? Variables.type(compilation, names.get(0)) : null;
        boolean isNamed = ofFirst != null && names.size() > 1;
        Class<?> root = path.getLeft() instanceof VariableExpression variable
                ? Variables.type(compilation, variable.getId())
                : isNamed ? ofFirst : path.getLeft() == null ? compilation.getCandidateClass() : null;
        return root == null ? null : find(root, isNamed ? names.subList(1, names.size()) : names);
    }

    private ValueCodec find(Class<?> root, List<String> path) {
        AbstractClassMetaData metadata = query.getExecutionContext()
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
