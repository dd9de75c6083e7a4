package io.mortar.jdo;

import io.mortar.jdo.model.Film;
import java.io.InputStream;

/** Stores and reads a large object that is larger than the heap. */
final class StreamProgram {
    private static final long BYTES = 64 << 20;

    private StreamProgram() {}

    public static void main(String[] arguments) throws Exception {
        try (Store store = Store.inMemory()) {
            LargeObject written = LargeObject.of(new LargeObjectTest.Pattern(BYTES));
            Object id = store.call(manager -> manager.getObjectId(manager.makePersistent(new Film("A", written))));
            LargeObject read = store.call(manager -> ((Film) manager.getObjectById(id)).getVideo());
            long at = 0;
            try (InputStream bytes = read.read()) {
                byte[] piece = new byte[4096];
                for (int count; (count = bytes.read(piece)) > 0; ) {
                    for (int i = 0; i < count; i++) {
                        if (piece[i] != (byte) LargeObjectTest.Pattern.octet(at++)) {
                            throw new IllegalStateException("the byte at " + (at - 1) + " differs");
                        }
                    }
                }
            }
            System.out.println(at + " bytes: " + (at == BYTES && read.length() == BYTES ? "ok" : "not all"));
        }
    }
}
