package io.mortar;

/** The bytes of a blob in a transaction, with the changes of the transaction. */
final class BlobInputStream extends PieceInputStream {
    private final BlobTransaction transaction;
    private final Oid oid;
    private long offset;

    BlobInputStream(BlobTransaction transaction, Oid oid) {
        this.transaction = transaction;
        this.oid = oid;
    }

    @Override
    byte[] nextPiece() {
        byte[] piece = transaction.readAt(oid, offset, Limits.PIECE);
        offset += piece.length;
        return piece.length == 0 ? null : piece;
    }

    @Override
    long skipUnread(long count) {
        long skipped = Math.max(0, Math.min(count, transaction.size(oid) - offset));
        offset += skipped;
        return skipped;
    }
}
