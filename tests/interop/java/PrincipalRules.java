import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import javax.security.auth.x500.X500Principal;

import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Applies rules for principals to names; see test_principal_rules.py for the lines of both files. */
public class PrincipalRules {
    public static void main(String[] arguments) throws Exception {
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] part = line.split("\t", -1);
            try {
                answers.add("=" + switch (part[0]) {
                    case "certificate" -> SslPrincipalMapper.fromRules(part[1]).getName(part[2]);
                    case "subject" -> new X500Principal(java.util.HexFormat.of().parseHex(part[2])).getName();
                    default -> KerberosShortNamer
                        .fromUnparsedRules("REALM", Arrays.asList(part[1].split("\\s*,\\s*")))
                        .shortName(KerberosName.parse(part[2]));
                });
            } catch (Exception error) {
                answers.add("!" + error.getClass().getSimpleName());
            }
        }
        Files.write(Path.of(arguments[1]), answers);
    }
}
