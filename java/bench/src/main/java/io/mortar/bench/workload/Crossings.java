package io.mortar.bench.workload;

import io.mortar.CrossingProbe;
import io.mortar.bench.Options;
import io.mortar.bench.Results;

/** What a call of the native library costs, and how many bytes it copies for an object that the client has cached. */
public final class Crossings {
    private static final int BATCH = 1000;

    private Crossings() {}

    public static void run(Options options, Results results) {
        try (CrossingProbe probe = new CrossingProbe(500)) {
            results.add("crossing_ns", perCall(options, probe::cross));
            results.add("cached_object_ns", perCall(options, probe::readCached));
            results.add("request_bytes", probe.requestBytes());
            results.add("reply_bytes", probe.replyBytes());
            results.add("object_bytes", probe.objectBytes());
        }
    }

    private static double perCall(Options options, Runnable call) {
        Runnable batch = () -> {
            for (int i = 0; i < BATCH; i++) {
                call.run();
            }
        };
        return Timing.medianNanos(options.duration().dividedBy(2), batch) / BATCH;
    }
}
