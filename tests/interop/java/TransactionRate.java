// Commits transactions of a number of records, or sends and flushes as many without one, for some seconds; prints
// how many each second. benchmarks/transaction_clients.py does the same with clients in Python.

import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class TransactionRate {
    public static void main(String[] arguments) {
        boolean commits = arguments[0].equals("commit");
        String topic = arguments[2];
        int records = Integer.parseInt(arguments[3]);
        int warmUp = Integer.parseInt(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[1]);
        options.put("linger.ms", "0");
        if (commits) {
            options.put("transactional.id", UUID.randomUUID().toString());
        }
        byte[] value = "x".repeat(100).getBytes();
        try (var producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (commits) {
                producer.initTransactions();
            }
            long count = 0;
            long began = System.nanoTime();
            while (count <= warmUp || System.nanoTime() - began < seconds * 1e9) {
                if (count == warmUp) {
                    began = System.nanoTime();
                }
                if (commits) {
                    producer.beginTransaction();
                }
                for (int i = 0; i < records; i++) {
                    producer.send(new ProducerRecord<>(topic, value));
                }
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                }
                count++;
            }
            System.out.println((count - warmUp) / ((System.nanoTime() - began) / 1e9));
        }
    }
}
