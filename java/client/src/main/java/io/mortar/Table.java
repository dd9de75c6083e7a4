package io.mortar;

/**
 * The table of contents of an encoded record, list, set or map: entries, and a header with their ends. The entries of a
 * record are numbered.
 *
 * <p>The bytes may be of any origin: {@link #parse} checks the whole header, and that it is the only one for its
 * entries. Nothing is allocated by a length that the bytes claim. See {@code docs/format.md}, "Records".
 */
final class Table {
    private static final int ENDS_MASK = 0b11;
    private static final int NUMBERS_SHIFT = 2;

    final byte[] bytes;
    final int count;
    private final int numbersAt;
    private final int numberWidth;
    private final int endsAt;
    private final int endWidth;
    private final int valuesAt;

    private Table(byte[] bytes, int from, int count, int numberWidth, int endWidth) {
        this.bytes = bytes;
        this.count = count;
        this.numberWidth = numberWidth;
        this.endWidth = endWidth;
        numbersAt = from + 1 + endWidth;
        endsAt = numbersAt + count * numberWidth;
        valuesAt = endsAt + count * endWidth;
    }

    /**
     * Parses the table in {@code bytes[from..to]}.
     *
     * @throws CorruptException if it is malformed
     */
    static Table parse(byte[] bytes, int from, int to, boolean numbered) {
        if (from == to) {
            return new Table(bytes, from, 0, 0, 0);
        }
        int shape = bytes[from] & 0xff;
        int endWidth = widthOfCode(shape & ENDS_MASK);
        int numberWidth = widthOfCode(shape >> NUMBERS_SHIFT);
        if (endWidth <= 0 || numberWidth < 0 || numbered != numberWidth > 0 || to - from - 1 < endWidth) {
            throw malformed("the header of a table is incomplete or has unknown bits");
        }
        long count = read(bytes, from + 1, endWidth);
        long header = 1 + endWidth + count * (numberWidth + endWidth);
        if (count == 0 || header > to - from) {
            throw malformed("the header of a table is incomplete or has unknown bits");
        }
        Table table = new Table(bytes, from, (int) count, numberWidth, endWidth);
        table.check(to);
        return table;
    }

    private void check(int to) {
        long before = 0;
        for (int index = 0; index < count; index++) {
            long end = read(bytes, endsAt + index * endWidth, endWidth);
            if (end <= before) {
                throw malformed("the offsets of a table do not match its bytes");
            }
            before = end;
        }
        if (before != to - valuesAt) {
            throw malformed("the offsets of a table do not match its bytes");
        }
        if (endWidth != width(before)) {
            throw malformed("the header of a table is wider than necessary");
        }
        if (numberWidth > 0) {
            checkNumbers();
        }
    }

    private void checkNumbers() {
        long before = -1;
        for (int index = 0; index < count; index++) {
            long number = read(bytes, numbersAt + index * numberWidth, numberWidth);
            if (number <= before) {
                throw malformed("field numbers are out of order");
            }
            before = number;
        }
        if (numberWidth != width(before)) {
            throw malformed("the header of a table is wider than necessary");
        }
        if (before > Integer.MAX_VALUE) {
            throw new UnsupportedException("a record has field number " + before
                    + "; this client reads field numbers up to " + Integer.MAX_VALUE);
        }
    }

    /** The number of an entry. */
    int number(int index) {
        return (int) read(bytes, numbersAt + index * numberWidth, numberWidth);
    }

    /** The index in {@link #bytes} of the first byte of an entry. */
    int start(int index) {
        return index == 0 ? valuesAt : end(index - 1);
    }

    /** The index in {@link #bytes} behind the last byte of an entry. */
    int end(int index) {
        return valuesAt + (int) read(bytes, endsAt + index * endWidth, endWidth);
    }

    /** The index of the entry with this number; -1 if there is none. */
    int find(int number) {
        // Most classes number their fields from 1, and most records have all of them.
        int guess = number - 1;
        if (guess >= 0 && guess < count && number(guess) == number) {
            return guess;
        }
        int low = 0;
        int high = count - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            int found = number(middle);
            if (found == number) {
                return middle;
            } else if (found < number) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return -1;
    }

    // ------------------------------------------------------------------------------------------ writing

    /** The bytes of the header of a table with {@code count} entries. */
    static int headerSize(int[] numbers, int[] ends, int count) {
        if (count == 0) {
            return 0;
        }
        int endWidth = width(ends[count - 1]);
        return 1 + endWidth + count * (endWidth + numberWidth(numbers, count));
    }

    /**
     * Writes the header of a table into {@code out}, which has room for it.
     *
     * @param numbers the numbers of the entries, ascending; null if they are not numbered
     * @param ends where the entries end, counted from the first byte of the first one
     */
    static void writeHeader(int[] numbers, int[] ends, int count, byte[] out, int at) {
        if (count == 0) {
            return;
        }
        int endWidth = width(ends[count - 1]);
        int numberWidth = numberWidth(numbers, count);
        out[at] = (byte) (codeOfWidth(endWidth) | codeOfWidth(numberWidth) << NUMBERS_SHIFT);
        // Every entry has at least one byte, so the count fits if the last end fits.
        int next = write(out, at + 1, endWidth, count);
        for (int index = 0; numberWidth > 0 && index < count; index++) {
            next = write(out, next, numberWidth, numbers[index]);
        }
        for (int index = 0; index < count; index++) {
            next = write(out, next, endWidth, ends[index]);
        }
    }

    private static int numberWidth(int[] numbers, int count) {
        return numbers == null ? 0 : width(numbers[count - 1]);
    }

    private static int write(byte[] out, int at, int width, int number) {
        switch (width) {
            case 1 -> out[at] = (byte) number;
            case 2 -> BigEndian.writeShort(out, at, number);
            default -> BigEndian.writeInt(out, at, number);
        }
        return at + width;
    }

    // ------------------------------------------------------------------------------------------ widths

    private static long read(byte[] bytes, int at, int width) {
        return switch (width) {
            case 1 -> bytes[at] & 0xff;
            case 2 -> BigEndian.readShort(bytes, at);
            default -> BigEndian.readInt(bytes, at) & 0xffff_ffffL;
        };
    }

    /** The smallest width for a number. */
    private static int width(long largest) {
        return largest <= 0xff ? 1 : largest <= 0xffff ? 2 : 4;
    }

    private static int codeOfWidth(int width) {
        return width == 4 ? 3 : width;
    }

    /** The width with this code: 0 for no numbers, -1 for an unknown code. */
    private static int widthOfCode(int code) {
        return switch (code) {
            case 0, 1, 2 -> code;
            case 3 -> 4;
            default -> -1;
        };
    }

    static CorruptException malformed(String why) {
        return new CorruptException("a record is malformed: " + why);
    }
}
