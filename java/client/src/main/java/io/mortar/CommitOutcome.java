package io.mortar;

import java.time.Instant;
import java.util.Optional;

/**
 * The outcome of a transaction. A caller of {@link Transaction#commit} has to look at it, or call {@link #orThrow}: a
 * transaction that conflicts with another one has changed nothing.
 */
public sealed interface CommitOutcome {
    /**
     * The transaction is committed.
     *
     * @param timestamp the time of the commit, in milliseconds
     */
    record Committed(Instant timestamp) implements CommitOutcome {}

    /**
     * The transaction conflicts with another one and has changed nothing: run it again.
     *
     * @param reason why it cannot be committed
     * @param object the object that has changed since it was read, or that another transaction uses; empty if it is not
     *     known
     */
    record Conflict(String reason, Optional<Oid> object) implements CommitOutcome {}

    /**
     * The outcome did not arrive in time: {@link Client#outcome} finds it out.
     *
     * @param transaction the identifier of the transaction
     */
    record Unknown(TransactionId transaction) implements CommitOutcome {}

    /**
     * Returns whether the transaction is committed.
     *
     * @return whether it is committed
     */
    default boolean isCommitted() {
        return this instanceof Committed;
    }

    /**
     * Requires that the transaction is committed.
     *
     * @return this outcome
     * @throws ConflictException if the transaction conflicts with another one
     * @throws UnknownOutcomeException if the outcome is not known
     */
    default Committed orThrow() {
        if (this instanceof Conflict conflict) {
            throw new ConflictException(conflict.reason(), conflict.object().orElse(null), null);
        }
        if (this instanceof Unknown unknown) {
            throw new UnknownOutcomeException("it is not known whether transaction " + unknown.transaction()
                    + " was committed: ask Client.outcome, or read what it has written");
        }
        return (Committed) this;
    }
}
