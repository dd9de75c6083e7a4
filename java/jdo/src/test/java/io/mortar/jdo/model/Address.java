package io.mortar.jdo.model;

import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.PersistenceCapable;

/** An object that is a part of another. */
@PersistenceCapable(detachable = "true")
@EmbeddedOnly
public class Address {
    private String street;
    private String city;
    private int number;

    protected Address() {}

    public Address(String street, int number, String city) {
        this.street = street;
        this.number = number;
        this.city = city;
    }

    public String getStreet() {
        return street;
    }

    public String getCity() {
        return city;
    }

    public void setCity(String city) {
        this.city = city;
    }

    public int getNumber() {
        return number;
    }
}
