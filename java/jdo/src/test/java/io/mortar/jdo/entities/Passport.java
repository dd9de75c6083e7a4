package io.mortar.jdo.entities;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.IdClass;
import jakarta.persistence.OneToOne;
import java.io.Serializable;
import java.util.Objects;

/** An entity whose identity is a class. */
@Entity
@IdClass(Passport.Key.class)
public class Passport {
    /** The identity. */
    public static class Key implements Serializable {
        public String country;
        public int number;

        public Key() {}

        public Key(String country, int number) {
            this.country = country;
            this.number = number;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key key && key.number == number && Objects.equals(key.country, country);
        }

        @Override
        public String toString() {
            return country + ':' + number;
        }

        @Override
        public int hashCode() {
            return Objects.hash(country, number);
        }
    }

    @Id
    private String country;

    @Id
    private int number;

    @OneToOne(mappedBy = "passport")
    private Guest guest;

    protected Passport() {}

    public Passport(String country, int number) {
        this.country = country;
        this.number = number;
    }

    public int getNumber() {
        return number;
    }

    public Guest getGuest() {
        return guest;
    }
}
