package io.mortar.jukebox.jdo;

import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.Watch;
import io.mortar.jukebox.model.ChangeWatch;
import io.mortar.jukebox.model.Refusal;
import java.util.Set;
import java.util.stream.Collectors;

/** Changes of objects as the store reports them. */
final class StoreWatch implements ChangeWatch {
    private final Watch watch;
    private volatile boolean isClosed;

    StoreWatch(Watch watch) {
        this.watch = watch;
    }

    @Override
    public Set<String> next() {
        try {
            return watch.next().stream().map(Oid::toString).collect(Collectors.toUnmodifiableSet());
        } catch (MortarException error) {
            if (isClosed) {
                return Set.of();
            }
            throw new Refusal(
                    Refusal.Reason.UNAVAILABLE, "the store reports no more changes: " + error.getMessage(), error);
        }
    }

    @Override
    public void close() {
        isClosed = true;
        watch.close();
    }
}
