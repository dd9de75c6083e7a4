package io.mortar;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/** Options of a client. They are immutable; {@link #builder} begins with the defaults. */
public final class ConnectOptions {
    private final Duration connectTimeout;
    private final Duration timeout;
    private final long cacheBytes;
    private final boolean snapshots;
    private final String agent;
    private final String user;
    private final String password;
    private final boolean insecure;
    private final Path trustedCertificates;
    private final Path certificate;
    private final Path key;

    private ConnectOptions(Builder builder) {
        connectTimeout = builder.connectTimeout;
        timeout = builder.timeout;
        cacheBytes = builder.cacheBytes;
        snapshots = builder.snapshots;
        agent = builder.agent;
        user = builder.user;
        password = builder.password;
        insecure = builder.insecure;
        trustedCertificates = builder.trustedCertificates;
        certificate = builder.certificate;
        key = builder.key;
    }

    /**
     * Returns the default options.
     *
     * @return the options
     */
    public static ConnectOptions defaults() {
        return builder().build();
    }

    /**
     * Returns a builder with the defaults.
     *
     * @return the builder
     */
    public static Builder builder() {
        return new Builder();
    }

    void write(MessageWriter out) {
        out.u64(connectTimeout.toMillis())
                .u64(timeout.toMillis())
                .u64(cacheBytes)
                .bool(snapshots)
                .string(agent)
                .optional(user, MessageWriter::string)
                .string(password)
                .bool(insecure)
                .optional(path(trustedCertificates), MessageWriter::string)
                .optional(path(certificate), MessageWriter::string)
                .optional(path(key), MessageWriter::string);
    }

    private static String path(Path file) {
        return file == null ? null : file.toString();
    }

    /** Returns the options for people, without the password. */
    @Override
    public String toString() {
        return "ConnectOptions[connectTimeout=" + connectTimeout + ", timeout=" + timeout + ", cacheBytes=" + cacheBytes
                + ", snapshots=" + snapshots + ", agent=" + agent + ", user=" + user + ", insecure=" + insecure
                + ", trustedCertificates="
                + trustedCertificates + ", certificate=" + certificate + ", key=" + key + ']';
    }

    /** Builds the options of a client. */
    public static final class Builder {
        /** The native library takes 0 for its default. */
        private Duration connectTimeout = Duration.ZERO;

        private Duration timeout = Duration.ZERO;
        private long cacheBytes;
        private boolean snapshots;
        private String agent = "";
        private String user;
        private String password = "";
        private boolean insecure;
        private Path trustedCertificates;
        private Path certificate;
        private Path key;

        private Builder() {}

        /**
         * Sets the time limit of one attempt to connect: 10 s by default. If a peer server does not answer at once, the
         * client tries the next one of its URL meanwhile.
         *
         * @param limit at least a millisecond
         * @return this builder
         */
        public Builder connectTimeout(Duration limit) {
            connectTimeout = requireMillisecond(limit);
            return this;
        }

        /**
         * Sets the time limit of a call, such as a read, a query, or the outcome of a commit: 30 s by default.
         *
         * @param limit at least a millisecond
         * @return this builder
         */
        public Builder timeout(Duration limit) {
            timeout = requireMillisecond(limit);
            return this;
        }

        private static Duration requireMillisecond(Duration limit) {
            if (limit.toMillis() < 1) {
                throw new InvalidRequestException("a time limit has at least a millisecond, and this is " + limit);
            }
            return limit;
        }

        /**
         * Sets the maximum size of cached copies of objects: 256 MiB by default.
         *
         * @param bytes the size in bytes, at least 1
         * @return this builder
         */
        public Builder cacheBytes(long bytes) {
            if (bytes < 1) {
                throw new InvalidRequestException("a cache has at least one byte, and this is " + bytes);
            }
            cacheBytes = bytes;
            return this;
        }

        /**
         * Sets whether the client receives what {@link IsolationLevel#SNAPSHOT} requires: by default it does not. It
         * costs a small message every 10 ms for each logical node in use.
         *
         * @param receive whether transactions can use snapshots
         * @return this builder
         */
        public Builder snapshots(boolean receive) {
            snapshots = receive;
            return this;
        }

        /**
         * Sets the name of this client in the servers' logs.
         *
         * @param name the name
         * @return this builder
         */
        public Builder agent(String name) {
            agent = Objects.requireNonNull(name);
            return this;
        }

        /**
         * Sets the user that logs in. Without it, it is the user of the URL.
         *
         * @param userName the name of the user
         * @param userPassword the password
         * @return this builder
         */
        public Builder credentials(String userName, String userPassword) {
            user = Objects.requireNonNull(userName);
            password = Objects.requireNonNull(userPassword);
            return this;
        }

        /**
         * Sets the password of the user of the URL.
         *
         * @param userPassword the password
         * @return this builder
         */
        public Builder password(String userPassword) {
            password = Objects.requireNonNull(userPassword);
            return this;
        }

        /**
         * Sets whether the password may be sent over a connection that is not encrypted: by default it may not.
         *
         * @param allow whether it may
         * @return this builder
         */
        public Builder insecure(boolean allow) {
            insecure = allow;
            return this;
        }

        /**
         * Sets the certificates that the client trusts, for {@code mortars://}.
         *
         * @param pemFile a file of certificates in PEM
         * @return this builder
         */
        public Builder trustedCertificates(Path pemFile) {
            trustedCertificates = Objects.requireNonNull(pemFile);
            return this;
        }

        /**
         * Sets the certificate that identifies this client, for {@code mortars://}.
         *
         * @param certificatePemFile a file with the certificate in PEM
         * @param keyPemFile a file with its private key in PEM
         * @return this builder
         */
        public Builder certificate(Path certificatePemFile, Path keyPemFile) {
            certificate = Objects.requireNonNull(certificatePemFile);
            key = Objects.requireNonNull(keyPemFile);
            return this;
        }

        /**
         * Returns the options.
         *
         * @return the options
         */
        public ConnectOptions build() {
            return new ConnectOptions(this);
        }
    }
}
