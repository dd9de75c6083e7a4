package io.mortar.jdo.entities;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import java.util.UUID;

/** An entity with a UUID. */
@Entity
public class Track {
    @Id
    private UUID id = UUID.randomUUID();

    private String title;
    private double seconds;

    protected Track() {}

    public Track(String title, double seconds) {
        this.title = title;
        this.seconds = seconds;
    }

    public UUID getId() {
        return id;
    }

    public String getTitle() {
        return title;
    }

    public double getSeconds() {
        return seconds;
    }
}
