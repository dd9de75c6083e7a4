package io.mortar.jdo.entities;

import io.mortar.jdo.LargeObject;
import jakarta.persistence.Basic;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;

/** An entity with a large object. */
@Entity
public class Sample {
    @Id
    private String name;

    @Basic
    private LargeObject bytes;

    protected Sample() {}

    public Sample(String name, LargeObject bytes) {
        this.name = name;
        this.bytes = bytes;
    }

    public LargeObject getBytes() {
        return bytes;
    }

    public void setBytes(LargeObject bytes) {
        this.bytes = bytes;
    }
}
