package io.mortar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SeekableByteChannel;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Bytes of blobs: uploads, streams and channels. */
@RequiresLibrary
class BlobTest {
    private static TestCluster cluster;
    private static Client client;
    /** More than an object in a page can have, and no whole number of pieces. */
    private static byte[] large;

    @BeforeAll
    static void open() {
        cluster = new TestCluster();
        client = cluster.client;
        large = new byte[7 * Limits.PIECE + 12_345];
        new Random(1).nextBytes(large);
    }

    @AfterAll
    static void close() {
        cluster.close();
    }

    private static Oid upload(byte[] bytes) throws IOException {
        StagedContent staged = client.upload(new ByteArrayInputStream(bytes));
        assertEquals(bytes.length, staged.size());
        try (Transaction t = client.begin()) {
            Oid oid = t.createBlob(staged);
            t.commit().orThrow();
            Oid real = t.realOid(oid).orElseThrow();
            assertEquals(staged.node(), real.node());
            return real;
        }
    }

    @Test
    void uploadedBytesAreReadAsAStream() throws IOException {
        Oid blob = upload(large);
        StoredObject object = client.get(blob).orElseThrow();
        assertTrue(object.hasContent());
        assertEquals(large.length, object.size());
        try (InputStream in = client.read(blob)) {
            assertArrayEquals(large, in.readAllBytes());
        }
        try (InputStream in = client.read(blob)) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            assertEquals(large.length, in.transferTo(out));
            assertArrayEquals(large, out.toByteArray());
        }
        try (InputStream in = client.read(blob, 1_000_000, 5_000_000)) {
            assertArrayEquals(Arrays.copyOfRange(large, 1_000_000, 5_000_000), in.readAllBytes());
        }
        try (InputStream in = client.read(blob, large.length - 5, Long.MAX_VALUE)) {
            assertArrayEquals(Arrays.copyOfRange(large, large.length - 5, large.length), in.readAllBytes());
        }
    }

    @Test
    void streamSkipsBytes() throws IOException {
        Oid blob = upload(large);
        try (InputStream in = client.read(blob)) {
            assertEquals(5_000_000, in.skip(5_000_000));
            assertEquals(large[5_000_000] & 0xff, in.read());
            assertEquals(2_000_000, in.skip(2_000_000));
            assertEquals(large[7_000_001] & 0xff, in.read());
            assertEquals(large.length - 7_000_002, in.skip(Long.MAX_VALUE));
            assertEquals(-1, in.read());
        }
        try (InputStream in = client.read(blob, 10, 100)) {
            assertEquals(90, in.skip(1000));
            assertEquals(-1, in.read());
        }
        try (Transaction t = client.begin();
                InputStream in = t.inputStream(blob)) {
            in.skipNBytes(6_000_000);
            assertEquals(large[6_000_000] & 0xff, in.read());
            assertArrayEquals(Arrays.copyOfRange(large, 6_000_001, large.length), in.readAllBytes());
        }
    }

    @Test
    void smallAndMissingBlobsAreStreams() throws IOException {
        Oid small = cluster.createBlob(TestCluster.utf8("hello"));
        assertArrayEquals(TestCluster.utf8("hello"), client.read(small).readAllBytes());
        assertArrayEquals(TestCluster.utf8("ell"), client.read(small, 1, 4).readAllBytes());
        assertEquals(-1, client.read(cluster.createBlob(new byte[0])).read());
        Oid missing = Oid.of(small.space(), 0, small.node(), small.page(), 0xfffc);
        assertInstanceOf(
                NotFoundException.class,
                assertThrows(IOException.class, () -> client.read(missing).read())
                        .getCause());
        assertInstanceOf(
                NotFoundException.class,
                assertThrows(IOException.class, () -> client.read(missing).skip(1))
                        .getCause());
        InputStream closed = client.read(small);
        closed.close();
        assertThrows(IOException.class, closed::read);
    }

    @Test
    void uploadIsWrittenPieceByPieceAndOnce() throws IOException {
        int node = client.nodes().get(1);
        StagedContent staged;
        try (ContentOutputStream out = client.contentOutput(node)) {
            out.write(large, 0, 3_000_000);
            out.write(large[3_000_000]);
            out.write(large, 3_000_001, large.length - 3_000_001);
            staged = out.finish();
            assertThrows(IOException.class, () -> out.write(1));
            assertThrows(IOException.class, out::finish);
        }
        assertEquals(node, staged.node());
        Oid blob = cluster.createBlob(new byte[0]);
        try (Transaction t = client.begin()) {
            Oid created = t.createBlob(staged);
            assertThrows(UnsupportedException.class, () -> t.readAt(created, 0, 1));
            if (blob.node() != node) {
                assertThrows(InvalidRequestException.class, () -> t.putContent(blob, staged));
            }
            t.commit().orThrow();
            assertArrayEquals(
                    large, client.read(t.realOid(created).orElseThrow()).readAllBytes());
        }
        StagedContent there = client.upload(new ByteArrayInputStream(large), blob.node());
        client.run(t -> t.putContent(blob, there));
        assertEquals(large.length, client.stat(blob).orElseThrow().size());
    }

    @Test
    void uploadThatIsGivenUpLeavesNothing() throws IOException {
        try (ContentOutputStream out = client.contentOutput()) {
            out.write(large, 0, 2_000_000);
        }
        InputStream failing = new InputStream() {
            @Override
            public int read() throws IOException {
                throw new IOException("the source has failed");
            }
        };
        assertEquals(
                "the source has failed",
                assertThrows(IOException.class, () -> client.upload(failing)).getMessage());
        assertEquals(0, client.upload(InputStream.nullInputStream()).size());
    }

    @Test
    void partsOfABlobAreReadAndWritten() throws IOException {
        Oid blob = upload(large);
        byte[] expected = large.clone();
        System.arraycopy(new byte[] {1, 2, 3}, 0, expected, 2_000_000, 3);
        Arrays.fill(expected, 4_000_000, 4_000_100, (byte) 0);
        try (Transaction t = client.begin()) {
            t.writeAt(blob, 2_000_000, new byte[] {1, 2, 3});
            t.zero(blob, 4_000_000, 100);
            t.append(blob, TestCluster.utf8("tail"));
            t.append(blob, TestCluster.utf8("!"));
            assertArrayEquals(Arrays.copyOfRange(expected, 1_999_999, 2_000_009), t.readAt(blob, 1_999_999, 10));
            assertArrayEquals(TestCluster.utf8("tail!"), t.readAt(blob, large.length, 100));
            assertEquals(large.length + 5, t.size(blob));
            assertEquals(List.of(), t.appendOffsets(blob));
            t.commit().orThrow();
            assertEquals(List.of((long) large.length, large.length + 4L), t.appendOffsets(blob));
        }
        assertArrayEquals(expected, client.read(blob, 0, large.length).readAllBytes());
        client.run(t -> t.truncate(blob, 2_000_001));
        assertArrayEquals(Arrays.copyOf(expected, 2_000_001), client.read(blob).readAllBytes());
        try (Transaction t = client.begin()) {
            assertThrows(TooLargeException.class, () -> t.readAt(blob, 0, 5 << 20));
            assertThrows(InvalidRequestException.class, () -> t.readAt(blob, -1, 1));
            assertThrows(InvalidRequestException.class, () -> t.writeAt(blob, -1, new byte[1]));
            assertThrows(NotFoundException.class, () -> t.size(cluster.create("Ann", 1)));
        }
    }

    @Test
    void channelReadsAndWritesAnywhere() throws IOException {
        Oid blob = upload(large);
        byte[] inserted = new byte[3 * Limits.PIECE + 7];
        new Random(2).nextBytes(inserted);
        byte[] expected = large.clone();
        System.arraycopy(inserted, 0, expected, 1_234_567, inserted.length);
        try (Transaction t = client.begin()) {
            try (SeekableByteChannel channel = t.channel(blob)) {
                assertEquals(large.length, channel.size());
                assertEquals(0, channel.position());
                channel.position(1_234_567);
                assertEquals(inserted.length, channel.write(ByteBuffer.wrap(inserted)));
                assertEquals(1_234_567 + inserted.length, channel.position());
                channel.position(0);
                ByteBuffer read = ByteBuffer.allocateDirect(large.length + 1);
                while (channel.read(read) >= 0) {
                    // It reads at most a piece at once.
                }
                read.flip();
                assertEquals(ByteBuffer.wrap(expected), read);
                assertEquals(-1, channel.read(ByteBuffer.allocate(1)));
                assertEquals(0, channel.read(ByteBuffer.allocate(0)));
                channel.truncate(large.length + 100L);
                assertEquals(large.length, channel.size(), "a channel is not extended");
                channel.truncate(5_000_000);
                assertEquals(5_000_000, channel.size());
                assertEquals(5_000_000, channel.position());
                assertThrows(IllegalArgumentException.class, () -> channel.position(-1));
                channel.close();
                assertFalse(channel.isOpen());
                assertThrows(ClosedChannelException.class, channel::size);
            }
            assertFalse(t.isOver());
            t.commit().orThrow();
        }
        assertArrayEquals(Arrays.copyOf(expected, 5_000_000), client.read(blob).readAllBytes());
    }

    @Test
    void streamReplacesTheBytesInATransaction() throws IOException {
        Oid blob = cluster.createBlob(TestCluster.utf8("something else that was longer"));
        byte[] bytes = Arrays.copyOf(large, 3 * Limits.PIECE);
        client.run(t -> {
            try (OutputStream out = t.outputStream(blob)) {
                out.write(bytes, 0, 5);
                out.flush();
                assertEquals(5, t.size(blob));
                out.write(bytes, 5, bytes.length - 5);
            }
            try (InputStream in = t.inputStream(blob)) {
                assertArrayEquals(bytes, in.readAllBytes());
            }
        });
        assertArrayEquals(bytes, client.read(blob).readAllBytes());
        client.run(t -> {
            Oid created = t.createBlob(new byte[0]);
            try (OutputStream out = t.outputStream(created)) {
                out.write(TestCluster.utf8("new"));
            }
            t.bind("written by a stream", created);
        });
        Oid created = client.resolve("written by a stream").orElseThrow();
        assertArrayEquals(
                TestCluster.utf8("new"), client.get(created).orElseThrow().data());
    }

    @Test
    void errorsOfChannelsAreTheCauseOfAnIoException() {
        Oid missing = cluster.create("Ann", 1);
        try (Transaction t = client.begin()) {
            SeekableByteChannel channel = t.channel(missing);
            IOException error = assertThrows(IOException.class, () -> channel.read(ByteBuffer.allocate(1)));
            assertInstanceOf(NotFoundException.class, error.getCause());
        }
    }
}
