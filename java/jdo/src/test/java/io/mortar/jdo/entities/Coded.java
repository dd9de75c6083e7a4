package io.mortar.jdo.entities;

import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;
import java.io.Serializable;

/** A superclass whose subclasses choose the type of the identity. */
@MappedSuperclass
public abstract class Coded<K extends Serializable> {
    @Id
    private K code;

    protected Coded() {}

    protected Coded(K code) {
        this.code = code;
    }

    public K getCode() {
        return code;
    }
}
