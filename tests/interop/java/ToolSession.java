import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command line tools one after the other in one JVM: starting one for each takes most of a second.
 *
 * A request on standard input is a number of words and the words, each with its length: the main class and its arguments;
 * then the tool's own standard input, with its length. Shutdown hooks run at the end of each tool. The answer is the exit status, standard output and standard error.
 */
public final class ToolSession {
    private static final List<Runnable> hooks = new ArrayList<>();
    private static Integer status;

    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Exit.Procedure exit = (code, message) -> {
            // A tool that catches every exception exits once more: the first status counts.
            if (status == null)
                status = code;
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException end) {
                return;
            }
            for (int i = 0; i < words.length; i++)
                words[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            byte[] input = requests.readNBytes(requests.readInt());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            run(words, input, out, err);
            answers.writeInt(status == null ? 0 : status);
            for (ByteArrayOutputStream printed : new ByteArrayOutputStream[] {out, err}) {
                answers.writeInt(printed.size());
                printed.writeTo(answers);
            }
            answers.flush();
        }
    }

    private static void run(String[] words, byte[] input, ByteArrayOutputStream out, ByteArrayOutputStream err)
            throws Exception {
        InputStream standardInput = System.in;
        PrintStream standardOutput = System.out;
        PrintStream standardError = System.err;
        status = null;
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                failure.getCause().printStackTrace();
                status = 1;
            }
        } finally {
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            System.err.flush();
            System.setIn(standardInput);
            System.setOut(standardOutput);
            System.setErr(standardError);
        }
    }
}
