package io.mortar;

/**
 * An object of a space.
 *
 * @param oid the object
 * @param kind its kind
 * @param size bytes of a blob or a record; 0 for a collection
 */
public record ListedObject(Oid oid, ObjectKind kind, long size) {
    static ListedObject read(MessageReader in) {
        return new ListedObject(in.oid(), ObjectKind.ofCode(in.u8()), in.u64());
    }
}
