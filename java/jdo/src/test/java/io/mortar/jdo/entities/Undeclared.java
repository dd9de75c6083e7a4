package io.mortar.jdo.entities;

import jakarta.persistence.Access;
import jakarta.persistence.AccessType;
import jakarta.persistence.Basic;
import jakarta.persistence.Column;
import jakarta.persistence.Embeddable;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Transient;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Entities with members that DataNucleus does not store unless they are declared. */
public final class Undeclared {
    /** A value that can be serialized. */
    public record Size(int width, int height) implements Serializable {}

    private Undeclared() {}

    /** A member of any type. */
    @Entity
    public static class AnyValue {
        @Id
        private long id;

        private Object value = "text";
    }

    /** A member that cannot be assigned. */
    @Entity
    public static class FinalList {
        @Id
        private long id;

        private final List<String> value = new ArrayList<>();
    }

    /** A property of any type. */
    @Entity
    public static class WithProperty {
        private long id;
        private Object content;

        @Id
        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }

        public Object getValue() {
            return content;
        }

        public void setValue(Object value) {
            content = value;
        }
    }

    /** An embedded object with such a member. */
    @Entity
    public static class Embedding {
        @Id
        private long id;

        private Embedded embedded = new Embedded();
    }

    /** An embedded object. */
    @Embeddable
    public static class Embedded {
        private Comparable<String> value = "text";
    }

    /** Members that are declared, in all ways. */
    @Entity
    @Access(AccessType.FIELD)
    public static class Declared {
        @Id
        private long id;

        @Basic
        private Object value;

        @Basic
        private Size size;

        @Transient
        private Object notStored = "not stored";

        private transient Object alsoNotStored = "also not stored";

        protected Declared() {}

        public Declared(long id, Object value, Size size) {
            this.id = id;
            this.value = value;
            this.size = size;
        }

        public Object getValue() {
            return value;
        }

        public Size getSize() {
            return size;
        }
    }

    /** Members whose types are serializable are stored without an annotation. */
    @Entity
    public static class SerializableValues {
        @Id
        private long id;

        private Size size;

        @Column(name = "other_size")
        private Size other;

        private Size[] several;
        private Shade shade;
        private transient Size notStored;

        protected SerializableValues() {}

        public SerializableValues(long id, Size size) {
            this.id = id;
            this.size = size;
            this.other = size;
            this.several = new Size[] {size, size};
            this.shade = new Shade(size);
            this.notStored = size;
        }

        public List<Object> values() {
            return Arrays.asList(size, other, several == null ? null : List.of(several), shade.size, notStored);
        }

        public void setSize(Size size) {
            this.size = size;
        }
    }

    /** An embedded object with such a member. */
    @Embeddable
    public static class Shade {
        private Size size;

        protected Shade() {}

        Shade(Size size) {
            this.size = size;
        }
    }

    /** A property whose type is serializable. */
    @Entity
    public static class SerializableProperty {
        private long id;
        private Size content;

        protected SerializableProperty() {}

        public SerializableProperty(long id, Size content) {
            this.id = id;
            this.content = content;
        }

        @Id
        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }

        public Size getSize() {
            return content;
        }

        public void setSize(Size size) {
            content = size;
        }
    }
}
