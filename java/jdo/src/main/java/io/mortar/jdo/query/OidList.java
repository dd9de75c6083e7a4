package io.mortar.jdo.query;

import io.mortar.Oid;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A list of identifiers that grows, in 16 bytes each. */
final class OidList {
    private static final int CHUNK = 4096;

    private final List<byte[]> chunks = new ArrayList<>();
    private int size;

    int size() {
        return size;
    }

    void add(Oid oid) {
        if (size % CHUNK == 0) {
            chunks.add(new byte[CHUNK * Oid.BYTES]);
        }
        System.arraycopy(oid.toBytes(), 0, chunks.get(size / CHUNK), size % CHUNK * Oid.BYTES, Oid.BYTES);
        size++;
    }

    Oid get(int index) {
        int at = index % CHUNK * Oid.BYTES;
        return Oid.fromBytes(Arrays.copyOfRange(chunks.get(index / CHUNK), at, at + Oid.BYTES));
    }
}
