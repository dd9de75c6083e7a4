package io.mortar.jdo.entities;

import jakarta.persistence.Basic;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Version;
import java.time.LocalDate;

/** An entity with a version and members of all types that have their own setter. */
@Entity
public class Reading {
    @Id
    private String id;

    @Version
    private int version;

    private boolean valid;
    private byte small;
    private char letter;
    private double exact;
    private float rough;
    private int number;
    private long large;
    private short brief;
    private String text;
    private Integer boxed;
    private LocalDate day;

    @ManyToOne
    private Reading previous;

    @Basic(fetch = FetchType.LAZY)
    private String lazy;

    protected Reading() {}

    public Reading(String id) {
        this.id = id;
        this.previous = this;
        this.valid = true;
        this.small = 1;
        this.letter = 'x';
        this.exact = 1.5;
        this.rough = 1.5f;
        this.number = 1;
        this.large = 1;
        this.brief = 1;
        this.text = "text";
        this.boxed = 1;
        this.day = LocalDate.EPOCH;
        this.lazy = "lazy";
    }

    /** Assigns the initial value of its type to one of the members. */
    public void reset(int member) {
        switch (member) {
            case 0 -> valid = false;
            case 1 -> small = 0;
            case 2 -> letter = 0;
            case 3 -> exact = 0;
            case 4 -> rough = 0;
            case 5 -> number = 0;
            case 6 -> large = 0;
            case 7 -> brief = 0;
            case 8 -> text = null;
            case 9 -> boxed = null;
            case 10 -> day = null;
            case 11 -> previous = null;
            case 12 -> lazy = null;
            default -> throw new IllegalArgumentException();
        }
    }

    public boolean isReset(int member) {
        return switch (member) {
            case 0 -> !valid;
            case 1 -> small == 0;
            case 2 -> letter == 0;
            case 3 -> exact == 0;
            case 4 -> rough == 0;
            case 5 -> number == 0;
            case 6 -> large == 0;
            case 7 -> brief == 0;
            case 8 -> text == null;
            case 9 -> boxed == null;
            case 10 -> day == null;
            case 11 -> previous == null;
            case 12 -> lazy == null;
            default -> throw new IllegalArgumentException();
        };
    }
}
