package io.mortar.jdo.query;

import io.mortar.jdo.mapping.ClassMapping;
import java.util.ArrayList;
import java.util.List;
import org.datanucleus.ExecutionContext;

/** The text of a query of Mortar, clause by clause. */
public final class QueryText {
    private String type;
    private boolean only;
    /** Which objects the context finds; null for all. */
    private String visible;

    private final List<String> select = new ArrayList<>();
    private String condition;
    private final List<String> group = new ArrayList<>();
    private final List<String> order = new ArrayList<>();
    private long skip;
    private long limit = Long.MAX_VALUE;

    /** A name that may be a word of the language. */
    public static String quote(String name) {
        return '`' + name + '`';
    }

    /** The objects of a class that a context finds. */
    public void from(ClassMapping mapping, boolean withoutSubclasses, ExecutionContext context) {
        from(mapping, withoutSubclasses, context, false);
    }

    /** The same, perhaps with objects that soft delete has kept. */
    void from(ClassMapping mapping, boolean withoutSubclasses, ExecutionContext context, boolean withDeleted) {
        type = mapping.name();
        only = withoutSubclasses;
        visible = mapping.visibility().condition(context, withDeleted);
    }

    public void where(String test) {
        condition = test;
    }

    void select(String item) {
        select.add(item);
    }

    void group(String key) {
        group.add(key);
    }

    /** Returns objects instead of columns. */
    void clearResult() {
        select.clear();
        group.clear();
    }

    public void order(String key) {
        order.add(key);
    }

    void skip(long rows) {
        skip = rows;
    }

    public void limit(long rows) {
        limit = rows;
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        if (!select.isEmpty()) {
            text.append("select ").append(String.join(", ", select)).append(' ');
        }
        text.append("from ").append(only ? "only " : "").append(quote(type));
        if (visible != null && condition != null) {
            text.append(" where ")
                    .append(visible)
                    .append(" && (")
                    .append(condition)
                    .append(')');
        } else if (visible != null || condition != null) {
            text.append(" where ").append(visible != null ? visible : condition);
        }
        if (!group.isEmpty()) {
            text.append(" group by ").append(String.join(", ", group));
        }
        if (!order.isEmpty()) {
            text.append(" order by ").append(String.join(", ", order));
        }
        if (skip > 0) {
            text.append(" skip ").append(skip);
        }
        if (limit != Long.MAX_VALUE) {
            text.append(" limit ").append(limit);
        }
        return text.toString();
    }
}
