import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Answers questions with Apache Kafka's StandardAuthorizer; see test_acl_decisions.py for the lines of both files. */
public class Decisions {
    private record Caller(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> answers = new ArrayList<>();
        StandardAuthorizer authorizer = null;
        int added = 0, nodes = 0;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] part = line.split("\t", -1);
            switch (part[0]) {
                case "config":
                    authorizer = new StandardAuthorizer();
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of("node", "" + ++nodes)));
                    authorizer.configure(Map.of("super.users", part[1], "allow.everyone.if.no.acl.found", part[2]));
                    authorizer.completeInitialLoad();
                    break;
                case "acl":
                    authorizer.addAcl(new Uuid(1, ++added), new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(part[1])), part[2], PatternType.fromCode(Byte.parseByte(part[3])),
                        part[4], part[5], AclOperation.fromCode(Byte.parseByte(part[6])),
                        AclPermissionType.fromCode(Byte.parseByte(part[7]))));
                    break;
                default:
                    Caller caller = new Caller(SecurityUtils.parseKafkaPrincipal(part[1]), InetAddress.getByName(part[2]));
                    AclOperation operation = AclOperation.fromCode(Byte.parseByte(part[3]));
                    ResourceType type = ResourceType.fromCode(Byte.parseByte(part[4]));
                    AuthorizationResult result = part[0].equals("somewhere")
                        ? authorizer.authorizeByResourceType(caller, operation, type)
                        : authorizer.authorize(caller, List.of(new Action(
                            operation, new ResourcePattern(type, part[5], PatternType.LITERAL), 1, false, false))).get(0);
                    answers.add(result == AuthorizationResult.ALLOWED ? "1" : "0");
            }
        }
        Files.write(Path.of(arguments[1]), answers);
    }
}
