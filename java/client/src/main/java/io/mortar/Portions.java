package io.mortar;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** A stream of the native library whose elements arrive in portions. One thread uses it at a time; any may close it. */
abstract class Portions<T> implements Iterator<T>, AutoCloseable {
    private final NativeHandle handle;
    private final Operation next;
    private final Function<MessageReader, T> read;
    private List<T> portion = List.of();
    private int at;
    private boolean isAtEnd;
    /** Why the elements behind the portion are lost: later ones must not take their place. */
    private Throwable failure;

    Portions(NativeHandle handle, Operation next, Function<MessageReader, T> read) {
        this.handle = handle;
        this.next = next;
        this.read = read;
    }

    /** The request for the next portion; null for one without content. */
    abstract MessageWriter nextRequest();

    /** Called when the last portion has arrived. */
    void handleEnd() {
        handle.close();
    }

    final NativeHandle handle() {
        return handle;
    }

    /**
     * Returns whether there is another element. It waits until that is known. An element that Java cannot decode is the
     * last one: this throws the same exception from then on.
     *
     * @return whether there is another element
     * @throws InvalidRequestException if this, the transaction or the client is closed
     * @throws UnavailableException if a server does not answer in time
     * @throws ConflictException if the transaction cannot be committed any more
     * @throws UnsupportedException for a date or a time stamp that {@code java.time} cannot represent
     */
    @Override
    public boolean hasNext() {
        while (at == portion.size() && !isAtEnd) {
            fetch();
        }
        return at < portion.size();
    }

    private void fetch() {
        throwFailure();
        try {
            handle.call(next, nextRequest(), reply -> {
                readPortion(reply);
                return null;
            });
        } catch (OutOfMemoryError lost) {
            failure = lost;
            throw lost;
        }
        if (isAtEnd) {
            handleEnd();
        }
    }

    /** Reads elements up to one that cannot be decoded. */
    private void readPortion(MessageReader reply) {
        List<T> elements = new ArrayList<>();
        portion = elements;
        at = 0;
        try {
            for (int left = reply.u32(); left > 0; left--) {
                elements.add(read.apply(reply));
            }
            isAtEnd = reply.bool();
        } catch (RuntimeException | OutOfMemoryError undecodable) {
            failure = undecodable;
            reply.skip();
        }
    }

    private void throwFailure() {
        if (failure instanceof RuntimeException undecodable) {
            throw undecodable;
        }
        if (failure instanceof Error error) {
            throw error;
        }
    }

    /**
     * Returns the next element. It waits until that has arrived.
     *
     * @return the element
     * @throws NoSuchElementException if there is no other element
     * @throws MortarException as {@link #hasNext}
     */
    @Override
    public T next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return portion.get(at++);
    }

    /**
     * Returns the elements that were not returned yet as a sequential stream. To close the stream is to close this.
     *
     * @return the stream
     */
    public Stream<T> stream() {
        int characteristics = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(this, characteristics), false)
                .onClose(this::close);
    }

    /** Ends the stream at the server, and frees what it uses. It does not wait. */
    @Override
    public void close() {
        handle.close();
    }
}
