package io.mortar.jukebox.model;

import java.time.Instant;
import java.util.Optional;

/** The accounts and their sessions. Names that differ in case only are the same. */
public interface Accounts {
    /** The name of the account that owns imported music. Registration and login refuse it. */
    String HOUSE = "jukebox";

    /**
     * Creates an account.
     *
     * @throws Refusal EXISTS, if the name is taken
     */
    AccountView register(String name, String passwordHash);

    Optional<Credentials> credentials(String name);

    /**
     * Begins a session, and forgets those of the account that have expired.
     *
     * @param tokenHash the hash of the secret that the browser keeps
     */
    void openSession(String account, String tokenHash, Instant expires);

    /** The account of a session that has not expired. */
    Optional<AccountView> session(String tokenHash);

    void closeSession(String tokenHash);
}
