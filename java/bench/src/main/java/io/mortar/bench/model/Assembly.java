package io.mortar.bench.model;

import jakarta.persistence.DiscriminatorColumn;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;
import java.util.function.Consumer;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** A node of the tree of a module. */
@Entity
@DiscriminatorColumn(name = "kind")
@Table(indexes = @Index(name = "assembly_owner", columnList = "owner_id"))
@Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
public abstract class Assembly {
    @Id
    private int id;

    private String type;
    private int buildDate;

    @ManyToOne(fetch = FetchType.LAZY)
    private Module module;

    @ManyToOne(fetch = FetchType.LAZY)
    @JoinColumn(name = "superAssembly_id")
    private ComplexAssembly superAssembly;

    protected Assembly() {}

    protected Assembly(int id, String type, int buildDate, Module module, ComplexAssembly superAssembly) {
        this.id = id;
        this.type = type;
        this.buildDate = buildDate;
        this.module = module;
        this.superAssembly = superAssembly;
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

    public Module getModule() {
        return module;
    }

    public ComplexAssembly getSuperAssembly() {
        return superAssembly;
    }

    /** Visits the base assemblies of this subtree, depth first. */
    public abstract void forEachBase(Consumer<BaseAssembly> visit);
}
