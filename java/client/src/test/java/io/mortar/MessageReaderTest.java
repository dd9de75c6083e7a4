package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class MessageReaderTest {
    private static final Oid OID = Oid.parse("1.2.3.4.5");

    @Test
    void messageIsReadAsItWasWritten() {
        MessageWriter out = new MessageWriter(1)
                .u8(200)
                .bool(true)
                .u32(70_000)
                .u64(-1)
                .bytes(new byte[] {1, 2})
                .string("né")
                .oid(OID)
                .value(List.of(1))
                .optional("there", MessageWriter::string)
                .optional((String) null, MessageWriter::string)
                .list(List.of("a", "b"), MessageWriter::string);
        MessageReader in = new MessageReader(MessageWriter.bytesOf(out));
        assertEquals(200, in.u8());
        assertEquals(true, in.bool());
        assertEquals(70_000, in.u32());
        assertEquals(-1, in.u64());
        assertArrayEquals(new byte[] {1, 2}, in.bytes());
        assertEquals("né", in.string());
        assertEquals(OID, in.oid());
        assertEquals(List.of(1L), in.value());
        assertEquals(Optional.of("there"), in.maybe(MessageReader::string));
        assertNull(in.optional(MessageReader::string));
        assertEquals(List.of("a", "b"), in.list(MessageReader::string));
        in.end();
    }

    @Test
    void numbersAreBigEndian() {
        byte[] bytes =
                MessageWriter.bytesOf(new MessageWriter().u8(1).u32(2).u64(3).string("a"));
        assertEquals("01000000020000000000000003" + "0000000161", Hex.text(bytes));
        assertEquals(0xfffe, new MessageReader(Hex.bytes("fffe")).u16());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "02",
                "00 00",
                "01",
                "01 01",
                "01 01 00000002 61 00",
                "01 01 00000001 61 02",
                "01 01 00000001 61 00 00"
            })
    void malformedRepliesAreInternalErrors(String reply) {
        assertThrows(InternalException.class, () -> MessageReader.read(Hex.bytes(reply), MessageReader::nothing));
    }

    @ParameterizedTest
    @ValueSource(strings = {"00 ffffffff", "00 7fffffff", "00 00000003 6161", "00 00000001 ff"})
    void lengthsAreCheckedBeforeTheyAreUsed(String reply) {
        assertThrows(InternalException.class, () -> MessageReader.read(Hex.bytes(reply), MessageReader::string));
        assertThrows(
                InternalException.class, () -> MessageReader.read(Hex.bytes(reply), in -> in.list(MessageReader::oid)));
    }

    @ParameterizedTest
    @EnumSource
    void errorsAreExceptionsOfTheirKind(ErrorKind kind) {
        MessageWriter reply =
                new MessageWriter().u8(1).u8(kind.code()).string("why").optional(OID, MessageWriter::oid);
        MortarException error = assertThrows(
                MortarException.class, () -> MessageReader.read(MessageWriter.bytesOf(reply), MessageReader::nothing));
        assertEquals(kind, error.kind());
        assertEquals("why", error.getMessage());
        assertEquals(
                List.of(ErrorKind.UNAVAILABLE, ErrorKind.CONFLICT, ErrorKind.STOPPED)
                        .contains(kind),
                error.isRetryable());
        if (error instanceof ConflictException conflict) {
            assertEquals(Optional.of(OID), conflict.object());
        }
    }

    @Test
    void errorOfAnUnknownKindIsInternal() {
        byte[] reply = MessageWriter.bytesOf(
                new MessageWriter().u8(1).u8(99).string("new").bool(false));
        assertThrows(InternalException.class, () -> MessageReader.read(reply, MessageReader::nothing));
    }

    @Test
    void repliesFromAnywhereDoNoHarm() {
        List<Function<MessageReader, Object>> readers = List.of(
                Schema::read,
                StoredObject::read,
                CollectionTotals::read,
                FieldType::read,
                TransactionMessages::readOutcome,
                ListedObject::read,
                ListedName::read,
                Event::read,
                in -> ObjectStat.read(OID, in),
                in -> in.list(row -> Row.read(row, List.of("a"))));
        Random random = new Random(5);
        for (int round = 0; round < 100_000; round++) {
            byte[] reply = new byte[1 + random.nextInt(40)];
            for (int index = 1; index < reply.length; index++) {
                reply[index] = (byte) (random.nextInt(3) == 0 ? random.nextInt() : random.nextInt(4));
            }
            try {
                MessageReader.read(reply, readers.get(random.nextInt(readers.size())));
            } catch (InternalException | CorruptException | UnsupportedException refused) {
                // As documented.
            }
        }
    }
}
