package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.mortar.jukebox.audio.ReceivedFile;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.Refusal;
import java.io.IOException;
import java.util.concurrent.Semaphore;

/** Takes a file of music as the body of a request, in bounded memory. */
final class UploadRoute {
    private static final int AT_ONCE = 16;

    private final Library library;
    private final Sessions sessions;
    private final long limit;
    private final Semaphore atOnce = new Semaphore(AT_ONCE);

    UploadRoute(Library library, Sessions sessions, long limit) {
        this.library = library;
        this.sessions = sessions;
        this.limit = limit;
    }

    void add(RoutesConfig routes) {
        routes.post("/api/tracks", sessions.require(this::upload));
    }

    private void upload(Context context, AccountView account) throws IOException {
        String name = RequestInput.query(context, "name", "the name of a file");
        if (context.req().getContentLengthLong() > limit) {
            throw ReceivedFile.tooLarge(limit);
        }
        if (!atOnce.tryAcquire()) {
            throw new Refusal(Refusal.Reason.TOO_MANY, "too many files arrive at this moment; try again");
        }
        try (ReceivedFile file = ReceivedFile.receive(context.bodyInputStream(), name, limit)) {
            if (library.contains(file.sha256())) {
                throw new Refusal(Refusal.Reason.EXISTS, "the library has this file already");
            }
            context.status(201).json(library.add(account.id(), file.examine()));
        } finally {
            atOnce.release();
        }
    }
}
