package io.mortar.jdo.entities;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.List;

/** An element of the containers of a machine. */
@Entity
public class Part {
    @Id
    @GeneratedValue
    private long id;

    @Version
    private int version;

    private String name;

    @ManyToOne
    private Machine cascaded;

    @ManyToOne
    private Machine owned;

    @ManyToOne
    private Machine ordered;

    @ManyToMany(mappedBy = "shared")
    private List<Machine> users = new ArrayList<>();

    protected Part() {}

    public Part(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public Machine getCascaded() {
        return cascaded;
    }

    public void setCascaded(Machine machine) {
        this.cascaded = machine;
    }

    public Machine getOwned() {
        return owned;
    }

    public void setOwned(Machine machine) {
        this.owned = machine;
    }

    public Machine getOrdered() {
        return ordered;
    }

    public void setOrdered(Machine machine) {
        this.ordered = machine;
    }

    public List<Machine> getUsers() {
        return users;
    }

    /** Needs a member, as an application's text of an object may. */
    @Override
    public String toString() {
        return "part " + name.trim();
    }
}
