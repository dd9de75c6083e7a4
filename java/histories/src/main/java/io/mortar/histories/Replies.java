package io.mortar.histories;

import java.io.PrintStream;

/** Writes replies, each as one line that is flushed. */
final class Replies {
    private final PrintStream out;

    Replies(PrintStream out) {
        this.out = out;
    }

    /** Writes a reply to the request with a number. */
    synchronized void send(long number, String reply) {
        out.println(number + " " + reply.replaceAll("\\s+", " "));
        out.flush();
    }
}
