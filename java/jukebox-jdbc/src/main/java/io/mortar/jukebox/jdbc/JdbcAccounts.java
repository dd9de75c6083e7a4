package io.mortar.jukebox.jdbc;

import io.mortar.jukebox.model.AccountView;
import io.mortar.jukebox.model.Accounts;
import io.mortar.jukebox.model.Credentials;
import io.mortar.jukebox.model.Refusal;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.util.Locale;
import java.util.Optional;

/** The accounts in SQL. */
final class JdbcAccounts implements Accounts {
    private final Database database;

    JdbcAccounts(Database database) {
        this.database = database;
    }

    @Override
    public AccountView register(String name, String passwordHash) {
        return database.transact(connection -> {
            if (Sql.first(connection, row -> true, "select 1 from account where key = ?", key(name)) != null) {
                throw new Refusal(Refusal.Reason.EXISTS, "the name " + name + " is taken");
            }
            return Sql.first(
                    connection,
                    JdbcAccounts::view,
                    "insert into account (key, name, password_hash) values (?, ?, ?) returning id, name",
                    key(name),
                    name,
                    passwordHash);
        });
    }

    @Override
    public Optional<Credentials> credentials(String name) {
        return Optional.ofNullable(database.transact(connection -> Sql.first(
                connection,
                row -> new Credentials(view(row), row.getString("password_hash")),
                "select id, name, password_hash from account where key = ?",
                key(name))));
    }

    @Override
    public void openSession(String account, String tokenHash, Instant expires) {
        database.transact(connection -> {
            long id = Identifiers.parse(account, "account");
            Sql.update(connection, "delete from login_session where account = ? and expires < now()", id);
            return Sql.update(
                    connection,
                    "insert into login_session (token_hash, account, expires) values (?, ?, ?)",
                    tokenHash,
                    id,
                    expires);
        });
    }

    @Override
    public Optional<AccountView> session(String tokenHash) {
        return Optional.ofNullable(database.transact(connection -> Sql.first(
                connection,
                JdbcAccounts::view,
                "select a.id, a.name from login_session s join account a on a.id = s.account where s.token_hash = ? and s.expires > now()",
                tokenHash)));
    }

    @Override
    public void closeSession(String tokenHash) {
        database.transact(
                connection -> Sql.update(connection, "delete from login_session where token_hash = ?", tokenHash));
    }

    private static AccountView view(ResultSet row) throws SQLException {
        return new AccountView(row.getString("id"), row.getString("name"));
    }

    private static String key(String name) {
        return name.toLowerCase(Locale.ROOT);
    }
}
