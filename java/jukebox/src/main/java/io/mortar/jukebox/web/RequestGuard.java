package io.mortar.jukebox.web;

import io.javalin.http.Context;
import io.javalin.http.HandlerType;
import io.mortar.jukebox.model.Refusal;
import java.net.URI;
import java.util.Map;
import java.util.Set;

/** Adds headers that restrict the page to each response, and refuses changes that other sites request. */
final class RequestGuard {
    private static final Set<HandlerType> SAFE = Set.of(HandlerType.GET, HandlerType.HEAD, HandlerType.OPTIONS);
    private static final Map<String, String> HEADERS = Map.of(
            "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
                            + "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options", "nosniff",
            "Referrer-Policy", "same-origin",
            "Cross-Origin-Opener-Policy", "same-origin",
            "Cross-Origin-Resource-Policy", "same-origin");

    private RequestGuard() {}

    static void before(Context context) {
        HEADERS.forEach(context::header);
        if (context.path().startsWith("/api/")) {
            context.header("Cache-Control", "no-store");
        }
        if (!SAFE.contains(context.method()) && !isFromThisSite(context)) {
            throw new Refusal(
                    Refusal.Reason.FORBIDDEN,
                    "a request that changes something must come from the pages of this service");
        }
    }

    /** Browsers send at least one of these headers; other programs have to send {@code Origin}. */
    private static boolean isFromThisSite(Context context) {
        String site = context.header("Sec-Fetch-Site");
        if (site != null && !site.equals("same-origin")) {
            return false;
        }
        String origin = context.header("Origin");
        if (origin == null) {
            return site != null;
        }
        try {
            String authority = URI.create(origin).getRawAuthority();
            return authority != null && authority.equalsIgnoreCase(context.header("Host"));
        } catch (IllegalArgumentException malformed) {
            return false;
        }
    }
}
