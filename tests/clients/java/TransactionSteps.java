import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The steps of which the checks of transactions are made. Each check has a topic and a transactional id of its own. */
class TransactionSteps {
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final String COMMITTED = "read_committed";
    static final String UNCOMMITTED = "read_uncommitted";
    static final String LAST = "committed, the last";
    static String bootstrap;
    static int level;
    static Admin admin;

    final String topic = "java-transactions-" + UUID.randomUUID();
    final TopicPartition partition = new TopicPartition(topic, 0);
    final List<AutoCloseable> opened = new ArrayList<>();

    static void create(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    /** A producer that is ready to begin a transaction; its transactional id is the topic's name unless given. */
    KafkaProducer<String, String> producer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", topic, "retry.backoff.ms", 20, "linger.ms", 0));
        all.putAll(config);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
        opened.add(() -> producer.close(Duration.ZERO));
        producer.initTransactions();
        return producer;
    }

    /** A producer whose transaction has just been aborted for taking longer than it may. */
    KafkaProducer<String, String> tooSlow() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of("transaction.timeout.ms", 500));
        producer.beginTransaction();
        send(producer, 0, "too slow");
        until("it is aborted", () -> end(IsolationLevel.READ_COMMITTED) == 2);
        until("it is complete", () -> described().state() == TransactionState.COMPLETE_ABORT);
        return producer;
    }

    void send(KafkaProducer<String, String> producer, int index, String value) throws Exception {
        Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(topic, index, null, value));
        try {
            sent.get();
        } catch (ExecutionException thrown) {
            throw (Exception) thrown.getCause();
        }
    }

    KafkaConsumer<String, String> consumer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "retry.backoff.ms", 20));
        all.putAll(config);
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        opened.add(() -> consumer.close(CloseOptions.timeout(Duration.ZERO)));
        return consumer;
    }

    KafkaConsumer<String, String> consumer(String of, int index, String isolation, Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("isolation.level", isolation);
        KafkaConsumer<String, String> consumer = consumer(all);
        consumer.assign(List.of(new TopicPartition(of, index)));
        return consumer;
    }

    /** A member of the topic's group. */
    KafkaConsumer<String, String> member(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("group.id", topic, "isolation.level", COMMITTED));
        all.putAll(config);
        KafkaConsumer<String, String> member = consumer(all);
        member.subscribe(List.of(topic));
        return member;
    }

    KafkaConsumer<String, String> memberThatRead(String... values) throws Exception {
        fill(values);
        KafkaConsumer<String, String> member = member(Map.of());
        int count = 0;
        while (count < values.length) count += next(member).size();
        return member;
    }

    static List<ConsumerRecord<String, String>> next(KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(PATIENCE).forEach(records::add);
        if (records.isEmpty()) throw new AssertionError("no records came");
        return records;
    }

    void fill(String... values) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var plain = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String value : values) send(plain, 0, value);
        }
    }

    /** What a reader sees of the topic, up to a LAST that is added behind it. */
    List<String> values(String isolation) throws Exception {
        fill(LAST);
        List<String> values = valuesOf(topic, isolation);
        return values.subList(0, values.size() - 1);
    }

    List<String> valuesOf(String of, String isolation) {
        KafkaConsumer<String, String> consumer = consumer(of, 0, isolation, Map.of());
        List<String> values = new ArrayList<>();
        while (!values.contains(LAST))
            for (ConsumerRecord<String, String> record : next(consumer)) values.add(record.value());
        return values;
    }

    long end(IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
            .all().get().get(partition).offset();
    }

    TransactionDescription described() throws Exception {
        return admin.describeTransactions(List.of(topic)).all().get().get(topic);
    }

    List<ProducerState> producers() throws Exception {
        return admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers();
    }

    static List<TransactionListing> listed(ListTransactionsOptions options) throws Exception {
        return List.copyOf(admin.listTransactions(options).all().get());
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) if (System.nanoTime() > deadline) throw new AssertionError("still not: " + what);
    }

    interface Step {
        void run() throws Exception;
    }

    static void fails(Class<? extends Throwable> expected, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException thrown) {
            if (expected.isInstance(thrown.getCause())) return;
            throw thrown;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }

    /** The step throws this, itself or as the cause of what it throws. */
    static void raises(Class<? extends Exception> expected, Step step) throws Exception {
        try {
            step.run();
        } catch (Exception thrown) {
            for (Throwable each = thrown; each != null; each = each.getCause()) if (expected.isInstance(each)) return;
            throw thrown;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }

    static void equal(String what, Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError(what + " is " + found + ", not " + expected);
    }
}
