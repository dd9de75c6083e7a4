package io.mortar.jdo.mapping;

import java.util.function.Consumer;
import org.datanucleus.metadata.AbstractMemberMetaData;

/** A member that is stored in one column. */
public abstract sealed class ColumnMapping extends MemberMapping
        permits ContainerMapping, LargeObjectMapping, ReferenceMapping, ValueMapping {
    private final Column column;

    ColumnMapping(AbstractMemberMetaData member, Column column) {
        super(member);
        this.column = column;
    }

    public final Column column() {
        return column;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        action.accept(column);
    }
}
