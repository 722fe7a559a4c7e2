// Drives Kafka's own Java client for the conformance catalogue: a call on each line of standard input as JSON, an answer
// on a line of standard output, in whatever order they come to an end. Calls on one object never overlap.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ConformanceDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Integer, Session> SESSIONS = new ConcurrentHashMap<>();
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode call = JSON.readTree(line);
            pool.submit(() -> answer(call));
        }
        System.exit(0);
    }

    private static void answer(JsonNode call) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", call.get("id").asLong());
        try {
            answer.put("result", dispatch(call.get("call").asText(), call.get("arguments"), call));
        } catch (Throwable problem) {
            answer.putAll(refused(problem));
        }
        try {
            String line = JSON.writeValueAsString(answer);
            synchronized (JSON) {
                System.out.println(line);
                System.out.flush();
            }
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** A code where Kafka has one for it; null where the client alone came to that conclusion. */
    private static Map<String, Object> refused(Throwable problem) {
        Throwable cause = Errors.maybeUnwrapException(problem);
        Errors error = Errors.forException(cause);
        Map<String, Object> refused = new HashMap<>();
        boolean kafkas = cause instanceof org.apache.kafka.common.KafkaException;
        refused.put(kafkas ? "refused" : "failed", error == Errors.UNKNOWN_SERVER_ERROR ? null : (int) error.code());
        refused.put("text", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        return refused;
    }

    private static Object dispatch(String name, JsonNode with, JsonNode call) throws Exception {
        if (name.equals("open")) {
            int number = NUMBERS.incrementAndGet();
            SESSIONS.put(number, new Session(with.get("bootstrap").asText(), with.get("patience_ms").asInt()));
            return number;
        }
        Session session = SESSIONS.get(call.get("session").asInt());
        if (call.has("consumer")) {
            return session.consumers.get(call.get("consumer").asInt()).call(name, with);
        }
        if (call.has("producer")) {
            return session.producers.get(call.get("producer").asInt()).call(name, with);
        }
        return session.call(name, with);
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static TopicPartition spot(JsonNode pair) {
        return new TopicPartition(pair.get(0).asText(), pair.get(1).asInt());
    }

    private static List<Integer> integers(JsonNode numbers) {
        List<Integer> found = new ArrayList<>();
        numbers.forEach(number -> found.add(number.asInt()));
        return found;
    }

    private static List<String> strings(JsonNode texts) {
        List<String> found = new ArrayList<>();
        texts.forEach(text -> found.add(text.asText()));
        return found;
    }

    private static Map<String, String> map(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }

    private static List<List<Object>> spots(Collection<TopicPartition> partitions) {
        return partitions.stream().map(one -> List.<Object>of(one.topic(), one.partition())).toList();
    }

    private static final class Session {
        final String bootstrap;
        final int patience;
        final Map<Integer, Reader> consumers = new ConcurrentHashMap<>();
        final Map<Integer, Writer> producers = new ConcurrentHashMap<>();
        private Admin admin;

        Session(String bootstrap, int patience) {
            this.bootstrap = bootstrap;
            this.patience = patience;
        }

        Properties properties(JsonNode options) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            if (options != null) {
                options.properties().forEach(one -> properties.put(one.getKey().replace('_', '.'), one.getValue().asText()));
            }
            return properties;
        }

        synchronized Admin admin() {
            if (admin == null) {
                Properties properties = properties(null);
                properties.put("default.api.timeout.ms", patience);
                properties.put("request.timeout.ms", patience);
                admin = Admin.create(properties);
            }
            return admin;
        }

        <T> T get(KafkaFuture<T> future) throws Exception {
            return future.get(patience, TimeUnit.MILLISECONDS);
        }

        int code(KafkaFuture<?> future) throws Exception {
            try {
                get(future);
                return 0;
            } catch (Exception problem) {
                Errors error = Errors.forException(Errors.maybeUnwrapException(problem));
                if (error == Errors.UNKNOWN_SERVER_ERROR) {
                    throw problem;
                }
                return error.code();
            }
        }

        Object call(String name, JsonNode with) throws Exception {
            switch (name) {
                case "close":
                    consumers.values().forEach(Reader::close);
                    producers.values().forEach(Writer::close);
                    if (admin != null) {
                        admin.close(Duration.ofSeconds(5));
                    }
                    SESSIONS.values().remove(this);
                    return null;
                case "produce":
                    return produce(with);
                case "consumer":
                    int number = NUMBERS.incrementAndGet();
                    consumers.put(number, new Reader(this, with));
                    return number;
                case "producer":
                    int producer = NUMBERS.incrementAndGet();
                    producers.put(producer, new Writer(this, with));
                    return producer;
                case "create_topics":
                    return createTopics(with);
                case "delete_topics":
                    Map<String, Integer> codes = new HashMap<>();
                    for (var one : admin().deleteTopics(strings(with.get("names"))).topicNameValues().entrySet()) {
                        codes.put(one.getKey(), code(one.getValue()));
                    }
                    return codes;
                case "create_partitions":
                    return createPartitions(with);
                case "topics":
                    return get(admin().listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names());
                case "describe_topic":
                    String described = with.get("name").asText();
                    return describeTopic(get(admin().describeTopics(List.of(described)).allTopicNames()).get(described));
                case "describe_topic_by_id":
                    Uuid id = Uuid.fromString(with.get("topic_id").asText());
                    return describeTopic(
                        get(admin().describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id));
                case "delete_topic_by_id":
                    Uuid unwanted = Uuid.fromString(with.get("topic_id").asText());
                    return get(admin().deleteTopics(TopicCollection.ofTopicIds(List.of(unwanted))).all());
                case "describe_cluster":
                    var cluster = admin().describeCluster();
                    return Map.of(
                        "id", get(cluster.clusterId()),
                        "controller", get(cluster.controller()).id(),
                        "nodes", get(cluster.nodes()).stream().map(Node::id).sorted().toList());
                case "describe_configs":
                    return describeConfigs(resource(with));
                case "incremental_alter":
                    List<AlterConfigOp> changes = new ArrayList<>();
                    with.get("changes").properties().forEach(one -> changes.add(new AlterConfigOp(
                        new ConfigEntry(one.getKey(), one.getValue().get(1).isNull() ? null : one.getValue().get(1).asText()),
                        AlterConfigOp.OpType.valueOf(one.getValue().get(0).asText().toUpperCase()))));
                    var options = new AlterConfigsOptions().validateOnly(with.get("validate_only").asBoolean());
                    return get(admin().incrementalAlterConfigs(Map.of(resource(with), changes), options).all());
                case "delete_records":
                    String topic = with.get("topic").asText();
                    Map<String, Long> lows = new HashMap<>();
                    for (var one : with.get("before").properties()) {
                        TopicPartition partition = new TopicPartition(topic, Integer.parseInt(one.getKey()));
                        var before = Map.of(partition, RecordsToDelete.beforeOffset(one.getValue().asLong()));
                        lows.put(one.getKey(), get(admin().deleteRecords(before).lowWatermarks().get(partition)).lowWatermark());
                    }
                    return lows;
                case "list_offsets":
                    return listOffsets(with);
                case "groups":
                    var states = new HashSet<GroupState>();
                    strings(with.get("states")).forEach(state -> states.add(GroupState.parse(state)));
                    var types = new HashSet<GroupType>();
                    strings(with.get("types")).forEach(type -> types.add(GroupType.parse(type)));
                    var filter = new ListGroupsOptions().inGroupStates(states).withTypes(types);
                    return get(admin().listGroups(filter).all()).stream().map(group -> group.groupId()).toList();
                case "describe_group":
                    return describeGroup(with.get("group").asText());
                case "group_offsets":
                    List<Object> found = new ArrayList<>();
                    var stable = new ListConsumerGroupOffsetsOptions().requireStable(with.get("require_stable").asBoolean());
                    String of = with.get("group").asText();
                    get(admin().listConsumerGroupOffsets(of, stable).partitionsToOffsetAndMetadata()).forEach(
                        (spot, at) -> found.add(List.of(spot.topic(), spot.partition(), at.offset(), at.metadata())));
                    return found;
                case "alter_group_offsets":
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    with.get("offsets").forEach(one -> offsets.put(spot(one), new OffsetAndMetadata(one.get(2).asLong())));
                    return get(admin().alterConsumerGroupOffsets(with.get("group").asText(), offsets).all());
                case "delete_group_offsets":
                    Set<TopicPartition> gone = new HashSet<>();
                    with.get("spots").forEach(one -> gone.add(spot(one)));
                    return get(admin().deleteConsumerGroupOffsets(with.get("group").asText(), gone).all());
                case "delete_group":
                    return get(admin().deleteConsumerGroups(List.of(with.get("group").asText())).all());
                case "remove_static_member":
                    var members = List.of(new MemberToRemove(with.get("instance").asText()));
                    return get(admin().removeMembersFromConsumerGroup(
                        with.get("group").asText(), new RemoveMembersFromConsumerGroupOptions(members)).all());
                default:
                    throw new IllegalArgumentException(name);
            }
        }

        private List<Object> produce(JsonNode with) throws Exception {
            Properties properties = properties(with.get("options"));
            properties.putIfAbsent("acks", "all");
            properties.putIfAbsent("linger.ms", "5");
            properties.putIfAbsent("enable.idempotence", "false");
            properties.put("max.request.size", "50000000");
            properties.put("max.block.ms", String.valueOf(patience));
            if (properties.containsKey("delivery.timeout.ms")) {
                int delivery = Integer.parseInt(properties.getProperty("delivery.timeout.ms"));
                properties.put("request.timeout.ms", String.valueOf(delivery - 100));
                properties.put("max.block.ms", String.valueOf(delivery));
            }
            List<Object> outcomes = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patience);
            var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
            try {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode message : with.get("messages")) {
                    if (System.nanoTime() > deadline) {
                        // Each would wait as long again.
                        sent.get(sent.size() - 1).get(0, TimeUnit.NANOSECONDS);
                        throw new IllegalStateException("sending took longer than " + patience + " ms");
                    }
                    var record = new ProducerRecord<byte[], byte[]>(
                        with.get("topic").asText(),
                        message.get("partition").isNull() ? null : message.get("partition").asInt(),
                        message.get("timestamp").isNull() ? null : message.get("timestamp").asLong(),
                        bytes(message.get("key")),
                        bytes(message.get("value")));
                    message.get("headers").forEach(header -> record.headers().add(header.get(0).asText(), bytes(header.get(1))));
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> one : sent) {
                    try {
                        // One that waits for its topic holds up the others: all of them have the time of one call.
                        long left = Math.max(0, deadline - System.nanoTime());
                        RecordMetadata metadata = one.get(left, TimeUnit.NANOSECONDS);
                        outcomes.add(List.of(metadata.partition(), metadata.offset(), metadata.timestamp()));
                    } catch (Exception problem) {
                        outcomes.add(refused(problem));
                    }
                }
            } finally {
                producer.close(Duration.ofSeconds(5));
            }
            return outcomes;
        }

        private Map<String, Integer> createTopics(JsonNode with) throws Exception {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : strings(with.get("names"))) {
                NewTopic topic;
                if (with.get("assignment").isNull()) {
                    int partitions = with.get("partitions").asInt();
                    int replicas = with.get("replication").asInt();
                    topic = new NewTopic(
                        name,
                        partitions == -1 ? Optional.empty() : Optional.of(partitions),
                        replicas == -1 ? Optional.empty() : Optional.of((short) replicas));
                } else {
                    Map<Integer, List<Integer>> assignment = new HashMap<>();
                    with.get("assignment").forEach(replicas -> assignment.put(assignment.size(), integers(replicas)));
                    topic = new NewTopic(name, assignment);
                }
                topics.add(topic.configs(map(with.get("configs"))));
            }
            var options = new CreateTopicsOptions().validateOnly(with.get("validate_only").asBoolean());
            Map<String, Integer> codes = new HashMap<>();
            for (var one : admin().createTopics(topics, options).values().entrySet()) {
                codes.put(one.getKey(), code(one.getValue()));
            }
            return codes;
        }

        private Object createPartitions(JsonNode with) throws Exception {
            NewPartitions partitions = NewPartitions.increaseTo(with.get("count").asInt());
            if (!with.get("assignment").isNull()) {
                List<List<Integer>> assignment = new ArrayList<>();
                with.get("assignment").forEach(replicas -> assignment.add(integers(replicas)));
                partitions = NewPartitions.increaseTo(with.get("count").asInt(), assignment);
            }
            var options = new CreatePartitionsOptions().validateOnly(with.get("validate_only").asBoolean());
            return get(admin().createPartitions(Map.of(with.get("topic").asText(), partitions), options).all());
        }

        private static Map<String, Object> describeTopic(TopicDescription description) {
            Map<String, Object> partitions = new HashMap<>();
            description.partitions().forEach(one -> partitions.put(String.valueOf(one.partition()), List.of(
                one.leader() == null ? -1 : one.leader().id(),
                one.replicas().stream().map(Node::id).toList(),
                one.isr().stream().map(Node::id).toList())));
            return Map.of(
                "internal", description.isInternal(), "id", description.topicId().toString(), "partitions", partitions);
        }

        private static ConfigResource resource(JsonNode with) {
            var kind = with.get("kind").asText().equals("topic") ? ConfigResource.Type.TOPIC : ConfigResource.Type.BROKER;
            return new ConfigResource(kind, with.get("name").asText());
        }

        private Map<String, Object> describeConfigs(ConfigResource resource) throws Exception {
            Map<String, Object> found = new HashMap<>();
            get(admin().describeConfigs(List.of(resource)).all()).get(resource).entries().forEach(entry -> {
                List<Object> config = new ArrayList<>();
                config.add(entry.value());
                config.add(entry.source().name());
                config.add(entry.isReadOnly());
                config.add(entry.isSensitive());
                found.put(entry.name(), config);
            });
            return found;
        }

        private Map<String, Object> listOffsets(JsonNode with) throws Exception {
            Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
            with.get("specs").properties().forEach(one -> {
                OffsetSpec spec = switch (one.getValue().asText()) {
                    case "earliest" -> OffsetSpec.earliest();
                    case "latest" -> OffsetSpec.latest();
                    case "max_timestamp" -> OffsetSpec.maxTimestamp();
                    default -> OffsetSpec.forTimestamp(one.getValue().asLong());
                };
                specs.put(new TopicPartition(with.get("topic").asText(), Integer.parseInt(one.getKey())), spec);
            });
            Map<String, Object> found = new HashMap<>();
            get(admin().listOffsets(specs).all()).forEach(
                (spot, at) -> found.put(String.valueOf(spot.partition()), List.of(at.offset(), at.timestamp())));
            return found;
        }

        private Map<String, Object> describeGroup(String name) throws Exception {
            var group = get(admin().describeConsumerGroups(List.of(name)).all()).get(name);
            return Map.of(
                "state", group.groupState().toString(),
                "assignor", group.partitionAssignor(),
                "members", group.members().stream().map(member -> Map.of(
                    "id", member.consumerId(),
                    "client_id", member.clientId(),
                    "host", member.host(),
                    "assignment", spots(member.assignment().topicPartitions()))).toList());
        }
    }

    /** A transactional producer. */
    private static final class Writer {
        private final KafkaProducer<byte[], byte[]> producer;
        private final List<Future<RecordMetadata>> sent = new ArrayList<>();

        Writer(Session session, JsonNode with) {
            Properties properties = session.properties(with.get("options"));
            properties.put("max.block.ms", String.valueOf(session.patience));
            producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        }

        void close() {
            producer.close(Duration.ofSeconds(5));
        }

        synchronized Object call(String name, JsonNode with) throws Exception {
            switch (name) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "send" -> with.get("records").forEach(one -> sent.add(producer.send(
                    new ProducerRecord<>(with.get("topic").asText(), one.get(0).asInt(), null, bytes(one.get(1))))));
                case "flush" -> {
                    producer.flush();
                    List<Future<RecordMetadata>> flushed = new ArrayList<>(sent);
                    sent.clear();
                    for (Future<RecordMetadata> one : flushed) {
                        one.get();
                    }
                }
                case "send_offsets" -> {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    with.get("offsets").forEach(one -> offsets.put(spot(one), new OffsetAndMetadata(one.get(2).asLong())));
                    producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(with.get("group").asText()));
                }
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> close();
                default -> throw new IllegalArgumentException(name);
            }
            return null;
        }
    }

    private static final class Reader {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private boolean closed;

        Reader(Session session, JsonNode with) {
            Properties properties = session.properties(with.get("options"));
            properties.putIfAbsent("auto.offset.reset", "earliest");
            properties.putIfAbsent("enable.auto.commit", "false");
            properties.put("default.api.timeout.ms", String.valueOf(session.patience));
            if (!with.get("group").isNull()) {
                properties.put("group.id", with.get("group").asText());
            }
            if ("consumer".equals(properties.getProperty("group.protocol"))) {
                properties.remove("heartbeat.interval.ms");
            }
            String strategies = properties.getProperty("partition.assignment.strategy");
            if (strategies != null) {
                List<String> classes = new ArrayList<>();
                for (String strategy : strategies.split(",")) {
                    classes.add(ASSIGNORS.get(strategy));
                }
                properties.put("partition.assignment.strategy", String.join(",", classes));
            }
            consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        synchronized void close() {
            if (!closed) {
                closed = true;
                consumer.close();
            }
        }

        synchronized Object call(String name, JsonNode with) {
            TopicPartition spot = with.has("spot") ? spot(with.get("spot")) : null;
            switch (name) {
                case "subscribe" -> consumer.subscribe(strings(with.get("topics")));
                case "subscribe_pattern" -> consumer.subscribe(Pattern.compile(with.get("pattern").asText()));
                case "subscribe_server_pattern" -> consumer.subscribe(new SubscriptionPattern(with.get("pattern").asText()));
                case "assign" -> {
                    Map<TopicPartition, JsonNode> wanted = new HashMap<>();
                    with.get("offsets").properties().forEach(one -> wanted.put(
                        new TopicPartition(with.get("topic").asText(), Integer.parseInt(one.getKey())), one.getValue()));
                    consumer.assign(wanted.keySet());
                    wanted.forEach((partition, offset) -> {
                        if (!offset.isNull()) {
                            consumer.seek(partition, offset.asLong());
                        }
                    });
                }
                case "poll" -> {
                    List<Object> found = new ArrayList<>();
                    for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                        found.add(record(one));
                    }
                    return found;
                }
                case "assignment" -> {
                    return spots(consumer.assignment());
                }
                case "position" -> {
                    return consumer.position(spot);
                }
                case "seek" -> consumer.seek(spot, with.get("offset").asLong());
                case "seek_to_beginning" -> consumer.seekToBeginning(List.of(spot));
                case "seek_to_end" -> consumer.seekToEnd(List.of(spot));
                case "pause" -> consumer.pause(List.of(spot));
                case "resume" -> consumer.resume(List.of(spot));
                case "commit" -> {
                    if (with.get("offsets").isNull()) {
                        consumer.commitSync();
                    } else {
                        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                        with.get("offsets").forEach(one -> offsets.put(
                            spot(one), new OffsetAndMetadata(one.get(2).asLong(), one.get(3).asText())));
                        consumer.commitSync(offsets);
                    }
                }
                case "committed" -> {
                    OffsetAndMetadata at = consumer.committed(Set.of(spot)).get(spot);
                    return at == null ? null : at.offset();
                }
                case "beginning" -> {
                    return consumer.beginningOffsets(Set.of(spot)).get(spot);
                }
                case "end" -> {
                    return consumer.endOffsets(Set.of(spot)).get(spot);
                }
                case "offset_for_time" -> {
                    var at = consumer.offsetsForTimes(Map.of(spot, with.get("timestamp").asLong())).get(spot);
                    return at == null ? null : at.offset();
                }
                case "close" -> close();
                default -> throw new IllegalArgumentException(name);
            }
            return null;
        }

        private static Map<String, Object> record(ConsumerRecord<byte[], byte[]> one) {
            Map<String, Object> record = new HashMap<>();
            List<Object> headers = new ArrayList<>();
            for (Header header : one.headers()) {
                List<Object> pair = new ArrayList<>();
                pair.add(header.key());
                pair.add(text(header.value()));
                headers.add(pair);
            }
            record.put("topic", one.topic());
            record.put("partition", one.partition());
            record.put("offset", one.offset());
            record.put("timestamp", one.timestamp());
            record.put("timestamp_type", one.timestampType().id);
            record.put("key", text(one.key()));
            record.put("value", text(one.value()));
            record.put("headers", headers);
            return record;
        }
    }
}
