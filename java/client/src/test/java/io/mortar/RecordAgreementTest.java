package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Both halves of the client have an encoder and a decoder of records: they accept the same bytes. */
@RequiresLibrary
class RecordAgreementTest {
    private static boolean isValidNatively(byte[] record) {
        try {
            NativeHandle.callWithoutHandle(
                    Operation.VALIDATE_RECORD, new MessageWriter().bytes(record), MessageReader::nothing);
            return true;
        } catch (InvalidRequestException | UnsupportedException | TooLargeException refused) {
            return false;
        }
    }

    @Test
    void recordsOfThisEncoderAreValid() {
        RandomValues values = new RandomValues(11);
        for (int round = 0; round < 10_000; round++) {
            Record record = values.record();
            assertEquals(true, isValidNatively(record.encode()), () -> record + " " + Hex.text(record.encode()));
        }
    }

    @Test
    void damagedRecordsAreRefusedByBoth() {
        RandomValues values = new RandomValues(12);
        Random random = values.random();
        for (int round = 0; round < 30_000; round++) {
            byte[] bytes = values.record().encode();
            for (int damage = 1 + random.nextInt(3); damage > 0; damage--) {
                bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            }
            compare(random.nextInt(4) == 0 ? Arrays.copyOf(bytes, random.nextInt(bytes.length)) : bytes);
        }
    }

    private static void compare(byte[] bytes) {
        try {
            boolean valid = isValidHere(bytes);
            assertEquals(isValidNatively(bytes), valid, () -> Hex.text(bytes));
        } catch (UnsupportedException beyondJava) {
            // java.time has no such date, or Java no such field number.
        }
    }

    private static boolean isValidHere(byte[] bytes) {
        try {
            Record.decode(bytes).toMap();
            return true;
        } catch (CorruptException refused) {
            return false;
        }
    }

    @Test
    void versionsAreCheckedByBoth() {
        assertThrows(UnsupportedException.class, () -> Record.decode(new byte[] {2}));
        assertEquals(false, isValidNatively(new byte[] {2}));
    }
}
