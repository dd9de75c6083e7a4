package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.javalin.http.HandlerType;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Audio;
import io.mortar.jukebox.model.Library;
import java.io.IOException;
import java.io.InputStream;
import java.util.Optional;

/** Streams audio, in bounded memory. */
final class AudioRoute {
    private static final String PATH = "/api/tracks/{id}/audio";

    private final Library library;
    private final Sessions sessions;

    AudioRoute(Library library, Sessions sessions) {
        this.library = library;
        this.sessions = sessions;
    }

    void add(RoutesConfig routes) {
        routes.get(PATH, sessions.require(this::send));
        routes.head(PATH, sessions.require(this::send));
    }

    private void send(Context context, AccountView account) throws IOException {
        String id = context.pathParam("id");
        Audio audio = library.audio(id);
        String tag = '"' + id + '"';
        context.header("Accept-Ranges", "bytes").header("ETag", tag).header("Cache-Control", "private, max-age=86400");
        context.contentType(audio.mediaType());
        String onlyIf = context.header("If-Range");
        Optional<ByteRange> range = onlyIf == null || onlyIf.equals(tag)
                ? ByteRange.parse(context.header("Range"), audio.size())
                : Optional.empty();
        if (range.isPresent() && range.get().isEmpty()) {
            context.status(416).header("Content-Range", "bytes */" + audio.size());
            return;
        }
        ByteRange sent = range.orElse(new ByteRange(0, audio.size()));
        if (range.isPresent()) {
            context.status(206)
                    .header("Content-Range", "bytes " + sent.from() + '-' + (sent.end() - 1) + '/' + audio.size());
        }
        context.res().setContentLengthLong(sent.length());
        if (context.method() != HandlerType.HEAD) {
            try (InputStream in = audio.open(sent.from(), sent.end())) {
                in.transferTo(context.res().getOutputStream());
            }
        }
    }
}
