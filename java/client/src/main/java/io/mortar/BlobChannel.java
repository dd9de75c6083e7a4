package io.mortar;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SeekableByteChannel;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/** A blob in a transaction as a channel: {@link Transaction#channel}. Threads may share it. */
final class BlobChannel implements SeekableByteChannel {
    private final BlobTransaction transaction;
    private final Oid oid;
    private final ReentrantLock lock = new ReentrantLock();
    private long position;
    private volatile boolean isClosed;

    BlobChannel(BlobTransaction transaction, Oid oid) {
        this.transaction = transaction;
        this.oid = oid;
    }

    @Override
    public int read(ByteBuffer into) throws IOException {
        return run(() -> {
            if (!into.hasRemaining()) {
                return 0;
            }
            byte[] bytes = transaction.readAt(oid, position, Math.min(into.remaining(), Limits.PIECE));
            into.put(bytes);
            position += bytes.length;
            return bytes.length == 0 ? -1 : bytes.length;
        });
    }

    @Override
    public int write(ByteBuffer from) throws IOException {
        return run(() -> {
            int written = 0;
            while (from.hasRemaining()) {
                byte[] piece = new byte[Math.min(from.remaining(), Limits.PIECE)];
                from.get(from.position(), piece);
                transaction.writeAt(oid, position, piece);
                from.position(from.position() + piece.length);
                position += piece.length;
                written += piece.length;
            }
            return written;
        });
    }

    @Override
    public long position() throws IOException {
        return run(() -> position);
    }

    @Override
    public SeekableByteChannel position(long newPosition) throws IOException {
        requireNotNegative(newPosition);
        return run(() -> {
            position = newPosition;
            return this;
        });
    }

    @Override
    public long size() throws IOException {
        return run(() -> transaction.size(oid));
    }

    @Override
    public SeekableByteChannel truncate(long size) throws IOException {
        requireNotNegative(size);
        return run(() -> {
            if (size < transaction.size(oid)) {
                transaction.truncate(oid, size);
            }
            position = Math.min(position, size);
            return this;
        });
    }

    private static void requireNotNegative(long number) {
        if (number < 0) {
            throw new IllegalArgumentException("a position and a size cannot be negative, and this is " + number);
        }
    }

    private <T> T run(Supplier<T> action) throws IOException {
        lock.lock();
        try {
            if (isClosed) {
                throw new ClosedChannelException();
            }
            return action.get();
        } catch (MortarException error) {
            throw new IOException(error.getMessage(), error);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public boolean isOpen() {
        return !isClosed;
    }

    /** Closes the channel. The transaction goes on. */
    @Override
    public void close() {
        isClosed = true;
    }
}
