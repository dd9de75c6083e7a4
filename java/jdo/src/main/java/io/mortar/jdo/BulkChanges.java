package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.Dependents;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.StoreSchema;
import io.mortar.jdo.mapping.ValueMapping;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.datanucleus.ExecutionContext;
import org.datanucleus.cache.Level2Cache;
import org.datanucleus.cache.NullLevel2Cache;
import org.datanucleus.exceptions.NucleusOptimisticException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.FileMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.metadata.VersionMetaData;
import org.datanucleus.util.ClassUtils;

/**
 * Changes and deletes stored objects by their records, without making Java objects of them. That is possible for
 * objects that the context does not have, and of whose change no callback, no listener and no other object must learn.
 */
public final class BulkChanges {
    private static final String CALLBACKS = "javax.jdo.listener";

    private final MortarStoreManager store;
    private final ExecutionContext context;
    private final boolean isJakarta;
    private final boolean hasListeners;
    private final Map<ClassMapping, Boolean> deletable = new HashMap<>();
    private final Map<ClassMapping, Boolean> changeable = new HashMap<>();

    BulkChanges(MortarStoreManager store, ExecutionContext context) {
        this.store = store;
        this.context = context;
        this.isJakarta = StoreSchema.isJakarta(context.getNucleusContext());
        this.hasListeners = hasListeners();
    }

    /** Whether the object of a row can be deleted by its record. */
    public boolean canDelete(Row row) {
        ClassMapping mapping = mapping(row);
        return deletable.computeIfAbsent(mapping, this::isDeletable) && !isInContext(mapping, row);
    }

    /** Whether values of some members of the object of a row can be changed in its record. */
    public boolean canChange(Row row, Collection<String> members) {
        ClassMapping mapping = mapping(row);
        return changeable.computeIfAbsent(mapping, each -> isChangeable(each, members)) && !isInContext(mapping, row);
    }

    /** How the class of the object of a row is stored. */
    public ClassMapping mapping(Row row) {
        return store.mapping(row.oid(), context.getClassLoaderResolver());
    }

    private boolean isInContext(ClassMapping mapping, Row row) {
        return context.getLevel1Cache() == null
                || !context.getLevel1Cache().isEmpty()
                        && context.hasIdentityInCache(store.identities().id(context, mapping, row.oid(), row.record()));
    }

    private boolean isDeletable(ClassMapping mapping) {
        return isUnobserved(mapping.metadata())
                && Arrays.stream(mapping.members().positions())
                        .mapToObj(mapping.members()::at)
                        .noneMatch(this::endsWithOwner);
    }

    /** Whether the deletion of an object changes or deletes the objects of a member. */
    private boolean endsWithOwner(MemberMapping mapping) {
        AbstractMemberMetaData member = mapping.member();
        RelationType relation = member.getRelationType(context.getClassLoaderResolver());
        return relation != RelationType.NONE
                && (RelationType.isBidirectional(relation)
                        || member.isEmbedded()
                        || !isJakarta && hasDependents(member));
    }

    private static boolean hasDependents(AbstractMemberMetaData member) {
        return Dependents.object(member)
                || Dependents.elements(member)
                || Dependents.keys(member)
                || Dependents.values(member);
    }

    private boolean isChangeable(ClassMapping mapping, Collection<String> members) {
        AbstractClassMetaData metadata = mapping.metadata();
        return isUnobserved(metadata)
                && metadata.getUpdateUserMemberPosition() < 0
                && metadata.getUpdateTimestampMemberPosition() < 0
                && members.stream().allMatch(name -> isPlain(mapping, name));
    }

    /** Whether a member has a value in one column that does not concern the identity or the version of its object. */
    private static boolean isPlain(ClassMapping mapping, String name) {
        MemberMapping member = mapping.members().named(name);
        VersionMetaData version = mapping.metadata().getVersionMetaDataForClass();
        return member instanceof ValueMapping value
                && value.isPlain()
                && !member.member().isPrimaryKey()
                && (version == null || !name.equals(version.getMemberName()));
    }

    /** Whether no callback, listener or shared cache learns of changes of objects of a class. */
    private boolean isUnobserved(AbstractClassMetaData metadata) {
        Level2Cache shared = context.getNucleusContext().getLevel2Cache();
        boolean isShared = !(shared == null || shared instanceof EmptyLevel2Cache || shared instanceof NullLevel2Cache);
        if (hasListeners || isShared) {
            return false;
        }
        for (AbstractClassMetaData each = metadata; each != null; each = each.getSuperAbstractClassMetaData()) {
            if (each.getListeners() != null && !each.getListeners().isEmpty()) {
                return false;
            }
        }
        Class<?> type = context.getClassLoaderResolver().classForName(metadata.getFullClassName());
        return ClassUtils.getSuperinterfaces(type).stream()
                .noneMatch(each -> each.getPackageName().equals(CALLBACKS));
    }

    /** Whether listeners are registered for all classes, or with a context. JDO's API does not show the latter. */
    private boolean hasListeners() {
        for (FileMetaData file : context.getMetaDataManager().getFileMetaData()) {
            if (file.getListeners() != null && !file.getListeners().isEmpty()) {
                return true;
            }
        }
        if (isJakarta) {
            return false;
        }
        Object listeners = ClassUtils.getValueOfFieldByReflection(context.getCallbackHandler(), "listeners");
        return !(listeners instanceof Map<?, ?> map) || !map.isEmpty();
    }

    /** Deletes the objects of rows. */
    public void deleteRows(List<Row> rows) {
        store.useSession(context, session -> {
            requireCurrent(session, rows);
            for (Row row : rows) {
                ClassMapping mapping = mapping(row);
                mapping.visibility().requireWritable(context, row.record());
                MortarPersistenceHandler.delete(session, row.oid(), mapping, row.record());
            }
        });
    }

    /**
     * Deletes objects of the context. What depends on them is not deleted with them in Jakarta Persistence (3.1,
     * section 4.10), and is in JDO (3.2, section 14.8).
     */
    public void deleteObjects(Collection<Object> objects) {
        store.useSession(context, session -> {
            session.setCascading(!isJakarta);
            try {
                context.deleteObjects(objects.toArray());
                context.flushInternal(true);
            } finally {
                session.setCascading(true);
            }
        });
    }

    /** Changes the objects of rows. The values of their members replace those in the records. */
    public void changeRows(List<Row> rows, Function<Row, Map<String, Object>> values) {
        store.useSession(context, session -> {
            requireCurrent(session, rows);
            for (Row row : rows) {
                ClassMapping mapping = mapping(row);
                mapping.visibility().requireWritable(context, row.record());
                Record.Builder builder = row.record().toBuilder();
                values.apply(row)
                        .forEach((name, value) -> ((ValueMapping)
                                        mapping.members().named(name))
                                .replace(mapping.metadata(), builder, value));
                Versions.advance(context, mapping, row.record(), builder);
                Record changed = builder.build();
                session.replace(row.oid(), changed);
            }
        });
    }

    /** Locks the objects of rows if the transaction locks. They must be as the query has found them. */
    private static void requireCurrent(StoreSession session, List<Row> rows) {
        if (!session.isLocking() || rows.isEmpty()) {
            return;
        }
        List<Oid> oids = new ArrayList<>(rows.stream().map(Row::oid).toList());
        List<Record> records = session.getAll(oids, true);
        for (int i = 0; i < records.size(); i++) {
            if (!rows.get(i).record().equals(records.get(i))) {
                throw new NucleusOptimisticException("the object " + oids.get(i)
                        + " has changed since the query of the bulk change has found it: run it again");
            }
        }
    }
}
