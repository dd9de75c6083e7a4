package io.mortar;

import java.io.InputStream;
import java.io.OutputStream;
import java.lang.ref.Reference;
import java.nio.channels.SeekableByteChannel;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongFunction;

/** A transaction with the bytes of blobs. It is a part of {@link Transaction}, which has these methods. */
abstract class BlobTransaction extends NameTransaction {
    /** The blobs that it has appended to. */
    private final Set<Oid> appended = ConcurrentHashMap.newKeySet();
    /** Where the appends have put their bytes, after the commit. */
    private volatile Map<Oid, List<Long>> appendOffsets = Map.of();

    BlobTransaction(NativeHandle handle) {
        super(handle);
    }

    /**
     * Returns the number of bytes of a blob, with the changes of this transaction.
     *
     * @param oid the blob
     * @return the size in bytes
     * @throws NotFoundException if there is no such blob
     */
    public long size(Oid oid) {
        return handle.call(Operation.T_SIZE, new MessageWriter().oid(oid), MessageReader::u64);
    }

    /**
     * Reads bytes of a blob, with the changes of this transaction.
     *
     * @param oid the blob
     * @param offset the offset of the first byte
     * @param length the number of bytes, at most 4 MiB
     * @return the bytes; fewer at the end of the blob
     * @throws NotFoundException if there is no such blob
     * @throws TooLargeException for more than 4 MiB at once
     * @throws UnsupportedException for bytes that were uploaded for this transaction: they can be read when it has
     *     committed
     */
    public byte[] readAt(Oid oid, long offset, int length) {
        MessageWriter.requireNotNegative(offset, "an offset");
        MessageWriter request = new MessageWriter().oid(oid).u64(offset).limit(length);
        return handle.call(Operation.T_READ_AT, request, MessageReader::bytes);
    }

    /**
     * Writes bytes at an offset of a blob. A gap behind its old end reads as zeros.
     *
     * @param oid the blob; the commit throws {@link NotFoundException} if there is no such blob
     * @param offset the offset of the first byte
     * @param bytes the bytes
     * @throws TooLargeException if a new blob gets more than 4 MiB: upload it with {@link Client#upload(InputStream)}
     */
    public void writeAt(Oid oid, long offset, byte[] bytes) {
        writeAt(oid, offset, bytes, 0, bytes.length);
    }

    void writeAt(Oid oid, long offset, byte[] bytes, int from, int length) {
        MessageWriter.requireNotNegative(offset, "an offset");
        MessageWriter request =
                new MessageWriter(length + 32).oid(oid).u64(offset).bytes(bytes, from, length);
        handle.call(Operation.T_WRITE_AT, request);
    }

    /**
     * Writes bytes at the end of a blob, wherever that is when the transaction commits. Transactions that append to one
     * blob do not conflict with each other. {@link #appendOffsets} tells after the commit where the bytes are;
     * {@link Client#append} does both.
     *
     * @param oid the blob; the commit throws {@link NotFoundException} if there is no such blob
     * @param bytes the bytes
     * @throws TooLargeException if a new blob gets more than 4 MiB: upload it with {@link Client#upload(InputStream)}
     */
    public void append(Oid oid, byte[] bytes) {
        handle.call(
                Operation.T_APPEND,
                new MessageWriter(bytes.length + 32).oid(oid).bytes(bytes));
        appended.add(oid);
    }

    /**
     * Returns the offsets at which the appends of this transaction to a blob have put their bytes.
     *
     * @param oid the blob, by the identifier with which it was appended to
     * @return the offsets, in the order of the appends; none before the commit
     */
    public List<Long> appendOffsets(Oid oid) {
        return appendOffsets.getOrDefault(oid, List.of());
    }

    /**
     * Cuts a blob, or extends it with zeros.
     *
     * @param oid the blob
     * @param size its new size in bytes
     */
    public void truncate(Oid oid, long size) {
        MessageWriter.requireNotNegative(size, "a size");
        handle.call(Operation.T_TRUNCATE, new MessageWriter().oid(oid).u64(size));
    }

    /**
     * Sets a range of a blob to zeros. Its size does not change.
     *
     * @param oid the blob
     * @param offset the offset of the first byte
     * @param length the number of bytes
     */
    public void zero(Oid oid, long offset, long length) {
        MessageWriter.requireNotNegative(offset, "an offset");
        MessageWriter.requireNotNegative(length, "a number of bytes");
        handle.call(Operation.T_ZERO, new MessageWriter().oid(oid).u64(offset).u64(length));
    }

    /**
     * Replaces the bytes of a blob by bytes that were uploaded to its logical node. Its attributes stay.
     *
     * @param oid the blob
     * @param staged the bytes. The commit throws {@link NotFoundException} if they are not staged any more
     * @throws NotFoundException if there is no such blob
     * @throws InvalidRequestException if the bytes are at another logical node: {@link Client#upload(InputStream, int)}
     */
    public void putContent(Oid oid, StagedContent staged) {
        withStaged(staged, number -> {
            handle.call(Operation.T_PUT_CONTENT, new MessageWriter().oid(oid).u64(number));
            return null;
        });
    }

    static <T> T withStaged(StagedContent staged, LongFunction<T> use) {
        try {
            return use.apply(staged.handle().number());
        } finally {
            Reference.reachabilityFence(staged);
        }
    }

    /**
     * Opens a blob as a channel. Its reads return the changes of this transaction. To close it does not end the
     * transaction.
     *
     * @param oid the blob
     * @return the channel, at position 0. Its methods throw {@link java.io.IOException} with a {@link MortarException}
     *     as its cause
     */
    public SeekableByteChannel channel(Oid oid) {
        return new BlobChannel(this, Objects.requireNonNull(oid));
    }

    /**
     * Reads a blob as a stream, with the changes of this transaction.
     *
     * @param oid the blob
     * @return the stream, which fetches 1 MiB at once. Its methods throw {@link java.io.IOException} with a
     *     {@link MortarException} as its cause
     */
    public InputStream inputStream(Oid oid) {
        return new BlobInputStream(this, Objects.requireNonNull(oid));
    }

    /**
     * Replaces the bytes of a blob by those of a stream. The bytes are written when 1 MiB has come, and when the stream
     * is flushed or closed.
     *
     * @param oid the blob
     * @return the stream. Its methods throw {@link java.io.IOException} with a {@link MortarException} as its cause
     * @throws NotFoundException if the blob was deleted in this transaction
     */
    public OutputStream outputStream(Oid oid) {
        truncate(oid, 0);
        return new BlobOutputStream(this, oid, 0);
    }

    /** Keeps the offsets of the appends, which are known after the commit. */
    final void fetchAppendOffsets() {
        Map<Oid, List<Long>> offsets = new HashMap<>();
        for (Oid oid : appended) {
            offsets.put(
                    oid,
                    handle.call(
                            Operation.T_APPEND_OFFSETS,
                            new MessageWriter().oid(oid),
                            reply -> reply.list(MessageReader::u64)));
        }
        appendOffsets = offsets;
    }
}
