package io.mortar.histories;

import java.util.ArrayList;
import java.util.List;

/** The steps of a transaction, as a history has them: JSON arrays of an action, a key and a value. */
final class Steps {
    private final List<String> steps = new ArrayList<>();

    void read(String key, List<Long> elements) {
        add("read", key, elements.toString().replace(" ", ""));
    }

    void read(String key, long balance) {
        add("read", key, Long.toString(balance));
    }

    void append(String key, long element) {
        add("append", key, Long.toString(element));
    }

    void write(String key, long balance) {
        add("write", key, Long.toString(balance));
    }

    private void add(String action, String key, String value) {
        steps.add("[\"" + action + "\",\"" + key + "\"," + value + ']');
    }

    @Override
    public String toString() {
        return '[' + String.join(",", steps) + ']';
    }
}
