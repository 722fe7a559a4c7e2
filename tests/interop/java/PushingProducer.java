// Sends records for some seconds, so that it pushes its metrics, and closes. Arguments: bootstrap servers, topic, seconds.

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public final class PushingProducer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("client.id", "java");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        long end = System.nanoTime() + Long.parseLong(arguments[2]) * 1_000_000_000L;
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            while (System.nanoTime() < end) {
                producer.send(new ProducerRecord<>(arguments[1], "value")).get();
                sent++;
                Thread.sleep(20);
            }
        }
        System.out.println(sent);
    }
}
