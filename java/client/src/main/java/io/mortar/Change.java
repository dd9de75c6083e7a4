package io.mortar;

import java.util.Objects;

/** A change of an object, for {@link Transaction#write}. */
public final class Change {
    private static final int DELETE = 0;
    private static final int REPLACE = 1;
    private static final int NEW = 2;

    private final int type;
    private final Oid oid;
    private final StoredObject object;

    private Change(int type, Oid oid, StoredObject object) {
        this.type = type;
        this.oid = Objects.requireNonNull(oid);
        this.object = object;
    }

    /**
     * Returns the change that deletes an object.
     *
     * @param oid the object
     * @return the change
     */
    public static Change delete(Oid oid) {
        return new Change(DELETE, oid, null);
    }

    /**
     * Returns the change that replaces an object.
     *
     * @param oid the object
     * @param object its new state; of the class that the identifier names
     * @return the change
     */
    public static Change replace(Oid oid, StoredObject object) {
        return new Change(REPLACE, oid, Objects.requireNonNull(object));
    }

    /**
     * Returns the change that creates an object.
     *
     * @param oid an identifier that {@link Transaction#allocate} of the same transaction has returned
     * @param object its state: a record without attributes, which {@link Transaction#setAttribute} sets
     * @return the change
     * @throws InvalidRequestException for another object
     */
    public static Change create(Oid oid, StoredObject object) {
        if (object.kind() != ObjectKind.RECORD || !object.attributes().isEmpty()) {
            throw new InvalidRequestException(
                    "an identifier that was allocated gets a record without attributes, not a " + object);
        }
        return new Change(NEW, oid, object);
    }

    /**
     * Returns the object that changes.
     *
     * @return the object
     */
    public Oid oid() {
        return oid;
    }

    void write(MessageWriter out) {
        out.oid(oid).u8(type);
        if (type != DELETE) {
            object.write(out.u32(oid.classNumber()));
        }
    }
}
