package io.mortar;

import java.io.IOException;

/**
 * An upload whose bytes come one after the other: {@link Client#contentOutput()}. Bytes are sent in pieces of 1 MiB. An
 * upload that is closed before {@link #finish} leaves nothing behind.
 *
 * <pre>{@code
 * StagedContent staged;
 * try (ContentOutputStream out = client.contentOutput()) {
 *     out.write(bytes);
 *     staged = out.finish();
 * }
 * client.run(t -> t.bind("videos/first", t.createBlob(staged)));
 * }</pre>
 *
 * <p>One thread uses a stream at a time. After an error bytes are missing, and each further call fails.
 */
public final class ContentOutputStream extends PieceOutputStream {
    private final NativeHandle client;
    private final NativeHandle writer;

    ContentOutputStream(NativeHandle client, NativeHandle writer) {
        this.client = client;
        this.writer = writer;
    }

    @Override
    void writePiece(byte[] bytes, int offset, int length) {
        writer.call(Operation.WRITER_WRITE, new MessageWriter(length + Integer.BYTES).bytes(bytes, offset, length));
    }

    /**
     * Waits until all bytes are staged, durably. The stream is closed then.
     *
     * @return the bytes, for {@link Transaction#createBlob(StagedContent)} and {@link Transaction#putContent}
     * @throws IOException if the stream is closed; with a {@link MortarException} as its cause if the upload has failed
     */
    public StagedContent finish() throws IOException {
        checkOpen();
        sendBuffered();
        try {
            return writer.call(Operation.WRITER_FINISH, null, reply -> StagedContent.read(reply, client));
        } catch (MortarException error) {
            throw new IOException(error.getMessage(), error);
        } finally {
            close();
        }
    }

    /** Gives the upload up, unless it is finished. */
    @Override
    public void close() {
        markClosed();
        writer.close();
    }
}
