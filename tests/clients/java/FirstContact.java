import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * What Java's clients do first. Each line of the input is an address and a name, for topics, groups and ids: all firsts
 * are done there, in a thread of their own. A line of the output is the name and "ok", or what went wrong.
 */
public class FirstContact {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long PATIENCE_MS = 120_000;

    private final String bootstrap;
    private final String name;

    private FirstContact(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            new Thread(new FirstContact(words[0], words[1])::run).start();
        }
        System.exit(0);
    }

    private void run() {
        String outcome = "ok";
        try {
            produce();
            consume("classic");
            consume("consumer");
            transact();
            share();
            stream();
            administer();
        } catch (Throwable thrown) {
            outcome = (thrown + " " + thrown.getStackTrace()[0]).replace('\n', ' ');
        }
        System.out.println(name + "\t" + outcome);
    }

    private Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        settings.putAll(more);
        return settings;
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    private void produce() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(name + "-created", "x")).get();
        }
    }

    private void consume(String protocol) {
        Map<String, Object> group = Map.of(
            "group.id", name + "-" + protocol, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        try (Consumer<String, String> consumer =
                new KafkaConsumer<>(settings(group), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(name + "-created"));
            long end = System.currentTimeMillis() + PATIENCE_MS;
            while (consumer.poll(POLL).isEmpty()) late(end);
            consumer.commitSync();
        }
    }

    private void transact() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", name))) {
            producer.initTransactions();
            for (int i = 0; i < 2; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(name + "-transactional", "y")).get();
                producer.commitTransaction();
            }
        }
    }

    private void share() throws Exception {
        String group = name + "-share";
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp earliest = new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(settings(Map.of()))) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                settings(Map.of("group.id", group)), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(name + "-created"));
            long end = System.currentTimeMillis() + PATIENCE_MS;
            while (consumer.poll(POLL).isEmpty()) late(end);
        }
    }

    /** By the protocol of KIP-1071, exactly once, with a topic that the application makes for itself. */
    private void stream() throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        CountDownLatch seen = new CountDownLatch(1);
        builder.<String, String>stream(name + "-created").groupBy((key, value) -> value).count().toStream()
            .foreach((key, count) -> seen.countDown());
        Properties properties = new Properties();
        properties.putAll(settings(Map.of(
            "application.id", name + "-streams", "group.protocol", "streams",
            "processing.guarantee", "exactly_once_v2", "commit.interval.ms", "100",
            "state.dir", Files.createTempDirectory("first-contact").toString(),
            "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class)));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.start();
            if (!seen.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) throw new IllegalStateException("no count");
        }
    }

    private void administer() throws Exception {
        String topic = name + "-administered";
        TopicPartition last = new TopicPartition(topic, 4);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(settings(Map.of()))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) -1))).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            admin.describeTopics(List.of(topic)).allTopicNames().get();
            admin.listOffsets(Map.of(last, OffsetSpec.latest())).all().get();
            admin.deleteRecords(Map.of(last, RecordsToDelete.beforeOffset(0))).all().get();
            admin.describeProducers(List.of(last)).all().get();
            admin.describeConfigs(List.of(resource)).all().get();
            admin.describeCluster().nodes().get();
            admin.describeLogDirs(List.of(admin.describeCluster().controller().get().id())).allDescriptions().get();
            admin.listGroups().all().get();
            admin.describeConsumerGroups(List.of(name + "-classic", name + "-consumer")).all().get();
            admin.describeShareGroups(List.of(name + "-share")).all().get();
            admin.describeStreamsGroups(List.of(name + "-streams")).all().get();
            admin.listConsumerGroupOffsets(name + "-classic").partitionsToOffsetAndMetadata().get();
            admin.listTransactions().all().get();
            admin.describeTransactions(List.of(name)).all().get();
            admin.deleteConsumerGroups(List.of(name + "-classic")).all().get();
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    private static void late(long end) {
        if (System.currentTimeMillis() > end) throw new IllegalStateException("nothing came");
    }
}
