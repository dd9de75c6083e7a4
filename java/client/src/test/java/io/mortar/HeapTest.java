package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Replies for which the heap of a virtual machine has no room. */
@RequiresLibrary
@Timeout(120)
class HeapTest {
    @Test
    void replyWithoutRoomFailsItsCallAlone(@TempDir Path directory) throws Exception {
        Path output = directory.resolve("output");
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xms64m",
                "-Xmx64m",
                "-XX:+UseSerialGC",
                "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))));
        if (System.getProperty(NativeLibrary.PROPERTY) != null) {
            command.add("-D" + NativeLibrary.PROPERTY + "=" + System.getProperty(NativeLibrary.PROPERTY));
        }
        command.add(SmallHeap.class.getName());
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
        try {
            assertTrue(process.waitFor(60, TimeUnit.SECONDS), "it hangs: " + Files.readString(output));
        } finally {
            process.destroyForcibly();
        }
        assertEquals(0, process.exitValue(), Files.readString(output));
    }

    /** A program whose heap is full at times. */
    static final class SmallHeap {
        private static final int PIECE = 1 << 20;

        private SmallHeap() {}

        public static void main(String[] arguments) throws Exception {
            List<Boolean> kinds =
                    Runtime.version().feature() < 21 ? List.of(false, false) : List.of(false, true, false, true);
            try (TestCluster cluster = new TestCluster()) {
                Oid blob = cluster.createBlob(new byte[3 * PIECE]);
                Oid ann = cluster.create("Ann", 0);
                for (boolean isVirtual : kinds) {
                    Callable<Boolean> read =
                            () -> cluster.client.readLatest(blob).isPresent();
                    run(isVirtual, read);
                    List<byte[]> heap = fill();
                    Throwable failure = null;
                    try {
                        run(isVirtual, read);
                    } catch (OutOfMemoryError expected) {
                        failure = expected;
                    } finally {
                        heap.clear();
                    }
                    if (failure == null) {
                        throw new IllegalStateException("the heap had room");
                    }
                    run(isVirtual, read);
                    run(isVirtual, () -> {
                        cluster.client.run(t -> t.put(ann, cluster.person("Ann", cluster.ageOf(ann) + 1)));
                        return true;
                    });
                }
                if (cluster.ageOf(ann) != kinds.size()) {
                    throw new IllegalStateException("a change is missing");
                }
            }
        }

        private static void run(boolean isVirtual, Callable<Boolean> task) throws Exception {
            if (!isVirtual) {
                task.call();
                return;
            }
            try {
                VirtualThreadTest.start(task).get(30, TimeUnit.SECONDS);
            } catch (ExecutionException failed) {
                if (failed.getCause() instanceof Error error) {
                    throw error;
                }
                throw failed;
            }
        }

        private static List<byte[]> fill() {
            List<byte[]> heap = new ArrayList<>(1024);
            try {
                while (true) {
                    heap.add(new byte[PIECE]);
                }
            } catch (OutOfMemoryError full) {
                return heap;
            }
        }
    }
}
