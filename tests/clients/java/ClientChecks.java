import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a user of Kafka's own Java clients does, one method each, run one after another in one JVM.
 * Prints a line per method, "name TAB ok" or "name TAB what went wrong". Argument: the bootstrap address.
 */
public class ClientChecks {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static String bootstrap;

    private final String topic = "java-" + UUID.randomUUID();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        for (Method check : ClientChecks.class.getDeclaredMethods()) {
            if (!check.isAnnotationPresent(Check.class)) continue;
            String outcome = "ok";
            try {
                check.invoke(new ClientChecks());
            } catch (InvocationTargetException thrown) {
                outcome = String.valueOf(thrown.getCause()).replace('\n', ' ');
            }
            System.out.println(check.getName() + "\t" + outcome);
        }
    }

    @java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
    @interface Check {}

    @Check
    public void aRecordComesBackWithItsKeyValueHeadersAndTimestamp() throws Exception {
        ProducerRecord<String, String> sent = new ProducerRecord<>(topic, 0, 1_700_000_000_123L, "k", "v");
        sent.headers().add("first", bytes("1")).add("first", bytes("again")).add("empty", bytes("")).add("null", null);
        RecordMetadata delivered = send(Map.of(), List.of(sent)).get(0);

        ConsumerRecord<String, String> record = read(1, Map.of()).get(0);

        equal("delivered offset", 0L, delivered.offset());
        equal("key", "k", record.key());
        equal("value", "v", record.value());
        equal("timestamp", 1_700_000_000_123L, record.timestamp());
        equal("timestamp type", TimestampType.CREATE_TIME, record.timestampType());
        equal("leader epoch", 0, record.leaderEpoch().get());
        List<String> headers = new ArrayList<>();
        record.headers().forEach(h -> headers.add(h.key() + "=" + (h.value() == null ? null : text(h.value()))));
        equal("headers", List.of("first=1", "first=again", "empty=", "null=null"), headers);
    }

    @Check
    public void nullAndEmptyKeysAndValuesAreKeptApart() throws Exception {
        List<ProducerRecord<String, String>> sent = Stream.of(
            new String[] {null, null}, new String[] {"", null}, new String[] {null, ""}, new String[] {"", ""})
            .map(pair -> new ProducerRecord<>(topic, pair[0], pair[1])).toList();
        send(Map.of(), sent);

        List<ConsumerRecord<String, String>> came = read(4, Map.of());

        for (int i = 0; i < 4; i++) {
            equal("key " + i, sent.get(i).key(), came.get(i).key());
            equal("value " + i, sent.get(i).value(), came.get(i).value());
        }
    }

    @Check
    public void recordsComeBackWithNoCompression() throws Exception {
        comesBackInOrder(Map.of("compression.type", "none"));
    }

    @Check
    public void recordsComeBackWithGzip() throws Exception {
        comesBackInOrder(Map.of("compression.type", "gzip"));
    }

    @Check
    public void recordsComeBackWithSnappy() throws Exception {
        comesBackInOrder(Map.of("compression.type", "snappy"));
    }

    @Check
    public void recordsComeBackWithLz4() throws Exception {
        comesBackInOrder(Map.of("compression.type", "lz4"));
    }

    @Check
    public void recordsComeBackWithZstd() throws Exception {
        comesBackInOrder(Map.of("compression.type", "zstd"));
    }

    @Check
    public void recordsArriveWithAcks0() throws Exception {
        comesBackInOrder(Map.of("acks", "0", "enable.idempotence", "false"));
    }

    @Check
    public void recordsArriveWithAcks1() throws Exception {
        comesBackInOrder(Map.of("acks", "1", "enable.idempotence", "false"));
    }

    @Check
    public void recordsArriveWithAcksAllWithoutIdempotence() throws Exception {
        comesBackInOrder(Map.of("acks", "all", "enable.idempotence", "false"));
    }

    @Check
    public void anIdempotentProducerKeepsOrderOverManyBatchesInFlight() throws Exception {
        comesBackInOrder(Map.of("enable.idempotence", "true", "batch.size", "200", "linger.ms", "0"));
    }

    @Check
    public void theConsumerOfTheNewProtocolReadsWhatIsAssignedToIt() throws Exception {
        send(Map.of(), numbered(100));

        equal("values", 100, read(100, Map.of("group.protocol", "consumer")).size());
    }

    @Check
    public void aRecordOfAMillionBytesComesBackThoughLargerThanTheFetchSize() throws Exception {
        String value = "x".repeat(1_000_000);
        send(Map.of("max.request.size", "2000000"), List.of(new ProducerRecord<>(topic, value)));

        Map<String, String> small = Map.of("fetch.max.bytes", "1000", "max.partition.fetch.bytes", "1000");
        equal("value", value, read(1, small).get(0).value());
    }

    @Check
    public void aRecordLargerThanTheBrokerTakesIsRefused() throws Exception {
        List<ProducerRecord<String, String>> large = List.of(new ProducerRecord<>(topic, "x".repeat(1_048_600)));

        fails(RecordTooLargeException.class, () -> send(Map.of("max.request.size", "5000000"), large));
    }

    @Check
    public void aRecordFromTheFarFutureIsRefused() throws Exception {
        List<ProducerRecord<String, String>> late = List.of(new ProducerRecord<>(topic, 0, 10_000_000_000_000L, "k", "v"));

        fails(InvalidTimestampException.class, () -> send(Map.of(), late));
    }

    @Check
    public void offsetsAreFoundByTimestamp() throws Exception {
        send(Map.of(), LongStreamOf(1_000, 2_000, 3_000).map(ms -> new ProducerRecord<>(topic, 0, ms, "k", "v")).toList());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            var found = consumer.offsetsForTimes(Map.of(partition, 1_001L)).get(partition);
            equal("offset", 1L, found.offset());
            equal("timestamp", 2_000L, found.timestamp());
            equal("past the end", null, consumer.offsetsForTimes(Map.of(partition, 3_001L)).get(partition));
            equal("first", 0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            equal("next", 3L, consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    @Check
    public void aConsumerSeeksBackAndForthInAPartition() throws Exception {
        send(Map.of("linger.ms", "100"), numbered(50));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("max.poll.records", "1"))) {
            consumer.assign(List.of(partition));
            for (int offset : new int[] {30, 0, 49, 7}) {
                consumer.seek(partition, offset);
                equal("value", String.valueOf(offset), take(consumer, 1).get(0).value());
            }
            consumer.seekToEnd(List.of(partition));
            equal("position", 50L, consumer.position(partition));
        }
    }

    @Check
    public void aFetchSessionFollowsPartitionsAsTheyComeAndGo() throws Exception {
        admin(admin -> admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all());
        List<TopicPartition> partitions = IntStream.range(0, 3).mapToObj(p -> new TopicPartition(topic, p)).toList();
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(partitions.subList(0, 2));
            sendToAll("first");
            equal("first", Set.of("0 first", "1 first"), taken(consumer, 2));
            sendToAll("second");
            equal("second", Set.of("0 second", "1 second"), taken(consumer, 2));
            consumer.assign(partitions.subList(1, 3));
            sendToAll("third");
            equal("third", Set.of("1 third", "2 first", "2 second", "2 third"), taken(consumer, 4));
        }
    }

    @Check
    public void aProducerGoesOnWhenItsTopicIsCreatedAgain() throws Exception {
        NewTopic wanted = new NewTopic(topic, 1, (short) 1);
        admin(admin -> admin.createTopics(List.of(wanted)).all());
        try (KafkaProducer<String, String> producer = producer(Map.of("enable.idempotence", "false"))) {
            producer.send(new ProducerRecord<>(topic, "old")).get();
            admin(admin -> admin.deleteTopics(List.of(topic)).all());
            admin(admin -> admin.createTopics(List.of(wanted)).all());
            producer.send(new ProducerRecord<>(topic, "new")).get();
        }
        equal("value", "new", read(1, Map.of()).get(0).value());
    }

    @Check
    public void theFirstRecordCreatesItsTopic() throws Exception {
        RecordMetadata delivered = send(Map.of(), numbered(1)).get(0);

        equal("partition", 0, delivered.partition());
        equal("offset", 0L, delivered.offset());
    }

    @Check
    public void anAdminCreatesGrowsAndDeletesATopic() throws Exception {
        admin(admin -> admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all());
        equal("partitions", 2, described().partitions().size());
        admin(admin -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        equal("partitions", 5, described().partitions().size());
        admin(admin -> admin.deleteTopics(List.of(topic)).all());
        equal("still listed", false, admin(admin -> admin.listTopics().names()).contains(topic));
    }

    @Check
    public void aTopicIsDeletedByItsId() throws Exception {
        admin(admin -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
        var id = described().topicId();
        admin(admin -> admin.deleteTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id))).all());
        equal("still listed", false, admin(admin -> admin.listTopics().names()).contains(topic));
    }

    @Check
    public void topicsThatCannotBeAreRefused() throws Exception {
        NewTopic wanted = new NewTopic(topic, 3, (short) 1);
        admin(admin -> admin.createTopics(List.of(wanted)).all());
        fails(TopicExistsException.class, () -> admin(admin -> admin.createTopics(List.of(wanted)).all()));
        fails(InvalidTopicException.class, () -> admin(admin -> admin.createTopics(
            List.of(new NewTopic("a name with spaces", 1, (short) 1))).all()));
        fails(InvalidConfigurationException.class, () -> admin(admin -> admin.createTopics(
            List.of(new NewTopic(topic + "x", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all()));
        fails(InvalidPartitionsException.class, () -> admin(admin -> admin.createPartitions(
            Map.of(topic, NewPartitions.increaseTo(2))).all()));
    }

    @Check
    public void aCreatedTopicAnswersWithItsSettings() throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "1234567"));
        var created = admin(admin -> {
            var result = admin.createTopics(List.of(wanted));
            equal("partitions", 2, result.numPartitions(topic).get());
            return result.config(topic);
        });
        equal("given", "1234567", created.get("retention.ms").value());
        equal("by default", "delete", created.get("cleanup.policy").value());
    }

    @Check
    public void anAdminListsOffsets() throws Exception {
        send(Map.of(), LongStreamOf(1_000, 9_000, 5_000).map(ms -> new ProducerRecord<>(topic, 0, ms, "k", "v")).toList());
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<OffsetSpec, Long> expected = Map.of(
            OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 3L,
            OffsetSpec.maxTimestamp(), 1L, OffsetSpec.forTimestamp(4_000), 1L);
        for (var asked : expected.entrySet()) {
            var answer = admin(admin -> admin.listOffsets(Map.of(partition, asked.getKey())).partitionResult(partition));
            equal(asked.getKey().getClass().getSimpleName(), asked.getValue(), answer.offset());
        }
    }

    @Check
    public void theClusterSaysWhoItIs() throws Exception {
        equal("length of the id", 22, admin(admin -> admin.describeCluster().clusterId()).length());
        var nodes = admin(admin -> admin.describeCluster().nodes());
        equal("nodes", List.of(bootstrap), nodes.stream().map(node -> node.host() + ":" + node.port()).toList());
        equal("controller", nodes.iterator().next().id(), admin(admin -> admin.describeCluster().controller()).id());
    }

    // --- steps that the checks share

    private interface Step {
        void run() throws Exception;
    }

    private interface Asked<T> {
        org.apache.kafka.common.KafkaFuture<T> of(Admin admin) throws Exception;
    }

    private static <T> T admin(Asked<T> asked) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            return asked.of(admin).get();
        }
    }

    private TopicDescription described() throws Exception {
        return admin(admin -> admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    private static KafkaProducer<String, String> producer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private List<ProducerRecord<String, String>> numbered(int count) {
        return IntStream.range(0, count).mapToObj(n -> new ProducerRecord<String, String>(topic, String.valueOf(n))).toList();
    }

    private static List<RecordMetadata> send(Map<String, String> settings, List<ProducerRecord<String, String>> records)
            throws Exception {
        List<RecordMetadata> delivered = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(settings)) {
            List<Future<RecordMetadata>> waiting = records.stream().map(producer::send).toList();
            for (Future<RecordMetadata> one : waiting) delivered.add(one.get());
        }
        return delivered;
    }

    private void sendToAll(String value) throws Exception {
        send(Map.of(), IntStream.range(0, 3).mapToObj(p -> new ProducerRecord<>(topic, p, "k", value)).toList());
    }

    private List<ConsumerRecord<String, String>> read(int count, Map<String, String> settings) {
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return take(consumer, count);
        }
    }

    private static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (records.size() < count) {
            if (System.nanoTime() > deadline) throw new AssertionError("only " + records.size() + " of " + count + " came");
            consumer.poll(Duration.ofSeconds(1)).forEach(records::add);
        }
        return records;
    }

    private static Set<String> taken(KafkaConsumer<String, String> consumer, int count) {
        return Set.copyOf(take(consumer, count).stream().map(r -> r.partition() + " " + r.value()).toList());
    }

    private void comesBackInOrder(Map<String, String> settings) throws Exception {
        send(settings, numbered(1_000));
        List<ConsumerRecord<String, String>> came = read(1_000, Map.of());
        for (int i = 0; i < 1_000; i++) {
            equal("offset", (long) i, came.get(i).offset());
            equal("value", String.valueOf(i), came.get(i).value());
        }
    }

    private static Stream<Long> LongStreamOf(long... values) {
        return Arrays.stream(values).boxed();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void equal(String what, Object expected, Object got) {
        if (!Objects.equals(expected, got)) throw new AssertionError(what + ": expected " + expected + ", got " + got);
    }

    private static void fails(Class<? extends Exception> expected, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException failure) {
            if (expected.isInstance(failure.getCause())) return;
            throw failure;
        }
        throw new AssertionError("expected " + expected.getSimpleName() + ", got no error");
    }
}
