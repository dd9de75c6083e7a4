package io.mortar.jdo;

import io.mortar.InvalidRequestException;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.Column;
import io.mortar.jdo.mapping.EmbeddedMapping;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.OptionalMapping;
import io.mortar.jdo.mapping.RecordReader;
import io.mortar.jdo.mapping.ReferenceMapping;
import io.mortar.jdo.mapping.ValueMapping;
import io.mortar.jdo.query.QueryText;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.identity.DatastoreId;
import org.datanucleus.identity.IdentityUtils;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.IdentityType;
import org.datanucleus.util.ClassUtils;

/**
 * Converts between identities of Java objects and identifiers of Mortar.
 *
 * <p>A datastore identity contains the identifier. An application identity is looked up in its unique index. The
 * identifiers that were found are kept; since each use reads the object and compares its identity, an old one costs a
 * query, not a wrong answer.
 */
final class Identities {
    private static final int KEPT = 1 << 16;

    private final MortarStoreManager store;
    private final Map<Key, Oid> known = Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, Oid> eldest) {
            return size() > KEPT;
        }
    });

    /** An application identity: the stored values of its members in a hierarchy of classes. */
    private record Key(String root, List<Object> values) {}

    /** An object that was looked up. */
    record Found(Oid oid, Record record) {}

    Identities(MortarStoreManager store) {
        this.store = store;
    }

    /** The identifier that a datastore identity contains. */
    static Oid oid(DatastoreId id) {
        Object key = id.getKeyAsObject();
        try {
            return key instanceof Oid oid ? oid : Oid.parse(key.toString());
        } catch (InvalidRequestException error) {
            throw new NucleusObjectNotFoundException(
                    "there is no object with the identity " + id + ": " + error.getMessage(), id);
        }
    }

    /**
     * The same for an object of a class or of one that extends it: an object of another class is not the one that is
     * meant.
     */
    Oid oid(DatastoreId id, AbstractClassMetaData metadata) {
        Oid oid = oid(id);
        ClassMapping mapping = store.mapping(metadata);
        if (!store.isA(oid.classNumber(), mapping)
                || oid.space() != store.client().space()) {
            throw new NucleusObjectNotFoundException(
                    "there is no object of " + mapping.name() + " with the identity " + id, id);
        }
        return oid;
    }

    /** The identity of the object with an identifier and a record, which is needed for application identity only. */
    Object id(ExecutionContext context, ClassMapping mapping, Oid oid, Record record) {
        AbstractClassMetaData metadata = mapping.metadata();
        if (metadata.getIdentityType() == IdentityType.DATASTORE) {
            return context.getNucleusContext().getIdentityManager().getDatastoreId(mapping.name(), oid);
        }
        if (metadata.getIdentityType() == IdentityType.APPLICATION) {
            RecordReader reader = RecordReader.of(context, null, mapping.members(), record);
            return IdentityUtils.getApplicationIdentityForResultSetRow(context, metadata, null, false, reader);
        }
        throw new NucleusException("objects of " + mapping + " have no identity").setFatal();
    }

    /** The identifier of a stored object. */
    Oid require(StoreSession session, MortarStateManager manager) {
        Found found =
                find(session, manager.getExecutionContext(), manager.getClassMetaData(), manager.getInternalObjectId());
        if (found == null) {
            throw new NucleusObjectNotFoundException(
                    "there is no object with the identity "
                            + IdentityUtils.getPersistableIdentityForId(manager.getInternalObjectId()),
                    manager.getInternalObjectId());
        }
        manager.setOid(found.oid());
        manager.rememberRead(session, found.record());
        return found.oid();
    }

    /**
     * The name of the class of the object with an identity that does not say it. The name of a class with such
     * identities if there is no object.
     */
    String className(ExecutionContext context, Object id, Collection<AbstractClassMetaData> candidates) {
        return store.withSession(context, session -> {
            Set<ClassMapping> roots = new LinkedHashSet<>();
            candidates.forEach(candidate -> roots.add(store.mapping(candidate).withIdentity()));
            for (ClassMapping root : roots) {
                Found found = find(session, context, root.metadata(), id);
                if (found != null) {
                    return store.schema().className(found.oid().classNumber());
                }
            }
            return candidates.iterator().next().getFullClassName();
        });
    }

    /** Looks up the object of a class, or of one that extends it, with an identity; null if there is none. */
    Found find(StoreSession session, ExecutionContext context, AbstractClassMetaData metadata, Object id) {
        if (id instanceof DatastoreId datastoreId) {
            Oid oid = oid(datastoreId, metadata);
            Record record = session.get(oid, false);
            return record == null ? null : new Found(oid, record);
        }
        ClassMapping mapping = store.mapping(metadata);
        Found found = findInHierarchy(session, context, mapping.withIdentity(), id);
        return found != null && store.isA(found.oid().classNumber(), mapping) ? found : null;
    }

    private Found findInHierarchy(StoreSession session, ExecutionContext context, ClassMapping root, Object id) {
        Map<Column, Object> values = values(session, context, root, id);
        Key key = new Key(root.name(), new ArrayList<>(values.values()));
        Oid hint = known.get(key);
        if (hint != null) {
            Record record = session.get(hint, false);
            if (record != null && store.isA(hint.classNumber(), root) && matches(record, values)) {
                return new Found(hint, record);
            }
        }
        Found found = query(session, context, root, values);
        if (found != null) {
            known.put(key, found.oid());
        }
        return found;
    }

    /** Notes the identifier of a new object, which is likely to be read soon, and whose identity must be its own. */
    void remember(StoreSession session, MortarStateManager manager, Oid oid) {
        Object id = manager.getInternalObjectId();
        if (id instanceof DatastoreId || manager.getClassMetaData().getIdentityType() != IdentityType.APPLICATION) {
            return;
        }
        ClassMapping root = store.mapping(manager.getClassMetaData()).withIdentity();
        for (int position : root.metadata().getPKMemberPositions()) {
            if (!(root.members().at(position) instanceof ValueMapping)) {
                // An object that is a part of the identity might have to be looked up.
                return;
            }
        }
        Map<Column, Object> values = values(session, manager.getExecutionContext(), root, id);
        Key key = new Key(root.name(), new ArrayList<>(values.values()));
        if (!session.claim(key, oid)) {
            String which = root.name() + ' ' + IdentityUtils.getPersistableIdentityForId(id) + ", in this transaction";
            throw StoreErrors.exists(manager.getExecutionContext(), which, null);
        }
        known.put(key, oid);
    }

    /** The stored values of the members of an application identity. */
    private Map<Column, Object> values(StoreSession session, ExecutionContext context, ClassMapping root, Object id) {
        Map<Column, Object> values = new LinkedHashMap<>();
        for (int position : root.metadata().getPKMemberPositions()) {
            MemberMapping mapping = root.members().at(position);
            if (mapping == null) {
                throw new NucleusUserException(
                        "an object of " + root + " cannot be looked up by its identity: the types of the identity's "
                                + "members are type variables, which the subclasses replace; use the class of the object");
            }
            Object value = IdentityUtils.isSingleFieldIdentity(id)
                    ? IdentityUtils.getTargetKeyForSingleFieldIdentity(id)
                    : valueInId(id, mapping.member());
            addValues(session, context, mapping, value, values);
        }
        return values;
    }

    private static Object valueInId(Object id, AbstractMemberMetaData member) {
        boolean isItself = member.isEmbedded() && member.getType().isInstance(id);
        return isItself ? id : IdentityUtils.getValueForMemberInId(id, member);
    }

    private void addValues(
            StoreSession session,
            ExecutionContext context,
            MemberMapping mapping,
            Object value,
            Map<Column, Object> values) {
        if (mapping instanceof ValueMapping plain) {
            values.put(plain.column(), plain.codec().encode(value));
        } else if (mapping instanceof OptionalMapping optional) {
            addValues(session, context, optional.content(), value, values);
        } else if (mapping instanceof ReferenceMapping reference) {
            values.put(reference.column(), referenced(session, context, reference.member(), value));
        } else if (mapping instanceof EmbeddedMapping embedded) {
            for (int position : embedded.members().positions()) {
                MemberMapping inner = embedded.members().at(position);
                addValues(
                        session,
                        context,
                        inner,
                        ClassUtils.getValueOfFieldByReflection(
                                value, inner.member().getName()),
                        values);
            }
        } else {
            throw new NucleusException(mapping.member().getFullFieldName() + " cannot be a part of an identity")
                    .setFatal();
        }
    }

    private Oid referenced(
            StoreSession session, ExecutionContext context, AbstractMemberMetaData member, Object value) {
        if (context.getApiAdapter().isPersistable(value)) {
            return ((MortarStateManager) context.findStateManager(value)).oid(session);
        }
        AbstractClassMetaData target =
                context.getMetaDataManager().getMetaDataForClass(member.getType(), context.getClassLoaderResolver());
        Found found = find(session, context, target, value);
        return found == null ? null : found.oid();
    }

    private static boolean matches(Record record, Map<Column, Object> values) {
        return values.entrySet().stream()
                .allMatch(entry -> Objects.deepEquals(record.get(entry.getKey().number()), entry.getValue()));
    }

    private static Found query(
            StoreSession session, ExecutionContext context, ClassMapping root, Map<Column, Object> values) {
        QueryText text = new QueryText();
        text.from(root, false, context);
        Map<String, Object> parameters = new HashMap<>();
        List<String> tests = new ArrayList<>();
        values.forEach((column, value) -> {
            String name = "k" + parameters.size();
            parameters.put(name, value);
            tests.add(QueryText.quote(column.name()) + " == :" + name);
        });
        text.where(String.join(" && ", tests));
        text.limit(1);
        try (Rows rows = session.lookUp(text.toString(), parameters)) {
            if (!rows.hasNext()) {
                return null;
            }
            Row row = rows.next();
            Record record = session.isSnapshot() ? session.get(row.oid(), false) : row.record();
            return record == null || !matches(record, values) ? null : new Found(row.oid(), record);
        } catch (MortarException error) {
            throw StoreErrors.translate(context, error);
        }
    }
}
