package io.mortar.jdo.model;

import javax.jdo.annotations.EmbeddedOnly;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Unique;

/** An embedded class with members that are unique or indexed where it is embedded. */
@PersistenceCapable
@EmbeddedOnly
public class Mooring {
    @Unique
    private String code;

    @Index
    private Integer depth;

    private String pier;
    private Marina marina;

    protected Mooring() {}

    public Mooring(String code, Integer depth, String pier) {
        this.code = code;
        this.depth = depth;
        this.pier = pier;
    }

    public void setMarina(Marina marina) {
        this.marina = marina;
    }
}
