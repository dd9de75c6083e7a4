package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.OneToOne;
import jakarta.persistence.SequenceGenerator;
import java.util.HashSet;
import java.util.Set;

/** An entity with a number of a sequence, and the other side of two relations. */
@Entity
@SequenceGenerator(name = "guests", sequenceName = "guests", allocationSize = 10)
public class Guest {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "guests")
    private long id;

    private String name;

    @ManyToMany(mappedBy = "guests")
    private Set<Room> rooms = new HashSet<>();

    @OneToOne(cascade = CascadeType.ALL)
    private Passport passport;

    protected Guest() {}

    public Guest(String name) {
        this.name = name;
    }

    public long getId() {
        return id;
    }

    public String getName() {
        return name;
    }

    public Set<Room> getRooms() {
        return rooms;
    }

    public Passport getPassport() {
        return passport;
    }

    public void setPassport(Passport passport) {
        this.passport = passport;
    }
}
