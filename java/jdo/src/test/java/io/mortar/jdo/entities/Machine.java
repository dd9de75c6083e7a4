package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OneToOne;
import jakarta.persistence.OrderColumn;
import jakarta.persistence.Version;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** An entity with containers of each kind, whose operations cascade. */
@Entity
public class Machine {
    /** A container of a machine. */
    public enum Container {
        CASCADED,
        OWNED,
        ORDERED,
        JOINED,
        SEQUENCE,
        SHARED,
        PILE
    }

    @Id
    private String name;

    @Version
    private int version;

    @OneToMany(mappedBy = "cascaded", cascade = CascadeType.ALL)
    private List<Part> cascaded = new ArrayList<>();

    @OneToMany(mappedBy = "owned", cascade = CascadeType.ALL, orphanRemoval = true)
    private List<Part> owned = new ArrayList<>();

    @OneToMany(mappedBy = "ordered", cascade = CascadeType.ALL, orphanRemoval = true)
    @OrderColumn
    private List<Part> ordered = new ArrayList<>();

    @OneToMany(cascade = CascadeType.ALL, orphanRemoval = true)
    @JoinColumn
    private List<Part> joined = new ArrayList<>();

    @OneToMany(cascade = CascadeType.ALL, orphanRemoval = true)
    @OrderColumn
    private List<Part> sequence = new ArrayList<>();

    @ManyToMany(cascade = CascadeType.ALL)
    private List<Part> shared = new ArrayList<>();

    @OneToMany(cascade = CascadeType.ALL, orphanRemoval = true)
    private Set<Part> pile = new HashSet<>();

    @OneToOne(cascade = CascadeType.ALL)
    private Part spare;

    protected Machine() {}

    public Machine(String name) {
        this.name = name;
    }

    public String getName() {
        return name;
    }

    public Part getSpare() {
        return spare;
    }

    public void setSpare(Part spare) {
        this.spare = spare;
    }

    public Collection<Part> get(Container container) {
        return switch (container) {
            case CASCADED -> cascaded;
            case OWNED -> owned;
            case ORDERED -> ordered;
            case JOINED -> joined;
            case SEQUENCE -> sequence;
            case SHARED -> shared;
            case PILE -> pile;
        };
    }
}
