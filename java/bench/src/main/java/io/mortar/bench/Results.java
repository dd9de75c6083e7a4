package io.mortar.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** What was measured: numbers with names, and lines for the report. Printed as one line of JSON. */
public final class Results {
    private final Map<String, Double> numbers = new LinkedHashMap<>();
    private final List<String> notes = new ArrayList<>();
    private final List<String> profile = new ArrayList<>();

    /** Adds a number; its name ends with its unit. */
    public void add(String name, double value) {
        if (!Double.isFinite(value)) {
            throw new IllegalStateException(name + " is " + value);
        }
        numbers.put(name, value);
    }

    /** Adds a line about where the time of an operation goes. */
    public void profile(String line) {
        profile.add(line);
    }

    /** Adds a line about versions and settings. */
    public void note(String line) {
        notes.add(line);
    }

    /** Adds the largest memory of this process so far. */
    void addMemory() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                add("jvm_mib", Double.parseDouble(line.replaceAll("[^0-9]", "")) / 1024);
            }
        }
    }

    String json() {
        String numberText = numbers.entrySet().stream()
                .map(entry -> quote(entry.getKey()) + ':' + entry.getValue())
                .collect(Collectors.joining(","));
        return "{\"numbers\":{" + numberText + "},\"notes\":" + list(notes) + ",\"profile\":" + list(profile) + "}";
    }

    private static String list(List<String> lines) {
        return lines.stream().map(Results::quote).collect(Collectors.joining(",", "[", "]"));
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < ' ') {
                quoted.append("\\u%04x".formatted((int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }
}
