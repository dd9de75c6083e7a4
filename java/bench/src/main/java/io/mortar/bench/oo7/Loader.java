package io.mortar.bench.oo7;

import io.mortar.bench.model.Assembly;
import io.mortar.bench.model.AtomicPart;
import io.mortar.bench.model.BaseAssembly;
import io.mortar.bench.model.ComplexAssembly;
import io.mortar.bench.model.CompositePart;
import io.mortar.bench.model.Connection;
import io.mortar.bench.model.Document;
import io.mortar.bench.model.Manual;
import io.mortar.bench.model.Module;
import io.mortar.bench.side.UnitOfWork;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Stores a {@link Design}. */
public final class Loader {
    /** The identifier of the only module. */
    static final int MODULE = 1;

    /** Composite parts of one transaction. */
    private static final int PORTION = 10;

    private Loader() {}

    /** Stores the small database. */
    public static void load(EntityManagerFactory factory) {
        Design design = new Design();
        List<Design.CompositePart> parts = design.compositeParts();
        for (int from = 0; from < parts.size(); from += PORTION) {
            List<Design.CompositePart> portion = parts.subList(from, Math.min(parts.size(), from + PORTION));
            UnitOfWork.run(factory, manager -> portion.forEach(part -> storePart(manager, part)));
        }
        UnitOfWork.run(factory, manager -> storeModule(manager, design));
    }

    private static void storePart(EntityManager manager, Design.CompositePart from) {
        String line = "I am the documentation for composite part #%08d.\n".formatted(from.id());
        Document document =
                new Document(from.id(), Design.titleOf(from.id()), Design.text(line, Design.DOCUMENT_CHARACTERS));
        CompositePart part = new CompositePart(from.id(), from.type(), from.buildDate(), document);
        document.setPart(part);
        Map<Integer, AtomicPart> atoms = new HashMap<>();
        for (Design.AtomicPart each : from.parts()) {
            AtomicPart atom = new AtomicPart(each.id(), each.type(), each.buildDate(), part);
            atom.setPosition(each.x(), each.y());
            atom.setDocumentId(each.documentId());
            part.getParts().add(atom);
            atoms.put(each.id(), atom);
        }
        part.setRootPart(atoms.get(from.parts().get(0).id()));
        for (Design.AtomicPart each : from.parts()) {
            connect(each, atoms);
        }
        manager.persist(part);
    }

    private static void connect(Design.AtomicPart from, Map<Integer, AtomicPart> atoms) {
        AtomicPart source = atoms.get(from.id());
        for (int index = 0; index < from.targets().length; index++) {
            AtomicPart target = atoms.get(from.targets()[index]);
            int id = (from.id() - 1) * from.targets().length + index + 1;
            int length = Math.abs(from.x() - target.getX()) + 1;
            Connection connection = new Connection(id, from.type(), length, source, target);
            source.getOutgoing().add(connection);
            target.getIncoming().add(connection);
        }
    }

    private static void storeModule(EntityManager manager, Design design) {
        Manual manual = new Manual(
                MODULE,
                "Manual for module #%08d".formatted(MODULE),
                Design.text("I am the manual for module #%08d.\n".formatted(MODULE), Design.MANUAL_CHARACTERS));
        Module module = new Module(MODULE, "type000", Design.LEAST_DATE, manual);
        manager.persist(module);
        Map<Integer, ComplexAssembly> complex = new HashMap<>();
        for (Design.Assembly each : design.assemblies()) {
            ComplexAssembly parent = complex.get(each.parent());
            Assembly assembly;
            if (each.isBase()) {
                assembly = base(manager, each, module, parent);
            } else {
                ComplexAssembly node = new ComplexAssembly(each.id(), each.type(), each.buildDate(), module, parent);
                complex.put(each.id(), node);
                assembly = node;
            }
            manager.persist(assembly);
            if (parent == null) {
                module.setDesignRoot((ComplexAssembly) assembly);
            } else {
                parent.getSubAssemblies().add(assembly);
            }
        }
    }

    private static BaseAssembly base(
            EntityManager manager, Design.Assembly from, Module module, ComplexAssembly parent) {
        BaseAssembly base = new BaseAssembly(from.id(), from.type(), from.buildDate(), module, parent);
        for (int component : from.components()) {
            CompositePart part = manager.find(CompositePart.class, component);
            base.getComponents().add(part);
            part.getUsedIn().add(base);
        }
        return base;
    }
}
