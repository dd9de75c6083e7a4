package io.mortar.jukebox.jdo;

import java.time.Instant;
import javax.jdo.annotations.IdentityType;
import javax.jdo.annotations.Index;
import javax.jdo.annotations.PersistenceCapable;
import javax.jdo.annotations.PrimaryKey;

/** The login of an account in one browser. The browser has a secret; the store has only a hash of it. */
@PersistenceCapable(identityType = IdentityType.APPLICATION)
class LoginSession {
    @PrimaryKey
    private String tokenHash;

    @Index
    private Account account;

    private Instant expires;

    LoginSession(String tokenHash, Account account, Instant expires) {
        this.tokenHash = tokenHash;
        this.account = account;
        this.expires = expires;
    }

    Account account() {
        return account;
    }

    boolean isValid(Instant now) {
        return now.isBefore(expires);
    }
}
