package io.mortar.jukebox.jdo;

import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.Credentials;
import io.mortar.jukebox.model.Refusal;
import java.time.Instant;
import java.util.Locale;
import java.util.Optional;
import javax.jdo.JDOObjectNotFoundException;
import javax.jdo.PersistenceManager;

/** The accounts by JDO. */
final class JdoAccounts implements Accounts {
    private final Transactions transactions;

    JdoAccounts(Transactions transactions) {
        this.transactions = transactions;
    }

    @Override
    public AccountView register(String name, String passwordHash) {
        return transactions.run(manager -> {
            if (named(manager, name) != null) {
                throw new Refusal(Refusal.Reason.EXISTS, "the name " + name + " is taken");
            }
            return manager.makePersistent(new Account(key(name), name, passwordHash, Instant.now()))
                    .view();
        });
    }

    @Override
    public Optional<Credentials> credentials(String name) {
        return transactions.run(manager -> Optional.ofNullable(named(manager, name))
                .map(account -> new Credentials(account.view(), account.passwordHash())));
    }

    @Override
    public void openSession(String account, String tokenHash, Instant expires) {
        transactions.execute(manager -> {
            Account owner = Identifiers.load(manager, Account.class, account, "account");
            manager.newQuery(LoginSession.class, "account == :owner && expires < :now")
                    .deletePersistentAll(owner, Instant.now());
            manager.makePersistent(new LoginSession(tokenHash, owner, expires));
        });
    }

    @Override
    public Optional<AccountView> session(String tokenHash) {
        return transactions.run(manager -> Optional.ofNullable(find(manager, tokenHash))
                .filter(session -> session.isValid(Instant.now()))
                .map(session -> session.account().view()));
    }

    @Override
    public void closeSession(String tokenHash) {
        transactions.execute(manager -> {
            LoginSession session = find(manager, tokenHash);
            if (session != null) {
                manager.deletePersistent(session);
            }
        });
    }

    private static LoginSession find(PersistenceManager manager, String tokenHash) {
        try {
            return manager.getObjectById(LoginSession.class, tokenHash);
        } catch (JDOObjectNotFoundException none) {
            return null;
        }
    }

    private static Account named(PersistenceManager manager, String name) {
        return manager.newQuery(Account.class, "key == :key")
                .setParameters(key(name))
                .executeUnique();
    }

    private static String key(String name) {
        return name.toLowerCase(Locale.ROOT);
    }
}
