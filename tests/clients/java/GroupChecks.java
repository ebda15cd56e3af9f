import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Groups of the classic protocol, with Java's consumer and admin client. Prints a line for each check. */
public class GroupChecks {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofMillis(20);
    private static String bootstrap;

    private final String topic = "java-groups-" + UUID.randomUUID();
    private final List<Member> members = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        for (Method check : GroupChecks.class.getDeclaredMethods()) {
            if (!check.isAnnotationPresent(Check.class)) continue;
            String outcome = "ok";
            GroupChecks checks = new GroupChecks();
            try {
                check.invoke(checks);
            } catch (InvocationTargetException thrown) {
                outcome = String.valueOf(thrown.getCause()).replace('\n', ' ');
            }
            for (Member member : checks.members) member.close();
            System.out.println(check.getName() + "\t" + outcome);
        }
    }

    @java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
    @interface Check {}

    @Check
    public void aGroupReadsEverythingAndGoesOnWhereItStopped() throws Exception {
        fill(2, 10);
        Member first = join(Map.of());
        pollUntil("everything is read", () -> first.values.size() == 20, first);
        equal("lag", 0L, first.consumer.currentLag(new TopicPartition(topic, 0)).getAsLong());
        first.consumer.commitSync();
        first.close();
        send(1, "later");

        Member second = join(Map.of());
        pollUntil("the later record is read", () -> !second.values.isEmpty(), second);

        equal("values", List.of("later"), second.values);
    }

    @Check
    public void membersShareThePartitionsAsTheyComeAndGo() throws Exception {
        fill(4, 0);
        Member first = join(Map.of());
        pollUntil("the first owns all", () -> first.owned().size() == 4, first);
        Member second = join(Map.of());
        pollUntil("they share", () -> first.owned().size() == 2 && second.owned().size() == 2, first, second);
        second.close();
        pollUntil("the first owns all again", () -> first.owned().size() == 4, first);
    }

    @Check
    public void withCooperativeStickyWhatStaysIsNeverRevoked() throws Exception {
        fill(4, 0);
        Map<String, Object> config =
            Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        Member first = join(config);
        pollUntil("the first owns all", () -> first.owned().size() == 4, first);
        Member second = join(config);
        pollUntil("they share", () -> first.owned().size() == 2 && second.owned().size() == 2, first, second);
        equal("revoked", second.owned(), first.revoked);
    }

    @Check
    public void aStaticMemberThatComesBackDisturbsNobody() throws Exception {
        fill(2, 0);
        Member stays = join(Map.of("group.instance.id", "stays"));
        Member goes = join(Map.of("group.instance.id", "goes"));
        pollUntil("they share", () -> stays.owned().size() == 1 && goes.owned().size() == 1, stays, goes);
        int generation = stays.consumer.groupMetadata().generationId();
        Set<Integer> owned = goes.owned();
        goes.close();
        Member back = join(Map.of("group.instance.id", "goes"));
        pollUntil("it is back", () -> back.owned().equals(owned), stays, back);
        equal("generation", generation, back.consumer.groupMetadata().generationId());
        equal("generation of the other", generation, stays.consumer.groupMetadata().generationId());
    }

    @Check
    public void aSecondMemberWithTheSameInstanceIdFencesTheFirst() throws Exception {
        fill(1, 0);
        // It is to hear of it from its commit, and not before from a heartbeat, which makes it forget its generation.
        Member first = join(Map.of(
            "group.instance.id", "one", "heartbeat.interval.ms", 100_000, "session.timeout.ms", 300_000));
        pollUntil("the first owns the partition", () -> first.owned().size() == 1, first);
        Member second = join(Map.of("group.instance.id", "one"));
        pollUntil("the second owns the partition", () -> second.owned().size() == 1, second);
        raises("FencedInstanceIdException", () -> first.consumer.commitSync(Map.of(
            new TopicPartition(topic, 0), new OffsetAndMetadata(1))));
    }

    @Check
    public void anAsynchronousCommitIsToldOfWhenItIsDone() throws Exception {
        fill(1, 10);
        Member member = join(Map.of());
        pollUntil("everything is read", () -> member.values.size() == 10, member);
        Map<String, Object> told = new HashMap<>();
        member.consumer.commitAsync((offsets, failure) -> told.put("failure", String.valueOf(failure)));
        pollUntil("the commit is done", () -> !told.isEmpty(), member);
        equal("failure", "null", told.get("failure"));
        TopicPartition partition = new TopicPartition(topic, 0);
        equal("committed", 10L, member.consumer.committed(Set.of(partition)).get(partition).offset());
    }

    @Check
    public void aMemberThatMissedARebalanceCanNotCommit() throws Exception {
        fill(2, 0);
        Member late = join(Map.of());
        pollUntil("it owns all", () -> late.owned().size() == 2, late);
        try (Admin admin = admin()) {
            admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
        try {
            late.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
            throw new AssertionError("the commit went through");
        } catch (CommitFailedException expected) {
            // it has to join again
        }
    }

    @Check
    public void theAdminClientSeesAndChangesGroups() throws Exception {
        fill(2, 10);
        Member member = join(Map.of("group.instance.id", "mine"));
        pollUntil("everything is read", () -> member.values.size() == 20, member);
        member.consumer.commitSync();
        TopicPartition partition = new TopicPartition(topic, 1);
        try (Admin admin = admin()) {
            var described = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            equal("state", GroupState.STABLE, described.groupState());
            equal("assignor", "range", described.partitionAssignor());
            var only = described.members().iterator().next();
            equal("instance id", "mine", only.groupInstanceId().get());
            equal("assignment", 2, only.assignment().topicPartitions().size());
            equal("listed", true, admin.listGroups().all().get().stream()
                .anyMatch(group -> group.groupId().equals(topic) && group.protocol().equals("consumer")));
            var offsets = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            equal("offset", 10L, offsets.get(partition).offset());
            fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(topic)).all().get());

            admin.removeMembersFromConsumerGroup(
                topic, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("mine")))).all().get();
            equal("state without members", GroupState.EMPTY,
                admin.describeConsumerGroups(List.of(topic)).all().get().get(topic).groupState());
            admin.alterConsumerGroupOffsets(topic, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            offsets = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            equal("altered offset", 3L, offsets.get(partition).offset());
            admin.deleteConsumerGroupOffsets(topic, Set.of(partition)).all().get();
            offsets = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            equal("offsets left", Set.of(new TopicPartition(topic, 0)), offsets.keySet());
            admin.deleteConsumerGroups(List.of(topic)).all().get();
            fails(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
        }
    }

    // --- steps

    private final class Member implements ConsumerRebalanceListener {
        final List<String> values = new ArrayList<>();
        final Set<Integer> revoked = new HashSet<>();
        final KafkaConsumer<String, String> consumer;
        private boolean closed;

        Member(Map<String, Object> config) {
            Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", topic,
                "group.protocol", "classic",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "heartbeat.interval.ms", 100,
                "retry.backoff.ms", 20));
            all.putAll(config);
            consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
        }

        Set<Integer> owned() {
            Set<Integer> owned = new HashSet<>();
            for (TopicPartition partition : consumer.assignment()) owned.add(partition.partition());
            return owned;
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) values.add(record.value());
        }

        void close() {
            if (!closed) consumer.close();
            closed = true;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) revoked.add(partition.partition());
        }
    }

    private Member join(Map<String, Object> config) {
        Member member = new Member(config);
        members.add(member);
        return member;
    }

    private static void pollUntil(String what, BooleanSupplier holds, Member... members) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new AssertionError("still not: " + what);
            for (Member member : members) member.poll();
        }
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private void fill(int partitions, int count) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        for (int partition = 0; partition < partitions; partition++)
            for (int number = 0; number < count; number++) send(partition, partition + "-" + number);
    }

    private static KafkaProducer<String, String> producer;

    private void send(int partition, String value) throws Exception {
        if (producer == null) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        }
        producer.send(new ProducerRecord<>(topic, partition, null, value)).get();
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void fails(Class<? extends Throwable> expected, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException thrown) {
            if (expected.isInstance(thrown.getCause())) return;
            throw thrown;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }

    private static void raises(String expected, Step step) throws Exception {
        try {
            step.run();
        } catch (RuntimeException thrown) {
            if (thrown.getClass().getSimpleName().equals(expected)) return;
            throw thrown;
        }
        throw new AssertionError("no " + expected);
    }

    private static void equal(String what, Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError(what + " is " + found + ", not " + expected);
    }
}
