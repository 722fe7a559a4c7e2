// A receiver of client telemetry for a broker: writes the size and the names of pushed metrics to standard output.

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;

public final class TelemetryReceiver implements MetricsReporter, ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (AuthorizableRequestContext context, ClientTelemetryPayload payload) -> {
            try {
                MetricsData data = MetricsData.parseFrom(payload.data());
                data.getResourceMetricsList().forEach(resource -> resource.getScopeMetricsList().forEach(scope -> {
                    for (Metric metric : scope.getMetricsList()) {
                        double value = metric.hasSum()
                            ? metric.getSum().getDataPoints(0).getAsDouble()
                            : metric.getGauge().getDataPoints(0).getAsDouble();
                        System.out.println("PUSHED " + context.clientId() + " " + payload.isTerminating() + " "
                            + metric.getName() + " " + value);
                    }
                }));
            } catch (Exception e) {
                System.out.println("PUSHED unreadable " + e);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }
}
