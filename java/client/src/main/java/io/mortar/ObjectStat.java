package io.mortar;

import java.time.Instant;
import java.util.Optional;

/**
 * The properties of an object.
 *
 * @param oid the object
 * @param object the object with its attributes. A blob has its bytes here only if they are not in a content of their
 *     own
 * @param size bytes of a blob or a record, or entries of a collection
 * @param entryChanged when an entry of the collection was last changed, in milliseconds; empty for other objects, and
 *     for a collection that never had one
 */
public record ObjectStat(Oid oid, StoredObject object, long size, Optional<Instant> entryChanged) {
    static ObjectStat read(Oid oid, MessageReader in) {
        return new ObjectStat(
                oid,
                StoredObject.read(in),
                in.u64(),
                in.maybe(MessageReader::u64).map(Instant::ofEpochMilli));
    }

    /**
     * Returns the kind of the object.
     *
     * @return the kind
     */
    public ObjectKind kind() {
        return object.kind();
    }
}
