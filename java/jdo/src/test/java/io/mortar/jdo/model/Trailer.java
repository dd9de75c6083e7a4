package io.mortar.jdo.model;

import io.mortar.jdo.LargeObject;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** An embedded object with a large object. */
@PersistenceCapable(embeddedOnly = "true", detachable = "true")
public class Trailer {
    private String language;

    @Persistent
    private LargeObject video;

    protected Trailer() {}

    public Trailer(String language, LargeObject video) {
        this.language = language;
        this.video = video;
    }

    public String getLanguage() {
        return language;
    }

    public LargeObject getVideo() {
        return video;
    }
}
