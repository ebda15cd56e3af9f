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
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
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

/** A client process of the checker, as those of `checker/worker.py`, with Java's producer and consumer. */
public class CheckerClient {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long MOST_MS = 90_000;
    private static final int FAILURES = 5;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<TopicPartition> keys = new ArrayList<>();
    private final Map<Integer, Long> positions = new TreeMap<>();
    private final int inputKeys;
    private final int copiesKey;
    private final boolean inGroup;
    private final boolean transacts;
    private long nextCopy;
    private int failures;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;

    public static void main(String[] arguments) throws Exception {
        endIn(MOST_MS);
        CheckerClient client = new CheckerClient(JSON.readTree(arguments[0]));
        say(JSON.createObjectNode().put("ready", true));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            endIn(MOST_MS);
            say(client.transact(JSON.readTree(line)));
        }
        System.exit(0);
    }

    private static volatile long endAtNs;

    /** What hangs for longer is ended as by a crash, by a thread that is started at first. */
    private static void endIn(long ms) {
        boolean isFirst = endAtNs == 0;
        endAtNs = System.nanoTime() + 1_000_000 * ms;
        if (!isFirst) return;
        Thread watch = new Thread(() -> {
            while (System.nanoTime() < endAtNs) {
                try {
                    Thread.sleep(1_000);
                } catch (InterruptedException error) {
                    break;
                }
            }
            Runtime.getRuntime().halt(1);
        });
        watch.setDaemon(true);
        watch.start();
    }

    private static void say(JsonNode line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    private CheckerClient(JsonNode config) {
        for (JsonNode key : config.get("keys"))
            keys.add(new TopicPartition(key.get(0).asText(), key.get(1).asInt()));
        inputKeys = config.get("input_keys").asInt();
        copiesKey = config.get("copies_key").asInt();
        nextCopy = config.get("first_copy").asLong();
        inGroup = !config.get("group").isNull();
        transacts = !config.get("transactional_id").isNull();
        for (int key = 0; key < inputKeys; key++) positions.put(key, 0L);
        Map<String, Object> shared = Map.of(
            "bootstrap.servers", config.get("bootstrap").asText(),
            "request.timeout.ms", 5_000,
            "retry.backoff.ms", 20,
            "reconnect.backoff.max.ms", 100);
        producer = config.get("sends").asBoolean() ? newProducer(config, shared) : null;
        consumer = config.get("reads").asBoolean() ? newConsumer(config, shared) : null;
        if (consumer != null && !inGroup) {
            consumer.assign(keys.subList(0, inputKeys));
            rewind();
        }
    }

    private KafkaProducer<String, String> newProducer(JsonNode config, Map<String, Object> shared) {
        Map<String, Object> of = new HashMap<>(shared);
        of.put("linger.ms", 0);
        of.put("enable.idempotence", true);
        if (transacts) {
            of.put("transactional.id", config.get("transactional_id").asText());
            of.put("transaction.timeout.ms", config.get("timeout_ms").asInt());
        }
        KafkaProducer<String, String> made = new KafkaProducer<>(of, new StringSerializer(), new StringSerializer());
        if (transacts) made.initTransactions();
        return made;
    }

    private KafkaConsumer<String, String> newConsumer(JsonNode config, Map<String, Object> shared) {
        Map<String, Object> of = new HashMap<>(shared);
        if (inGroup) of.put("group.id", config.get("group").asText());
        of.put("isolation.level", "read_committed");
        of.put("enable.auto.commit", false);
        of.put("auto.offset.reset", "earliest");
        of.put("fetch.max.wait.ms", 50);
        of.put("max.poll.records", 20);
        if (inGroup && config.get("protocol").asText().equals("consumer")) {
            of.put("group.protocol", "consumer");
        } else {
            of.put("session.timeout.ms", 1_000);
            of.put("heartbeat.interval.ms", 200);
            of.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        KafkaConsumer<String, String> made =
            new KafkaConsumer<>(of, new StringDeserializer(), new StringDeserializer());
        Set<String> topics = new TreeSet<>();
        for (TopicPartition key : keys.subList(0, inputKeys)) topics.add(key.topic());
        if (inGroup) made.subscribe(topics);
        return made;
    }

    private ObjectNode transact(JsonNode command) throws Exception {
        ArrayNode steps = JSON.createArrayNode();
        ObjectNode done = JSON.createObjectNode();
        done.set("steps", steps);
        boolean singly = !transacts && producer != null;
        done.putNull("commit_at_ns").put("outcome", singly ? "unknown" : "failed").put("goes_on", true);
        try {
            if (transacts) producer.beginTransaction();
            for (JsonNode step : command.get("steps")) take(step, steps);
            flush(steps);
            if (command.get("commit").asBoolean()) {
                ObjectNode asks = JSON.createObjectNode();
                done.put("commit_at_ns", System.nanoTime());
                asks.set("steps", steps);
                asks.set("commit_at_ns", done.get("commit_at_ns"));
                say(asks);
                done.put("outcome", "unknown");
                if (transacts) producer.commitTransaction();
                else if (consumer != null) consumer.commitSync(ends(steps));
                done.put("outcome", "ok");
            } else if (transacts) {
                producer.abortTransaction();
            }
            failures = 0;
        } catch (KafkaException error) {
            done.put("error", error.toString());
            done.put("goes_on", transacts ? !isFatal(error) && aborts() : consumer != null && ++failures < FAILURES);
        }
        if (done.get("outcome").asText().equals("ok")) {
            ends(steps).forEach((partition, end) -> positions.put(keys.indexOf(partition), end.offset()));
        } else if (done.get("goes_on").asBoolean() && transacts) {
            try {
                rewind();
            } catch (KafkaException error) {
                done.put("error", error.toString());
                done.put("goes_on", false);
            }
        }
        return done;
    }

    /** Whether all is acknowledged: what isn't fails a transaction's commit by itself. */
    private void flush(ArrayNode steps) {
        if (producer == null) return;
        producer.flush();
        if (transacts) return;
        for (JsonNode step : steps)
            if (step.get(0).asText().equals("send") && step.get(3).isNull())
                throw new KafkaException("a send was not acknowledged");
    }

    private Map<TopicPartition, OffsetAndMetadata> ends(ArrayNode steps) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (JsonNode step : steps) {
            if (!step.get(0).asText().equals("poll")) continue;
            for (JsonNode record : step.get(1))
                ends.put(keys.get(record.get(0).asInt()), new OffsetAndMetadata(record.get(1).asLong() + 1));
        }
        return ends;
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
                flush(steps);
                Runtime.getRuntime().halt(1);
            }
            case "pause" -> {
                flush(steps);
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

    /** As who has polled it: a member that the group has left behind since then must not commit. */
    private void copy(ArrayNode steps) {
        ConsumerGroupMetadata membership = consumer.groupMetadata();
        List<ConsumerRecord<String, String>> records = poll(steps);
        if (records.isEmpty()) return;
        if (membership.generationId() < 0) throw new KafkaException("the group was joined only now");
        for (ConsumerRecord<String, String> record : records)
            send(copiesKey, nextCopy++, Long.parseLong(record.value().split(" ")[0]), steps);
        producer.sendOffsetsToTransaction(ends(steps), membership);
    }
}
