package io.mortar.jdo.model;

import javax.jdo.annotations.PersistenceCapable;

/** A subclass with the identities of its superclass. */
@PersistenceCapable(detachable = "true")
public class BoxSeat extends Seat {
    private int guests;

    protected BoxSeat() {}

    public BoxSeat(String hall, int number, int guests) {
        super(hall, number);
        this.guests = guests;
    }

    public int getGuests() {
        return guests;
    }
}
