package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import org.junit.jupiter.api.Test;

class PieceStreamTest {
    /** A stream of given pieces, which fails behind the last one if it has a failure. */
    private static final class Pieces extends PieceInputStream {
        private final Queue<byte[]> pieces = new ArrayDeque<>();
        private MortarException failure;
        private long skippable;

        Pieces(byte[]... pieces) {
            this.pieces.addAll(List.of(pieces));
        }

        @Override
        byte[] nextPiece() {
            if (pieces.isEmpty() && failure != null) {
                throw failure;
            }
            return pieces.poll();
        }

        @Override
        long skipUnread(long count) {
            long skipped = Math.min(count, skippable);
            skippable -= skipped;
            return skipped;
        }
    }

    private static byte[] numbered(int from, int to) {
        byte[] bytes = new byte[to - from];
        for (int index = from; index < to; index++) {
            bytes[index - from] = (byte) index;
        }
        return bytes;
    }

    @Test
    void piecesAreReadAsOneStream() throws IOException {
        byte[] all = numbered(0, 100);
        Random random = new Random(2);
        for (int round = 0; round < 200; round++) {
            int middle = random.nextInt(101);
            InputStream in = new Pieces(numbered(0, middle), new byte[0], numbered(middle, 100));
            ByteArrayOutputStream read = new ByteArrayOutputStream();
            while (read.size() < 100) {
                switch (random.nextInt(4)) {
                    case 0 -> read.write(in.read());
                    case 1 -> read.write(in.readNBytes(random.nextInt(20)));
                    case 2 -> {
                        long skipped = in.skip(random.nextInt(20));
                        read.write(all, read.size(), (int) skipped);
                    }
                    default -> {
                        byte[] some = new byte[1 + random.nextInt(20)];
                        read.write(some, 0, in.read(some, 0, some.length));
                    }
                }
            }
            assertArrayEquals(all, read.toByteArray());
            assertEquals(-1, in.read());
            assertEquals(0, in.skip(5));
            assertEquals(0, in.readAllBytes().length);
        }
    }

    @Test
    void skippingAvoidsReadingIfThatIsPossible() throws IOException {
        Pieces in = new Pieces(numbered(0, 10), numbered(50, 60));
        assertEquals(0, in.read());
        in.skippable = 40;
        assertEquals(49, in.skip(49));
        assertEquals(50, in.read());
        assertEquals(9, in.available());
    }

    @Test
    void wholeStreamIsTransferred() throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        assertEquals(100, new Pieces(numbered(0, 60), numbered(60, 100)).transferTo(out));
        assertArrayEquals(numbered(0, 100), out.toByteArray());
        assertArrayEquals(numbered(0, 100), new Pieces(numbered(0, 60), numbered(60, 100)).readAllBytes());
    }

    @Test
    void errorsAreTheCauseOfAnIoException() throws IOException {
        Pieces in = new Pieces(numbered(0, 1));
        in.failure = new UnavailableException("away");
        assertEquals(0, in.read());
        IOException error = assertThrows(IOException.class, in::read);
        assertInstanceOf(UnavailableException.class, error.getCause());
        in.close();
        assertTrue(assertThrows(IOException.class, in::read).getMessage().contains("closed"));
        assertThrows(IOException.class, () -> in.skip(1));
        assertThrows(IOException.class, in::available);
    }

    /** A stream that collects its pieces. */
    private static final class Collector extends PieceOutputStream {
        private final List<byte[]> pieces = new ArrayList<>();

        @Override
        void writePiece(byte[] bytes, int offset, int length) {
            pieces.add(Arrays.copyOfRange(bytes, offset, offset + length));
        }

        @Override
        public void flush() throws IOException {
            sendBuffered();
        }
    }

    @Test
    void bytesAreWrittenInPieces() throws IOException {
        byte[] all = new byte[5 * Limits.PIECE / 2];
        new Random(3).nextBytes(all);
        Random random = new Random(4);
        Collector out = new Collector();
        int written = 0;
        while (written < all.length) {
            int count = Math.min(all.length - written, random.nextInt(Limits.PIECE * 3 / 2));
            if (count == 0) {
                out.write(all[written++]);
            } else {
                out.write(all, written, count);
                written += count;
            }
        }
        assertEquals(2, out.pieces.size());
        out.flush();
        out.flush();
        assertEquals(
                List.of(Limits.PIECE, Limits.PIECE, Limits.PIECE / 2),
                out.pieces.stream().map(piece -> piece.length).toList());
        ByteArrayOutputStream joined = new ByteArrayOutputStream();
        out.pieces.forEach(joined::writeBytes);
        assertArrayEquals(all, joined.toByteArray());
        out.markClosed();
        assertThrows(IOException.class, () -> out.write(1));
    }
}
