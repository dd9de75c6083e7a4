package io.mortar.jdo.entities;

import jakarta.persistence.Entity;

/** Another subclass. */
@Entity
public class Tape extends Medium {
    private int minutes;

    protected Tape() {}

    public Tape(String code, int price, int minutes) {
        super(code, price);
        this.minutes = minutes;
    }

    public int getMinutes() {
        return minutes;
    }
}
