package io.mortar.jukebox.sample;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Plays a melody on plucked strings into a WAV file of one channel. */
final class Synthesizer {
    private static final int RATE = 22_050;
    private static final int HEADER_BYTES = 44;
    private static final double[] HARMONICS = {1, 0.5, 0.28, 0.14, 0.07};
    private static final double ATTACK_SECONDS = 0.012;
    private static final double RING_SECONDS = 1.2;
    private static final double BEATS_PER_BAR = 4;
    private static final double LOUDNESS = 0.8 * Short.MAX_VALUE;

    private Synthesizer() {}

    static byte[] wav(Melody melody) {
        double[] samples = new double[(int) ((melody.seconds() + RING_SECONDS) * RATE)];
        double beat = 0;
        double nextBar = 0;
        for (Melody.Note note : melody.notes()) {
            double start = beat * melody.secondsPerBeat();
            if (note.frequency() > 0) {
                add(samples, start, note.frequency(), note.beats() * melody.secondsPerBeat(), 1);
                if (beat >= nextBar) {
                    add(samples, start, note.frequency() / 4, BEATS_PER_BAR * melody.secondsPerBeat(), 0.6);
                    nextBar += BEATS_PER_BAR;
                }
            }
            beat += note.beats();
        }
        return file(samples);
    }

    private static void add(double[] samples, double start, double frequency, double length, double loudness) {
        int first = (int) (start * RATE);
        int count = Math.min(samples.length - first, (int) ((length + RING_SECONDS) * RATE));
        for (int i = 0; i < count; i++) {
            double time = (double) i / RATE;
            double fade = Math.exp(-time / (length * 0.7))
                    * Math.min(1, time / ATTACK_SECONDS)
                    * Math.min(1, (double) (count - i) / (RATE / 20));
            double wave = 0;
            for (int harmonic = 0; harmonic < HARMONICS.length; harmonic++) {
                double pitch = frequency * (harmonic + 1);
                wave += pitch < RATE / 2.0 ? HARMONICS[harmonic] * Math.sin(2 * Math.PI * pitch * time) : 0;
            }
            samples[first + i] += loudness * fade * wave;
        }
    }

    private static byte[] file(double[] samples) {
        double peak = 1e-9;
        for (double sample : samples) {
            peak = Math.max(peak, Math.abs(sample));
        }
        int bytes = samples.length * 2;
        ByteBuffer file = ByteBuffer.allocate(HEADER_BYTES + bytes).order(ByteOrder.LITTLE_ENDIAN);
        file.put(ascii("RIFF")).putInt(HEADER_BYTES - 8 + bytes).put(ascii("WAVE"));
        // 16 bytes of format: PCM, one channel, samples and bytes a second, bytes and bits of a sample.
        file.put(ascii("fmt ")).putInt(16).putShort((short) 1).putShort((short) 1);
        file.putInt(RATE).putInt(RATE * 2).putShort((short) 2).putShort((short) 16);
        file.put(ascii("data")).putInt(bytes);
        for (double sample : samples) {
            file.putShort((short) (sample / peak * LOUDNESS));
        }
        return file.array();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
