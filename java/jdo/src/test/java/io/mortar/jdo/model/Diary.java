package io.mortar.jdo.model;

import java.util.ArrayList;
import java.util.List;
import javax.jdo.annotations.FetchGroup;
import javax.jdo.annotations.IdGeneratorStrategy;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.NotPersistent;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;
import javax.jdo.annotations.PrimaryKey;
import javax.jdo.annotations.Sequence;
import javax.jdo.annotations.SequenceStrategy;
import javax.jdo.listener.DeleteCallback;
import javax.jdo.listener.LoadCallback;
import javax.jdo.listener.StoreCallback;

/** A class with callbacks, fetch groups, a member that is not persistent, and generated values. */
@PersistenceCapable(identityType = IdentityType.APPLICATION, detachable = "true")
@Sequence(name = "pages", datastoreSequence = "pages", strategy = SequenceStrategy.CONTIGUOUS, initialValue = 100)
@FetchGroup(name = "text", members = @Persistent(name = "text"))
public class Diary implements StoreCallback, LoadCallback, DeleteCallback {
    public static final List<String> CALLS = new ArrayList<>();

    @PrimaryKey
    @Persistent(valueStrategy = IdGeneratorStrategy.UUIDHEX)
    private String id;

    @Persistent(valueStrategy = IdGeneratorStrategy.SEQUENCE, sequence = "pages")
    private int page;

    @Persistent(defaultFetchGroup = "false")
    private String text;

    private String stamp;

    @NotPersistent
    private transient String note = "new";

    protected Diary() {}

    public Diary(String text) {
        this.text = text;
    }

    @Override
    public void jdoPreStore() {
        stamp = "stored";
        CALLS.add("store");
    }

    @Override
    public void jdoPostLoad() {
        CALLS.add("load");
    }

    @Override
    public void jdoPreDelete() {
        CALLS.add("delete");
    }

    public String getId() {
        return id;
    }

    public int getPage() {
        return page;
    }

    public String getText() {
        return text;
    }

    public void setText(String text) {
        this.text = text;
    }

    public String getStamp() {
        return stamp;
    }

    public String getNote() {
        return note;
    }
}
