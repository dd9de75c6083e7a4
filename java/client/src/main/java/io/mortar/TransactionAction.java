package io.mortar;

/**
 * What a transaction does, without a result: {@link Client#run}.
 *
 * @param <E> the type of the checked exceptions that it throws; {@link RuntimeException} if there are none
 */
@FunctionalInterface
public interface TransactionAction<E extends Exception> {
    /**
     * Reads and writes in a transaction. It does not commit or abort the transaction. It may be called several times.
     *
     * @param transaction the transaction of this attempt
     * @throws E if the transaction should change nothing
     */
    void run(Transaction transaction) throws E;
}
