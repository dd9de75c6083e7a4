package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.datanucleus.store.query.expression.InvokeExpression;

/** The functions of collections, lists, arrays and maps in memory. */
@SuppressWarnings("unchecked")
final class ContainerFunctions {
    private ContainerFunctions() {}

    /** The result of a function of JDOQL or JPQL. */
    static Object call(Object container, InvokeExpression invoke, List<Object> arguments) {
        List<Object> elements = Containers.elements(container);
        Map<Object, Object> map = container instanceof Map<?, ?> known ? (Map<Object, Object>) known : Map.of();
        return switch (invoke.getOperation()) {
            case "size", "length" -> elements.size();
            case "isEmpty" -> elements.isEmpty();
            case "contains", "containsValue" -> has(elements, arguments.get(0));
            case "containsKey" -> has(map.keySet(), arguments.get(0));
            case "containsEntry" ->
                has(map.keySet(), arguments.get(0)) && Values.isSame(map.get(arguments.get(0)), arguments.get(1));
            case "indexOf" -> elements.indexOf(arguments.get(0));
            case "get" -> container instanceof Map ? map.get(arguments.get(0)) : element(elements, arguments.get(0));
            default -> throw Evaluator.unsupported(invoke);
        };
    }

    private static Object element(List<Object> elements, Object index) {
        int number = ((Number) index).intValue();
        return number < 0 || number >= elements.size() ? null : elements.get(number);
    }

    private static boolean has(Collection<Object> elements, Object value) {
        return elements.stream()
                .anyMatch(each -> each == null || value == null ? each == value : Values.isSame(each, value));
    }
}
