package io.mortar.jdo.mapping;

import java.util.Optional;
import java.util.function.Consumer;

/** A member of the type {@link Optional}: stored as its value, or null. */
public final class OptionalMapping extends MemberMapping {
    private final MemberMapping content;

    OptionalMapping(MemberMapping content) {
        super(content.member());
        this.content = content;
    }

    /** The mapping of the value. */
    public MemberMapping content() {
        return content;
    }

    @Override
    public void forEachColumn(Consumer<Column> action) {
        content.forEachColumn(action);
    }

    @Override
    Object read(RecordReader from) {
        return Optional.ofNullable(content.read(from));
    }

    @Override
    void write(RecordWriter to, Object value) {
        content.write(to, value instanceof Optional<?> optional ? optional.orElse(null) : value);
    }
}
