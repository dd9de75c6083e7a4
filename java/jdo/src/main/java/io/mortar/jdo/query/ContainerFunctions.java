package io.mortar.jdo.query;

import io.mortar.jdo.mapping.Containers;
import java.util.ArrayList;
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
            case "containsEntry" -> has(valuesOf(map, arguments.get(0)), arguments.get(1));
            case "indexOf" -> indexOf(elements, arguments.get(0));
            case "get" ->
                container instanceof Map
                        ? element(valuesOf(map, arguments.get(0)), 0)
                        : element(elements, arguments.get(0));
            default -> throw Evaluator.unsupported(invoke);
        };
    }

    private static Object element(List<Object> elements, Object index) {
        int number = ((Number) index).intValue();
        return number < 0 || number >= elements.size() ? null : elements.get(number);
    }

    private static boolean has(Collection<Object> elements, Object value) {
        return elements.stream().anyMatch(each -> Values.isSame(each, value));
    }

    private static int indexOf(List<Object> elements, Object value) {
        for (int i = 0; i < elements.size(); i++) {
            if (Values.isSame(elements.get(i), value)) {
                return i;
            }
        }
        return -1;
    }

    /** The value for a key, which may be of another type than the keys of the map: none if there is none. */
    private static List<Object> valuesOf(Map<Object, Object> map, Object key) {
        List<Object> values = new ArrayList<>();
        map.forEach((each, value) -> {
            if (Values.isSame(each, key)) {
                values.add(value);
            }
        });
        return values;
    }
}
