package io.mortar.jdo.model;

import java.util.Deque;
import java.util.LinkedList;
import java.util.PriorityQueue;
import java.util.Queue;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.Persistent;

/** Has queues. */
@PersistenceCapable(identityType = IdentityType.DATASTORE)
public class Desk {
    @Persistent
    private Queue<String> visitors = new LinkedList<>();

    @Persistent
    private Deque<String> notes = new LinkedList<>();

    @Persistent
    private PriorityQueue<Integer> tickets = new PriorityQueue<>();

    @Persistent
    private Queue<Integer> calls = new PriorityQueue<>();

    public Queue<String> getVisitors() {
        return visitors;
    }

    public Deque<String> getNotes() {
        return notes;
    }

    public PriorityQueue<Integer> getTickets() {
        return tickets;
    }

    public Queue<Integer> getCalls() {
        return calls;
    }
}
