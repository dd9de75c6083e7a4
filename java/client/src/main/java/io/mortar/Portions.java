package io.mortar;

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
     * Returns whether there is another element. It waits until that is known.
     *
     * @return whether there is another element
     * @throws InvalidRequestException if this, the transaction or the client is closed
     * @throws UnavailableException if a server does not answer in time
     * @throws ConflictException if the transaction cannot be committed any more
     */
    @Override
    public boolean hasNext() {
        while (at == portion.size() && !isAtEnd) {
            fetch();
        }
        return at < portion.size();
    }

    private void fetch() {
        handle.call(next, nextRequest(), reply -> {
            portion = reply.list(read);
            at = 0;
            isAtEnd = reply.bool();
            return null;
        });
        if (isAtEnd) {
            handleEnd();
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
