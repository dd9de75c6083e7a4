package io.mortar.bench.model;

import jakarta.persistence.Entity;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.JoinTable;
import jakarta.persistence.ManyToMany;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** A leaf of the tree, which uses composite parts. */
@Entity
public class BaseAssembly extends Assembly {
    @ManyToMany
    @JoinTable(
            name = "assembly_part",
            joinColumns = @JoinColumn(name = "assembly_id"),
            inverseJoinColumns = @JoinColumn(name = "part_id"),
            indexes = @Index(name = "assembly_part_assembly", columnList = "assembly_id"))
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<CompositePart> components = new HashSet<>();

    protected BaseAssembly() {}

    public BaseAssembly(int id, String type, int buildDate, Module module, ComplexAssembly superAssembly) {
        super(id, type, buildDate, module, superAssembly);
    }

    public Set<CompositePart> getComponents() {
        return components;
    }

    @Override
    public void forEachBase(Consumer<BaseAssembly> visit) {
        visit.accept(this);
    }
}
