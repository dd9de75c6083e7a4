package io.mortar.jdo.entities;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Inheritance;
import jakarta.persistence.InheritanceType;

/** The top of a hierarchy. */
@Entity
@Inheritance(strategy = InheritanceType.JOINED)
public abstract class Medium {
    @Id
    private String code;

    private int price;

    protected Medium() {}

    protected Medium(String code, int price) {
        this.code = code;
        this.price = price;
    }

    public String getCode() {
        return code;
    }

    public int getPrice() {
        return price;
    }
}
