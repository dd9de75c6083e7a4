package io.mortar.jdo.model;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.NotPersistent;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PersistenceModifier;
import javax.jdo.annotations.Persistent;

/** Classes with members that DataNucleus does not store unless they are declared. */
public final class Undeclared {
    private Undeclared() {}

    /** A value that can be serialized. */
    public record Size(int width, int height) implements Serializable {}

    /** A member of any type. */
    @PersistenceCapable
    public static class AnyValue {
        private Object value = "text";
    }

    /** A member with a value that can be serialized. */
    @PersistenceCapable
    public static class SerializableValue {
        private Size value = new Size(1, 2);
    }

    /** A member that cannot be assigned. */
    @PersistenceCapable
    public static class FinalList {
        private final List<String> value = new ArrayList<>();
    }

    /** A member that the file Undeclared$InFile.jdo declares. */
    @PersistenceCapable
    public static class InFile {
        private Object value = "text";
        private int number = 3;

        public int getNumber() {
            return number;
        }
    }

    /** Members that are declared, in all ways. */
    @PersistenceCapable
    public static class Declared implements Serializable {
        @Persistent
        private Object value;

        @Persistent
        private List<Object> values = new ArrayList<>();

        @NotPersistent
        private Object notStored = "not stored";

        @Persistent(persistenceModifier = PersistenceModifier.NONE)
        private Object alsoNotStored = "also not stored";

        private transient Object neverStored = "never stored";

        public Declared(Object value) {
            this.value = value;
        }

        public Object getValue() {
            return value;
        }

        public List<Object> getValues() {
            return values;
        }
    }
}
