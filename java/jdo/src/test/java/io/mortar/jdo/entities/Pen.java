package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** An entity with inherited members. */
@Entity
public class Pen extends Numbered {
    protected Pen() {}

    public Pen(long id, String label) {
        super(id, label);
    }
}
