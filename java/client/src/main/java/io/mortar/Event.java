package io.mortar;

/**
 * A change of the space of a client, as its peer server sees it.
 *
 * @param kind what has happened
 * @param text the event in one line, for people
 */
public record Event(Kind kind, String text) {
    /** What has happened. */
    public enum Kind {
        /**
         * The client is connected to a peer server, which has sent the status of the space. Events for what is wrong
         * follow.
         */
        CONNECTED(1),
        /** The connection to the peer server has ended. The client connects to another one of its URL. */
        DISCONNECTED(2),
        /** No peer server admits the client any more. The client keeps trying. */
        REFUSED(3),
        /** A brick cannot be reached any more: it has stopped, hangs, or is cut off by the network. */
        BRICK_FAILED(4),
        /** A brick that had failed can be reached again, or no longer serves any part of the space. */
        BRICK_RECOVERED(5),
        /** Everything in the space is refused, by its failure policy. */
        STOPPED(6),
        /** The space is no longer stopped. */
        RESUMED(7),
        /** The failure policy of the space was changed. */
        POLICY_CHANGED(8),
        /** A logical node has moved to another brick. */
        NODE_MOVED(9),
        /** Classes or indexes have changed. */
        SCHEMA_CHANGED(10),
        /** Events were not read in time and are lost. The current status follows, as for a new subscriber. */
        MISSED(11),
        /** A brick cannot serve a logical node because its rows are damaged: what needs it is refused as corrupt. */
        NODE_DAMAGED(12),
        /** A logical node that was damaged is served again. */
        NODE_RECOVERED(13),
        /** An event that this client does not know: the native library is newer. */
        OTHER(0);

        private final int code;

        Kind(int code) {
            this.code = code;
        }

        private static Kind ofCode(int code) {
            for (Kind kind : values()) {
                if (kind.code == code) {
                    return kind;
                }
            }
            return OTHER;
        }
    }

    static Event read(MessageReader in) {
        return new Event(Kind.ofCode(in.u8()), in.string());
    }

    /** Returns the text. */
    @Override
    public String toString() {
        return text;
    }
}
