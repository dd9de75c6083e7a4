package io.mortar.jdo.entities;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OrderBy;
import java.util.ArrayList;
import java.util.List;

/** An entity whose list of others is in the order of their keys. */
@Entity
public class Shelf {
    @Id
    private long id;

    @OneToMany(cascade = CascadeType.ALL)
    @OrderBy
    private List<Pen> pens = new ArrayList<>();

    protected Shelf() {}

    public Shelf(long id) {
        this.id = id;
    }

    public List<Pen> getPens() {
        return pens;
    }
}
