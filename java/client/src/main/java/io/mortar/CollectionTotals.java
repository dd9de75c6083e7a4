package io.mortar;

import java.time.Instant;
import java.util.Optional;

/**
 * The number of entries of a set or a directory, and its last change.
 *
 * @param count the number of entries
 * @param changed the commit timestamp of the last change of an entry, in milliseconds; empty if there was none
 */
public record CollectionTotals(long count, Optional<Instant> changed) {
    static CollectionTotals read(MessageReader in) {
        long count = in.u64();
        long changed = in.u64();
        return new CollectionTotals(
                count, changed == 0 ? Optional.empty() : Optional.of(Instant.ofEpochMilli(changed)));
    }
}
