package io.mortar;

/** The bytes of a blob outside of transactions, from one offset to another. All of them are of one state. */
final class ContentInputStream extends PieceInputStream {
    private final NativeHandle client;
    private final Oid oid;
    private final Long end;
    private long offset;
    /** Null before the first byte is read. */
    private NativeHandle reader;

    /** @param end the offset behind the last byte; null for the end of the blob */
    ContentInputStream(NativeHandle client, Oid oid, long offset, Long end) {
        this.client = client;
        this.oid = oid;
        this.offset = offset;
        this.end = end;
    }

    @Override
    byte[] nextPiece() {
        if (reader == null) {
            MessageWriter request = new MessageWriter().oid(oid).u64(offset).optional(end, MessageWriter::u64);
            reader = client.open(Operation.READER, request, "stream");
        }
        try {
            return reader.call(Operation.READER_NEXT, null, reply -> reply.optional(MessageReader::bytes));
        } catch (OutOfMemoryError lost) {
            // The next piece must not take the place of this one.
            reader.close();
            throw lost;
        }
    }

    /** Only a reader that has returned nothing can begin elsewhere: another one could read another state. */
    @Override
    long skipUnread(long count) {
        if (reader != null) {
            return 0;
        }
        MessageWriter request = new MessageWriter().oid(oid);
        ObjectStat stat = client.call(Operation.STAT, request, reply -> reply.optional(in -> ObjectStat.read(oid, in)));
        if (stat == null) {
            throw new NotFoundException("there is no blob " + oid);
        }
        long last = end == null ? stat.size() : Math.min(end, stat.size());
        long skipped = Math.max(0, Math.min(count, last - offset));
        offset += skipped;
        return skipped;
    }

    @Override
    public void close() {
        super.close();
        if (reader != null) {
            reader.close();
        }
    }
}
