package io.mortar.jdo.query;

import io.mortar.Oid;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A list of identifiers that grows, in 16 bytes each. A short list takes few bytes. */
final class OidList {
    private static final int CHUNK = 4096;
    private static final int FIRST = 16;

    private final List<byte[]> chunks = new ArrayList<>();
    private int size;

    int size() {
        return size;
    }

    void add(Oid oid) {
        int last = size / CHUNK;
        int at = size % CHUNK * Oid.BYTES;
        if (at == 0) {
            chunks.add(new byte[FIRST * Oid.BYTES]);
        } else if (at == chunks.get(last).length) {
            chunks.set(last, Arrays.copyOf(chunks.get(last), 2 * at));
        }
        System.arraycopy(oid.toBytes(), 0, chunks.get(last), at, Oid.BYTES);
        size++;
    }

    Oid get(int index) {
        int at = index % CHUNK * Oid.BYTES;
        return Oid.fromBytes(Arrays.copyOfRange(chunks.get(index / CHUNK), at, at + Oid.BYTES));
    }
}
