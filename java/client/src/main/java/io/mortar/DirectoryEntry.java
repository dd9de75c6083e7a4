package io.mortar;

/**
 * A name in a directory.
 *
 * @param name the name: one component of a path
 * @param oid the object that the name is bound to
 */
public record DirectoryEntry(String name, Oid oid) {
    static DirectoryEntry read(MessageReader in) {
        return new DirectoryEntry(in.string(), in.oid());
    }
}
