package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** An entity whose identity is a Long. */
@Entity
public class Crate extends Coded<Long> {
    protected Crate() {}

    public Crate(Long code) {
        super(code);
    }
}
