package io.mortar.jdo.entities;

import jakarta.persistence.MappedSuperclass;
import jakarta.persistence.PrePersist;
import java.time.Instant;

/** Members that several entities inherit. */
@MappedSuperclass
public abstract class Timestamped {
    private Instant created;

    @PrePersist
    void stamp() {
        created = Instant.ofEpochSecond(1);
    }

    public Instant getCreated() {
        return created;
    }
}
