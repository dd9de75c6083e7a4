package io.mortar;

/**
 * A name of a space, and the object that it is bound to.
 *
 * @param path the absolute path, which begins with {@code /}
 * @param oid the object
 * @param isDirectory whether the object is a directory
 */
public record ListedName(String path, Oid oid, boolean isDirectory) {
    static ListedName read(MessageReader in) {
        return new ListedName(in.string(), in.oid(), in.bool());
    }
}
