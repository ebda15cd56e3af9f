import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A client process of the checker, as `checker/worker.py` is one, with Java's producer and consumer. */
public class CheckerClient {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<TopicPartition> keys = new ArrayList<>();
    private final Map<Integer, Long> positions = new TreeMap<>();
    private final int inputKeys;
    private final boolean inGroup;
    private long nextCopy;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;

    public static void main(String[] arguments) throws Exception {
        CheckerClient client = new CheckerClient(JSON.readTree(arguments[0]));
        say(JSON.createObjectNode().put("ready", true));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
            say(client.transact(JSON.readTree(line)));
        System.exit(0);
    }

    private static void say(JsonNode line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    private CheckerClient(JsonNode config) {
        for (JsonNode key : config.get("keys"))
            keys.add(new TopicPartition(key.get(0).asText(), key.get(1).asInt()));
        inputKeys = config.get("input_keys").asInt();
        nextCopy = config.get("first_copy").asLong();
        inGroup = !config.get("group").isNull();
        for (int key = 0; key < inputKeys; key++) positions.put(key, 0L);
        Map<String, Object> shared = Map.of(
            "bootstrap.servers", config.get("bootstrap").asText(),
            "retry.backoff.ms", 20,
            "reconnect.backoff.max.ms", 100);
        Map<String, Object> ofProducer = new HashMap<>(shared);
        ofProducer.put("transactional.id", config.get("transactional_id").asText());
        ofProducer.put("transaction.timeout.ms", config.get("timeout_ms").asInt());
        ofProducer.put("linger.ms", 0);
        producer = new KafkaProducer<>(ofProducer, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        Map<String, Object> ofConsumer = new HashMap<>(shared);
        if (inGroup) ofConsumer.put("group.id", config.get("group").asText());
        ofConsumer.put("isolation.level", "read_committed");
        ofConsumer.put("enable.auto.commit", false);
        ofConsumer.put("auto.offset.reset", "earliest");
        ofConsumer.put("session.timeout.ms", 1_000);
        ofConsumer.put("heartbeat.interval.ms", 200);
        ofConsumer.put("fetch.max.wait.ms", 50);
        ofConsumer.put("max.poll.records", 20);
        consumer = new KafkaConsumer<>(ofConsumer, new StringDeserializer(), new StringDeserializer());
        if (inGroup) {
            Set<String> topics = new TreeSet<>();
            for (TopicPartition key : keys.subList(0, inputKeys)) topics.add(key.topic());
            consumer.subscribe(topics);
        } else {
            consumer.assign(keys.subList(0, inputKeys));
            rewind();
        }
    }

    private ObjectNode transact(JsonNode command) throws Exception {
        ArrayNode steps = JSON.createArrayNode();
        ObjectNode done = JSON.createObjectNode();
        done.set("steps", steps);
        done.putNull("commit_at_ns").put("outcome", "failed").put("goes_on", true);
        try {
            producer.beginTransaction();
            for (JsonNode step : command.get("steps")) take(step, steps);
            producer.flush();
            if (command.get("commit").asBoolean()) {
                ObjectNode asks = JSON.createObjectNode();
                done.put("commit_at_ns", System.nanoTime());
                asks.set("steps", steps);
                asks.set("commit_at_ns", done.get("commit_at_ns"));
                say(asks);
                done.put("outcome", "unknown");
                producer.commitTransaction();
                done.put("outcome", "ok");
            } else {
                producer.abortTransaction();
            }
        } catch (KafkaException error) {
            done.put("error", error.toString());
            done.put("goes_on", !isFatal(error) && aborts());
        }
        if (done.get("outcome").asText().equals("ok")) {
            for (JsonNode step : steps) {
                if (!step.get(0).asText().equals("poll")) continue;
                for (JsonNode record : step.get(1))
                    positions.put(record.get(0).asInt(), record.get(1).asLong() + 1);
            }
        } else if (done.get("goes_on").asBoolean()) {
            rewind();
        }
        return done;
    }

    private static boolean isFatal(KafkaException error) {
        return error instanceof ApplicationRecoverableException || error instanceof TimeoutException;
    }

    private boolean aborts() {
        try {
            producer.abortTransaction();
            return true;
        } catch (KafkaException error) {
            return false;
        }
    }

    private void rewind() {
        if (!inGroup) {
            positions.forEach((key, offset) -> consumer.seek(keys.get(key), offset));
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            consumer.seek(partition, offset == null ? 0 : offset.offset());
        }
    }

    private void take(JsonNode step, ArrayNode steps) throws Exception {
        switch (step.get(0).asText()) {
            case "send" -> send(step.get(1).asInt(), step.get(2).asLong(), null, steps);
            case "poll" -> poll(steps);
            case "copy" -> copy(steps);
            case "crash" -> {
                producer.flush();
                Runtime.getRuntime().halt(1);
            }
            case "pause" -> {
                producer.flush();
                new ProcessBuilder("kill", "-STOP", "" + ProcessHandle.current().pid()).start().waitFor();
            }
            case "wait" -> Thread.sleep((long) (1_000 * step.get(1).asDouble()));
            default -> throw new IllegalArgumentException(step.toString());
        }
    }

    private void send(int key, long value, Long source, ArrayNode steps) {
        ArrayNode sent = steps.addArray().add("send").add(key).add(value).addNull().add(source);
        TopicPartition partition = keys.get(key);
        String payload = source == null ? "" + value : value + " " + source;
        producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), null, payload), (data, error) -> {
            if (error == null) sent.set(3, JSON.getNodeFactory().numberNode(data.offset()));
        });
    }

    private List<ConsumerRecord<String, String>> poll(ArrayNode steps) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(POLL).forEach(records::add);
        ArrayNode step = steps.addArray().add("poll");
        ArrayNode polled = step.addArray();
        for (ConsumerRecord<String, String> record : records) {
            ArrayNode each = polled.addArray().add(keyOf(record)).add(record.offset());
            for (String number : record.value().split(" ")) each.add(Long.parseLong(number));
        }
        step.add(System.nanoTime());
        return records;
    }

    private int keyOf(ConsumerRecord<String, String> record) {
        return keys.indexOf(new TopicPartition(record.topic(), record.partition()));
    }

    private void copy(ArrayNode steps) {
        List<ConsumerRecord<String, String>> records = poll(steps);
        if (records.isEmpty()) return;
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            send(inputKeys, nextCopy++, Long.parseLong(record.value().split(" ")[0]), steps);
            ends.put(keys.get(keyOf(record)), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
    }
}
