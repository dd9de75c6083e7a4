package io.mortar.histories;

import java.util.Locale;

/**
 * One step that a transaction is going to do.
 *
 * @param number the element to append, or the amount to add to the balance
 */
record Act(Verb verb, String key, long number) {
    enum Verb {
        READ,
        APPEND,
        BALANCE,
        ADD;

        boolean isRead() {
            return this == READ || this == BALANCE;
        }
    }

    static Act parse(String word) {
        String[] parts = word.split(":", -1);
        Verb verb = Verb.valueOf(parts[0].toUpperCase(Locale.ROOT));
        return new Act(verb, parts[1], verb.isRead() ? 0 : Long.parseLong(parts[2]));
    }
}
