import static java.nio.charset.StandardCharsets.US_ASCII;

import io.aeron.Aeron.Context;
import io.aeron.ChannelUriStringBuilder;
import io.aeron.CommonContext;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Aeron: a media driver in the process, one multicast channel, one stream per group. README.md has the settings and why.
 * The lines, messages and records are those of participant.c.
 */
final class Aeron {
    private static final long MAGIC = ByteBuffer.wrap("CMPORDNU".getBytes(US_ASCII)).getLong();
    private static final int RECORD_LONGS = 5;
    private static final long STREAMS_BUFFER = 16 << 20;
    private static final int TERM_MIN = 64 << 10;
    private static final int TERM_MAX = 16 << 20;
    /** After how long a silent peer is given up: a busy machine is no reason to lose a stream. */
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(60);
    private static final long RETRY_NS = 100_000;
    private static final int FIRST_STREAM = 1000;

    private final Map<String, String> options = new HashMap<>();
    private final Map<String, String> settings = new HashMap<>();
    private final boolean sends;
    private final boolean tuned;
    private final int index;
    private final int receivers;
    private final int senders;
    private final int groups;
    private final int size;
    private final long count;
    private final BufferedReader rig = new BufferedReader(new InputStreamReader(System.in, US_ASCII));
    private volatile String command = "";
    private volatile long startNs;
    private final long[] records;
    private int recorded;
    private long corrupt;
    private long droppedRecords;
    private long refused;

    private Aeron(final String[] args) {
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        for (final String setting : options.getOrDefault("--settings", "").split(",")) {
            final int equals = setting.indexOf('=');
            if (equals > 0) {
                settings.put(setting.substring(0, equals), setting.substring(equals + 1));
            }
        }
        sends = "send".equals(options.get("--role"));
        tuned = "tuned".equals(settings.get("profile"));
        index = (int)number("--index", 0);
        receivers = (int)number("--receivers", 1);
        senders = (int)number("--senders", 1);
        groups = (int)number("--groups", 1);
        size = (int)number("--size", 1024);
        count = number("--count", 1000);
        // Duplicates are written down too, so there is room for some.
        records = sends ? new long[0] : new long[(int)(senders * count * 2 + 1024) * RECORD_LONGS];
    }

    public static void main(final String[] args) throws Exception {
        final Aeron participant = new Aeron(args);
        final MediaDriver.Context driver = participant.driver();
        MediaDriver.launch(driver);
        final Context context = new Context()
            .aeronDirectoryName(driver.aeronDirectoryName())
            .driverTimeoutMs(TimeUnit.NANOSECONDS.toMillis(PATIENCE_NS));
        final io.aeron.Aeron client = io.aeron.Aeron.connect(context);
        if (participant.sends) {
            participant.send(client);
        } else {
            participant.receive(client);
        }
        say("done");
        Runtime.getRuntime().halt(0); // driver and client are not closed: that lingers for seconds
    }

    private MediaDriver.Context driver() {
        final MediaDriver.Context driver = new MediaDriver.Context()
            .aeronDirectoryName(options.getOrDefault("--dir", ".") + "/aeron")
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(false)
            .termBufferSparseFile(true)
            .performStorageChecks(false)
            .clientLivenessTimeoutNs(PATIENCE_NS)
            .imageLivenessTimeoutNs(PATIENCE_NS)
            .publicationConnectionTimeoutNs(PATIENCE_NS)
            .publicationUnblockTimeoutNs(2 * PATIENCE_NS)
            .conductorIdleStrategy(idle())
            .senderIdleStrategy(idle())
            .receiverIdleStrategy(idle())
            .sharedIdleStrategy(idle());
        if (settings.containsKey("threads")) {
            driver.threadingMode(ThreadingMode.valueOf(settings.get("threads").toUpperCase()));
        } else if (tuned) {
            driver.threadingMode(ThreadingMode.SHARED);
        }
        if (tuned) {
            driver.nakMulticastMaxBackoffNs(TimeUnit.MICROSECONDS.toNanos(setting("nak_backoff_us", 1000)))
                .nakMulticastGroupSize(Math.max(receivers, 2))
                .retransmitUnicastLingerNs(TimeUnit.MICROSECONDS.toNanos(setting("linger_us", 4000)))
                .socketRcvbufLength(2 << 20)
                .socketSndbufLength(2 << 20)
                .initialWindowLength(1 << 20);
        }
        return driver;
    }

    private String channel() {
        // An Aeron data address is odd; the address after it carries the control frames.
        final ChannelUriStringBuilder channel = new ChannelUriStringBuilder()
            .media(CommonContext.UDP_MEDIA)
            .endpoint("239.88.0.1:30881")
            .networkInterface(options.getOrDefault("--address", "0.0.0.0") + "/16");
        if (sends) {
            // One budget of log buffers for all streams of a host; the least term that Aeron allows is 64 KiB.
            final long share = STREAMS_BUFFER / ((long)groups * senders);
            final int term = (int)Math.min(TERM_MAX, Math.max(TERM_MIN, Long.highestOneBit(share)));
            channel.termLength(term);
            if (tuned) {
                channel.minFlowControl(receivers, "30s"); // waits for the slowest of all receivers, and for all to be there
            }
        }
        return channel.build();
    }

    private void send(final io.aeron.Aeron client) throws Exception {
        final ExclusivePublication[] streams = new ExclusivePublication[groups];
        for (int group = 0; group < groups; group++) {
            streams[group] = client.addExclusivePublication(channel(), FIRST_STREAM + group);
        }
        for (final ExclusivePublication stream : streams) {
            while (!stream.isConnected()) {
                LockSupport.parkNanos(1_000_000);
            }
        }
        say("ready");
        readRig();
        while (!"go".equals(command)) {
            LockSupport.parkNanos(100_000);
        }
        sendAll(streams);
        while (!"stop".equals(command)) {
            LockSupport.parkNanos(1_000_000);
        }
        say("stat refused " + refused);
    }

    private void sendAll(final ExclusivePublication[] streams) {
        final double rate = Double.parseDouble(options.getOrDefault("--rate", "1000"));
        final long seed = number("--seed", 0);
        final UnsafeBuffer message = new UnsafeBuffer(ByteBuffer.allocateDirect(size));
        for (long n = 0; n < count; n++) {
            final int group = (int)Long.remainderUnsigned(splitmix64(seed ^ ((long)index << 40) ^ n), groups);
            message.putLong(0, MAGIC);
            message.putInt(8, index);
            message.putInt(12, group);
            message.putLong(16, n);
            for (int i = 32; i < size; i++) {
                message.putByte(i, (byte)(i * 31 + n));
            }
            sleepUntil(startNs + (long)(n * 1e9 / rate));
            message.putLong(24, System.nanoTime());
            long result;
            while ((result = streams[group].offer(message, 0, size)) < 0) {
                if (result == Publication.CLOSED || result == Publication.MAX_POSITION_EXCEEDED) {
                    throw new IllegalStateException("the publication of group " + group + " ended: " + result);
                }
                refused++;
                LockSupport.parkNanos(RETRY_NS);
            }
        }
        say("sent " + count);
    }

    private void receive(final io.aeron.Aeron client) throws Exception {
        final Subscription[] streams = new Subscription[groups];
        final FragmentHandler[] handlers = new FragmentHandler[groups];
        for (int group = 0; group < groups; group++) {
            final int channelGroup = group;
            streams[group] = client.addSubscription(channel(), FIRST_STREAM + group);
            // A message that is longer than a packet comes in fragments.
            handlers[group] = new FragmentAssembler(
                (buffer, offset, length, header) -> deliver(channelGroup, buffer, offset, length, header), size);
        }
        readRig();
        final BackoffIdleStrategy idle = idle();
        boolean ready = false;
        while (!"stop".equals(command)) {
            int work = 0;
            for (int group = 0; group < groups; group++) {
                work += streams[group].poll(handlers[group], 64);
            }
            idle.idle(work);
            if (!ready && allConnected(streams)) {
                ready = true;
                say("ready");
            }
        }
        writeRecords();
        say("stat corrupt " + corrupt);
        say("stat dropped_records " + droppedRecords);
    }

    private boolean allConnected(final Subscription[] streams) {
        for (final Subscription stream : streams) {
            if (stream.imageCount() < senders) {
                return false;
            }
        }
        return true;
    }

    private void deliver(
        final int group, final DirectBuffer buffer, final int offset, final int length, final Header header) {
        final long receiveNs = System.nanoTime();
        if (!isWhole(group, buffer, offset, length)) {
            corrupt++;
            return;
        }
        if ((recorded + 1) * RECORD_LONGS > records.length) {
            droppedRecords++;
            return;
        }
        final int at = recorded++ * RECORD_LONGS;
        records[at] = group;
        records[at + 1] = buffer.getInt(offset + 8);
        records[at + 2] = buffer.getLong(offset + 16);
        records[at + 3] = buffer.getLong(offset + 24);
        records[at + 4] = receiveNs;
    }

    private boolean isWhole(final int group, final DirectBuffer buffer, final int offset, final int length) {
        if (length != size || buffer.getLong(offset) != MAGIC || buffer.getInt(offset + 12) != group) {
            return false;
        }
        final int sender = buffer.getInt(offset + 8);
        if (sender < receivers || sender >= receivers + senders) {
            return false;
        }
        final long n = buffer.getLong(offset + 16);
        for (int i = 32; i < size; i++) {
            if (buffer.getByte(offset + i) != (byte)(i * 31 + n)) {
                return false;
            }
        }
        return true;
    }

    private void writeRecords() throws Exception {
        try (PrintWriter out = new PrintWriter(options.get("--out"), US_ASCII)) {
            for (int i = 0; i < recorded; i++) {
                final int at = i * RECORD_LONGS;
                out.printf("%d %d %d %d %d%n", records[at], records[at + 1], records[at + 2], records[at + 3], records[at + 4]);
            }
        }
    }

    /** Reads the rig's lines in a thread of its own; the end of the input ends the process. */
    private void readRig() {
        final Thread reader = new Thread(() -> {
            try {
                for (String line; (line = rig.readLine()) != null; ) {
                    final String[] words = line.split(" ");
                    if ("go".equals(words[0])) {
                        startNs = Long.parseLong(words[1]);
                    }
                    command = words[0];
                }
            } catch (final Exception error) {
                error.printStackTrace();
            }
            if (!"stop".equals(command)) {
                Runtime.getRuntime().halt(0);
            }
        });
        reader.setDaemon(true);
        reader.start();
    }

    private static void sleepUntil(final long atNs) {
        for (long left; (left = atNs - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
        }
    }

    private static long splitmix64(final long seed) {
        long x = seed + 0x9E3779B97F4A7C15L;
        x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L;
        x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL;
        return x ^ (x >>> 31);
    }

    /** Aeron's default way to idle (spin, yield, park for longer and longer), with another longest park. */
    private BackoffIdleStrategy idle() {
        final long parkNs = setting("park_us", 1000) * 1000;
        return new BackoffIdleStrategy(10, 20, Math.min(parkNs, 1000), parkNs);
    }

    private long number(final String option, final long otherwise) {
        return options.containsKey(option) ? Long.parseUnsignedLong(options.get(option)) : otherwise;
    }

    private long setting(final String key, final long otherwise) {
        return settings.containsKey(key) ? Long.parseLong(settings.get(key)) : otherwise;
    }

    private static void say(final String line) {
        System.out.println(line);
        System.out.flush();
    }
}
