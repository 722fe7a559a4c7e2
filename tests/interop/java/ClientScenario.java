// Kafka's own Java client against the broker named on the command line: everything that a service does with it, checked.
// Prints "ok STEP" for each step; any surprise ends the program with status 1.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ClientScenario {
    private static final String TOPIC = "java-scenario";
    private static final String GROUP = "java-group";
    private static final int PARTITIONS = 4;
    private static final int PER_CODEC = 500;
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    private final String bootstrap;

    private ClientScenario(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        new ClientScenario(arguments[0]).run();
    }

    private void run() throws Exception {
        try (Admin admin = Admin.create(properties())) {
            createAndAlter(admin);
            produce();
            groupWithRebalance();
            resume();
            lookUp(admin);
            groups(admin);
            deleteRecords(admin);
            deleteTopic(admin);
        }
    }

    private void createAndAlter(Admin admin) throws Exception {
        NewTopic topic = new NewTopic(TOPIC, 3, (short) 1).configs(Map.of("retention.ms", "-1"));
        admin.createTopics(List.of(topic)).all().get();
        try {
            admin.createTopics(List.of(topic)).all().get();
            throw new AssertionError("the topic was created twice");
        } catch (ExecutionException expected) {
            check(expected.getCause() instanceof TopicExistsException, "TopicExistsException", expected.getCause());
        }
        admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(PARTITIONS))).all().get();
        eventually(PARTITIONS, () -> admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).partitions().size());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        eventually("2000000", () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("max.message.bytes").value());
        var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check("-1".equals(config.get("retention.ms").value()), "-1", config.get("retention.ms"));
        check(!config.get("retention.ms").isDefault(), "not the default", config.get("retention.ms").source());
        check(admin.describeCluster().nodes().get().size() >= 1, "a node", "none");
        ok("create-and-alter");
    }

    private void produce() throws Exception {
        for (String codec : CODECS) {
            Properties properties = properties();
            properties.put("compression.type", codec);
            properties.put("linger.ms", "5");
            try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < PER_CODEC; i++) {
                    var record = new ProducerRecord<byte[], byte[]>(
                        TOPIC, i % PARTITIONS, FIRST_TIMESTAMP + i, bytes("key-" + i), i % 50 == 49 ? null : bytes(codec + "-" + i));
                    record.headers().add("codec", bytes(codec)).add("empty", null);
                    sent.add(producer.send(record));
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    check(one.get().hasOffset(), "an offset", one.get());
                }
            }
        }
        ok("produce");
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties properties = properties();
        properties.put("group.id", GROUP);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "500");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void groupWithRebalance() {
        Set<String> seen = new HashSet<>();
        int[] revocations = {0};
        try (var first = consumer(); var second = consumer()) {
            first.subscribe(List.of(TOPIC), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    revocations[0]++;
                    first.commitSync();
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            });
            second.subscribe(List.of(TOPIC));
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (System.nanoTime() < until && first.assignment().size() != PARTITIONS) {
                collect(first, seen);
            }
            check(first.assignment().size() == PARTITIONS, PARTITIONS, first.assignment());
            while (System.nanoTime() < until
                && !(first.assignment().size() == 2 && second.assignment().size() == 2 && seen.size() == PER_CODEC * CODECS.length)) {
                collect(first, seen);
                collect(second, seen);
            }
            check(seen.size() == PER_CODEC * CODECS.length, PER_CODEC * CODECS.length, seen.size());
            check(first.assignment().size() == 2 && second.assignment().size() == 2, "two each", first.assignment());
            check(Collections.disjoint(first.assignment(), second.assignment()), "disjoint", second.assignment());
            check(revocations[0] > 0, "a revocation", revocations[0]);
            first.commitSync();
            second.commitSync();
        }
        ok("group-with-rebalance");
    }

    private static void collect(KafkaConsumer<byte[], byte[]> consumer, Set<String> seen) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
            String codec = new String(record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
            check(record.headers().lastHeader("empty").value() == null, "a null header", "something");
            int index = (int) (record.timestamp() - FIRST_TIMESTAMP);
            check(new String(record.key(), StandardCharsets.UTF_8).equals("key-" + index), "key-" + index, record);
            if (index % 50 == 49) {
                check(record.value() == null, "null", record);
            } else {
                check(new String(record.value(), StandardCharsets.UTF_8).equals(codec + "-" + index), codec, record);
            }
            seen.add(codec + "-" + index);
        }
    }

    private void resume() throws Exception {
        try (var producer = new KafkaProducer<>(properties(), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(TOPIC, 1, FIRST_TIMESTAMP + 1_000_000, bytes("late"), bytes("late"))).get();
        }
        try (var consumer = consumer()) {
            consumer.subscribe(List.of(TOPIC));
            List<String> values = new ArrayList<>();
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (System.nanoTime() < until && values.isEmpty()) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
            check(values.equals(List.of("late")), List.of("late"), values);
            consumer.commitSync();
            TopicPartition partition = new TopicPartition(TOPIC, 1);
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            check(committed.offset() == consumer.endOffsets(Set.of(partition)).get(partition), "the end", committed);
        }
        ok("commit-and-resume");
    }

    private void lookUp(Admin admin) throws Exception {
        try (var consumer = consumer()) {
            TopicPartition partition = new TopicPartition(TOPIC, 1);
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(Map.of(partition, FIRST_TIMESTAMP + 400));
            check(found.get(partition).timestamp() == FIRST_TIMESTAMP + 401, FIRST_TIMESTAMP + 401, found);
            check(found.get(partition).offset() == 100, 100, found);
            Map<TopicPartition, OffsetAndTimestamp> none = consumer.offsetsForTimes(Map.of(partition, Long.MAX_VALUE));
            check(none.get(partition) == null, "nothing", none);
            check(consumer.beginningOffsets(Set.of(partition)).get(partition) == 0, 0, "not the beginning");
            ListOffsetsResult.ListOffsetsResultInfo newest =
                admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get();
            check(newest.timestamp() == FIRST_TIMESTAMP + 1_000_000, FIRST_TIMESTAMP + 1_000_000, newest);
        }
        ok("offsets-by-time");
    }

    private void groups(Admin admin) throws Exception {
        check(admin.listGroups().all().get().stream().anyMatch(group -> group.groupId().equals(GROUP)), GROUP, "not listed");
        ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP);
        check(group.members().isEmpty(), "no members", group);
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
        check(offsets.size() == PARTITIONS, PARTITIONS, offsets);
        TopicPartition partition = new TopicPartition(TOPIC, 0);
        admin.alterConsumerGroupOffsets(GROUP, Map.of(partition, new OffsetAndMetadata(7))).all().get();
        offsets = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
        check(offsets.get(partition).offset() == 7, 7, offsets.get(partition));
        admin.deleteConsumerGroupOffsets(GROUP, Set.of(partition)).all().get();
        offsets = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
        check(!offsets.containsKey(partition), "no offset of partition 0", offsets);
        admin.deleteConsumerGroups(List.of(GROUP)).all().get();
        check(admin.listGroups().all().get().stream().noneMatch(left -> left.groupId().equals(GROUP)), "gone", GROUP);
        ok("groups");
    }

    private void deleteRecords(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition(TOPIC, 0);
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(partition).get().lowWatermark();
        check(low == 10, 10, low);
        long earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get().offset();
        check(earliest == 10, 10, earliest);
        ok("delete-records");
    }

    private void deleteTopic(Admin admin) throws Exception {
        admin.deleteTopics(List.of(TOPIC)).all().get();
        eventually(false, () -> admin.listTopics().names().get().contains(TOPIC));
        try {
            admin.describeTopics(List.of(TOPIC)).allTopicNames().get();
            throw new AssertionError("a deleted topic was described");
        } catch (ExecutionException expected) {
            check(expected.getCause() instanceof UnknownTopicOrPartitionException, "UnknownTopicOrPartition", expected.getCause());
        }
        ok("delete-topic");
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void ok(String step) {
        System.out.println("ok " + step);
    }

    /** What one node has changed reaches the others, and its own metadata, a moment later. */
    private static void eventually(Object expected, Callable<Object> question) throws Exception {
        long until = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        Object answer = question.call();
        while (!expected.equals(answer) && System.nanoTime() < until) {
            answer = question.call();
        }
        check(expected.equals(answer), expected, answer);
    }

    private static void check(boolean holds, Object expected, Object got) {
        if (!holds) {
            throw new AssertionError("expected " + expected + ", got " + got);
        }
    }
}
