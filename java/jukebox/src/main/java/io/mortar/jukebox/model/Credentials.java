package io.mortar.jukebox.model;

/** An account with the hash of its password. */
public record Credentials(AccountView account, String passwordHash) {}
