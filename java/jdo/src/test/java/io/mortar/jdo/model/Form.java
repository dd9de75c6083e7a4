package io.mortar.jdo.model;

import javax.jdo.annotations.Column;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.NullValue;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** A class with members for which null is refused, or replaced. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Form {
    @Persistent(nullValue = NullValue.EXCEPTION)
    private String name;

    @Persistent(nullValue = NullValue.DEFAULT)
    @Column(defaultValue = "draft")
    private String state;

    @Persistent(nullValue = NullValue.DEFAULT)
    @Column(defaultValue = "7")
    private Integer days;

    protected Form() {}

    public Form(String name) {
        this.name = name;
    }

    public String getState() {
        return state;
    }

    public void setState(String state) {
        this.state = state;
    }

    public Integer getDays() {
        return days;
    }
}
