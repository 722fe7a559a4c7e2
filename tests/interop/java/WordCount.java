// Counts the words of a topic with Kafka Streams, exactly once, until it is killed; tests/interop/test_streams.py says why.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

public final class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.standby.replicas", "1");
        settings.put("replication.factor", "3");
        settings.put("commit.interval.ms", "100");
        settings.put("auto.offset.reset", "earliest");
        settings.put("main.consumer.session.timeout.ms", "6000");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("dsl.store.suppliers.class", BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        // Every count is written, so that each number has to come exactly once.
        settings.put("statestore.cache.max.bytes", "0");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("totals"))
                .toStream()
                .mapValues((word, count) -> word + " " + count)
                .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}
