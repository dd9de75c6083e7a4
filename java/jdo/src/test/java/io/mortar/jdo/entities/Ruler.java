package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** An entity with inherited members. */
@Entity
public class Ruler extends Numbered {
    protected Ruler() {}

    public Ruler(long id, String label) {
        super(id, label);
    }
}
