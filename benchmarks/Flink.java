import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * What a worker does, without privacy, in Flink: at most BOUND records of each user, a count per
 * page, both in RocksDB; a checkpoint of everything each second, exactly once. Job and task managers
 * run in this process. Prints the seconds from the first record read to the last one counted.
 *
 * <p>Arguments: bootstrap, topic, records that will be counted, bound, parallelism, state folder.
 */
public final class Flink {
    private static final AtomicLong BEGUN = new AtomicLong();
    private static final AtomicLong COUNTED = new AtomicLong();
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static long wanted;

    public static void main(String[] given) throws Exception {
        wanted = Long.parseLong(given[2]);
        int bound = Integer.parseInt(given[3]);
        Path folder = Files.createTempDirectory(Path.of(given[5]), "flink");
        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(
                Integer.parseInt(given[4]), settings(folder));
        KafkaSource<String> source =
            KafkaSource.<String>builder()
                .setBootstrapServers(given[0])
                .setTopics(given[1])
                .setGroupId("peer-" + folder.getFileName())
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        ObjectMapper json = new ObjectMapper();
        flink
            .fromSource(source, WatermarkStrategy.noWatermarks(), "events")
            .map(value -> event(json, value))
            .returns(Types.TUPLE(Types.STRING, Types.STRING))
            .keyBy(event -> event.f0, Types.STRING)
            .process(new Bound(bound))
            .keyBy(page -> page, Types.STRING)
            .process(new Count())
            .sinkTo(new DiscardingSink<>());
        JobClient job = flink.executeAsync("peer");
        DONE.await();
        double seconds = (System.nanoTime() - BEGUN.get()) / 1e9;
        Thread.sleep(1500); // a record that was counted twice would come now
        System.out.printf("%.4f %d%n", seconds, COUNTED.get());
        job.cancel().get();
        System.exit(0);
    }

    private static Configuration settings(Path folder) {
        Configuration made = new Configuration();
        made.setString("state.backend.type", "rocksdb");
        made.setString("state.backend.rocksdb.localdir", folder.resolve("state").toString());
        made.setString("execution.checkpointing.interval", "1s");
        made.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        made.setString("execution.checkpointing.incremental", "true");
        made.setString("execution.checkpointing.dir", folder.resolve("checkpoints").toUri().toString());
        made.setString("taskmanager.memory.managed.size", "1g");
        made.setString("pipeline.object-reuse", "true");
        made.setString("restart-strategy.type", "none");
        return made;
    }

    private static Tuple2<String, String> event(ObjectMapper json, String value) throws Exception {
        BEGUN.compareAndSet(0, System.nanoTime());
        JsonNode body = json.readTree(value);
        return Tuple2.of(body.get("user").asText(), body.get("page").asText());
    }

    private static final class Bound
        extends KeyedProcessFunction<String, Tuple2<String, String>, String> {
        private final int most;
        private transient ValueState<Integer> used;

        Bound(int most) {
            this.most = most;
        }

        @Override
        public void open(OpenContext context) {
            used = getRuntimeContext().getState(new ValueStateDescriptor<>("used", Types.INT));
        }

        @Override
        public void processElement(
            Tuple2<String, String> event, Context context, Collector<String> out) throws Exception {
            Integer before = used.value();
            int count = before == null ? 0 : before;
            if (count < most) {
                used.update(count + 1);
                out.collect(event.f1);
            }
        }
    }

    private static final class Count extends KeyedProcessFunction<String, String, Long> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.LONG));
        }

        @Override
        public void processElement(String page, Context context, Collector<Long> out)
            throws Exception {
            Long before = total.value();
            long now = before == null ? 1 : before + 1;
            total.update(now);
            out.collect(now);
            if (COUNTED.incrementAndGet() == wanted) {
                DONE.countDown();
            }
        }
    }
}
