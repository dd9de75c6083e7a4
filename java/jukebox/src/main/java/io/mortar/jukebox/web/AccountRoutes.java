package io.mortar.jukebox.web;

import io.javalin.config.RoutesConfig;
import io.javalin.http.Context;
import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.Credentials;
import io.mortar.jukebox.model.Refusal;
import java.util.Locale;
import java.util.Optional;
import java.util.regex.Pattern;

/** Registration, login and logout. */
final class AccountRoutes {
    private static final Pattern NAME = Pattern.compile("[\\p{L}\\p{N}][\\p{L}\\p{N}._-]{1,31}");
    private static final int SHORTEST_PASSWORD = 8;
    private static final int LONGEST_PASSWORD = 200;

    private final Accounts accounts;
    private final Sessions sessions;
    private final PasswordHasher hasher;
    private final LoginThrottle throttle;
    private final long uploadBytes;

    private record Login(String name, String password) {}

    private record Me(AccountView account, long uploadBytes) {}

    AccountRoutes(
            Accounts accounts, Sessions sessions, PasswordHasher hasher, LoginThrottle throttle, long uploadBytes) {
        this.accounts = accounts;
        this.sessions = sessions;
        this.hasher = hasher;
        this.throttle = throttle;
        this.uploadBytes = uploadBytes;
    }

    void add(RoutesConfig routes) {
        routes.post("/api/register", this::register);
        routes.post("/api/login", this::login);
        routes.post("/api/logout", this::logout);
        routes.get("/api/me", sessions.require((context, account) -> context.json(new Me(account, uploadBytes))));
    }

    private void register(Context context) {
        Login login = RequestInput.body(context, Login.class);
        if (login.name() == null || !NAME.matcher(login.name()).matches()) {
            throw new Refusal(
                    Refusal.Reason.INVALID,
                    "a name has 2 to 32 letters, digits, dots, hyphens or underscores, and begins with a letter or digit");
        }
        int length = login.password() == null ? 0 : login.password().length();
        if (length < SHORTEST_PASSWORD || length > LONGEST_PASSWORD) {
            throw new Refusal(
                    Refusal.Reason.INVALID,
                    "a password has " + SHORTEST_PASSWORD + " to " + LONGEST_PASSWORD + " characters");
        }
        if (login.name().equalsIgnoreCase(Accounts.HOUSE)
                || accounts.credentials(login.name()).isPresent()) {
            throw new Refusal(Refusal.Reason.EXISTS, "the name " + login.name() + " is taken");
        }
        welcome(context, accounts.register(login.name(), hasher.hash(login.password())));
    }

    private void login(Context context) {
        Login login = RequestInput.body(context, Login.class);
        if (login.name() == null
                || login.password() == null
                || login.name().length() > 32
                || login.password().length() > LONGEST_PASSWORD) {
            throw wrong();
        }
        String key = login.name().toLowerCase(Locale.ROOT);
        throttle.attempt(key, context.ip());
        Optional<Credentials> found = accounts.credentials(login.name());
        if (!hasher.matches(
                login.password(), found.map(Credentials::passwordHash).orElse(null))) {
            throw wrong();
        }
        throttle.succeeded(key, context.ip());
        welcome(context, found.get().account());
    }

    private static Refusal wrong() {
        return new Refusal(Refusal.Reason.NOT_SIGNED_IN, "the name or the password is wrong");
    }

    private void welcome(Context context, AccountView account) {
        sessions.open(context, account);
        context.json(new Me(account, uploadBytes));
    }

    private void logout(Context context) {
        sessions.close(context);
        context.status(204);
    }
}
