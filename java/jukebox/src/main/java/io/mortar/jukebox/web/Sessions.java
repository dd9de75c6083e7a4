package io.mortar.jukebox.web;

import io.javalin.http.Context;
import io.javalin.http.Cookie;
import io.javalin.http.Handler;
import io.javalin.http.SameSite;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.Refusal;
import io.mortar.jukebox.model.Sha256;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.Optional;

/**
 * Identifies the account of a request by a cookie with a random secret. All instances share the sessions in the store.
 * The store has only a hash of each secret, so a copy of the store does not permit a login.
 */
final class Sessions {
    private static final Duration LENGTH = Duration.ofDays(30);
    private static final int TOKEN_BYTES = 32;
    /** The length of a token as text. */
    private static final int TOKEN_LENGTH = 43;
    /** Browsers accept a cookie with the prefix only from this host, by HTTPS. */
    private static final String SECURE_NAME = "__Host-jukebox";

    private static final String NAME = "jukebox";

    private final SecureRandom random = new SecureRandom();
    private final Accounts accounts;

    /** Handles a request of an account. */
    @FunctionalInterface
    interface AccountHandler {
        void handle(Context context, AccountView account) throws Exception;
    }

    Sessions(Accounts accounts) {
        this.accounts = accounts;
    }

    /** A handler that refuses requests without a session. */
    Handler require(AccountHandler handler) {
        return context -> handler.handle(context, account(context));
    }

    AccountView account(Context context) {
        return token(context)
                .map(Sessions::hash)
                .flatMap(accounts::session)
                .orElseThrow(() -> new Refusal(Refusal.Reason.NOT_SIGNED_IN, "log in first"));
    }

    void open(Context context, AccountView account) {
        byte[] bytes = new byte[TOKEN_BYTES];
        random.nextBytes(bytes);
        String token = Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
        accounts.openSession(account.id(), hash(token), Instant.now().plus(LENGTH));
        context.cookie(cookie(context, token, (int) LENGTH.toSeconds()));
    }

    void close(Context context) {
        token(context).map(Sessions::hash).ifPresent(accounts::closeSession);
        context.cookie(cookie(context, "", 0));
    }

    private static Cookie cookie(Context context, String value, int seconds) {
        boolean secure = isSecure(context);
        return new Cookie(secure ? SECURE_NAME : NAME, value, "/", seconds, secure, true, null, SameSite.STRICT);
    }

    /** Whether the browser uses HTTPS, as a proxy in front of the service says. */
    private static boolean isSecure(Context context) {
        return context.scheme().equals("https") || "https".equalsIgnoreCase(context.header("X-Forwarded-Proto"));
    }

    private static Optional<String> token(Context context) {
        String token = context.cookie(isSecure(context) ? SECURE_NAME : NAME);
        return Optional.ofNullable(token).filter(text -> text.length() == TOKEN_LENGTH);
    }

    private static String hash(String token) {
        return Sha256.hex(Sha256.digest().digest(token.getBytes(StandardCharsets.UTF_8)));
    }
}
