package io.mortar;

import java.util.Objects;

/**
 * What {@link Transaction#allocate(int, java.util.List)} has to know of a new object.
 *
 * @param approximateBytes about how many bytes its record will have, by which pages are filled
 * @param hint where it is placed
 */
public record Allocation(int approximateBytes, PlacementHint hint) {
    /** Checks the arguments. */
    public Allocation {
        MessageWriter.requireNotNegative(approximateBytes, "a number of bytes");
        Objects.requireNonNull(hint);
    }

    void write(MessageWriter out) {
        TransactionMessages.writeHint(out.u32(approximateBytes), hint);
    }
}
