package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.javalin.http.HandlerType;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.PlayLists;

/** The play lists of the account that makes the request. */
final class PlayListRoutes {
    private static final String LISTS = "/api/lists";
    private static final String LIST = LISTS + "/{id}";
    private static final String TRACKS = LIST + "/tracks";

    private final PlayLists lists;
    private final Sessions sessions;

    private record Name(String name) {}

    private record Addition(String track) {}

    private record Move(int from, int to, String track) {}

    PlayListRoutes(PlayLists lists, Sessions sessions) {
        this.lists = lists;
        this.sessions = sessions;
    }

    void add(RoutesConfig routes) {
        routes.get(LISTS, sessions.require((context, account) -> context.json(lists.of(account.id()))));
        routes.post(
                LISTS,
                sessions.require(
                        (context, account) -> context.status(201).json(lists.create(account.id(), name(context)))));
        routes.get(
                LIST,
                sessions.require((context, account) -> context.json(lists.get(account.id(), context.pathParam("id")))));
        change(
                routes,
                HandlerType.PATCH,
                LIST,
                (context, account) -> lists.rename(account.id(), context.pathParam("id"), name(context)));
        change(
                routes,
                HandlerType.DELETE,
                LIST,
                (context, account) -> lists.delete(account.id(), context.pathParam("id")));
        change(routes, HandlerType.POST, TRACKS, (context, account) -> {
            Addition addition = RequestInput.body(context, Addition.class);
            lists.add(account.id(), context.pathParam("id"), RequestInput.text(addition.track(), "a track"));
        });
        change(routes, HandlerType.DELETE, TRACKS + "/{position}", this::remove);
        change(routes, HandlerType.POST, LIST + "/moves", this::move);
    }

    private void change(RoutesConfig routes, HandlerType method, String path, Sessions.AccountHandler handler) {
        routes.addHttpHandler(method, path, sessions.require((context, account) -> {
            handler.handle(context, account);
            context.status(204);
        }));
    }

    private static String name(Context context) {
        return RequestInput.text(RequestInput.body(context, Name.class).name(), "a name");
    }

    private void remove(Context context, AccountView account) {
        lists.remove(
                account.id(),
                context.pathParam("id"),
                RequestInput.number(context.pathParam("position"), 0),
                RequestInput.query(context, "track", "a track"));
    }

    private void move(Context context, AccountView account) {
        Move move = RequestInput.body(context, Move.class);
        lists.move(
                account.id(),
                context.pathParam("id"),
                move.from(),
                move.to(),
                RequestInput.text(move.track(), "a track"));
    }
}
