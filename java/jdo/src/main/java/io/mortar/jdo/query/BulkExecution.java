package io.mortar.jdo.query;

import io.mortar.Row;
import io.mortar.jdo.BulkChanges;
import io.mortar.jdo.MortarStoreManager;
import io.mortar.jdo.StoreQueries;
import io.mortar.jdo.mapping.MemberMapping;
import io.mortar.jdo.mapping.ValueMapping;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusException;
import org.datanucleus.exceptions.NucleusUserException;
import org.datanucleus.metadata.AbstractClassMetaData;
import org.datanucleus.metadata.AbstractMemberMetaData;
import org.datanucleus.state.DNStateManager;
import org.datanucleus.store.query.expression.CreatorExpression;
import org.datanucleus.store.query.expression.DyadicExpression;
import org.datanucleus.store.query.expression.Expression;
import org.datanucleus.store.query.expression.PrimaryExpression;
import org.datanucleus.store.query.expression.SubqueryExpression;
import org.datanucleus.store.query.expression.TypeExpression;
import org.datanucleus.store.query.expression.VariableExpression;
import org.datanucleus.store.types.converters.TypeConversionHelper;

/**
 * The changes of a bulk update or delete. What the query has found is changed by its records if possible, and otherwise
 * as the application would change the objects.
 */
final class BulkExecution {
    private final ExecutionContext context;
    private final CompiledQuery compiled;
    private final String candidate;
    private final Expression[] assignments;
    private final Evaluator evaluator;
    private final StoreQueries queries;
    private final BulkChanges changes;

    BulkExecution(CompiledQuery compiled, Evaluator evaluator, StoreQueries queries) {
        this.compiled = compiled;
        this.context = compiled.context();
        this.candidate = compiled.compilation().getCandidateAlias();
        this.assignments = compiled.compilation().getExprUpdate();
        this.evaluator = evaluator;
        this.queries = queries;
        this.changes = queries.bulkChanges();
    }

    /**
     * Deletes what was found.
     *
     * @param found rows, or objects
     * @return how many objects were deleted
     */
    long delete(List<Object> found) {
        List<Object> objects = new ArrayList<>();
        List<Row> rows = new ArrayList<>();
        split(found, changes::canDelete, rows, objects);
        changes.deleteRows(rows);
        if (!objects.isEmpty()) {
            // The deletions belong to the transaction even if its context is cleared before the commit.
            changes.deleteObjects(objects);
        }
        return found.size();
    }

    /**
     * Assigns the values of the query to members of what was found.
     *
     * @param found rows, or objects
     * @return how many objects were changed
     */
    long update(List<Object> found) {
        for (Expression each : assignments) {
            requireUpdatable((PrimaryExpression) each.getLeft());
        }
        List<Object> objects = new ArrayList<>();
        List<Row> rows = new ArrayList<>();
        Set<String> members = namedMembers();
        split(found, row -> members != null && changes.canChange(row, members), rows, objects);
        // All values are those before the changes.
        List<Object[]> values = objects.stream().map(this::newValues).toList();
        changes.changeRows(rows, this::newMembers);
        for (int i = 0; i < values.size(); i++) {
            update(objects.get(i), values.get(i));
        }
        context.flushInternal(true);
        return found.size();
    }

    private void requireUpdatable(PrimaryExpression assigned) {
        AbstractClassMetaData metadata = context.getMetaDataManager()
                .getMetaDataForClass(compiled.compilation().getCandidateClass(), context.getClassLoaderResolver());
        MemberMapping member = ((MortarStoreManager) context.getStoreManager())
                .mapping(metadata)
                .members()
                .atEnd(String.join(".", members(assigned)));
        if (member != null && !member.isUpdatable()) {
            throw new NucleusUserException(
                    member.member().getFullFieldName() + " cannot be updated: the metadata of its column forbids that");
        }
    }

    private void split(List<Object> found, Predicate<Row> isByRecord, List<Row> rows, List<Object> objects) {
        for (Object each : found) {
            if (!(each instanceof Row row)) {
                objects.add(each);
            } else if (isByRecord.test(row)) {
                rows.add(row);
            } else {
                objects.add(queries.object(
                        row, compiled.query().getFetchPlan(), compiled.query().getIgnoreCache()));
            }
        }
    }

    // ------------------------------------------------------------------------------------------- by records

    /**
     * The members that the assignments read and write; null if they also use something else than members of the
     * candidate.
     */
    private Set<String> namedMembers() {
        Set<String> names = new LinkedHashSet<>();
        boolean[] isMore = {false};
        ExpressionTree.forEach(assignments, each -> {
            if (each instanceof PrimaryExpression path) {
                List<String> members = members(path);
                isMore[0] |= path.getLeft() != null || members.size() != 1;
                names.add(members.get(members.size() - 1));
            } else {
                isMore[0] |= each instanceof VariableExpression
                        || each instanceof SubqueryExpression
                        || each instanceof TypeExpression
                        || each instanceof CreatorExpression;
            }
        });
        return isMore[0] ? null : names;
    }

    /** The names of a path without that of the candidate. */
    private List<String> members(PrimaryExpression path) {
        List<String> names = path.getTuples();
        return names.get(0).equals(candidate) && names.size() > 1 ? names.subList(1, names.size()) : names;
    }

    private Map<String, Object> newMembers(Row row) {
        Map<String, Object> known = new HashMap<>();
        ExpressionTree.forEach(assignments, each -> {
            if (each instanceof PrimaryExpression path) {
                ValueMapping member = (ValueMapping) member(row, path);
                known.put(path.toString(), member.value(row.record()));
            }
        });
        Evaluator.Row values = new Evaluator.Row(known, null);
        Map<String, Object> changed = new LinkedHashMap<>();
        for (Expression each : assignments) {
            AbstractMemberMetaData member =
                    member(row, (PrimaryExpression) each.getLeft()).member();
            changed.put(member.getName(), converted(evaluator.value(each.getRight(), values), member));
        }
        return changed;
    }

    private MemberMapping member(Row row, PrimaryExpression path) {
        return changes.mapping(row).members().named(members(path).get(0));
    }

    // ------------------------------------------------------------------------------------------- by objects

    private Object[] newValues(Object object) {
        Evaluator.Row row = new Evaluator.Row(Map.of(candidate, object), null);
        Object[] values = new Object[assignments.length];
        for (int i = 0; i < values.length; i++) {
            values[i] = evaluator.value(assignments[i].getRight(), row);
        }
        return values;
    }

    private void update(Object object, Object[] values) {
        DNStateManager manager = context.findStateManager(object);
        for (int i = 0; i < values.length; i++) {
            assign(manager, (DyadicExpression) assignments[i], values[i]);
        }
    }

    private void assign(DNStateManager manager, DyadicExpression assignment, Object value) {
        List<String> path = members((PrimaryExpression) assignment.getLeft());
        DNStateManager owner = manager;
        for (String name : path.subList(0, path.size() - 1)) {
            owner = embedded(owner, name, assignment);
        }
        String name = path.get(path.size() - 1);
        AbstractMemberMetaData member = owner.getClassMetaData().getMetaDataForMember(name);
        if (member == null) {
            throw new NucleusUserException(assignment.getLeft() + " cannot be updated: there is no such member");
        }
        owner.replaceFieldMakeDirty(member.getAbsoluteFieldNumber(), converted(value, member));
    }

    /** A value as one of the type of a member. */
    private static Object converted(Object assigned, AbstractMemberMetaData member) {
        Object value = WrittenNumber.plain(assigned);
        if (value == null && member.getType().isPrimitive()) {
            throw new NucleusUserException(
                    "null is assigned to " + member.getFullFieldName() + ", whose type is " + member.getType());
        }
        Object converted = value == null || member.getType().isInstance(value)
                ? value
                : TypeConversionHelper.convertTo(value, member.getType());
        if (value != null && converted == null) {
            throw new NucleusException(
                    "a " + value.getClass().getName() + " is assigned to " + member.getFullFieldName());
        }
        if (value instanceof Number number && !isInRange(number, converted)) {
            throw new NucleusUserException(number + " is assigned to " + member.getFullFieldName() + ", whose type is "
                    + member.getTypeName());
        }
        return converted;
    }

    /** Whether an integer is a number, perhaps without a fraction. */
    private static boolean isInRange(Number number, Object converted) {
        boolean isInteger = converted instanceof Byte
                || converted instanceof Short
                || converted instanceof Integer
                || converted instanceof Long;
        return !isInteger || Math.abs(((Number) converted).doubleValue() - number.doubleValue()) < 1;
    }

    /** The state of an object that is embedded in another one. */
    private DNStateManager embedded(DNStateManager owner, String name, DyadicExpression assignment) {
        int position = owner.getClassMetaData().getAbsolutePositionOfMember(name);
        Object value = null;
        if (position >= 0) {
            owner.loadField(position);
            value = owner.provideField(position);
        }
        DNStateManager embedded = value == null ? null : context.findStateManager(value);
        if (embedded == null || !embedded.isEmbedded()) {
            throw new NucleusUserException(
                    assignment.getLeft() + " cannot be updated: " + name + " is not an embedded object");
        }
        return embedded;
    }
}
