import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Lets Java's assignors, those of the client and those of the broker, deal the groups described in a file, one field
 * after a tab: "group NAME", "topic NAME RACKS...", with a rack list a,b for each partition and - for none,
 * "member ID INSTANCE RACK GENERATION TOPICS OWNED USERDATA", "deal".
 * Under cooperative-sticky it deals again and again, as the group does: each round may take partitions away first.
 * Prints "member ID USERDATA PARTITIONS..." for each member, USERDATA as Java writes it for what the member owns.
 */
public final class Assignors {
    private static final int PORT = 9092;
    private static final int ROUNDS = 20;

    private final Map<String, List<Set<String>>> topics = new TreeMap<>();
    private final Map<String, Subscription> members = new TreeMap<>();
    private final Map<String, List<TopicPartition>> owned = new HashMap<>();
    private final Map<String, String> userData = new HashMap<>();
    private final String name;

    private Assignors(String name) {
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        Assignors group = null;
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "group" -> group = new Assignors(fields[1]);
                case "topic" -> group.addTopic(fields);
                case "member" -> group.addMember(fields);
                default -> group.deal(out);
            }
        }
        Files.writeString(Path.of(arguments[1]), out, StandardCharsets.UTF_8);
    }

    private ConsumerPartitionAssignor assignor() {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private void addTopic(String[] fields) {
        List<Set<String>> partitions = new ArrayList<>();
        for (int i = 2; i < fields.length; i++) {
            partitions.add(fields[i].equals("-") ? Set.of() : Set.of(fields[i].split(",")));
        }
        topics.put(fields[1], partitions);
    }

    private void addMember(String[] fields) {
        List<TopicPartition> owned = new ArrayList<>();
        for (String one : list(fields[6])) {
            int colon = one.lastIndexOf(':');
            owned.add(new TopicPartition(one.substring(0, colon), Integer.parseInt(one.substring(colon + 1))));
        }
        int generation = Integer.parseInt(fields[4]);
        Optional<String> rack = fields[3].isEmpty() ? Optional.empty() : Optional.of(fields[3]);
        ByteBuffer data = fields[7].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(fields[7]));
        boolean tells = name.equals("cooperative-sticky");
        Subscription subscription =
            new Subscription(list(fields[5]), data, tells ? owned : List.of(), generation, rack);
        subscription.setGroupInstanceId(fields[2].isEmpty() ? Optional.empty() : Optional.of(fields[2]));
        members.put(fields[1], subscription);
        this.owned.put(fields[1], owned);
        ConsumerPartitionAssignor itself = assignor();
        itself.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, fields[1], Optional.empty()));
        ByteBuffer said = itself.subscriptionUserData(new HashSet<>(list(fields[5])));
        byte[] bytes = new byte[said == null ? 0 : said.remaining()];
        if (said != null) {
            said.get(bytes);
        }
        userData.put(fields[1], said == null ? "-" : HexFormat.of().formatHex(bytes));
    }

    /** The members as they join again, once each has given up what is to go to another. */
    private Map<String, Subscription> afterwards(Map<String, Assignment> assigned, int round) {
        Map<String, Subscription> again = new TreeMap<>();
        members.forEach((id, before) -> {
            int generation = before.generationId().orElse(0) + round;
            ConsumerPartitionAssignor itself = assignor();
            itself.onAssignment(assigned.get(id), new ConsumerGroupMetadata("g", generation, id, Optional.empty()));
            ByteBuffer data = itself.subscriptionUserData(Set.copyOf(before.topics()));
            List<TopicPartition> owned = assigned.get(id).partitions();
            Subscription now = new Subscription(before.topics(), data, owned, generation, before.rackId());
            now.setGroupInstanceId(before.groupInstanceId());
            again.put(id, now);
        });
        return again;
    }

    private static List<String> list(String field) {
        return field.isEmpty() ? List.of() : List.of(field.split(","));
    }

    /** As the coordinator of a group under KIP-848 deals: "server range" and "server uniform". */
    private void dealAtTheServer(StringBuilder out) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        for (String topic : topics.keySet()) {
            Uuid id = new Uuid(1, ids.size() + 1);
            ids.put(topic, id);
            names.put(id, topic);
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> asking = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> wishes = new HashSet<>();
        members.forEach((member, subscription) -> {
            Set<Uuid> wanted = new HashSet<>();
            subscription.topics().stream().filter(ids::containsKey).map(ids::get).forEach(wanted::add);
            Map<Uuid, Set<Integer>> held = new HashMap<>();
            for (TopicPartition one : owned.get(member)) {
                held.computeIfAbsent(ids.get(one.topic()), t -> new HashSet<>()).add(one.partition());
                owners.computeIfAbsent(ids.get(one.topic()), t -> new HashMap<>()).put(one.partition(), member);
            }
            wishes.add(wanted);
            asking.put(member, new MemberSubscriptionAndAssignmentImpl(
                subscription.rackId(), subscription.groupInstanceId(), wanted,
                new org.apache.kafka.coordinator.group.modern.Assignment(held)));
        });
        SubscriptionType type = wishes.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return topics.get(names.get(topic)).size();
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return topics.get(names.get(topic)).get(partition);
            }
        };
        ConsumerGroupPartitionAssignor assignor = name.equals("server range")
            ? new org.apache.kafka.coordinator.group.assignor.RangeAssignor() : new UniformAssignor();
        assignor.assign(new GroupSpecImpl(asking, type, owners), describer).members().forEach((id, assignment) -> {
            out.append("member\t").append(id).append("\t-");
            assignment.partitions().forEach((topic, numbers) -> numbers.forEach(number ->
                out.append('\t').append(names.get(topic)).append(':').append(number)));
            out.append('\n');
        });
        out.append("end\n");
    }

    private void deal(StringBuilder out) {
        if (name.startsWith("server ")) {
            dealAtTheServer(out);
            return;
        }
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.forEach((topic, racks) -> {
            for (int number = 0; number < racks.size(); number++) {
                Node[] replicas = racks.get(number).stream()
                    .map(rack -> nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "localhost", PORT, r)))
                    .toArray(Node[]::new);
                Node leader = replicas.length == 0 ? Node.noNode() : replicas[0];
                partitions.add(new PartitionInfo(topic, number, leader, replicas, replicas));
            }
        });
        Cluster cluster = new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
        Map<String, Assignment> assigned =
            assignor().assign(cluster, new GroupSubscription(members)).groupAssignment();
        for (int round = 1; name.equals("cooperative-sticky") && round < ROUNDS; round++) {
            assigned = assignor().assign(cluster, new GroupSubscription(afterwards(assigned, round))).groupAssignment();
        }
        assigned.forEach((id, assignment) -> {
            out.append("member\t").append(id).append('\t').append(userData.get(id));
            for (TopicPartition one : assignment.partitions()) {
                out.append('\t').append(one.topic()).append(':').append(one.partition());
            }
            out.append('\n');
        });
        out.append("end\n");
    }
}
