// One group member that is Kafka's own consumer: says and does what tests/churning/member.py says and does.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ChurningMember {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;
    private final Map<Integer, Long> uncommitted = new HashMap<>();
    private final List<long[]> ranges = new ArrayList<>();
    private List<Integer> assigned;

    public static void main(String[] arguments) throws Exception {
        JsonNode terms = JSON.readTree(arguments[0]);
        AtomicBoolean leave = new AtomicBoolean();
        Thread listening = new Thread(() -> {
            try {
                System.in.read();
            } catch (IOException gone) {
                // As good as an end.
            }
            leave.set(true);
        });
        listening.setDaemon(true);
        listening.start();
        try {
            new ChurningMember(terms).takePart(leave);
        } catch (FencedInstanceIdException fenced) {
            say("fenced", String.valueOf(fenced.getMessage()));
            System.exit(3);
        } catch (Throwable problem) {
            StringWriter text = new StringWriter();
            problem.printStackTrace(new PrintWriter(text));
            say("failed", text.toString());
            System.exit(1);
        }
        say("left", true);
        System.exit(0);
    }

    private ChurningMember(JsonNode terms) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", terms.get("bootstrap").asText());
        properties.put("group.id", terms.get("group").asText());
        properties.put("client.id", terms.get("client_id").asText());
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.interval.ms", terms.get("max_poll_interval_ms").asText());
        properties.put("max.poll.records", "200");
        if (!terms.get("instance").isNull()) {
            properties.put("group.instance.id", terms.get("instance").asText());
        }
        String strategy = terms.get("strategy").asText();
        if (terms.get("protocol").asText().equals("consumer")) {
            properties.put("group.protocol", "consumer");
            properties.put("group.remote.assignor", strategy);
        } else {
            List<String> classes = new ArrayList<>();
            for (String name : strategy.split(",")) {
                classes.add(ASSIGNORS.get(name));
            }
            properties.put("partition.assignment.strategy", String.join(",", classes));
            properties.put("session.timeout.ms", terms.get("session_timeout_ms").asText());
            properties.put("heartbeat.interval.ms", terms.get("heartbeat_interval_ms").asText());
        }
        topic = terms.get("topic").asText();
        consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void say(String what, Object how) throws IOException {
        System.out.println(JSON.writeValueAsString(Map.of(what, how)));
        System.out.flush();
    }

    private void takePart(AtomicBoolean leave) throws IOException {
        try (consumer) {
            say("joining", true);
            consumer.subscribe(List.of(topic), new Listener());
            while (!leave.get()) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> read(record.partition(), record.offset()));
                commit();
                tellAssigned();
            }
        }
    }

    private void read(int partition, long offset) {
        long[] last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
        if (last != null && last[0] == partition && last[2] + 1 == offset) {
            last[2] = offset;
        } else {
            ranges.add(new long[] {partition, offset, offset});
        }
        uncommitted.put(partition, offset + 1);
    }

    private void tellAssigned() throws IOException {
        List<Integer> now = consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
        if (!now.equals(assigned)) {
            assigned = now;
            say("assigned", now);
        }
    }

    private void tell() {
        if (!ranges.isEmpty()) {
            try {
                say("read", ranges);
            } catch (IOException impossible) {
                throw new IllegalStateException(impossible);
            }
            ranges.clear();
        }
    }

    private void commit() {
        tell();
        if (uncommitted.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        uncommitted.forEach((partition, at) -> offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(at)));
        try {
            consumer.commitSync(offsets);
        } catch (FencedInstanceIdException fenced) {
            throw fenced;
        } catch (CommitFailedException | RebalanceInProgressException later) {
            // The group has moved on, or will: the next owner reads again.
            return;
        }
        offsets.forEach((partition, at) -> uncommitted.remove(partition.partition(), at.offset()));
    }

    private final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            commit();
            revoked.forEach(one -> uncommitted.remove(one.partition()));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            // What came is seen in the assignment.
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> lost) {
            tell();
            lost.forEach(one -> uncommitted.remove(one.partition()));
        }
    }
}
