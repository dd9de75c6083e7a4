package io.mortar.jdo;

import jakarta.persistence.EntityExistsException;
import jakarta.persistence.PessimisticLockException;

/** Errors of Jakarta Persistence that DataNucleus has none for. Only loaded if the program uses that API. */
final class JakartaErrors {
    private JakartaErrors() {}

    /** A lock that was not obtained in time. The transaction has ended with it. */
    static RuntimeException lockTimeout(String message, Throwable cause) {
        return new PessimisticLockException(message, cause);
    }

    /** A new entity whose identity another one has. */
    static RuntimeException exists(String message, Throwable cause) {
        return new EntityExistsException(message, cause);
    }
}
