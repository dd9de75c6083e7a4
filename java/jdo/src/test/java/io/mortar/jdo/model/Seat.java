package io.mortar.jdo.model;

import java.io.Serializable;
import java.util.Objects;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;

/** A class with an application identity of two members. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, objectIdClass = Seat.Id.class, detachable = "true")
public class Seat {
    /** The identity. */
    public static final class Id implements Serializable {
        public String hall;
        public int number;

        public Id() {}

        public Id(String text) {
            int colon = text.lastIndexOf(':');
            hall = text.substring(0, colon);
            number = Integer.parseInt(text.substring(colon + 1));
        }

        @Override
        public String toString() {
            return hall + ':' + number;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Id id && id.number == number && Objects.equals(id.hall, hall);
        }

        @Override
        public int hashCode() {
            return Objects.hash(hall, number);
        }
    }

    @PrimaryKey
    private String hall;

    @PrimaryKey
    private int number;

    private String taker;

    protected Seat() {}

    public Seat(String hall, int number) {
        this.hall = hall;
        this.number = number;
    }

    public String getTaker() {
        return taker;
    }

    public void setTaker(String taker) {
        this.taker = taker;
    }
}
