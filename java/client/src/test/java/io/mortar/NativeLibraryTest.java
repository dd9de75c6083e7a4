package io.mortar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NativeLibraryTest {
    @ParameterizedTest
    @CsvSource({
        "Linux, amd64, linux-x86_64",
        "Linux, aarch64, linux-aarch64",
        "Mac OS X, arm64, macos-aarch64",
        "Windows 11, x86_64, windows-x86_64",
        "FreeBSD, riscv64, freebsd-riscv64"
    })
    void platformsHaveOneName(String system, String architecture, String platform) {
        assertEquals(platform, NativeLibrary.platform(system, architecture));
    }

    @Test
    void messageSaysWhichPlatformIsMissingAndWhatToDo() {
        String message = NativeLibrary.missing("freebsd-riscv64");
        assertTrue(message.contains("freebsd-riscv64") && message.contains(NativeLibrary.PROPERTY), message);
        assertTrue(
                message.contains("/io/mortar/native/freebsd-riscv64/" + System.mapLibraryName("mortar_java")), message);
    }

    @Test
    void operationsHaveDifferentCodes() {
        assertEquals(
                Operation.values().length,
                Arrays.stream(Operation.values())
                        .map(Operation::code)
                        .collect(Collectors.toSet())
                        .size());
    }
}
