package io.mortar.jdo.mapping;

import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;

/**
 * How the embedded objects of a member are stored: the members of their class, and those of its subclasses if a
 * discriminator permits objects of them.
 */
final class EmbeddedForm {
    private final MemberMappings declared;
    /** The column with the name of an object's class if that is a subclass; null without a discriminator. */
    private final Column subclass;

    private final Map<String, MemberMappings> subclasses;
    /** The member of the embedded object that refers to the object that contains it, or null. */
    private final String ownerMember;

    EmbeddedForm(MemberMappings declared, Column subclass, Map<String, MemberMappings> subclasses, String ownerMember) {
        this.declared = declared;
        this.subclass = subclass;
        this.subclasses = subclasses;
        this.ownerMember = ownerMember;
    }

    /** The members of the class that the member declares. */
    MemberMappings declared() {
        return declared;
    }

    void forEachColumn(Consumer<Column> action) {
        columns().forEach(action);
    }

    private Set<Column> columns() {
        Set<Column> columns = new LinkedHashSet<>();
        if (subclass != null) {
            columns.add(subclass);
        }
        declared.forEachColumn(columns::add);
        // The members that a subclass inherits are the same.
        subclasses.values().forEach(members -> members.forEachColumn(columns::add));
        return columns;
    }

    /** The object that is embedded in a member of the reader's object. */
    Object read(RecordReader from, int position, PersistableObjectType type) {
        ExecutionContext context = from.context();
        Object name = subclass == null ? null : from.get(subclass);
        MemberMappings members = name == null ? declared : subclasses.get(name);
        if (members == null) {
            throw new NucleusUserException("an object of " + declared.metadata().getFullClassName()
                    + " is stored as one of its subclass " + name + ", which is not a persistent class here");
        }
        DNStateManager embedded = context.getNucleusContext()
                .getStateManagerFactory()
                .newForEmbedded(context, members.metadata(), from.owner(), position, type);
        embedded.replaceFields(members.positions(), from.within(embedded, members));
        setOwner(embedded, from.owner());
        return embedded.getObject();
    }

    void write(RecordWriter to, Object value, AbstractMemberMetaData member, PersistableObjectType type) {
        DNStateManager embedded = to.context().findStateManagerForEmbedded(value, to.owner(), member, type);
        MemberMappings members = membersOf(embedded, member);
        Set<Column> others = new HashSet<>(columns());
        members.forEachColumn(others::remove);
        others.forEach(column -> to.set(column, column.initial()));
        if (members != declared) {
            to.set(subclass, members.metadata().getFullClassName());
        }
        setOwner(embedded, to.owner());
        embedded.provideFields(members.positions(), to.within(embedded, members, member));
    }

    private MemberMappings membersOf(DNStateManager embedded, AbstractMemberMetaData member) {
        String name = embedded.getClassMetaData().getFullClassName();
        if (name.equals(declared.metadata().getFullClassName())) {
            return declared;
        }
        MemberMappings members = subclasses.get(name);
        if (members == null) {
            throw new NucleusUserException(
                    member.getFullFieldName() + " embeds an object of " + name + ", a subclass of "
                            + declared.metadata().getFullClassName()
                            + (subclass == null
                                    ? ": that needs a discriminator of the embedded class"
                                    : ", which was not known when the class was stored for the first time: list it with the persistent classes"));
        }
        return members;
    }

    private void setOwner(DNStateManager embedded, DNStateManager owner) {
        if (ownerMember == null || owner == null) {
            return;
        }
        int position = embedded.getClassMetaData().getAbsolutePositionOfMember(ownerMember);
        if (position >= 0 && embedded.provideField(position) == null) {
            embedded.replaceField(position, owner.getObject());
        }
    }
}
