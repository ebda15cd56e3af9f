import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Kafka's command-line tools, one run after the other, in one JVM: starting a JVM costs ten times what most tools do.
 *
 * <p>Arguments: name and class of each tool, in turn. On standard input comes, for each run, the number of arguments,
 * the tool's name being the first, the arguments, and what the tool reads from its standard input. On standard output
 * goes what it would have ended with: its status, and what it wrote to its standard output and to its standard error.
 * Numbers have 4 bytes, the highest first; all else is bytes behind their number. Ends with its input.
 */
public class ToolServer {
    /** What a tool meets in place of the end of its process. No Exception, since tools catch these. */
    private static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    /** Standard streams for the tool that runs: whoever took hold of one of them earlier writes to this one, too. */
    private static final class Output extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int one) {
            target.write(one);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            target.write(bytes, offset, length);
        }
    }

    private static final class Input extends InputStream {
        private volatile InputStream source = InputStream.nullInputStream();

        @Override
        public int read() throws IOException {
            return source.read();
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            return source.read(bytes, offset, length);
        }

        @Override
        public int available() throws IOException {
            return source.available();
        }
    }

    private static final Output OUTPUT = new Output();
    private static final Output ERRORS = new Output();
    private static final Input INPUT = new Input();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static volatile Integer status;

    public static void main(String[] named) throws Exception {
        Map<String, String> classes = new HashMap<>();
        for (int i = 0; i < named.length; i += 2) classes.put(named[i], named[i + 1]);

        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        System.setIn(INPUT);
        System.setOut(new PrintStream(OUTPUT, true));
        System.setErr(new PrintStream(ERRORS, true));
        onExit("setExitProcedure", (proxy, method, given) -> end((int) given[0]));
        onExit("setHaltProcedure", (proxy, method, given) -> end((int) given[0]));
        onExit("setShutdownHookAdder", (proxy, method, given) -> {
            HOOKS.add((Runnable) given[1]);
            return null;
        });

        while (true) {
            String[] arguments;
            try {
                arguments = new String[requests.readInt()];
            } catch (EOFException noMore) {
                break;
            }
            for (int i = 0; i < arguments.length; i++) arguments[i] = new String(bytes(requests), "UTF-8");
            INPUT.source = new ByteArrayInputStream(bytes(requests));
            OUTPUT.target = new ByteArrayOutputStream();
            ERRORS.target = new ByteArrayOutputStream();

            int ended = run(classes.get(arguments[0]), List.of(arguments).subList(1, arguments.length));

            System.out.flush();
            System.err.flush();
            answers.writeInt(ended);
            for (ByteArrayOutputStream written : List.of(OUTPUT.target, ERRORS.target)) {
                byte[] bytes = written.toByteArray();
                answers.writeInt(bytes.length);
                answers.write(bytes);
            }
            answers.flush();
        }
        // Not by way of main's end, which threads that a tool left would outlive.
        Runtime.getRuntime().halt(0);
    }

    private static byte[] bytes(DataInputStream requests) throws IOException {
        return requests.readNBytes(requests.readInt());
    }

    /** What status the tool's process would have ended with. The first wish to exit counts, as for a process. */
    private static int run(String name, List<String> arguments) throws Exception {
        status = null;
        HOOKS.clear();
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended) && status == null) {
                thrown.getCause().printStackTrace();
                status = 1;
            }
        }
        for (Runnable hook : List.copyOf(HOOKS)) hook.run();
        return status == null ? 0 : status;
    }

    /** Kafka's Exit, whose package is another one from 4.4 on, does this from now on. */
    private static void onExit(String setter, InvocationHandler handler) throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before44) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (!method.getName().equals(setter)) continue;
            Class<?>[] taken = {method.getParameterTypes()[0]};
            method.invoke(null, Proxy.newProxyInstance(exit.getClassLoader(), taken, handler));
        }
    }

    private static Object end(int wanted) {
        if (status == null) status = wanted;
        throw new Ended();
    }
}
