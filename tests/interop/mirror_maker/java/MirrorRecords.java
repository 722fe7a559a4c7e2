import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.OffsetSync;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Reads a flow's records with MirrorMaker's own classes, and prints one line for each. */
public class MirrorRecords {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "translate" -> {
                Map<TopicPartition, OffsetAndMetadata> found = RemoteClusterUtils.translateOffsets(
                    Map.of("bootstrap.servers", bootstrap), arguments[2], arguments[3], Duration.ofSeconds(30));
                new TreeMap<>(Map.copyOf(asText(found))).forEach((key, value) -> System.out.println(key + " " + value));
            }
            case "upstream" ->
                System.out.println(RemoteClusterUtils.upstreamClusters(Map.of("bootstrap.servers", bootstrap)));
            case "syncs" -> read(bootstrap, arguments[2], record -> OffsetSync.deserializeRecord(record).toString());
            case "checkpoints" ->
                read(bootstrap, arguments[2], record -> Checkpoint.deserializeRecord(record).toString());
            case "heartbeats" -> read(bootstrap, arguments[2], record -> {
                Heartbeat beat = Heartbeat.deserializeRecord(record);
                return beat.sourceClusterAlias() + " " + beat.targetClusterAlias();
            });
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static Map<String, Long> asText(Map<TopicPartition, OffsetAndMetadata> found) {
        Map<String, Long> text = new TreeMap<>();
        found.forEach((partition, position) -> text.put(partition.toString(), position.offset()));
        return text;
    }

    private interface Printer {
        String print(ConsumerRecord<byte[], byte[]> record);
    }

    private static void read(String bootstrap, String topic, Printer printer) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap), bytes, bytes)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> System.out.println(printer.print(record)));
            }
        }
    }
}
