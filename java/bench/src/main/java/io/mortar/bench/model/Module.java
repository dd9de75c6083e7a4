package io.mortar.bench.model;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.OneToOne;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** A design: a tree of assemblies, and a manual. */
@Entity
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class Module {
    @Id
    private int id;

    private String type;
    private int buildDate;

    @OneToOne(fetch = FetchType.LAZY, cascade = CascadeType.PERSIST)
    private Manual manual;

    @OneToOne(fetch = FetchType.LAZY, cascade = CascadeType.PERSIST)
    private ComplexAssembly designRoot;

    protected Module() {}

    public Module(int id, String type, int buildDate, Manual manual) {
        this.id = id;
        this.type = type;
        this.buildDate = buildDate;
        this.manual = manual;
    }

    public int getId() {
        return id;
    }

    public String getType() {
        return type;
    }

    public int getBuildDate() {
        return buildDate;
    }

    public Manual getManual() {
        return manual;
    }

    public ComplexAssembly getDesignRoot() {
        return designRoot;
    }

    public void setDesignRoot(ComplexAssembly root) {
        designRoot = root;
    }
}
