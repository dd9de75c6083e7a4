package io.mortar.bench.model;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.OneToMany;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;
import org.hibernate.annotations.Cache;
import org.hibernate.annotations.CacheConcurrencyStrategy;

/** An assembly of assemblies. */
@Entity
public class ComplexAssembly extends Assembly {
    @OneToMany(cascade = CascadeType.PERSIST)
    @JoinColumn(name = "owner_id")
    @Cache(usage = CacheConcurrencyStrategy.READ_WRITE)
    private Set<Assembly> subAssemblies = new HashSet<>();

    protected ComplexAssembly() {}

    public ComplexAssembly(int id, String type, int buildDate, Module module, ComplexAssembly superAssembly) {
        super(id, type, buildDate, module, superAssembly);
    }

    public Set<Assembly> getSubAssemblies() {
        return subAssemblies;
    }

    @Override
    public void forEachBase(Consumer<BaseAssembly> visit) {
        for (Assembly each : subAssemblies) {
            each.forEachBase(visit);
        }
    }
}
