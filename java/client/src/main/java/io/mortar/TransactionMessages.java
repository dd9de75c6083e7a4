package io.mortar;

import java.time.Instant;
import java.util.Map;

/** The parts of requests and replies of transactions whose types are interfaces or belong to Java. */
final class TransactionMessages {
    private static final int ANYWHERE = 0;
    private static final int NEAR = 1;
    private static final int AT = 2;
    private static final int COMMITTED = 0;
    private static final int CONFLICT = 1;
    private static final int UNKNOWN = 2;

    private TransactionMessages() {}

    static MessageWriter writeHint(MessageWriter out, PlacementHint hint) {
        if (hint instanceof PlacementHint.Near near) {
            return out.u8(NEAR).oid(near.oid());
        }
        if (hint instanceof PlacementHint.At at) {
            return out.u8(AT).u32(at.node());
        }
        return out.u8(ANYWHERE);
    }

    static CommitOutcome readOutcome(MessageReader in) {
        int code = in.u8();
        return switch (code) {
            case COMMITTED -> new CommitOutcome.Committed(Instant.ofEpochMilli(in.u64()));
            case CONFLICT -> new CommitOutcome.Conflict(in.string(), in.maybe(MessageReader::oid));
            case UNKNOWN -> new CommitOutcome.Unknown(TransactionId.fromBytes(in.bytes()));
            default -> throw MessageReader.malformed("an outcome is " + code);
        };
    }

    static MessageWriter writeQuery(String text, Map<String, ?> parameters) {
        return new MessageWriter()
                .string(text)
                .list(
                        parameters.entrySet(),
                        (out, parameter) -> out.string(parameter.getKey()).value(parameter.getValue()));
    }
}
