package io.mortar.jdo;

import io.mortar.Oid;
import io.mortar.Record;
import io.mortar.jdo.mapping.ClassMapping;
import io.mortar.jdo.mapping.RecordReader;
import org.datanucleus.FetchPlan;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.FieldValues;

/** The values of an object that a query has returned: its members of the fetch plan are loaded without another read. */
record RecordValues(StoreSession session, ClassMapping mapping, Oid oid, Record record, FetchPlan plan)
        implements FieldValues {
    @Override
    public void fetchFields(DNStateManager manager) {
        remember(manager);
        manager.replaceFields(positions(manager), reader(manager));
        Versions.load(manager, mapping, current(manager));
        FetchGraph.load(manager, positions(manager), plan);
    }

    @Override
    public void fetchNonLoadedFields(DNStateManager manager) {
        remember(manager);
        manager.replaceNonLoadedFields(positions(manager), reader(manager));
        if (manager.getTransactionalVersion() == null) {
            Versions.load(manager, mapping, current(manager));
        }
        FetchGraph.load(manager, positions(manager), plan);
    }

    private void remember(DNStateManager manager) {
        ((MortarStateManager) manager).setOid(oid);
        ((MortarStateManager) manager).rememberRead(session, record);
    }

    /** What the transaction has read or written; the row may be older. */
    private Record current(DNStateManager manager) {
        Record known = ((MortarStateManager) manager).record(session);
        return known == null ? record : known;
    }

    private int[] positions(DNStateManager manager) {
        return plan == null
                ? manager.getClassMetaData().getDFGMemberPositions()
                : plan.getFetchPlanForClass(manager.getClassMetaData()).getMemberNumbers();
    }

    private RecordReader reader(DNStateManager manager) {
        return RecordReader.of(manager.getExecutionContext(), manager, mapping.members(), current(manager));
    }

    @Override
    public FetchPlan getFetchPlanForLoading() {
        return plan;
    }
}
