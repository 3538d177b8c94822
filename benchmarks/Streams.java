import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * What a worker does, without privacy, in Kafka Streams: at most BOUND records of each user, kept
 * in RocksDB with a changelog; a repartition by page; a count per page, kept likewise. Exactly
 * once (v2). Prints the seconds from the first record read to the last one counted.
 *
 * <p>Arguments: bootstrap, topic, records that will be counted, bound, threads, state folder,
 * whether records must first be brought to the partition of their user (true or false).
 */
public final class Streams {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final AtomicLong BEGUN = new AtomicLong();
    private static final AtomicLong COUNTED = new AtomicLong();
    private static final CountDownLatch DONE = new CountDownLatch(1);

    public static void main(String[] given) throws Exception {
        String topic = given[1];
        long wanted = Long.parseLong(given[2]);
        int bound = Integer.parseInt(given[3]);
        Path folder = Files.createTempDirectory(Path.of(given[5]), "streams");
        StreamsBuilder builder = topology(topic, wanted, bound, Boolean.parseBoolean(given[6]));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(given[0], folder, given[4]));
        streams.start();
        DONE.await();
        double seconds = (System.nanoTime() - BEGUN.get()) / 1e9;
        Thread.sleep(1500); // a record that was counted twice would come now
        System.out.printf("%.4f %d%n", seconds, COUNTED.get());
        streams.close(Duration.ofSeconds(10));
    }

    private static Properties settings(String bootstrap, Path folder, String threads) {
        Properties made = new Properties();
        made.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer-" + folder.getFileName());
        made.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        made.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
        made.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, threads);
        made.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        made.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        made.put("auto.offset.reset", "earliest");
        return made;
    }

    private static StreamsBuilder topology(String topic, long wanted, int bound, boolean first) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
            Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore("bound"), Serdes.String(), Serdes.Integer()));
        KStream<String, String> raw =
            builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()));
        KStream<String, String> events = raw.map((key, value) -> event(value));
        if (first) {
            events = events.repartition(
                Repartitioned.with(Serdes.String(), Serdes.String()).withName("units"));
        }
        events
            .process(() -> new Bound(bound), "bound")
            .groupByKey(Grouped.with("cells", Serdes.String(), Serdes.Integer()))
            .aggregate(
                () -> 0L,
                (page, one, total) -> {
                    if (COUNTED.incrementAndGet() == wanted) {
                        DONE.countDown();
                    }
                    return total + one;
                },
                Materialized.with(Serdes.String(), Serdes.Long()));
        return builder;
    }

    private static KeyValue<String, String> event(String value) {
        BEGUN.compareAndSet(0, System.nanoTime());
        try {
            JsonNode body = JSON.readTree(value);
            return KeyValue.pair(body.get("user").asText(), body.get("page").asText());
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static final class Bound implements Processor<String, String, String, Integer> {
        private final int most;
        private ProcessorContext<String, Integer> context;
        private KeyValueStore<String, Integer> used;

        Bound(int most) {
            this.most = most;
        }

        @Override
        public void init(ProcessorContext<String, Integer> given) {
            context = given;
            used = given.getStateStore("bound");
        }

        @Override
        public void process(Record<String, String> record) {
            Integer before = used.get(record.key());
            int count = before == null ? 0 : before;
            if (count < most) {
                used.put(record.key(), count + 1);
                context.forward(record.withKey(record.value()).withValue(1));
            }
        }
    }
}
