import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The contender "Apache Flink": the DataStream API as its users write it, in one process.
 *
 * <p>Each of two sources makes the whole item stream and keeps its half of the items, as two
 * partitions of a topic would hold them: so the tuples of an item stay in order.
 */
public final class FlinkPeer {
    private static final int SOURCES = 2;
    /** Positions of one source; the second goes on from here, and both end never. */
    private static final long STREAM = 1L << 40;
    private static final long FIRST_US = 1_700_000_000_000_000L;
    private static final int WINDOW_TUPLES = 10;
    private static final long AHEAD_MS = 2;

    /** Shared by all threads of this process. */
    private static final LongAdder TAKEN_IN = new LongAdder();
    private static final AtomicBoolean READY = new AtomicBoolean();
    private static final StringBuilder RESULTS = new StringBuilder();

    private FlinkPeer() {}

    public static void main(String[] words) throws Exception {
        Map<String, String> job = new HashMap<>();
        for (String word : words) {
            String[] parts = word.split("=", 2);
            job.put(parts[0], parts[1]);
        }
        Path state = Paths.get(job.get("folder"), "state");
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1 s");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", state.toUri().toString());
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString(
            "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("state.backend.type", "hashmap");
        settings.setString("rest.bind-port", "0");
        latest(state).ifPresent(
            path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment environment =
            StreamExecutionEnvironment.createLocalEnvironment(SOURCES, settings);
        build(environment, job);
        Thread teller = new Thread(FlinkPeer::tell, "teller");
        teller.setDaemon(true);
        teller.start();
        environment.execute("peers");
    }

    /** The newest checkpoint that is complete: what `flink run -s` would be given. */
    private static Optional<Path> latest(Path state) throws Exception {
        if (!Files.isDirectory(state)) {
            return Optional.empty();
        }
        try (Stream<Path> all = Files.walk(state)) {
            return all.filter(path -> path.endsWith("_metadata"))
                .map(Path::getParent)
                .max((one, other) -> Long.compare(modified(one), modified(other)));
        }
    }

    private static long modified(Path path) {
        return path.resolve("_metadata").toFile().lastModified();
    }

    private static void build(StreamExecutionEnvironment environment, Map<String, String> job) {
        int watched = Integer.parseInt(job.get("watched"));
        DataStream<Tuple3<Integer, Integer, Long>> purchases = environment
            .fromSource(
                new NumberSequenceSource(0, SOURCES * STREAM - 1),
                WatermarkStrategy.noWatermarks(),
                "positions")
            .flatMap(new Purchases(job))
            .returns(Types.TUPLE(Types.INT, Types.INT, Types.LONG));
        String workload = job.get("workload");
        if (workload.equals("time")) {
            purchases = purchases.assignTimestampsAndWatermarks(
                WatermarkStrategy.<Tuple3<Integer, Integer, Long>>forMonotonousTimestamps()
                    .withTimestampAssigner((purchase, before) -> Math.floorDiv(purchase.f2, 1000L)));
        }
        KeyedStream<Tuple3<Integer, Integer, Long>, Integer> items =
            purchases.keyBy(purchase -> purchase.f0, Types.INT);
        DataStream<Tuple3<Integer, Long, Double>> averages;
        if (workload.equals("count")) {
            averages = items.countWindow(WINDOW_TUPLES)
                .aggregate(new Average(), Types.TUPLE(Types.LONG, Types.LONG, Types.LONG), RESULT);
        } else if (workload.equals("running")) {
            averages = items.map(new Running()).returns(RESULT);
        } else {
            averages = items.window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                .aggregate(
                    new Average(), new WithStart(),
                    Types.TUPLE(Types.LONG, Types.LONG, Types.LONG), RESULT, RESULT);
        }
        averages.filter(new Watch(watched)).sinkTo(new DiscardingSink<>());
    }

    private static final TypeInformation<Tuple3<Integer, Long, Double>> RESULT =
        Types.TUPLE(Types.INT, Types.LONG, Types.DOUBLE);

    /** The tuples of rewake.connectors.item_stream: item, price, time in microseconds. */
    public static final class Purchases
            extends RichFlatMapFunction<Long, Tuple3<Integer, Integer, Long>> {
        private final long key;
        private final long ids;
        private final long interval;
        private final double rate;
        private final String gun;
        private transient double originMs;
        private transient long untold;

        Purchases(Map<String, String> job) {
            key = scrambled(Long.parseLong(job.get("seed")));
            ids = Long.parseLong(job.get("ids"));
            interval = Long.parseLong(job.get("interval_us"));
            rate = Double.parseDouble(job.get("rate"));
            gun = Paths.get(job.get("folder"), "first-tuple-due-ms").toString();
        }

        @Override
        public void open(OpenContext context) {
            if (READY.compareAndSet(false, true)) {
                say("@ready");
            }
        }

        @Override
        public void flatMap(Long number, Collector<Tuple3<Integer, Integer, Long>> out)
                throws Exception {
            long position = number % STREAM;
            if (rate > 0) {
                await(position);
            }
            long chance = scrambled(position * 0x9E3779B97F4A7C15L + key);
            long more = scrambled(chance);
            int item = (int) (((more >>> 32) * ids) >>> 32);
            if (item % SOURCES != number / STREAM) {
                return;
            }
            int price = (int) ((((chance >>> 32) * 1000L) >>> 32) + 1);
            long time = position * interval + Long.remainderUnsigned(more, 10) + FIRST_US;
            if (++untold == 256) {
                TAKEN_IN.add(untold);
                untold = 0;
            }
            out.collect(Tuple3.of(item, price, time));
        }

        /** Until the tuple is due; a little at a time, because checkpoints wait meanwhile. */
        private void await(long position) throws Exception {
            while (originMs == 0) {
                try {
                    originMs = Double.parseDouble(Files.readString(Paths.get(gun)).trim());
                } catch (NoSuchFileException | NumberFormatException notFired) {
                    Thread.sleep(10);
                }
            }
            double due = originMs + position * 1e3 / rate;
            while (System.currentTimeMillis() < due) {
                Thread.sleep(AHEAD_MS);
            }
        }

        private static long scrambled(long value) {
            value = (value ^ (value >>> 30)) * 0xBF58476D1CE4E5B9L;
            value = (value ^ (value >>> 27)) * 0x94D049BB133111EBL;
            return value ^ (value >>> 31);
        }
    }

    /** Count and sum of prices, time of the last: what a user of countWindow writes. */
    public static final class Average
            implements AggregateFunction<
                Tuple3<Integer, Integer, Long>,
                Tuple3<Long, Long, Long>,
                Tuple3<Integer, Long, Double>> {
        @Override
        public Tuple3<Long, Long, Long> createAccumulator() {
            return Tuple3.of(0L, 0L, 0L);
        }

        @Override
        public Tuple3<Long, Long, Long> add(
                Tuple3<Integer, Integer, Long> purchase, Tuple3<Long, Long, Long> open) {
            // The item travels with the count: a count window's function does not see its key.
            long counted = (open.f0 & 0xFFFFFFFFL) + 1;
            open.f0 = ((long) purchase.f0 << 32) | counted;
            open.f1 += purchase.f1;
            open.f2 = Math.max(open.f2, purchase.f2);
            return open;
        }

        @Override
        public Tuple3<Integer, Long, Double> getResult(Tuple3<Long, Long, Long> open) {
            double counted = open.f0 & 0xFFFFFFFFL;
            return Tuple3.of((int) (open.f0 >> 32), open.f2, open.f1 / counted);
        }

        @Override
        public Tuple3<Long, Long, Long> merge(
                Tuple3<Long, Long, Long> one, Tuple3<Long, Long, Long> other) {
            long counted = (one.f0 & 0xFFFFFFFFL) + (other.f0 & 0xFFFFFFFFL);
            return Tuple3.of(
                (one.f0 >> 32 << 32) | counted, one.f1 + other.f1, Math.max(one.f2, other.f2));
        }
    }

    /** A time window is known by where it starts. */
    public static final class WithStart
            extends ProcessWindowFunction<
                Tuple3<Integer, Long, Double>, Tuple3<Integer, Long, Double>, Integer, TimeWindow> {
        @Override
        public void process(
                Integer item,
                Context context,
                Iterable<Tuple3<Integer, Long, Double>> averages,
                Collector<Tuple3<Integer, Long, Double>> out) {
            Tuple3<Integer, Long, Double> average = averages.iterator().next();
            out.collect(Tuple3.of(item, context.window().getStart() * 1000L, average.f2));
        }
    }

    /** The average so far, after every tuple. */
    public static final class Running
            extends RichMapFunction<
                Tuple3<Integer, Integer, Long>, Tuple3<Integer, Long, Double>> {
        private transient ValueState<Tuple3<Long, Long, Long>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>(
                "average", Types.TUPLE(Types.LONG, Types.LONG, Types.LONG)));
        }

        @Override
        public Tuple3<Integer, Long, Double> map(Tuple3<Integer, Integer, Long> purchase)
                throws Exception {
            Tuple3<Long, Long, Long> soFar = state.value();
            long counted = soFar == null ? 1 : soFar.f0 + 1;
            long total = (soFar == null ? 0 : soFar.f1) + purchase.f1;
            state.update(Tuple3.of(counted, total, purchase.f2));
            return Tuple3.of(purchase.f0, purchase.f2, (double) total / counted);
        }
    }

    /** Notes the results of watched items; nothing passes. */
    public static final class Watch implements FilterFunction<Tuple3<Integer, Long, Double>> {
        private final int watched;

        Watch(int watched) {
            this.watched = watched;
        }

        @Override
        public boolean filter(Tuple3<Integer, Long, Double> result) {
            if (result.f0 < watched) {
                // One line each, so that it carries the time at which it came.
                String line = "@results " + System.currentTimeMillis() + " " + result.f0 + ","
                    + result.f1 + "," + result.f2 + "\n";
                synchronized (RESULTS) {
                    RESULTS.append(line);
                }
            }
            return false;
        }
    }

    private static void tell() {
        long told = 0;
        while (true) {
            String results;
            synchronized (RESULTS) {
                results = RESULTS.toString();
                RESULTS.setLength(0);
            }
            if (!results.isEmpty()) {
                say(results.stripTrailing());
            }
            if (System.currentTimeMillis() - told >= 200) {
                told = System.currentTimeMillis();
                say("@rows " + TAKEN_IN.sum() + " " + told);
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    private static void say(String lines) {
        synchronized (System.out) {
            System.out.println(lines);
            System.out.flush();
        }
    }
}
