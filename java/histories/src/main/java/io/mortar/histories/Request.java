package io.mortar.histories;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/** The request of a transaction. */
record Request(long number, int client, Set<Option> options, List<Act> acts) {
    /**
     * How a transaction is run. Without options it is an optimistic transaction of JDO, with the manager of the one
     * before.
     */
    enum Option {
        /** Through Jakarta Persistence. */
        JAKARTA,
        /** With a new manager instead of that of the client's transaction before. */
        NEW_MANAGER,
        /** A datastore transaction. */
        LOCKS,
        /** Reads a group snapshot. */
        SNAPSHOT,
        /** Objects are read as if they were going to be written. */
        FOR_UPDATE,
        /** Objects are found by a query instead of by their identity. */
        BY_QUERY
    }

    boolean has(Option option) {
        return options.contains(option);
    }

    /** Parses {@code NUMBER CLIENT OPTIONS ACT…}. */
    static Request parse(String text) {
        String[] words = text.split(" ");
        Set<Option> options = EnumSet.noneOf(Option.class);
        if (!words[2].equals("-")) {
            for (String option : words[2].split(",")) {
                options.add(Option.valueOf(option.toUpperCase(Locale.ROOT).replace('-', '_')));
            }
        }
        List<Act> acts = Arrays.stream(words).skip(3).map(Act::parse).toList();
        return new Request(Long.parseLong(words[0]), Integer.parseInt(words[1]), options, acts);
    }
}
