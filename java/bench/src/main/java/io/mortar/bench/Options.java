package io.mortar.bench;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/** The command line: pairs of {@code --NAME VALUE}. */
public final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        if (arguments.length % 2 != 0) {
            throw new IllegalArgumentException("every option needs a value: --side NAME --workload NAME …");
        }
        for (int i = 0; i < arguments.length; i += 2) {
            if (!arguments[i].startsWith("--")) {
                throw new IllegalArgumentException(arguments[i] + " is not an option");
            }
            values.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    private String require(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    /** The store: mortar, datanucleus, hibernate, h2, eclipsestore, or plain, which is none. */
    public String side() {
        return require("side");
    }

    public String workload() {
        return require("workload");
    }

    /** Where the store is: a URL of Mortar or JDBC, or a directory for EclipseStore. */
    public String url() {
        return require("url");
    }

    public Path directory() {
        return Path.of(url());
    }

    public int threads() {
        return Integer.parseInt(values.getOrDefault("threads", "1"));
    }

    /** How long each point is measured. */
    public Duration duration() {
        return Duration.ofMillis((long) (Double.parseDouble(require("seconds")) * 1000));
    }

    /** Objects that are stored before the measurement begins. */
    public int items() {
        return Integer.parseInt(values.getOrDefault("items", "10000"));
    }

    /** Repetitions of what begins with empty caches. */
    public int coldRuns() {
        return Integer.parseInt(values.getOrDefault("cold-runs", "5"));
    }

    /** The process of the store's server; 0 if it has none. */
    public long serverProcess() {
        return Long.parseLong(values.getOrDefault("server-process", "0"));
    }
}
