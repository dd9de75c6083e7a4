package io.mortar.histories;

import io.mortar.MortarException;
import io.mortar.UnknownOutcomeException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.datanucleus.identity.DatastoreId;

/**
 * Why a transaction has failed.
 *
 * @param objects the identifiers of the objects that the exception names
 */
record Failure(Kind kind, Collection<String> objects, String message) {
    enum Kind {
        CONFLICT,
        RETRYABLE,
        UNKNOWN,
        ERROR
    }

    String reply() {
        String objectsWord = kind != Kind.CONFLICT ? "" : objects.isEmpty() ? " -" : ' ' + String.join(",", objects);
        return kind.name().toLowerCase(Locale.ROOT) + objectsWord + ' ' + message;
    }

    /**
     * The identifiers of the objects with these identities. An exception without an object has itself as its failed
     * object.
     */
    static Set<String> identifiers(Stream<Object> identities) {
        return identities
                .filter(DatastoreId.class::isInstance)
                .map(identity -> ((DatastoreId) identity).getKeyAsObject().toString())
                .collect(Collectors.toSet());
    }

    /** The exception with all that it was caused by or contains. */
    static List<Throwable> chain(Throwable error, Function<Throwable, Collection<Throwable>> nested) {
        Set<Throwable> chain = new LinkedHashSet<>();
        Deque<Throwable> open = new ArrayDeque<>(List.of(error));
        while (!open.isEmpty()) {
            Throwable next = open.removeFirst();
            if (chain.add(next)) {
                open.addAll(nested.apply(next));
                if (next.getCause() != null) {
                    open.add(next.getCause());
                }
            }
        }
        return new ArrayList<>(chain);
    }

    /** Whether an error of Mortar says that the same may succeed later. */
    static boolean isRetryable(List<Throwable> chain) {
        return chain.stream().anyMatch(each -> each instanceof MortarException error && error.isRetryable());
    }

    /** Whether it is not known if the transaction was committed. */
    static boolean isUnknown(List<Throwable> chain) {
        return chain.stream().anyMatch(UnknownOutcomeException.class::isInstance);
    }

    /** The classes and messages of a chain. */
    static String text(List<Throwable> chain) {
        return String.join(" < ", chain.stream().map(Throwable::toString).toList());
    }
}
