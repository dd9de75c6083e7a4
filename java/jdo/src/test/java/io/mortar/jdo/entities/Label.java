package io.mortar.jdo.entities;

import jakarta.persistence.Embeddable;

/** An embedded object. */
@Embeddable
public class Label {
    private String company;
    private String country;

    protected Label() {}

    public Label(String company, String country) {
        this.company = company;
        this.country = country;
    }

    public String getCompany() {
        return company;
    }

    public String getCountry() {
        return country;
    }
}
