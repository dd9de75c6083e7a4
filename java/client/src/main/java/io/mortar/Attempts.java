package io.mortar;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;

/** The attempts of a transaction that runs again after a conflict: {@link Client#transact}. */
final class Attempts implements AutoCloseable {
    /** The kind of a failure that is not a {@link MortarException}. */
    private static final int OTHER = 0;
    /** A chain of causes is followed this far, as it may be a cycle. */
    private static final int MAX_CAUSES = 32;

    private final NativeHandle handle;

    Attempts(NativeHandle client) {
        handle = client.open(Operation.ATTEMPTS, null, "transaction");
    }

    /** The transaction of the next attempt. */
    Transaction begin() {
        return new Transaction(handle.open(Operation.ATTEMPT_BEGIN, null, "transaction"));
    }

    /**
     * Ends an attempt whose body has returned.
     *
     * @return whether it is committed; if not, it conflicts, and this returns when it is time for the next attempt
     */
    boolean commit(Transaction transaction) {
        if (transaction.isOver()) {
            throw new InvalidRequestException(
                    "the body of the transaction has committed, aborted or closed it, which transact does:"
                            + " throw an exception to change nothing");
        }
        boolean committed = end(transaction, false, OTHER, "");
        if (committed) {
            transaction.end(true);
        }
        return committed;
    }

    /**
     * Ends an attempt whose body has thrown an exception.
     *
     * @return whether the exception counts, because what the body has read was consistent, or because its thread was
     *     interrupted; if not, this returns when it is time for the next attempt
     */
    boolean isFinal(Transaction transaction, Throwable failure) {
        // An interruption does not depend on what was read, and another attempt would not know of it.
        if (transaction.isOver() || causeOf(failure, InterruptedException.class) != null) {
            return true;
        }
        // Such as in an IOException.
        MortarException cause = causeOf(failure, MortarException.class);
        int kind = cause == null ? OTHER : cause.kind().code();
        String message = cause == null ? "" : String.valueOf(cause.getMessage());
        try {
            return end(transaction, true, kind, message);
        } catch (MortarException error) {
            // It cannot be checked whether the exception counts.
            error.addSuppressed(failure);
            throw error;
        }
    }

    private boolean end(Transaction transaction, boolean failed, int kind, String message) {
        try {
            MessageWriter request = new MessageWriter()
                    .u64(transaction.handle().number())
                    .bool(failed)
                    .u8(kind)
                    .bytes(message.getBytes(StandardCharsets.UTF_8));
            return handle.call(Operation.ATTEMPT_END, request, MessageReader::bool);
        } finally {
            Reference.reachabilityFence(transaction);
        }
    }

    /** The exception of a class behind another one, which may be itself; or null. */
    private static <T extends Throwable> T causeOf(Throwable failure, Class<T> type) {
        Throwable cause = failure;
        for (int depth = 0; cause != null && depth < MAX_CAUSES; depth++) {
            if (type.isInstance(cause)) {
                return type.cast(cause);
            }
            cause = cause.getCause();
        }
        return null;
    }

    @Override
    public void close() {
        handle.close();
    }
}
