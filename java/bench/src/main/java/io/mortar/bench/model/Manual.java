package io.mortar.bench.model;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** The manual of a module. */
@Entity
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class Manual {
    @Id
    private int id;

    private String title;

    @Column(length = 100_000)
    private String text;

    protected Manual() {}

    public Manual(int id, String title, String text) {
        this.id = id;
        this.title = title;
        this.text = text;
    }

    public int getId() {
        return id;
    }

    public String getTitle() {
        return title;
    }

    public String getText() {
        return text;
    }
}
