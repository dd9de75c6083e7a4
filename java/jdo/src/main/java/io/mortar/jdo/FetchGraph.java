package io.mortar.jdo;

import io.mortar.jdo.mapping.Containers;
import io.mortar.jdo.mapping.OwnerMember;
import io.mortar.jdo.mapping.StoreSchema;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.datanucleus.ExecutionContext;
import org.datanucleus.FetchPlan;
import org.datanucleus.exceptions.NucleusObjectNotFoundException;
import org.datanucleus.state.DNStateManager;

/**
 * Loads the objects that an entity graph leads to: Jakarta Persistence 3.1, section 3.7.4. DataNucleus makes groups of
 * the fetch plan of a graph, and leaves it to the store to follow them through relations.
 */
final class FetchGraph {
    private FetchGraph() {}

    /**
     * Loads what a fetch plan says of the objects that members of an object refer to, if the plan is that of a graph.
     *
     * @param positions the members that were loaded
     */
    static void load(DNStateManager manager, int[] positions, FetchPlan plan) {
        ExecutionContext context = manager.getExecutionContext();
        boolean isGraph = plan != null
                && StoreSchema.isJakarta(context.getNucleusContext())
                && !plan.getGroups().stream().allMatch(FetchPlan.DEFAULT::equals);
        if (!isGraph) {
            return;
        }
        for (int position : positions) {
            if (manager.isFieldLoaded(position)) {
                objects(manager.provideField(position)).stream()
                        .filter(context.getApiAdapter()::isPersistable)
                        .forEach(each -> load(context.findStateManager(each), plan));
            }
        }
    }

    private static void load(DNStateManager manager, FetchPlan plan) {
        if (!(manager instanceof MortarStateManager) || manager.isEmbedded() || OwnerMember.isDeleted(manager)) {
            return;
        }
        try {
            manager.loadUnloadedFieldsOfClassInFetchPlan(plan);
        } catch (NucleusObjectNotFoundException missing) {
            // The use of the object reports that it was deleted.
        }
    }

    private static Collection<?> objects(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<Object> objects = new ArrayList<>(map.keySet());
            objects.addAll(map.values());
            return objects;
        }
        return value == null ? List.of() : Containers.isContainer(value) ? Containers.elements(value) : List.of(value);
    }
}
