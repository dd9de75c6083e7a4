package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.store.query.Query;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.InvokeExpression;
import org.datanucleus.store.query.expression.Literal;
import org.datanucleus.store.query.inmemory.InMemoryExpressionEvaluator;
import org.datanucleus.store.query.inmemory.InMemoryFailure;
import org.datanucleus.store.query.inmemory.InvocationEvaluator;
import org.datanucleus.store.query.inmemory.method.MathFunction;

/** Calls functions in memory whose receiver and arguments are known. */
final class Functions {
    /** The functions without a receiver of this class, of the evaluator, and of the translation. */
    private static final Set<String> WITHOUT_RECEIVER = Set.of(
            "COALESCE",
            "NULLIF",
            "JDOHELPER.GETVERSION",
            "JAVAX.JDO.JDOHELPER.GETVERSION",
            "SQL_FUNCTION",
            "SQRT",
            "MATH.SQRT",
            "ABS",
            "MATH.ABS",
            "INDEX");
    /** Functions of all values, which texts have too. */
    private static final Set<String> OF_TEXTS_TOO = Set.of("toString", "orElse", "get", "isPresent");

    /** The names of the function that returns the identity of an object. */
    static final Set<String> GET_OBJECT_ID = Set.of("JDOHelper.getObjectId", "javax.jdo.JDOHelper.getObjectId");

    private final Query<?> query;
    private final ExecutionContext context;
    private final String candidate;
    private final Map<Object, Object> parameters;
    private final boolean isJpql;

    Functions(Query<?> query, String candidate, Map<Object, Object> parameters, boolean isJpql) {
        this.query = query;
        this.context = query.getExecutionContext();
        this.candidate = candidate;
        this.parameters = parameters;
        this.isJpql = isJpql;
    }

    /**
     * Whether there is a function of a class: {@code Math.abs}, {@code JDOHelper.getVersion}, or one of DataNucleus.
     */
    static boolean isKnown(String name, ExecutionContext context) {
        return GET_OBJECT_ID.contains(name)
                || name.endsWith("JDOHelper.getVersion")
                || context.getStoreManager().getQueryManager().getInMemoryEvaluatorForMethod(null, name) != null;
    }

    /** Whether there is a function without a receiver. */
    static boolean isKnownWithoutReceiver(String name, ExecutionContext context) {
        String upper = name.toUpperCase(Locale.ROOT);
        return WITHOUT_RECEIVER.contains(upper)
                || ResultColumns.isAggregate(new InvokeExpression(null, name, List.of()))
                || ValueFunctions.has(name, 1)
                || ValueFunctions.has(name, 2)
                || isKnown(name, context);
    }

    /** Whether there is a function of texts. */
    static boolean isKnownOfText(String name, ExecutionContext context) {
        return OF_TEXTS_TOO.contains(name)
                || TextFunctions.has(name, 0)
                || TextFunctions.has(name, 1)
                || context.getStoreManager().getQueryManager().getInMemoryEvaluatorForMethod(String.class, name)
                        != null;
    }

    /** The result of a function of a value that is not null. */
    Object of(Object receiver, InvokeExpression invoke, List<Object> arguments) {
        if (receiver instanceof Enum<?> constant && invoke.getOperation().equals("toString")) {
            return constant.name();
        }
        if (Containers.isContainer(receiver)) {
            return ContainerFunctions.call(receiver, invoke, arguments);
        }
        boolean isOfTexts = TextFunctions.has(invoke.getOperation(), arguments.size());
        if (receiver instanceof String text) {
            return arguments.contains(null)
                    ? null
                    : isOfTexts
                            ? TextFunctions.call(text, invoke.getOperation(), arguments, isJpql)
                            : ofDataNucleus(text, invoke, arguments);
        }
        if (isOfTexts) {
            throw Evaluator.unsupported(invoke);
        }
        return ofDataNucleus(receiver, invoke, arguments);
    }

    /** The result of a function without a receiver. */
    Object ofArguments(InvokeExpression invoke, List<Object> arguments) {
        if (GET_OBJECT_ID.contains(invoke.getOperation())) {
            return arguments.get(0) == null ? null : context.getApiAdapter().getIdForObject(arguments.get(0));
        }
        if (isJpql && ValueFunctions.has(invoke.getOperation(), arguments.size())) {
            return ValueFunctions.call(invoke.getOperation(), arguments);
        }
        if (MathFunctions.has(invoke.getOperation(), arguments.size())) {
            return MathFunctions.call(invoke.getOperation(), arguments);
        }
        return switch (invoke.getOperation().toUpperCase(Locale.ROOT)) {
            case "COALESCE" ->
                arguments.stream().filter(Objects::nonNull).findFirst().orElse(null);
            case "NULLIF" -> {
                Object value = arguments.get(0);
                yield value != null && arguments.get(1) != null && Values.isSame(value, arguments.get(1))
                        ? null
                        : value;
            }
            case "JDOHELPER.GETVERSION", "JAVAX.JDO.JDOHELPER.GETVERSION" ->
                arguments.get(0) == null ? null : context.getApiAdapter().getVersionForObject(arguments.get(0));
            case "SQL_FUNCTION" -> named(invoke, arguments);
            case "ABS", "MATH.ABS" -> arguments.get(0) == null ? null : Arithmetic.absolute(arguments.get(0), invoke);
            default -> ofDataNucleus(null, invoke, arguments);
        };
    }

    /** {@code FUNCTION('name', …)}: a function of the query language by its name. The store has no others. */
    private Object named(InvokeExpression invoke, List<Object> arguments) {
        InvokeExpression named = new InvokeExpression(
                null, String.valueOf(arguments.get(0)), invoke.getArguments().subList(1, arguments.size()));
        if (named.getOperation().equalsIgnoreCase("SQL_function") || ResultColumns.isAggregate(named)) {
            throw Evaluator.unsupported(invoke);
        }
        return ofArguments(named, arguments.subList(1, arguments.size()));
    }

    /** A function of DataNucleus, with values for its receiver and its arguments. */
    private Object ofDataNucleus(Object receiver, InvokeExpression invoke, List<Object> arguments) {
        InvocationEvaluator function = context.getStoreManager()
                .getQueryManager()
                .getInMemoryEvaluatorForMethod(receiver == null ? null : receiver.getClass(), invoke.getOperation());
        if (function == null) {
            throw new NucleusUserException("the query contains " + invoke.getOperation()
                    + ", which is not a function"
                    + (receiver == null ? "" : " of " + receiver.getClass().getName()) + ": " + invoke);
        }
        if (function instanceof MathFunction && arguments.contains(null)) {
            return null;
        }
        List<Expression> literals = new ArrayList<>();
        arguments.forEach(argument -> literals.add(new Literal(Values.plain(argument))));
        InvokeExpression call =
                new InvokeExpression(receiver == null ? null : new Literal(receiver), invoke.getOperation(), literals);
        InMemoryExpressionEvaluator evaluator = new InMemoryExpressionEvaluator(
                context,
                parameters,
                new HashMap<>(),
                query.getParsedImports(),
                context.getClassLoaderResolver(),
                candidate,
                query.getLanguage());
        Object value = function.evaluate(call, receiver, evaluator);
        if (value instanceof InMemoryFailure) {
            throw Evaluator.unsupported(invoke);
        }
        return value;
    }
}
