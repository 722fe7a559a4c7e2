import java.io.FileInputStream;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

/** Connects and lists the topics, again and again: the properties of the client, and how often. */
public class Connects {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            properties.load(file);
        }
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            try (Admin admin = Admin.create(properties)) {
                admin.listTopics().names().get();
            }
        }
    }
}
