package io.mortar.jdo.entities;

import jakarta.persistence.Column;
import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;

/** An identity and a unique member that several entities inherit. */
@MappedSuperclass
public abstract class Numbered {
    @Id
    private long id;

    @Column(unique = true)
    private String label;

    protected Numbered() {}

    protected Numbered(long id, String label) {
        this.id = id;
        this.label = label;
    }

    public String getLabel() {
        return label;
    }

    public void setLabel(String label) {
        this.label = label;
    }
}
