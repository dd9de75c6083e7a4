package io.mortar.bench.workload;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordingFile;

/**
 * Says where the time of an action goes: processor time of this process and of the server for each run, and of which
 * libraries the sampled stacks of the flight recorder are. A sample belongs to the library that is deepest on its
 * stack; the call of native code includes the wait for the server.
 */
final class Profile {
    private static final String THREAD = Thread.currentThread().getName();
    private static final Duration PERIOD = Duration.ofMillis(10);

    /** Prefixes of methods, and the library that has them. The first that fits counts. */
    private static final Map<String, String> LIBRARIES = new LinkedHashMap<>();

    static {
        LIBRARIES.put("io.mortar.Native.", "native code of Mortar");
        LIBRARIES.put("io.mortar.jdo.", "Mortar's plugin");
        LIBRARIES.put("io.mortar.bench.", "the benchmark");
        LIBRARIES.put("io.mortar.", "Mortar's client");
        LIBRARIES.put("org.datanucleus.", "DataNucleus");
        LIBRARIES.put("org.hibernate.", "Hibernate");
        LIBRARIES.put("com.github.benmanes.", "Caffeine");
        LIBRARIES.put("com.zaxxer.", "HikariCP");
        LIBRARIES.put("org.postgresql.", "pgjdbc");
        LIBRARIES.put("org.h2.", "H2");
    }

    private Profile() {}

    /** Repeats an action for twice this time and describes where the time goes. */
    static String of(Duration duration, Runnable action, ServerProcess server) {
        return cpu(duration, action, server) + "; samples: " + samples(duration, action);
    }

    private static String cpu(Duration duration, Runnable action, ServerProcess server) {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long jvmBefore = system.getProcessCpuTime();
        Duration serverBefore = server.cpu();
        int runs = Timing.repeat(duration, action).size();
        double jvm = (system.getProcessCpuTime() - jvmBefore) / 1e6 / runs;
        double other = server.cpu().minus(serverBefore).toNanos() / 1e6 / runs;
        return "%.2f ms of processor time in the JVM".formatted(jvm)
                + (server.exists() ? ", %.2f ms in the server".formatted(other) : "");
    }

    private static String samples(Duration duration, Runnable action) {
        try (Recording recording = new Recording()) {
            recording.enable("jdk.ExecutionSample").withPeriod(PERIOD);
            recording.enable("jdk.NativeMethodSample").withPeriod(PERIOD);
            recording.start();
            Timing.repeat(duration, action);
            recording.stop();
            return shares(recording);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String shares(Recording recording) throws IOException {
        Path file = Files.createTempFile("mortar-bench-", ".jfr");
        try {
            recording.dump(file);
            Map<String, Long> counts = RecordingFile.readAllEvents(file).stream()
                    .filter(Profile::isOfThisThread)
                    .collect(Collectors.groupingBy(Profile::library, Collectors.counting()));
            long all = counts.values().stream().mapToLong(Long::longValue).sum();
            return counts.entrySet().stream()
                    .sorted(Map.Entry.<String, Long>comparingByValue().reversed())
                    .map(entry -> "%s %d %%".formatted(entry.getKey(), Math.round(100.0 * entry.getValue() / all)))
                    .collect(Collectors.joining(", "));
        } finally {
            Files.delete(file);
        }
    }

    private static boolean isOfThisThread(RecordedEvent event) {
        var thread = event.getThread("sampledThread");
        return thread != null && THREAD.equals(thread.getJavaName()) && event.getStackTrace() != null;
    }

    private static String library(RecordedEvent event) {
        List<RecordedFrame> frames = event.getStackTrace().getFrames();
        for (RecordedFrame frame : frames) {
            String method = frame.getMethod().getType().getName()
                    + '.'
                    + frame.getMethod().getName();
            for (Map.Entry<String, String> library : LIBRARIES.entrySet()) {
                if (method.startsWith(library.getKey())) {
                    return library.getValue();
                }
            }
        }
        return "Java";
    }
}
