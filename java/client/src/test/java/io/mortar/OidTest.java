package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class OidTest {
    @Test
    void partsAreThoseOfTheText() {
        Oid oid = Oid.parse("7fff.abcdef.123456.fedcba987654.ffff");
        assertEquals(0x7fff, oid.space());
        assertEquals(0xabcdef, oid.classNumber());
        assertEquals(0x123456, oid.node());
        assertEquals(0xfedcba987654L, oid.page());
        assertEquals(0xffff, oid.slot());
        assertFalse(oid.isTemporary());
        assertEquals("7fffabcdef123456fedcba987654ffff", Hex.text(oid.toBytes()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1.0.0.2a.3", "~1.1.0.0.0", "0.0.0.0.0", "~7fff.ffffff.ffffff.ffffffffffff.ffff"})
    void textIsParsedToTheSameIdentifier(String text) {
        Oid oid = Oid.parse(text);
        assertEquals(text, oid.toString());
        assertEquals(oid, Oid.fromBytes(oid.toBytes()));
        assertEquals(text.startsWith("~"), oid.isTemporary());
    }

    @Test
    void leadingZerosAndCapitalsMeanNothing() {
        assertEquals(Oid.parse("1.a.0.2a.3"), Oid.parse("0001.A.000000000000000000.2A.3"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "1.2.3.4",
                "1.2.3.4.5.6",
                "1..3.4.5",
                "1.2.3.4.g",
                "8000.0.0.0.0",
                "1.1000000.0.0.0",
                "1.0.0.0.10000",
                "1.0.0.1000000000000.0",
                "1.0.0.ffffffffffffffffffffffff.0",
                "-1.0.0.0.0",
                "1.0.0.0.0 ",
                "~~1.0.0.0.0",
                "\uff11.0.0.0.0"
            })
    void otherTextsAreRefused(String text) {
        assertThrows(InvalidRequestException.class, () -> Oid.parse(text));
    }

    @Test
    void otherNumbersOfBytesAreRefused() {
        assertThrows(InvalidRequestException.class, () -> Oid.fromBytes(new byte[15]));
    }

    @Test
    void orderIsThatOfTheBytes() {
        Random random = new Random(1);
        List<Oid> oids = new ArrayList<>();
        for (int index = 0; index < 1000; index++) {
            byte[] bytes = new byte[Oid.BYTES];
            random.nextBytes(bytes);
            oids.add(Oid.fromBytes(bytes));
        }
        Collections.sort(oids);
        for (int index = 1; index < oids.size(); index++) {
            assertTrue(Hex.text(oids.get(index - 1).toBytes())
                            .compareTo(Hex.text(oids.get(index).toBytes()))
                    <= 0);
        }
        assertTrue(oids.get(oids.size() - 1).isTemporary(), "temporary ones are last");
    }

    @Test
    void identifierIsSerializable() throws Exception {
        Oid oid = Oid.parse("~1.2.3.4.5");
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(oid);
        }
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
            assertEquals(oid, in.readObject());
        }
    }
}
