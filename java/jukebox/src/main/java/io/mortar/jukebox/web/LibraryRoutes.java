package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.mortar.jukebox.model.Library;
import io.mortar.jukebox.model.SearchText;

/** The artists, albums, genres and tracks of the library. */
final class LibraryRoutes {
    private final Library library;
    private final Sessions sessions;

    LibraryRoutes(Library library, Sessions sessions) {
        this.library = library;
        this.sessions = sessions;
    }

    void add(RoutesConfig routes) {
        get(routes, "/api/totals", (context, account) -> context.json(library.totals()));
        get(routes, "/api/newest", (context, account) -> context.json(library.newest(RequestInput.slice(context))));
        get(routes, "/api/artists", (context, account) -> context.json(library.artists(RequestInput.slice(context))));
        get(routes, "/api/artists/{id}", (context, account) -> context.json(library.artist(context.pathParam("id"))));
        get(routes, "/api/albums", (context, account) -> context.json(library.albums(RequestInput.slice(context))));
        get(routes, "/api/albums/{id}", (context, account) -> context.json(library.album(context.pathParam("id"))));
        get(routes, "/api/genres", (context, account) -> context.json(library.genres()));
        get(
                routes,
                "/api/genres/{id}",
                (context, account) ->
                        context.json(library.genre(context.pathParam("id"), RequestInput.slice(context))));
        get(
                routes,
                "/api/search",
                (context, account) -> context.json(library.search(
                        SearchText.words(RequestInput.query(context, "q", "a search")), RequestInput.slice(context))));
        routes.delete("/api/tracks/{id}", sessions.require((context, account) -> {
            library.remove(account.id(), context.pathParam("id"));
            context.status(204);
        }));
    }

    private void get(RoutesConfig routes, String path, Sessions.AccountHandler handler) {
        routes.get(path, sessions.require(handler));
    }
}
