// Reads a script of recorded values from standard input and prints what Kafka's own statistics measure, one line of JSON
// for each "measure". Lines: "config samples windowMs eventWindow bound", "record value timeMs", "measure timeMs".

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Frequencies;
import org.apache.kafka.common.metrics.stats.Frequency;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Meter;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Percentile;
import org.apache.kafka.common.metrics.stats.Percentiles;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.metrics.stats.Value;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.metrics.stats.WindowedSum;

public final class MetricStatistics {
    private static Metrics metrics;
    private static Sensor sensor;
    private static Map<String, KafkaMetric> read;

    private static MetricName name(String name) {
        return metrics.metricName(name, "group");
    }

    private static void configure(String[] words) {
        MetricConfig config = new MetricConfig()
            .samples(Integer.parseInt(words[1]))
            .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
            .eventWindow(Long.parseLong(words[3]))
            .quota(Quota.upperBound(Double.parseDouble(words[4])));
        metrics = new Metrics(config);
        sensor = metrics.sensor("sensor");
        sensor.add(name("value"), new Value());
        sensor.add(name("avg"), new Avg());
        sensor.add(name("max"), new Max());
        sensor.add(name("min"), new Min());
        sensor.add(name("windowed-sum"), new WindowedSum());
        sensor.add(name("windowed-count"), new WindowedCount());
        sensor.add(name("cumulative-sum"), new CumulativeSum());
        sensor.add(name("cumulative-count"), new CumulativeCount());
        sensor.add(name("rate"), new Rate());
        sensor.add(name("count-per-minute"), new Rate(TimeUnit.MINUTES, new WindowedCount()));
        sensor.add(name("simple-rate"), new SimpleRate());
        sensor.add(name("tokens"), new TokenBucket());
        sensor.add(new Meter(new WindowedCount(), name("meter-rate"), name("meter-total")));
        sensor.add(new Percentiles(400, 0.0, 100.0, Percentiles.BucketSizing.CONSTANT,
            new Percentile(name("p50"), 50), new Percentile(name("p90"), 90)));
        sensor.add(new Percentiles(400, 0.0, 100.0, Percentiles.BucketSizing.LINEAR,
            new Percentile(name("linear-p50"), 50), new Percentile(name("linear-p99"), 99)));
        sensor.add(new Frequencies(11, 0.0, 100.0, new Frequency(name("near-10"), 10), new Frequency(name("near-90"), 90)));
        read = new LinkedHashMap<>();
        metrics.metrics().forEach((name, metric) -> {
            if (name.group().equals("group")) {
                read.put(name.name(), metric);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader script = new BufferedReader(new InputStreamReader(System.in));
        for (String line = script.readLine(); line != null; line = script.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "config" -> configure(words);
                case "record" -> sensor.record(Double.parseDouble(words[1]), Long.parseLong(words[2]), false);
                default -> {
                    Map<String, Object> values = new java.util.TreeMap<>();
                    for (Map.Entry<String, KafkaMetric> entry : read.entrySet()) {
                        values.put(entry.getKey(), entry.getValue().measurable().measure(
                            entry.getValue().config(), Long.parseLong(words[1])));
                    }
                    System.out.println(json.writeValueAsString(values));
                }
            }
        }
    }
}
