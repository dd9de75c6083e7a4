package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Embeddable;
import jakarta.persistence.EmbeddedId;
import jakarta.persistence.Entity;
import jakarta.persistence.ManyToMany;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/** An entity with an embedded identity, inherited members and collections of embedded objects. */
@Entity
public class Room extends Timestamped {
    /** The identity. */
    @Embeddable
    public static class Id implements Serializable {
        private String house;
        private int number;

        protected Id() {}

        public Id(String house, int number) {
            this.house = house;
            this.number = number;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Id id && id.number == number && Objects.equals(id.house, house);
        }

        @Override
        public String toString() {
            return house + ':' + number;
        }

        @Override
        public int hashCode() {
            return Objects.hash(house, number);
        }
    }

    @EmbeddedId
    private Id id;

    @ElementCollection
    private List<Label> labels = new ArrayList<>();

    @ElementCollection
    private Map<String, Integer> prices = new HashMap<>();

    @ManyToMany(cascade = CascadeType.PERSIST)
    private Set<Guest> guests = new HashSet<>();

    protected Room() {}

    public Room(String house, int number) {
        id = new Id(house, number);
    }

    public Id getId() {
        return id;
    }

    public List<Label> getLabels() {
        return labels;
    }

    public Map<String, Integer> getPrices() {
        return prices;
    }

    public Set<Guest> getGuests() {
        return guests;
    }
}
