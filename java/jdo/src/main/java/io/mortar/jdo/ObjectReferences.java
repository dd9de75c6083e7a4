package io.mortar.jdo;

import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.Row;
import io.mortar.Rows;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.InverseMapping;
import io.mortar.jdo.mapping.OwnerMember;
import io.mortar.jdo.mapping.ReferenceMapping;
import io.mortar.jdo.mapping.References;
import io.mortar.jdo.query.MemberPath;
import io.mortar.jdo.query.QueryText;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.datanucleus.ExecutionContext;
import org.datanucleus.PersistableObjectType;
import org.datanucleus.enhancement.Persistable;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.exceptions.ReachableObjectNotCascadedException;
import org.datanucleus.flush.CollectionRemoveOperation;
import org.datanucleus.flush.MapRemoveOperation;
import org.datanucleus.flush.Operation;
import org.datanucleus.flush.OperationQueue;
import org.datanucleus.flush.UpdateMemberOperation;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.metadata.IdentityType;
import org.datanucleus.metadata.OrderMetaData;
import org.datanucleus.metadata.RelationType;
import org.datanucleus.state.DNStateManager;

/** The references of the objects of a persistence context. */
final class ObjectReferences implements References {
    private final MortarStoreManager store;
    private final ExecutionContext context;

    ObjectReferences(MortarStoreManager store, ExecutionContext context) {
        this.store = store;
        this.context = context;
    }

    @Override
    public Object object(Oid oid) {
        if (oid == null) {
            return null;
        }
        ClassMapping mapping = store.mapping(oid, context.getClassLoaderResolver());
        if (!hasApplicationIdentity(mapping)) {
            return hollow(mapping, oid, null);
        }
        return store.withSession(context, session -> {
            Record record = session.get(oid, false);
            return record == null ? null : remembered(session, mapping, oid, record);
        });
    }

    /** The object of a row that a query of another transaction has found. Its members are not read. */
    Object object(Row row) {
        Object object = hollow(store.mapping(row.oid(), context.getClassLoaderResolver()), row.oid(), row.record());
        if (context.findStateManager(object) instanceof MortarStateManager manager) {
            manager.setOid(row.oid());
        }
        return object;
    }

    @Override
    public List<Object> objects(List<Oid> oids) {
        List<Oid> read = new ArrayList<>();
        for (Oid oid : oids) {
            if (oid != null && hasApplicationIdentity(store.mapping(oid, context.getClassLoaderResolver()))) {
                read.add(oid);
            }
        }
        return store.withSession(context, session -> {
            Map<Oid, Record> records = new HashMap<>();
            if (!read.isEmpty()) {
                List<Record> all = session.getAll(read, false);
                for (int i = 0; i < all.size(); i++) {
                    records.put(read.get(i), all.get(i));
                }
            } else {
                session.prefetch(oids.stream().filter(Objects::nonNull).toList());
            }
            List<Object> objects = new ArrayList<>(oids.size());
            for (Oid oid : oids) {
                objects.add(oid == null ? null : object(session, oid, records.get(oid)));
            }
            return objects;
        });
    }

    private Object object(StoreSession session, Oid oid, Record record) {
        ClassMapping mapping = store.mapping(oid, context.getClassLoaderResolver());
        if (!hasApplicationIdentity(mapping)) {
            return hollow(mapping, oid, null);
        }
        return record == null ? null : remembered(session, mapping, oid, record);
    }

    private static boolean hasApplicationIdentity(ClassMapping mapping) {
        return mapping.metadata().getIdentityType() == IdentityType.APPLICATION;
    }

    /** The object of a record that was read for its identity. Its members are read from the same record later. */
    private Object remembered(StoreSession session, ClassMapping mapping, Oid oid, Record record) {
        Object object = hollow(mapping, oid, record);
        if (context.findStateManager(object) instanceof MortarStateManager manager) {
            manager.setOid(oid);
            manager.rememberRead(session, record);
        }
        return object;
    }

    private Object hollow(ClassMapping mapping, Oid oid, Record record) {
        Object id = store.identities().id(context, mapping, oid, record);
        Class<?> type = context.getClassLoaderResolver().classForName(mapping.name());
        return context.findObject(id, null, type, false, false);
    }

    @Override
    public Oid persist(Object value, AbstractMemberMetaData member) {
        return identifier(persistent(value, member));
    }

    @Override
    public Object persistent(Object value, AbstractMemberMetaData member) {
        if (!context.getApiAdapter().isPersistable(value)) {
            throw new NucleusUserException(member.getFullFieldName() + " refers to a "
                    + value.getClass().getName() + ", which is not persistent");
        }
        Object managed = managed((Persistable) value, member);
        if (managed != null) {
            return managed;
        }
        boolean isKnown = context.getApiAdapter().isPersistent(value)
                || context.getApiAdapter().isDetached(value);
        if (!isKnown && !member.isCascadePersist()) {
            throw new ReachableObjectNotCascadedException(member.getFullFieldName(), value);
        }
        return context.persistObjectInternal(value, null, PersistableObjectType.PC, null, -1);
    }

    /**
     * The object of the context that a reference to a detached one means, if its state is not merged: it is being
     * merged already, or the reference does not cascade that. Null otherwise.
     */
    private Object managed(Persistable value, AbstractMemberMetaData member) {
        if (value.dnGetStateManager() instanceof DNStateManager<?> manager) {
            // While a detached object is merged, it has a state of its own, which refers to the object of the context.
            return manager instanceof MortarStateManager ? null : manager.getReferencedPC();
        }
        boolean isReferenceOnly = context.getApiAdapter().isDetached(value) && !member.isCascadeAttach();
        return isReferenceOnly
                ? context.findObject(
                        context.getApiAdapter().getIdForObject(value),
                        true,
                        true,
                        value.getClass().getName())
                : null;
    }

    @Override
    public Object restored(Object deleted, AbstractMemberMetaData member) {
        if (!context.getApiAdapter().allowPersistOfDeletedObject() || !member.isCascadePersist()) {
            boolean isRefusedLater = context.findStateManager(deleted).isDeleting()
                    && MortarStateManager.checksRelations(context)
                    && member.hasCollection()
                    && RelationType.isBidirectional(member.getRelationType(context.getClassLoaderResolver()));
            if (isRefusedLater) {
                // The deletion has caused this flush. The application's own flush, or the commit, checks relations.
                return deleted;
            }
            throw new NucleusUserException(
                    "an object that the transaction has deleted was added to " + member.getFullFieldName());
        }
        return persistent(deleted, member);
    }

    @Override
    public Oid identifier(Object persistent) {
        if (!(context.findStateManager(persistent) instanceof MortarStateManager manager)) {
            throw new NucleusUserException("the object " + persistent + " is of another persistence manager");
        }
        return store.withSession(context, manager::oid);
    }

    @Override
    public LargeObject content(Oid blob) {
        if (blob == null) {
            return null;
        }
        LargeObject content = LargeObject.stored(blob, store.client());
        if (blob.isTemporary()) {
            store.useSession(context, session -> resolveAfterCommit(session, content));
        }
        return content;
    }

    @Override
    public Oid store(LargeObject content, Oid before) {
        if (before != null && before.equals(content.stored())) {
            return before;
        }
        return store.withSession(context, session -> {
            try (InputStream bytes = content.openToStore()) {
                Oid blob = session.createBlob(bytes);
                content.setStored(blob, store.client());
                resolveAfterCommit(session, content);
                return blob;
            } catch (IOException error) {
                if (error.getCause() instanceof MortarException cause) {
                    throw StoreErrors.translate(context, cause);
                }
                throw new NucleusUserException(
                        "the bytes of a large object cannot be read: " + error.getMessage(), error);
            }
        });
    }

    private void resolveAfterCommit(StoreSession session, LargeObject content) {
        Oid temporary = content.stored();
        session.afterCommit(real -> {
            if (temporary.equals(content.stored())) {
                content.setStored(real.apply(temporary), store.client());
            }
        });
    }

    @Override
    public void removed(
            DNStateManager owner, AbstractMemberMetaData container, OwnerMember ownerMember, Object object) {
        store.useSession(context, session -> session.orphans().removed(owner, container, ownerMember, object));
    }

    @Override
    public void written(DNStateManager owner, AbstractMemberMetaData container) {
        store.useSession(context, session -> session.orphans().written(owner, container));
    }

    /** DataNucleus queues changes of containers by the application, but not those that it makes itself. */
    @Override
    public boolean isRemovedByApplication(DNStateManager owner, AbstractMemberMetaData container, Object object) {
        if (!context.isDelayDatastoreOperationsEnabled()) {
            // There is no queue.
            return !((MortarStateManager) owner).isChangedByRelation(container.getAbsoluteFieldNumber());
        }
        OperationQueue queue = context.getOperationQueue();
        return queue != null
                && queue.getOperations().stream().anyMatch(each -> removes(each, owner, container, object));
    }

    private static boolean removes(
            Operation operation, DNStateManager owner, AbstractMemberMetaData container, Object object) {
        if (operation.getStateManager() != owner) {
            return false;
        }
        if (operation instanceof UpdateMemberOperation assignment) {
            return assignment.getMemberMetaData() == container;
        }
        if (operation instanceof CollectionRemoveOperation<?> removal) {
            return removal.getMemberMetaData() == container && removal.getValue() == object;
        }
        return operation instanceof MapRemoveOperation<?, ?> removal
                && removal.getMemberMetaData() == container
                && (removal.getKey() == object || removal.getValue() == object);
    }

    @Override
    public void deleteContent(Oid blob) {
        store.useSession(context, session -> session.delete(blob));
    }

    @Override
    public List<Object> referrers(Oid owner, InverseMapping relation) {
        ClassMapping elements = store.mapping(relation.elementClass());
        QueryText text = new QueryText();
        text.from(elements, false, context);
        MemberPath reference = MemberPath.of(elements, relation.elementMember());
        boolean isOne = reference.mapping() instanceof ReferenceMapping;
        text.where(isOne ? reference.text() + " == :owner" : ":owner in " + reference.text());
        addOrder(text, elements, relation.member().getOrderMetaData());
        return store.withSession(context, session -> {
            List<Object> objects = new ArrayList<>();
            try (Rows rows = session.query(text.toString(), Map.of("owner", owner))) {
                while (rows.hasNext()) {
                    Row row = rows.next();
                    ClassMapping mapping = store.mapping(row.oid(), context.getClassLoaderResolver());
                    objects.add(remembered(session, mapping, row.oid(), row.record()));
                }
            } catch (MortarException error) {
                throw StoreErrors.translate(context, error);
            }
            return objects;
        });
    }

    private static void addOrder(QueryText text, ClassMapping elements, OrderMetaData order) {
        if (order == null) {
            return;
        }
        for (OrderMetaData.FieldOrder key : Containers.orderKeys(order, elements.metadata())) {
            for (String path : MemberPath.orderKeys(elements, key.getFieldName())) {
                text.order(path + (key.isForward() ? "" : " desc"));
            }
        }
    }
}
