import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Messages as Kafka's own classes write them, a line of JSON each: {message, version, json, hex}.
 *
 * The lines that it is given are written anew from their `json`. Behind them comes each version of each message that none
 * of them was of: with its defaults, and with every field set.
 */
public class GoldenMessages {
    static final Set<String> PACKAGES = Set.of(
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.raft.generated");
    static final String PRODUCER_SNAPSHOT =
        "org.apache.kafka.server.log.remote.metadata.storage.generated.ProducerSnapshotJsonConverter";
    static final Set<String> HEADERS = Set.of("RequestHeaderData", "ResponseHeaderData");
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        Map<String, Class<?>> converters = converters();
        Set<String> seen = new HashSet<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode vector = JSON.readTree(line);
            String name = vector.get("message").asText();
            short version = (short) vector.get("version").asInt();
            Class<?> converter = converters.get(name);
            if (converter == null) {
                System.err.println(name + " v" + version + " is no message of this Kafka");
                continue;
            }
            Method read = converter.getMethod("read", JsonNode.class, short.class);
            tell(name, version, vector.get("json"), (Message) read.invoke(null, vector.get("json"), version));
            seen.add(name + version);
        }
        for (Map.Entry<String, Class<?>> each : converters.entrySet()) {
            Class<?> of = each.getValue().getMethod("read", JsonNode.class, short.class).getReturnType();
            short last = of.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            for (short version = of.getField("LOWEST_SUPPORTED_VERSION").getShort(null); version <= last; version++) {
                if (seen.contains(each.getKey() + version)) continue;
                Message plain = (Message) of.getConstructor().newInstance();
                if (canBeWritten(plain, version)) tell(each.getKey(), version, json(each.getValue(), plain, version), plain);
                Message full = (Message) of.getConstructor().newInstance();
                fill(full, full, version);
                tell(each.getKey(), version, json(each.getValue(), full, version), full);
            }
        }
        OUT.flush();
    }

    /** By the message's name, which for requests and responses is the class's without `Data`. */
    static Map<String, Class<?>> converters() throws Exception {
        Map<String, Class<?>> found = new TreeMap<>();
        List<String> jars = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (entry.endsWith(".jar") && new File(entry).getName().startsWith("kafka")) jars.add(entry);
        }
        for (String path : jars) {
            try (JarFile jar = new JarFile(path)) {
                for (String file : (Iterable<String>) jar.stream().map(Object::toString)::iterator) {
                    if (!file.endsWith("JsonConverter.class") || file.contains("$")) continue;
                    String name = file.substring(0, file.length() - ".class".length()).replace('/', '.');
                    int dot = name.lastIndexOf('.');
                    if (!PACKAGES.contains(name.substring(0, dot)) && !name.equals(PRODUCER_SNAPSHOT)) continue;
                    Class<?> converter = Class.forName(name);
                    boolean isMessage = false;
                    for (Method method : converter.getMethods()) {
                        isMessage |= method.getName().equals("read") && Message.class.isAssignableFrom(method.getReturnType());
                    }
                    String message = name.substring(dot + 1, name.length() - "JsonConverter".length());
                    if (isMessage && !HEADERS.contains(message)) found.put(message.replaceAll("(Request|Response)Data$", "$1"), converter);
                }
            }
        }
        return found;
    }

    static JsonNode json(Class<?> converter, Message message, short version) throws Exception {
        return (JsonNode) converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
    }

    static void tell(String name, short version, JsonNode json, Message message) throws Exception {
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
        StringBuilder hex = new StringBuilder();
        while (bytes.hasRemaining()) hex.append(String.format("%02x", bytes.get()));
        ObjectNode vector = JSON.createObjectNode();
        vector.put("message", name).put("version", version);
        vector.set("json", json);
        vector.put("hex", hex.toString());
        OUT.println(JSON.writeValueAsString(vector));
    }

    static boolean canBeWritten(Message message, short version) {
        try {
            MessageUtil.toByteBufferAccessor(message, version);
            return true;
        } catch (RuntimeException refused) {
            return false;
        }
    }

    /** Sets each field of a part that the version has: where the whole can't be written with it, it hasn't. */
    static void fill(Object part, Message whole, short version) throws Exception {
        for (Method set : part.getClass().getDeclaredMethods()) {
            if (!set.getName().startsWith("set") || set.getParameterCount() != 1 || set.getReturnType() != part.getClass()) continue;
            String field = Character.toLowerCase(set.getName().charAt(3)) + set.getName().substring(4);
            Object before = part.getClass().getMethod(field).invoke(part);
            Object value = value(set.getGenericParameterTypes()[0], set.getParameterTypes()[0], field);
            if (value == null) continue;
            set.invoke(part, value);
            if (!canBeWritten(whole, version)) {
                set.invoke(part, before);
                continue;
            }
            if (value instanceof Collection<?>) {
                for (Object each : (Collection<?>) value) {
                    if (each instanceof Message) fill(each, whole, version);
                }
            } else if (value instanceof Message) {
                fill(value, whole, version);
            }
        }
    }

    static Object value(Type type, Class<?> kind, String field) throws Exception {
        if (kind == boolean.class) return true;
        if (kind == byte.class || kind == Byte.class) return (byte) 1;
        if (kind == short.class || kind == Short.class) return (short) 2;
        if (kind == int.class && field.endsWith("Port") || field.equals("port")) return kind == int.class ? 9092 : null;
        if (kind == int.class || kind == Integer.class) return 3;
        if (kind == long.class || kind == Long.class) return 4L;
        if (kind == double.class) return 0.5;
        if (kind == String.class) return field;
        if (kind == Uuid.class) return new Uuid(5, 6);
        if (kind == byte[].class) return new byte[] {7, 8};
        if (kind == ByteBuffer.class) return ByteBuffer.wrap(new byte[] {7, 8});
        if (kind == List.class) {
            Type element = ((ParameterizedType) type).getActualTypeArguments()[0];
            Object one = element instanceof Class<?> ? value(element, (Class<?>) element, field) : null;
            return one == null ? null : new ArrayList<>(List.of(one));
        }
        if (Collection.class.isAssignableFrom(kind)) {
            Class<?> element = (Class<?>) ((ParameterizedType) kind.getGenericSuperclass()).getActualTypeArguments()[0];
            Object all = kind.getConstructor().newInstance();
            kind.getMethod("mustAdd", Class.forName("org.apache.kafka.common.utils.internals.ImplicitLinkedHashCollection$Element"))
                .invoke(all, element.getConstructor().newInstance());
            return all;
        }
        return Message.class.isAssignableFrom(kind) ? kind.getConstructor().newInstance() : null;
    }
}
