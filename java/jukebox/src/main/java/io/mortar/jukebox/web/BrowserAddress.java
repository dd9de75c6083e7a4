package io.mortar.jukebox.web;

import io.javalin.http.Context;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Collections;
import java.util.List;
import java.util.Set;

/**
 * Finds the network address of the browser that makes a request. Behind a proxy, the other end of the connection is the
 * proxy; a trusted one appends the address of the browser to {@code X-Forwarded-For}.
 */
final class BrowserAddress {
    private static final String HEADER = "X-Forwarded-For";

    private final Set<InetAddress> trustedProxies;

    BrowserAddress(Set<InetAddress> trustedProxies) {
        this.trustedProxies = trustedProxies;
    }

    String of(Context context) {
        String peer = context.req().getRemoteAddr();
        if (!isTrusted(peer)) {
            return peer;
        }
        // The browser can send the header itself: only the last address comes from the proxy.
        List<String> headers = Collections.list(context.req().getHeaders(HEADER));
        String last = headers.isEmpty() ? "" : headers.get(headers.size() - 1);
        String address = last.substring(last.lastIndexOf(',') + 1).strip();
        return address.isEmpty() ? peer : address;
    }

    private boolean isTrusted(String peer) {
        try {
            // Parses the address of a connection, which is never a name that has to be resolved.
            return !trustedProxies.isEmpty() && trustedProxies.contains(InetAddress.getByName(peer));
        } catch (UnknownHostException error) {
            throw new IllegalStateException("the address of a connection is malformed: " + peer, error);
        }
    }
}
