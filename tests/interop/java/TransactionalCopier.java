// Copies a topic in transactions until it is killed; tests/interop/copier.py does the same with triokafka.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class TransactionalCopier {
    public static void main(String[] arguments) {
        String target = arguments[2];
        Properties reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        reading.put("group.id", arguments[3]);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("session.timeout.ms", "6000");
        reading.put("max.poll.records", arguments[5]);
        Properties writing = new Properties();
        writing.put("bootstrap.servers", arguments[0]);
        writing.put("transactional.id", arguments[4]);
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                var records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    for (ConsumerRecord<byte[], byte[]> one : records) {
                        producer.send(new ProducerRecord<>(target, one.partition(), null, one.value()));
                    }
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (TopicPartition partition : records.partitions()) {
                        offsets.put(partition, new OffsetAndMetadata(last(records.records(partition)) + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (KafkaException problem) {
                    // Fatal ones are raised again by the abort, and end the program, which is then started again.
                    producer.abortTransaction();
                    var committed = consumer.committed(consumer.assignment());
                    consumer.assignment().forEach(partition -> {
                        OffsetAndMetadata at = committed.get(partition);
                        consumer.seek(partition, at == null ? 0 : at.offset());
                    });
                }
            }
        }
    }

    private static long last(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.get(records.size() - 1).offset();
    }
}
