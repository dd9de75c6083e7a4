package io.mortar.jdo.query;

import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.ContainerMapping;
import io.mortar.jdo.mapping.EmbeddedMapping;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.LargeObjectMapping;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.OptionalMapping;
import io.mortar.jdo.mapping.ReferenceMapping;
import io.mortar.jdo.mapping.ValueMapping;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** What the names in a query mean: the candidate, the aliases of joins, and the variables of elements. */
final class Scope {
    private final MortarStoreManager store;
    private final ExecutionContext context;
    private final ClassMapping candidate;
    private final String alias;
    private final Map<String, Term> names = new HashMap<>();
    /** Aliases of joined collections, which are variables. */
    private final Set<String> joined = new HashSet<>();
    /** The references that outer joins follow. */
    private final Set<String> outer = new HashSet<>();
    /** Whether other names than those of the scope are of an outer query. */
    private final boolean isStrict;

    /**
     * @param isStrict whether paths begin with a name of this scope; members of the candidate have no name before them
     *     otherwise
     */
    Scope(MortarStoreManager store, ExecutionContext context, ClassMapping candidate, String alias, boolean isStrict) {
        this.store = store;
        this.context = context;
        this.candidate = candidate;
        this.alias = alias;
        this.isStrict = isStrict;
    }

    Term self() {
        return new Term.Reference("this", candidate, Set.of());
    }

    void define(String name, Term term) {
        names.put(name, term);
    }

    void remove(String name) {
        names.remove(name);
    }

    /** What a name stands for; null if it is not defined. */
    Term named(String name) {
        return names.get(name);
    }

    void addJoined(String name) {
        joined.add(name);
    }

    boolean isJoined(String name) {
        return joined.contains(name);
    }

    void addOuter(Term reference) {
        outer.add(reference.text());
    }

    /** Whether a reference is followed by an outer join. */
    boolean isOuter(String reference) {
        return outer.contains(reference);
    }

    boolean isCandidate(String name) {
        return name.equals(alias);
    }

    /** The meaning of names with dots between them. */
    Term resolve(List<String> path) {
        String first = path.get(0);
        if (names.containsKey(first)) {
            return walk(names.get(first), path.subList(1, path.size()));
        }
        if (!isCandidate(first) && (isStrict || first.equals("this"))) {
            throw new Untranslatable("the subquery depends on " + first + " of the query around it");
        }
        Term term = walk(self(), isCandidate(first) ? path.subList(1, path.size()) : path);
        if (!Collections.disjoint(term.references(), outer)) {
            throw new Untranslatable("a path follows a reference that is joined outer elsewhere");
        }
        return term;
    }

    /** The references that a path leads through, without the one that its first name stands for. */
    List<String> navigated(List<String> path) {
        String first = path.get(0);
        boolean isNamed = names.containsKey(first) || isCandidate(first);
        Term term = names.containsKey(first) ? names.get(first) : self();
        List<String> references = new ArrayList<>();
        List<String> members = isNamed ? path.subList(1, path.size()) : path;
        for (int i = 0; i < members.size(); i++) {
            if (i > 0 && term instanceof Term.Reference) {
                references.add(term.text());
            }
            term = member(term, members.get(i));
        }
        return references;
    }

    /** The member of an object at the end of a path. */
    Term walk(Term from, List<String> path) {
        Term term = from;
        for (String name : path) {
            term = member(term, name);
        }
        return term;
    }

    private Term member(Term object, String name) {
        if (object.members() == null) {
            throw new Untranslatable(object.text() + " has no members that a query of Mortar can reach");
        }
        MemberMapping mapping = object.members().named(name);
        if (mapping == null) {
            throw new Untranslatable("a member " + name + " is not stored");
        }
        return term(object, mapping);
    }

    private Term term(Term object, MemberMapping mapping) {
        Term.Embedded owner = object instanceof Term.Embedded embedded ? embedded : null;
        // The columns of an embedded object are those of its owner.
        String before = owner != null ? ownerOf(owner.text()) : object.isCandidate() ? "" : object.text() + '.';
        Set<String> references =
                owner != null ? owner.references() : object.isCandidate() ? Set.of() : Set.of(object.text());
        if (mapping instanceof ValueMapping value) {
            boolean isZeroForNull = owner != null && value.codec().zero() != null;
            return new Term.Value(
                    before + QueryText.quote(value.column().name()),
                    value.codec(),
                    references,
                    isZeroForNull ? owner.presence() : Set.of());
        }
        if (mapping instanceof LargeObjectMapping content) {
            return new Term.Content(before + QueryText.quote(content.column().name()), references);
        }
        if (mapping instanceof ReferenceMapping reference) {
            return new Term.Reference(
                    before + QueryText.quote(reference.column().name()), target(reference.member()), references);
        }
        if (mapping instanceof EmbeddedMapping embedded) {
            return new Term.Embedded(
                    before + QueryText.quote(embedded.presence().name()), embedded, references);
        }
        if (mapping instanceof OptionalMapping optional) {
            return term(object, optional.content());
        }
        if (mapping instanceof ContainerMapping container) {
            return new Term.Container(
                    before + QueryText.quote(container.column().name()), container, references);
        }
        if (mapping instanceof InverseMapping inverse) {
            return new Term.Inverse(inverse, object);
        }
        throw new Untranslatable(mapping.member().getFullFieldName() + " is stored in several lists");
    }

    private static String ownerOf(String presence) {
        int dot = presence.lastIndexOf(".`");
        return dot < 0 ? "" : presence.substring(0, dot + 1);
    }

    /** The class that a member refers to; null for an interface and for Object. */
    private ClassMapping target(AbstractMemberMetaData member) {
        Class<?> type = Optional.class.isAssignableFrom(member.getType())
                ? context.getClassLoaderResolver()
                        .classForName(member.getCollection().getElementType())
                : member.getType();
        return mapping(type);
    }

    private ClassMapping mapping(Class<?> type) {
        if (type.isInterface()) {
            return null;
        }
        AbstractClassMetaData metadata =
                context.getMetaDataManager().getMetaDataForClass(type, context.getClassLoaderResolver());
        return metadata == null || metadata.isEmbeddedOnly() ? null : store.mapping(metadata);
    }

    Class<?> javaType(ClassMapping type) {
        return context.getClassLoaderResolver().classForName(type.metadata().getFullClassName());
    }

    /** The element of a container, under the name of a variable of `any`. */
    Term element(ContainerMapping container, String variable) {
        if (!container.element().isReference()) {
            return new Term.Value(variable, container.element().codec());
        }
        String elementType = container.member().hasArray()
                ? container.member().getType().getComponentType().getName()
                : container.member().hasMap()
                        ? container.member().getMap().getValueType()
                        : container.member().getCollection().getElementType();
        return new Term.Reference(
                variable, mapping(context.getClassLoaderResolver().classForName(elementType)), Set.of());
    }

    /** The key of a map, under a name. */
    Term key(ContainerMapping map, String name) {
        return map.key().isReference()
                ? new Term.Reference(name, null, Set.of())
                : new Term.Value(name, map.key().codec());
    }
}
