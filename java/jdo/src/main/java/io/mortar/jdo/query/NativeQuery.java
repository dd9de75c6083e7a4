package io.mortar.jdo.query;

import java.util.List;
import java.util.Map;

/**
 * What a query of JDOQL or JPQL became: a query of Mortar, which runs at the bricks and the peer server, and perhaps a
 * rest that is evaluated in memory for the objects that it returns.
 *
 * @param text the query of Mortar
 * @param parameters its parameters
 * @param inMemory the parts that are evaluated in memory, with the reasons; empty if there are none
 */
public record NativeQuery(String text, Map<String, Object> parameters, List<String> inMemory) {
    @Override
    public String toString() {
        if (inMemory.isEmpty()) {
            return text;
        }
        return text + "\nin memory: " + String.join("\nin memory: ", inMemory);
    }
}
