package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class StoredObjectTest {
    private static final Record RECORD = Record.builder().set(1, "a").build();

    private static StoredObject copy(StoredObject object) {
        MessageWriter out = new MessageWriter();
        object.write(out);
        MessageReader in = new MessageReader(MessageWriter.bytesOf(out));
        StoredObject read = StoredObject.read(in);
        in.end();
        return read;
    }

    @Test
    void objectIsReadAsItWasWritten() {
        StoredObject blob = StoredObject.blob(new byte[] {1, 2})
                .withAttribute("b", new byte[] {3})
                .withAttribute("a", new byte[0]);
        for (StoredObject object : List.of(blob, StoredObject.record(RECORD), StoredObject.collection())) {
            assertEquals(object, copy(object));
            assertEquals(object.hashCode(), copy(object).hashCode());
        }
        assertEquals(RECORD, copy(StoredObject.record(RECORD)).record());
        assertEquals(2, blob.size());
    }

    @Test
    void attributesAreInTheOrderOfTheirBytes() {
        StoredObject blob = StoredObject.blob(new byte[0]);
        for (String key : List.of("é", "b", "a", "aa")) {
            blob = blob.withAttribute(key, key.getBytes());
        }
        List<String> keys = new ArrayList<>();
        blob.attributes().values().forEach(value -> keys.add(new String(bytes(value))));
        assertEquals(List.of("a", "aa", "b", "é"), keys);
        assertArrayEquals("aa".getBytes(), blob.attribute("aa").orElseThrow());
        assertTrue(blob.withoutAttribute("aa").attribute("aa").isEmpty());
        assertNotEquals(blob, blob.withoutAttribute("aa"));
    }

    @Test
    void readingAnAttributeDoesNotChangeTheObject() {
        StoredObject blob = StoredObject.blob(new byte[] {1})
                .withAttribute("a", new byte[] {'x', 'y'})
                .withAttribute("b", new byte[] {'z'});
        blob.attributes().forEach((key, value) -> {
            StandardCharsets.UTF_8.decode(key);
            StandardCharsets.UTF_8.decode(value);
        });
        assertArrayEquals(new byte[] {'x', 'y'}, blob.attribute("a").orElseThrow());
        StoredObject changed = blob.withData(new byte[] {2});
        assertArrayEquals(new byte[] {'x', 'y'}, copy(changed).attribute("a").orElseThrow());
        assertArrayEquals(new byte[] {'z'}, copy(changed).attribute("b").orElseThrow());
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    @Test
    void newBytesKeepTheAttributes() {
        StoredObject blob = StoredObject.blob(new byte[] {1}).withAttribute("a", new byte[] {9});
        assertEquals(
                StoredObject.blob(new byte[] {2}).withAttribute("a", new byte[] {9}), blob.withData(new byte[] {2}));
        assertThrows(InvalidRequestException.class, () -> blob.withRecord(RECORD));
        assertThrows(InvalidRequestException.class, blob::record);
    }

    @Test
    void bytesInAContentAreNotInTheObject() {
        byte[] message =
                MessageWriter.bytesOf(new MessageWriter().u8(1).u32(0).u8(1).u64(1L << 40));
        StoredObject blob = StoredObject.read(new MessageReader(message));
        assertTrue(blob.hasContent());
        assertEquals(1L << 40, blob.size());
        assertThrows(InvalidRequestException.class, blob::data);
        assertThrows(InvalidRequestException.class, () -> copy(blob));
        assertFalse(StoredObject.blob(new byte[0]).hasContent());
    }
}
