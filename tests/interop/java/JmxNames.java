// Prints the MBeans of Kafka's clients and of a broker with their attributes: one JSON object a line. Arguments: bootstrap
// servers, and the JMX port of the broker on this machine. The clients run in this program, so that their MBeans exist.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public final class JmxNames {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static Properties properties(String bootstrap, String... more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("auto.offset.reset", "earliest");
        for (int at = 0; at < more.length; at += 2) {
            properties.put(more[at], more[at + 1]);
        }
        return properties;
    }

    private static void print(String side, MBeanServerConnection server) throws Exception {
        for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName("kafka.*:*"), null))) {
            Set<String> attributes = new TreeSet<>();
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                attributes.add(attribute.getName());
            }
            System.out.println(JSON.writeValueAsString(Map.of(
                "side", side, "name", name.toString(), "attributes", attributes)));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(properties(bootstrap))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                    properties(bootstrap, "transactional.id", "billing", "compression.type", "lz4"));
                KafkaConsumer<String, String> classic = new KafkaConsumer<>(
                    properties(bootstrap, "group.id", "classic"));
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                    properties(bootstrap, "group.id", "consumer", "group.protocol", "consumer"))) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("orders", "key", "value")).get();
                producer.commitTransaction();
                for (KafkaConsumer<String, String> one : List.of(classic, consumer)) {
                    one.subscribe(List.of("orders"));
                    int records = 0;
                    while (records == 0) {
                        records = one.poll(Duration.ofMillis(500)).count();
                    }
                    one.commitSync();
                }
                admin.listTopics().names().get();
                print("client", ManagementFactory.getPlatformMBeanServer());
                JMXServiceURL url = new JMXServiceURL(
                    "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[1] + "/jmxrmi");
                try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
                    print("broker", connector.getMBeanServerConnection());
                }
            }
        }
    }
}
