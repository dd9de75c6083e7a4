package io.mortar.jukebox.jdo;

import io.mortar.Client;
import io.mortar.MortarException;
import io.mortar.Oid;
import io.mortar.StagedContent;
import io.mortar.Transaction;
import io.mortar.jukebox.model.Audio;
import java.io.IOException;
import java.io.InputStream;

/**
 * The audio of tracks: blobs of Mortar, which are written and read as streams. JDO would load them as arrays.
 *
 * <p>A blob is stored before the track that refers to it, and deleted after it.
 */
final class AudioContents {
    private final Client client;

    AudioContents(Client client) {
        this.client = client;
    }

    /** Stores all bytes of a stream, and returns what identifies them. */
    String store(InputStream bytes) throws IOException {
        try {
            StagedContent staged = client.upload(bytes);
            return client.transact(transaction -> new Created(transaction, transaction.createBlob(staged)))
                    .permanent()
                    .toString();
        } catch (IOException error) {
            if (error.getCause() instanceof MortarException store) {
                throw Transactions.refusal(store);
            }
            throw error;
        } catch (MortarException error) {
            throw Transactions.refusal(error);
        }
    }

    /** A blob with the transaction that knows its permanent identifier after the commit. */
    private record Created(Transaction transaction, Oid oid) {
        Oid permanent() {
            return transaction.realOid(oid).orElseThrow();
        }
    }

    Audio audio(String id, String mediaType, long size) {
        return new StoredAudio(client, Oid.parse(id), mediaType, size);
    }

    private record StoredAudio(Client client, Oid blob, String mediaType, long size) implements Audio {
        @Override
        public InputStream open(long from, long end) {
            return client.read(blob, from, end);
        }
    }

    void delete(String id) throws MortarException {
        client.run(transaction -> transaction.delete(Oid.parse(id)));
    }
}
