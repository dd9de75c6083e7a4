package io.mortar.bench.workload;

import java.time.Duration;
import java.util.stream.Stream;

/** The processes of a store's server. */
final class ServerProcess {
    private final long process;

    /** @param process the first process of the server; 0 for a store without one */
    ServerProcess(long process) {
        this.process = process;
    }

    boolean exists() {
        return process != 0;
    }

    /** The processor time of the server and of its children that run. */
    Duration cpu() {
        return ProcessHandle.of(process).stream()
                .flatMap(server -> Stream.concat(Stream.of(server), server.descendants()))
                .flatMap(each -> each.info().totalCpuDuration().stream())
                .reduce(Duration.ZERO, Duration::plus);
    }
}
