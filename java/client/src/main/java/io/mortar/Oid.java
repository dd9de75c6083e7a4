package io.mortar;

import java.io.Serializable;

/**
 * The identifier of an object or a collection: 128 bits.
 *
 * <p>An identifier contains the location of its object, so following a reference needs no look-up. From the most
 * significant bit down it has a mark of temporary identifiers (1 bit), the space (15), the class (24), the logical node
 * (24), the page (48) and the slot (16). Identifiers order as these bits. The text form has the five numbers in
 * hexadecimal, {@code 1.0.0.2a.3}, with {@code ~} before a temporary identifier.
 *
 * <p>An object that a transaction creates has a temporary identifier until the commit; see
 * {@link Transaction#create(int, Record)} and {@link Transaction#realOid}.
 */
public final class Oid implements Comparable<Oid>, Serializable {
    /** Bytes of an identifier. */
    public static final int BYTES = 16;

    private static final long serialVersionUID = 1;

    private static final int SPACE_BITS = 15;
    private static final int CLASS_BITS = 24;
    private static final int NODE_BITS = 24;
    private static final int PAGE_BITS = 48;
    private static final int SLOT_BITS = 16;
    private static final String[] PART_NAMES = {"space", "class", "node", "page", "slot"};
    private static final int[] PART_BITS = {SPACE_BITS, CLASS_BITS, NODE_BITS, PAGE_BITS, SLOT_BITS};
    /** Longer than any identifier. */
    private static final int QUOTED = 64;

    private final long high;
    private final long low;

    Oid(long high, long low) {
        this.high = high;
        this.low = low;
    }

    /**
     * Returns the identifier with these bytes, which are those of {@link #toBytes}. Every value is valid.
     *
     * @param bytes 16 bytes, big-endian
     * @return the identifier
     * @throws InvalidRequestException for another number of bytes
     */
    public static Oid fromBytes(byte[] bytes) {
        if (bytes.length != BYTES) {
            throw new InvalidRequestException("an object identifier has " + BYTES + " bytes, not " + bytes.length);
        }
        return read(bytes, 0);
    }

    static Oid read(byte[] bytes, int at) {
        return new Oid(BigEndian.readLong(bytes, at), BigEndian.readLong(bytes, at + Long.BYTES));
    }

    void write(EncodingBuffer out) {
        out.u64(high);
        out.u64(low);
    }

    /**
     * Parses the text form.
     *
     * @param text {@code space.class.node.page.slot} in hexadecimal, perhaps after {@code ~}
     * @return the identifier
     * @throws InvalidRequestException if the text is not an identifier
     */
    public static Oid parse(String text) {
        boolean temporary = text.startsWith("~");
        String[] parts = (temporary ? text.substring(1) : text).split("\\.", -1);
        if (parts.length != PART_NAMES.length) {
            throw new InvalidRequestException(
                    "an object identifier has five parts, space.class.node.page.slot; this text has " + parts.length
                            + ": \"" + shorten(text) + '"');
        }
        long[] numbers = new long[parts.length];
        for (int part = 0; part < parts.length; part++) {
            numbers[part] = parsePart(part, parts[part]);
        }
        Oid oid = of((int) numbers[0], (int) numbers[1], (int) numbers[2], numbers[3], (int) numbers[4]);
        return temporary ? new Oid(oid.high | Long.MIN_VALUE, oid.low) : oid;
    }

    private static long parsePart(int part, String digits) {
        String name = PART_NAMES[part];
        if (digits.isEmpty() || !digits.chars().allMatch(Oid::isHexadecimal)) {
            throw new InvalidRequestException("the " + name
                    + " of an object identifier is a hexadecimal number; this is not: \"" + shorten(digits) + '"');
        }
        String significant = digits.replaceFirst("^0+(?=.)", "");
        // Fifteen digits fit a positive long; no part has more than twelve.
        long number = significant.length() > 15 ? Long.MAX_VALUE : Long.parseLong(significant, 16);
        if (number >>> PART_BITS[part] != 0) {
            throw new InvalidRequestException("the " + name + " of an object identifier has at most " + PART_BITS[part]
                    + " bits: \"" + shorten(digits) + "\" is larger");
        }
        return number;
    }

    private static boolean isHexadecimal(int character) {
        return character < 128 && Character.digit(character, 16) >= 0;
    }

    private static String shorten(String text) {
        return text.length() <= QUOTED ? text : text.substring(0, QUOTED) + "…";
    }

    /** The identifier with these parts, which must fit their bits. */
    static Oid of(int space, int classNumber, int node, long page, int slot) {
        long high = (long) space << CLASS_BITS + NODE_BITS | (long) classNumber << NODE_BITS | node;
        return new Oid(high, page << SLOT_BITS | slot);
    }

    /**
     * Returns whether the identifier is temporary: the transaction that creates its object is not committed yet.
     *
     * @return whether it is temporary
     */
    public boolean isTemporary() {
        return high < 0;
    }

    /**
     * Returns the number of the object's space: 15 bits.
     *
     * @return the space
     */
    public int space() {
        return (int) (high >>> CLASS_BITS + NODE_BITS) & (1 << SPACE_BITS) - 1;
    }

    /**
     * Returns the number of the object's class, as in {@link SchemaClass#number()}: 24 bits.
     *
     * @return the class; 0 for blobs, sets and directories
     */
    public int classNumber() {
        return (int) (high >>> NODE_BITS) & (1 << CLASS_BITS) - 1;
    }

    /**
     * Returns the number of the logical node where the object is: 24 bits. A temporary identifier has none.
     *
     * @return the logical node
     */
    public int node() {
        return (int) high & (1 << NODE_BITS) - 1;
    }

    /**
     * Returns the number of the object's page on its logical node: 48 bits.
     *
     * @return the page
     */
    public long page() {
        return low >>> SLOT_BITS;
    }

    /**
     * Returns the object's slot in its page: 16 bits.
     *
     * @return the slot
     */
    public int slot() {
        return (int) low & (1 << SLOT_BITS) - 1;
    }

    /**
     * Returns the identifier as 16 bytes, big-endian, which have the same order.
     *
     * @return the bytes
     */
    public byte[] toBytes() {
        byte[] bytes = new byte[BYTES];
        BigEndian.writeLong(bytes, 0, high);
        BigEndian.writeLong(bytes, Long.BYTES, low);
        return bytes;
    }

    @Override
    public int compareTo(Oid other) {
        int order = Long.compareUnsigned(high, other.high);
        return order != 0 ? order : Long.compareUnsigned(low, other.low);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Oid oid && high == oid.high && low == oid.low;
    }

    @Override
    public int hashCode() {
        // Pages and slots count up, so their bits are spread.
        long mixed = (high * 31 + low) * 0x9E3779B97F4A7C15L;
        return (int) (mixed >>> 32);
    }

    /**
     * Returns the form {@code space.class.node.page.slot} in hexadecimal, with {@code ~} before a temporary identifier.
     */
    @Override
    public String toString() {
        return (isTemporary() ? "~" : "")
                + Integer.toHexString(space())
                + '.'
                + Integer.toHexString(classNumber())
                + '.'
                + Integer.toHexString(node())
                + '.'
                + Long.toHexString(page())
                + '.'
                + Integer.toHexString(slot());
    }
}
