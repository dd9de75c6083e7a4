package io.mortar.jdo.model;

import java.time.Instant;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;
import org.datanucleus.api.jdo.annotations.CreateTimestamp;
import org.datanucleus.api.jdo.annotations.CreateUser;
import org.datanucleus.api.jdo.annotations.MultiTenant;
import org.datanucleus.api.jdo.annotations.UpdateTimestamp;
import org.datanucleus.api.jdo.annotations.UpdateUser;

/** A class whose objects belong to tenants, with members for who created and changed an object, and when. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, detachable = "true")
@MultiTenant(indexed = "true")
public class Memo {
    @PrimaryKey
    private long number;

    private String text;

    @CreateUser
    private String author;

    @CreateTimestamp
    private Instant created;

    @UpdateUser
    private String editor;

    @UpdateTimestamp
    private Instant edited;

    protected Memo() {}

    public Memo(long number, String text) {
        this.number = number;
        this.text = text;
    }

    public String getText() {
        return text;
    }

    public void setText(String text) {
        this.text = text;
    }

    public String getAuthor() {
        return author;
    }

    public Instant getCreated() {
        return created;
    }

    public String getEditor() {
        return editor;
    }

    public Instant getEdited() {
        return edited;
    }
}
