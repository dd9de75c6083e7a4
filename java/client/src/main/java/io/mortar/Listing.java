package io.mortar;

import java.util.function.Function;

/**
 * Names or objects of a space, in portions as they are needed. It is not part of a transaction: what is bound, created
 * or deleted meanwhile may be listed or not. Nothing else is omitted: an unreachable brick is an
 * {@link UnavailableException}, and the next call continues where that one ended. A name whose object is damaged is a
 * {@link CorruptException} with its path, and the next call continues behind it.
 *
 * <p>One thread uses a listing at a time. It is closed at its end, or before by {@link #close}.
 *
 * @param <T> {@link ListedName} or {@link ListedObject}
 */
public final class Listing<T> extends Portions<T> {
    Listing(NativeHandle handle, Operation next, Function<MessageReader, T> read) {
        super(handle, next, read);
    }

    @Override
    MessageWriter nextRequest() {
        return null;
    }
}
