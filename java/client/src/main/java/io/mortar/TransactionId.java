package io.mortar;

import java.util.Arrays;
import java.util.HexFormat;

/** The identifier of a transaction, for {@link Client#outcome}. */
public final class TransactionId {
    private final byte[] bytes;

    private TransactionId(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Returns the identifier with these bytes.
     *
     * @param bytes the bytes of {@link #toBytes}
     * @return the identifier
     */
    public static TransactionId fromBytes(byte[] bytes) {
        return new TransactionId(bytes.clone());
    }

    /**
     * Returns the identifier as bytes.
     *
     * @return the bytes, a copy
     */
    public byte[] toBytes() {
        return bytes.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof TransactionId id && Arrays.equals(bytes, id.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /** Returns the bytes in hexadecimal. */
    @Override
    public String toString() {
        return HexFormat.of().formatHex(bytes);
    }
}
