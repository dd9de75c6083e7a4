package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Embeddable;
import jakarta.persistence.EmbeddedId;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.MapsId;
import jakarta.persistence.OneToOne;
import java.io.Serializable;
import java.util.Objects;

/** An entity from whose key others derive theirs. */
@Entity
public class Owner {
    @Id
    @GeneratedValue
    private Long id;

    public Long getId() {
        return id;
    }

    /** An entity that has the key of its owner. */
    @Entity
    public static class Details {
        @Id
        private Long id;

        @MapsId
        @OneToOne(cascade = CascadeType.PERSIST)
        private Owner owner;

        protected Details() {}

        public Details(Owner owner) {
            this.owner = owner;
        }

        public Long getId() {
            return id;
        }

        public Owner getOwner() {
            return owner;
        }
    }

    /** An entity with the key of its owner in its own. */
    @Entity
    public static class Note {
        /** The identity. */
        @Embeddable
        public static class Key implements Serializable {
            private Long owner;
            private String title;

            protected Key() {}

            public Key(Long owner, String title) {
                this.owner = owner;
                this.title = title;
            }

            @Override
            public boolean equals(Object other) {
                return other instanceof Key key && Objects.equals(owner, key.owner) && Objects.equals(title, key.title);
            }

            @Override
            public int hashCode() {
                return Objects.hash(owner, title);
            }

            @Override
            public String toString() {
                return owner + ":" + title;
            }
        }

        @EmbeddedId
        private Key key;

        @MapsId("owner")
        @ManyToOne
        private Owner owner;

        protected Note() {}

        public Note(String title, Owner owner) {
            this.key = new Key(null, title);
            this.owner = owner;
        }

        public Owner getOwner() {
            return owner;
        }
    }

    /** An entity that has the embedded key of a note. */
    @Entity
    public static class Attachment {
        @EmbeddedId
        private Note.Key key;

        @MapsId
        @OneToOne
        private Note note;

        private String file;

        protected Attachment() {}

        public Attachment(Note note, String file) {
            this.note = note;
            this.file = file;
        }

        public Note getNote() {
            return note;
        }

        public String getFile() {
            return file;
        }
    }
}
