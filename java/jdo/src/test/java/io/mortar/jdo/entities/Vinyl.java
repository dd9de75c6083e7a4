package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** A subclass. */
@Entity
public class Vinyl extends Medium {
    private int inches;

    protected Vinyl() {}

    public Vinyl(String code, int price, int inches) {
        super(code, price);
        this.inches = inches;
    }

    public int getInches() {
        return inches;
    }
}
