package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** An entity whose identity is an Integer. */
@Entity
public class Country extends Coded<Integer> {
    protected Country() {}

    public Country(Integer code) {
        super(code);
    }
}
