package io.mortar.jdo;

import jakarta.persistence.PessimisticLockException;

/** Errors of Jakarta Persistence that DataNucleus has none for. Only loaded if the program uses that API. */
final class JakartaErrors {
    private JakartaErrors() {}

    /** A lock that was not obtained in time. The transaction has ended with it. */
    static RuntimeException lockTimeout(String message, Throwable cause) {
        return new PessimisticLockException(message, cause);
    }
}
