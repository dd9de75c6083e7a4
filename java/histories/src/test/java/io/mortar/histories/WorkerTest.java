package io.mortar.histories;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PipedInputStream;
import java.io.PipedOutputStream;
import java.io.PipedReader;
import java.io.PipedWriter;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The requests and replies that the histories rely on, with a store in memory. */
class WorkerTest {
    private final PipedWriter input = new PipedWriter();
    private final PrintWriter requests = new PrintWriter(input, true);
    private BufferedReader replies;
    private Worker worker;
    private CompletableFuture<Void> served;

    @BeforeEach
    void start() throws IOException {
        PipedOutputStream output = new PipedOutputStream();
        replies = new BufferedReader(new InputStreamReader(new PipedInputStream(output), StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(output, true, StandardCharsets.UTF_8);
        worker = new Worker("mortar:memory:" + UUID.randomUUID(), new Replies(out));
        PipedReader lines = new PipedReader(input);
        served = CompletableFuture.runAsync(() -> {
            try {
                worker.serve(lines);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        });
        assertEquals("0 ready", replies.readLine());
        create("list", "");
        create("a", " 100");
        create("b", " 100");
    }

    private void create(String key, String balance) throws IOException {
        requests.println("create 1 " + key + balance);
        String reply = replies.readLine();
        assertTrue(reply.startsWith("1 created "), reply);
        requests.println("object " + key + ' ' + reply.split(" ")[2]);
    }

    @AfterEach
    void stop() {
        requests.close();
        served.join();
        worker.close();
    }

    private void runs(String request, String steps) throws IOException {
        requests.println("run 2 " + request);
        assertEquals("2 steps " + steps, replies.readLine());
        assertEquals("2 committed", replies.readLine());
    }

    @Test
    void transactions_of_all_kinds_report_what_they_have_read_and_written() throws IOException {
        runs("1 - append:list:1", "[[\"read\",\"list\",[]],[\"append\",\"list\",1]]");
        runs("2 locks,for-update append:list:2", "[[\"read\",\"list\",[1]],[\"append\",\"list\",2]]");
        runs("1 by-query,new-manager read:list", "[[\"read\",\"list\",[1,2]]]");
        runs("1 snapshot read:list", "[[\"read\",\"list\",[1,2]]]");
        runs(
                "1 add:a:-5 add:b:5".replace("1 ", "1 - "),
                "[[\"read\",\"a\",100],[\"write\",\"a\",95],[\"read\",\"b\",100],[\"write\",\"b\",105]]");
    }

    @Test
    void both_interfaces_see_what_the_other_has_written() throws IOException {
        for (String finder : List.of("", ",by-query", ",for-update")) {
            runs("1 jakarta,new-manager" + finder + " balance:a", "[[\"read\",\"a\",100]]");
        }
        runs("1 jakarta append:list:1", "[[\"read\",\"list\",[]],[\"append\",\"list\",1]]");
        runs("2 - append:list:2", "[[\"read\",\"list\",[1]],[\"append\",\"list\",2]]");
        runs("1 jakarta read:list", "[[\"read\",\"list\",[1,2]]]");
        requests.println("run 3 1 - append:list:3");
        assertEquals("3 steps [[\"read\",\"list\",[1,2]],[\"append\",\"list\",3]]", replies.readLine());
        assertEquals("3 committed", replies.readLine());
        // The entity manager has retained the list, and must not overwrite it.
        requests.println("run 4 1 jakarta append:list:4");
        assertEquals("4 steps [[\"read\",\"list\",[1,2]],[\"append\",\"list\",4]]", replies.readLine());
        String conflict = replies.readLine();
        assertTrue(conflict.matches("4 conflict [0-9a-f]+(\\.[0-9a-f]+){4} .*OptimisticLockException.*"), conflict);
        runs("1 jakarta append:list:5", "[[\"read\",\"list\",[1,2,3]],[\"append\",\"list\",5]]");
    }
}
