package io.mortar;

/** The kind of an object. */
public enum ObjectKind {
    /** Fields of an object of a class; read and replaced as a whole. */
    RECORD(2),
    /** Bytes: read and written in ranges, appended to, truncated. */
    BLOB(1),
    /** A set of objects, ordered by identifier. */
    COLLECTION(3),
    /** A directory: names of objects, ordered by their bytes. */
    DIRECTORY(4);

    private final int code;

    ObjectKind(int code) {
        this.code = code;
    }

    int code() {
        return code;
    }

    static ObjectKind ofCode(int code) {
        for (ObjectKind kind : values()) {
            if (kind.code == code) {
                return kind;
            }
        }
        throw MessageReader.malformed("the kind of an object is " + code);
    }
}
