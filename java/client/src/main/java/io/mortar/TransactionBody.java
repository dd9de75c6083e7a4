package io.mortar;

/**
 * What a transaction does, with a result: {@link Client#transact}.
 *
 * @param <T> the type of the result
 * @param <E> the type of the checked exceptions that it throws; {@link RuntimeException} if there are none
 */
@FunctionalInterface
public interface TransactionBody<T, E extends Exception> {
    /**
     * Reads and writes in a transaction. It does not commit or abort the transaction. It may be called several times.
     *
     * @param transaction the transaction of this attempt
     * @return the result
     * @throws E if the transaction should change nothing
     */
    T run(Transaction transaction) throws E;
}
