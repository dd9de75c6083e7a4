package io.mortar.jdo.query;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.mortar.Oid;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;

class OidListTest {
    private static Oid oid(int number) {
        return Oid.fromBytes(
                ByteBuffer.allocate(Oid.BYTES).putInt(1).putInt(number).array());
    }

    @Test
    void a_list_keeps_all_identifiers_in_their_order() {
        OidList list = new OidList();
        for (int i = 0; i < 10_000; i++) {
            list.add(oid(i));
            assertEquals(i + 1, list.size());
        }
        for (int i = 0; i < 10_000; i++) {
            assertEquals(oid(i), list.get(i));
        }
    }
}
