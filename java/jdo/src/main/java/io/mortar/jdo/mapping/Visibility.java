package io.mortar.jdo.mapping;

import io.mortar.Record;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.datanucleus.ExecutionContext;
import org.datanucleus.exceptions.NucleusUserException;

/**
 * Which objects of a class a persistence context finds. Objects of a class with tenants are found by the contexts that
 * read their tenant. Objects of a class with soft delete are found until they are deleted.
 *
 * @param tenant the column with the tenant of an object; null if the class has no tenants
 * @param deleted the column that is true if an object has been deleted; null if deleted objects are not kept
 */
public record Visibility(Column tenant, Column deleted) {
    static final Visibility ALL = new Visibility(null, null);

    /** Whether deleted objects are kept. */
    public boolean keepsDeleted() {
        return deleted != null;
    }

    /** Whether a context finds the object with a record. */
    public boolean includes(ExecutionContext context, Record record) {
        boolean ofTenant = tenant == null || readTenants(context).contains(record.get(tenant.number()));
        return ofTenant && (deleted == null || !Boolean.TRUE.equals(record.get(deleted.number())));
    }

    /** Which objects a query of a context finds, as a condition; null for all. */
    public String condition(ExecutionContext context, boolean withDeleted) {
        List<String> conditions = new ArrayList<>();
        if (tenant != null) {
            List<String> tests = readTenants(context).stream()
                    .map(each -> '`' + tenant.name() + "` == " + literal(each))
                    .toList();
            conditions.add('(' + String.join(" || ", tests) + ')');
        }
        if (deleted != null && !withDeleted) {
            conditions.add('`' + deleted.name() + "` == null");
        }
        return conditions.isEmpty() ? null : String.join(" && ", conditions);
    }

    /** Gives a new object the tenant of its context. */
    public void initialize(ExecutionContext context, Record.Builder record) {
        if (tenant != null) {
            record.set(tenant.number(), context.getTenantId());
        }
    }

    /** Refuses a change of an object that belongs to another tenant than the context. */
    public void requireWritable(ExecutionContext context, Record record) {
        if (tenant != null && !Objects.equals(record.get(tenant.number()), context.getTenantId())) {
            throw new NucleusUserException("an object of the tenant " + record.get(tenant.number())
                    + " can only be read by the tenant " + context.getTenantId());
        }
    }

    /** Marks an object as deleted. */
    public void markDeleted(Record.Builder record) {
        record.set(deleted.number(), true);
    }

    /** A context without a tenant reads the objects without one. */
    private static List<String> readTenants(ExecutionContext context) {
        String[] tenants = context.getNucleusContext().getTenantReadIds(context);
        return tenants == null || tenants.length == 0 ? Arrays.asList((String) null) : Arrays.asList(tenants);
    }

    private static String literal(String text) {
        return text == null ? "null" : '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
