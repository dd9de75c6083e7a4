package io.mortar.jdo.model;

import io.mortar.jdo.LargeObject;
import javax.jdo.annotations.Embedded;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with large objects, one of them in an embedded object. */
@PersistenceCapable(identityType = IdentityType.DATASTORE, detachable = "true")
public class Film {
    private String title;

    @Persistent
    private LargeObject video;

    @Persistent(defaultFetchGroup = "true")
    @Embedded
    private Trailer trailer;

    protected Film() {}

    public Film(String title, LargeObject video) {
        this.title = title;
        this.video = video;
    }

    public String getTitle() {
        return title;
    }

    public void setTitle(String title) {
        this.title = title;
    }

    public LargeObject getVideo() {
        return video;
    }

    public void setVideo(LargeObject video) {
        this.video = video;
    }

    public Trailer getTrailer() {
        return trailer;
    }

    public void setTrailer(Trailer trailer) {
        this.trailer = trailer;
    }
}
