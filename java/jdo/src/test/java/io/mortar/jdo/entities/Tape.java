package io.mortar.jdo.entities;

import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;

/** Another subclass. */
@Entity
public class Tape extends Medium {
    /** How long a tape is: the names have another order. */
    public enum Length {
        SHORT,
        LONG
    }

    private int minutes;

    @Enumerated(EnumType.ORDINAL)
    private Length length;

    protected Tape() {}

    public Tape(String code, int price, int minutes) {
        super(code, price);
        this.minutes = minutes;
        this.length = minutes < 60 ? Length.SHORT : Length.LONG;
    }

    public int getMinutes() {
        return minutes;
    }
}
