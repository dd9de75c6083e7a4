package io.mortar.bench.model;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.JoinTable;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OneToOne;
import java.util.HashSet;
import java.util.Set;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** A part of the library: a graph of atomic parts, with a document. */
@Entity
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public class CompositePart {
    @Id
    private int id;

    private String type;
    private int buildDate;

    @OneToOne(fetch = FetchType.LAZY, cascade = CascadeType.PERSIST)
    private Document documentation;

    @OneToOne(fetch = FetchType.LAZY, cascade = CascadeType.PERSIST)
    private AtomicPart rootPart;

    @OneToMany(cascade = CascadeType.PERSIST)
    @JoinColumn(name = "composite_id")
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<AtomicPart> parts = new HashSet<>();

    @ManyToMany
    @JoinTable(
            name = "part_usage",
            joinColumns = @JoinColumn(name = "part_id"),
            inverseJoinColumns = @JoinColumn(name = "assembly_id"),
            indexes = @Index(name = "part_usage_part", columnList = "part_id"))
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<BaseAssembly> usedIn = new HashSet<>();

    protected CompositePart() {}

    public CompositePart(int id, String type, int buildDate, Document documentation) {
        this.id = id;
        this.type = type;
        this.buildDate = buildDate;
        this.documentation = documentation;
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

    public Document getDocumentation() {
        return documentation;
    }

    public AtomicPart getRootPart() {
        return rootPart;
    }

    public void setRootPart(AtomicPart part) {
        rootPart = part;
    }

    public Set<AtomicPart> getParts() {
        return parts;
    }

    public Set<BaseAssembly> getUsedIn() {
        return usedIn;
    }
}
