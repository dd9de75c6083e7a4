package io.mortar;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class LostReplyTest {
    @Test
    void outcomeOfAChangeIsUnknown() {
        for (Operation change : List.of(Operation.T_COMMIT, Operation.ATTEMPT_END, Operation.PUT, Operation.APPEND)) {
            assertThrows(UnknownOutcomeException.class, () -> LostReply.require(change, null));
            assertThrows(UnknownOutcomeException.class, () -> LostReply.require(change, new byte[] {2}));
            assertThrows(UnknownOutcomeException.class, () -> LostReply.require(change, LostReply.ENDED));
        }
    }

    @Test
    void otherOperationsFail() {
        assertThrows(OutOfMemoryError.class, () -> LostReply.require(Operation.T_GET, null));
        assertThrows(OutOfMemoryError.class, () -> LostReply.require(Operation.T_GET, LostReply.NO_MEMORY));
        assertThrows(InternalException.class, () -> LostReply.require(Operation.T_GET, LostReply.ENDED));
    }

    @Test
    void replyThatHasArrivedIsReturned() {
        byte[] reply = {0, 2};
        assertSame(reply, LostReply.require(Operation.T_COMMIT, reply));
    }
}
