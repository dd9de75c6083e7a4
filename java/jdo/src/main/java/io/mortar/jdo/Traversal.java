package io.mortar.jdo;

import java.util.ArrayDeque;
import java.util.Deque;
import org.datanucleus.ExecutionContext;

/**
 * Runs a recursive walk through objects as a loop.
 *
 * <p>DataNucleus makes the objects persistent that a persistent object refers to, then those that these refer to, and
 * so on, each inside of the call for the one before. A chain of some hundred objects overflows the stack of a thread.
 * Here a step that is requested inside of another step waits until that one has ended. That is possible because an
 * object has its identity, which is all that others store of it, before its own step begins.
 */
final class Traversal {
    private static final ThreadLocal<Traversal> CURRENT = new ThreadLocal<>();

    private final ExecutionContext context;
    private final Deque<Runnable> steps = new ArrayDeque<>();

    private Traversal(ExecutionContext context) {
        this.context = context;
    }

    /**
     * Runs a step now, with the steps that it requests, or after the step of the same context that runs in this thread.
     */
    static void run(ExecutionContext context, Runnable step) {
        Traversal outer = CURRENT.get();
        if (outer != null && outer.context == context) {
            outer.steps.add(step);
            return;
        }
        Traversal traversal = new Traversal(context);
        CURRENT.set(traversal);
        try {
            for (Runnable next = step; next != null; next = traversal.steps.poll()) {
                next.run();
            }
        } finally {
            if (outer == null) {
                CURRENT.remove();
            } else {
                CURRENT.set(outer);
            }
        }
    }
}
