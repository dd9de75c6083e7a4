package example.notes;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.Version;
import java.time.Instant;

/** A text and when it was written. */
@Entity
public class Note {
    @Id
    @GeneratedValue
    private long id;

    @Version
    private int version;

    private String text;
    private Instant written;

    protected Note() {}

    Note(String text, Instant written) {
        this.text = text;
        this.written = written;
    }

    public long getId() {
        return id;
    }

    public String getText() {
        return text;
    }

    public Instant getWritten() {
        return written;
    }
}
