package io.mortar.histories;

import io.mortar.histories.Request.Option;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A client: a thread that runs the transactions that are requested of it, one after the other. */
final class HistoryClient implements Runnable {
    /** Lists of this length are only read. */
    private static final int MAX_LIST_LENGTH = 400;

    private final BlockingQueue<Request> requests = new LinkedBlockingQueue<>();
    private final Map<String, String> objects;
    private final Replies replies;
    private final JdoSession jdo;
    private final JakartaSession jakarta;

    /** @param objects the identifiers of objects by their keys */
    HistoryClient(Map<String, String> objects, Replies replies, JdoSession jdo, JakartaSession jakarta) {
        this.objects = objects;
        this.replies = replies;
        this.jdo = jdo;
        this.jakarta = jakarta;
    }

    void request(Request request) {
        requests.add(request);
    }

    @Override
    public void run() {
        try {
            while (true) {
                run(requests.take());
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private void run(Request request) {
        Session session = request.has(Option.JAKARTA) ? jakarta : jdo;
        try {
            session.begin(request);
            Steps steps = new Steps();
            request.acts().forEach(act -> perform(session, act, steps));
            replies.send(request.number(), "steps " + steps);
            session.commit();
            replies.send(request.number(), "committed");
        } catch (RuntimeException error) {
            replies.send(request.number(), endFailed(session, error));
        } catch (Error error) {
            replies.send(request.number(), "error " + error);
            throw error;
        }
    }

    /** Rolls a transaction back that has failed. Returns the reply. */
    private static String endFailed(Session session, RuntimeException error) {
        Failure failure = session.describe(error);
        if (failure.kind() == Failure.Kind.ERROR) {
            // For the log.
            error.printStackTrace();
        }
        try {
            session.rollBack();
        } catch (RuntimeException another) {
            Failure ofRollback = session.describe(another);
            if (ofRollback.kind() != Failure.Kind.RETRYABLE) {
                another.printStackTrace();
                return "error at the rollback after " + failure.reply() + ": " + ofRollback.message();
            }
        }
        return failure.reply();
    }

    private void perform(Session session, Act act, Steps steps) {
        String key = act.key();
        boolean isRead = act.verb().isRead();
        switch (act.verb()) {
            case READ, APPEND -> {
                GrowingList list = session.find(GrowingList.class, key, objects.get(key), isRead);
                steps.read(key, list.elements());
                if (!isRead && list.elements().size() < MAX_LIST_LENGTH) {
                    list.append(act.number());
                    steps.append(key, act.number());
                }
            }
            case BALANCE, ADD -> {
                Account account = session.find(Account.class, key, objects.get(key), isRead);
                long balance = account.balance();
                steps.read(key, balance);
                if (!isRead) {
                    account.setBalance(balance + act.number());
                    steps.write(key, balance + act.number());
                }
            }
        }
    }
}
