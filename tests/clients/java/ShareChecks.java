import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Share groups (KIP-932), with Java's share consumer and admin client. Prints a line for each check. */
public class ShareChecks {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofMillis(50);
    private static String bootstrap;

    private final String topic = "java-share-" + UUID.randomUUID();
    private final List<Member> members = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        for (Method check : ShareChecks.class.getDeclaredMethods()) {
            if (!check.isAnnotationPresent(Check.class)) continue;
            if (!wanted.isEmpty() && !wanted.contains(check.getName())) continue;
            String outcome = "ok";
            ShareChecks checks = new ShareChecks();
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
    public void membersShareTheRecordsOfAPartition() throws Exception {
        fill(1, 0);
        Member first = join(Map.of());
        Member second = join(Map.of());
        awaitAssignment(first, second);
        for (int number = 0; number < 60; number++) send(0, "" + number);
        pollUntil("everything is read", () -> first.values.size() + second.values.size() >= 60, first, second);
        Set<String> all = new HashSet<>(first.values);
        all.addAll(second.values);
        equal("values", 60, all.size());
        equal("values read", 60, first.values.size() + second.values.size());
    }

    @Check
    public void whatIsAcceptedDoesNotComeAgain() throws Exception {
        fill(2, 10);
        Member first = join(Map.of());
        pollUntil("everything is read", () -> first.values.size() == 20, first);
        equal("errors", Map.of(), first.commit());
        first.close();
        send(1, "later");
        Member second = join(Map.of());
        pollUntil("the later record is read", () -> !second.values.isEmpty(), second);
        equal("values", List.of("later"), second.values);
    }

    @Check
    public void releasedRecordsComeAgainAndRejectedOnesDoNot() throws Exception {
        fill(1, 9);
        Member member = join(Map.of("share.acknowledgement.mode", "explicit"));
        Map<String, Integer> deliveries = new TreeMap<>();
        pollUntil("the released ones are back", () -> {
            for (ConsumerRecord<String, String> record : member.take()) {
                int count = record.deliveryCount().get();
                deliveries.put(record.value(), count);
                long offset = record.offset();
                AcknowledgeType how = offset % 3 == 0 ? AcknowledgeType.ACCEPT
                    : offset % 3 == 1 ? AcknowledgeType.REJECT
                    : count == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                member.consumer.acknowledge(record, how);
            }
            return deliveries.values().stream().filter(count -> count == 2).count() == 3;
        }, member);
        equal("errors", Map.of(), member.commit());
        Map<String, Integer> expected = new TreeMap<>();
        for (int number = 0; number < 9; number++) expected.put("0-" + number, number % 3 == 2 ? 2 : 1);
        equal("deliveries", expected, deliveries);
    }

    @Check
    public void aRecordThatIsReleasedTooOftenIsGivenUp() throws Exception {
        settings(Map.of("share.delivery.count.limit", "2"));
        fill(1, 1);
        Member member = join(Map.of("share.acknowledgement.mode", "explicit"));
        List<Integer> counts = new ArrayList<>();
        pollUntil("it is delivered twice", () -> {
            for (ConsumerRecord<String, String> record : member.take()) {
                counts.add((int) record.deliveryCount().get());
                member.consumer.acknowledge(record, AcknowledgeType.RELEASE);
            }
            return counts.size() == 2;
        }, member);
        equal("errors", Map.of(), member.commit());
        send(0, "next");
        pollUntil("the next one is there", () -> {
            for (ConsumerRecord<String, String> record : member.take()) {
                counts.add((int) record.deliveryCount().get());
                member.consumer.acknowledge(record);
            }
            return counts.size() == 3;
        }, member);
        equal("counts", List.of(1, 2, 1), counts);
    }

    @Check
    public void whatIsRejectedOrGivenUpIsInTheDeadLetterQueue() throws Exception {
        String queue = "dlq." + topic;
        settings(Map.of("share.delivery.count.limit", "2", "errors.deadletterqueue.topic.name", queue,
            "errors.deadletterqueue.copy.record.enable", "true"));
        try (Admin admin = admin()) {
            NewTopic wanted = new NewTopic(queue, 1, (short) 1)
                .configs(Map.of("errors.deadletterqueue.group.enable", "true"));
            admin.createTopics(List.of(wanted)).all().get();
        }
        fill(1, 9);
        Member member = join(Map.of("share.acknowledgement.mode", "explicit"));
        Set<String> accepted = new TreeSet<>();
        Set<Long> finished = new TreeSet<>();
        pollUntil("all is said", () -> {
            for (ConsumerRecord<String, String> record : member.take()) {
                long offset = record.offset();
                AcknowledgeType how = offset % 3 == 0 ? AcknowledgeType.ACCEPT
                    : offset % 3 == 1 ? AcknowledgeType.REJECT : AcknowledgeType.RELEASE;
                member.consumer.acknowledge(record, how);
                if (how == AcknowledgeType.ACCEPT) accepted.add(record.value());
                if (how != AcknowledgeType.RELEASE || record.deliveryCount().get() == 2) finished.add(offset);
            }
            return finished.size() == 9;
        }, member);
        equal("errors", Map.of(), member.commit());
        Map<String, String> buried = new TreeMap<>();
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> reader =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            reader.assign(List.of(new TopicPartition(queue, 0)));
            pollUntil("it is in the queue", () -> {
                for (ConsumerRecord<String, String> record : reader.poll(POLL)) {
                    equal("topic", topic, header(record, "topic"));
                    equal("group", topic, header(record, "group"));
                    buried.put(record.value(), header(record, "message") + header(record, "delivery.count"));
                }
                return buried.size() >= 6;
            });
        }
        Map<String, String> expected = new TreeMap<>();
        for (int number = 0; number < 9; number++)
            if (number % 3 == 1) expected.put("0-" + number, "Offset rejected by client.1");
            else if (number % 3 == 2) expected.put("0-" + number, "Offset delivery count exceeded the threshold.2");
        equal("buried", expected, buried);
        equal("accepted", Set.of("0-0", "0-3", "0-6"), accepted);
    }

    private static String header(ConsumerRecord<String, String> record, String name) {
        return new String(record.headers().lastHeader("__dlq.errors." + name).value());
    }

    @Check
    public void whoseLockRunsOutLosesTheRecordToAnother() throws Exception {
        settings(Map.of("share.record.lock.duration.ms", "1000"));
        fill(1, 1);
        Member first = join(Map.of("share.acknowledgement.mode", "explicit"));
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        pollUntil("the first has it", () -> held.addAll(first.take()), first);
        equal("lock", 1000, first.consumer.acquisitionLockTimeoutMs().get());
        Member second = join(Map.of());
        pollUntil("the second has it", () -> !second.values.isEmpty(), second);
        equal("came again", true, second.counts.get(0) > 1);
        first.consumer.acknowledge(held.get(0));
        equal("error", "InvalidRecordStateException", first.commit().values().iterator().next());
    }

    @Check
    public void aLockThatIsRenewedHolds() throws Exception {
        settings(Map.of("share.record.lock.duration.ms", "1500"));
        fill(1, 1);
        Member first = join(Map.of("share.acknowledgement.mode", "explicit"));
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        pollUntil("the first has it", () -> held.addAll(first.take()), first);
        Member second = join(Map.of());
        long until = System.nanoTime() + Duration.ofMillis(3500).toNanos();
        while (System.nanoTime() < until) {
            first.consumer.acknowledge(held.get(0), AcknowledgeType.RENEW);
            equal("errors", Map.of(), first.commit());
            first.take();
            second.poll();
            Thread.sleep(200);
        }
        equal("values of the second", List.of(), second.values);
        first.consumer.acknowledge(held.get(0), AcknowledgeType.ACCEPT);
        equal("errors", Map.of(), first.commit());
    }

    @Check
    public void whatAMemberHeldComesAtItsEndToAnother() throws Exception {
        fill(1, 5);
        Member first = join(Map.of("share.acknowledgement.mode", "explicit"));
        List<ConsumerRecord<String, String>> held = new ArrayList<>();
        pollUntil("the first has them", () -> { held.addAll(first.take()); return held.size() == 5; }, first);
        first.close();
        Member second = join(Map.of());
        pollUntil("the second has them", () -> second.values.size() == 5, second);
        equal("counts", List.of(2, 2, 2, 2, 2), second.counts);
    }

    @Check
    public void aRecordLimitIsKept() throws Exception {
        fill(1, 0);
        Member member = join(Map.of("max.poll.records", 3, "share.acquire.mode", "record_limit"));
        awaitAssignment(member);
        batch("a", "b", "c", "d", "e", "f", "g");
        List<Integer> sizes = new ArrayList<>();
        pollUntil("everything is read", () -> {
            int size = member.take().size();
            if (size > 0) sizes.add(size);
            return sizes.stream().mapToInt(Integer::intValue).sum() == 7;
        });
        equal("sizes", List.of(3, 3, 1), sizes);
    }

    @Check
    public void abortedRecordsAreReadUnlessTheGroupWantsOnlyCommittedOnes() throws Exception {
        fill(1, 1);
        transaction(false, "aborted");
        transaction(true, "committed");
        Member uncommitted = join(Map.of());
        pollUntil("everything is read", () -> uncommitted.values.size() == 3, uncommitted);
        String other = topic + "-committed";
        settings(other, Map.of("share.auto.offset.reset", "earliest", "share.isolation.level", "read_committed"));
        Member committed = join(Map.of("group.id", other));
        pollUntil("what is committed is read", () -> committed.values.size() == 2, committed);
        equal("values", List.of("0-0", "committed"), committed.values);
    }

    @Check
    public void acknowledgementsAreToldToACallback() throws Exception {
        fill(1, 4);
        Member member = join(Map.of());
        Set<Long> told = new TreeSet<>();
        member.consumer.setAcknowledgementCommitCallback((offsets, failure) -> {
            if (failure == null) for (Set<Long> each : offsets.values()) told.addAll(each);
        });
        pollUntil("everything is read", () -> member.values.size() == 4, member);
        member.consumer.commitAsync();
        pollUntil("it is told", () -> told.size() == 4, member);
        equal("offsets", Set.of(0L, 1L, 2L, 3L), told);
    }

    @Check
    public void aNewGroupBeginsAtTheEndUnlessItIsToldOtherwise() throws Exception {
        fill(1, 3);
        String other = topic + "-latest";
        settings(other, Map.of());
        Member member = join(Map.of("group.id", other));
        awaitAssignment(member);
        pollFor(Duration.ofMillis(1500), member);
        send(0, "new");
        pollUntil("the new one is read", () -> !member.values.isEmpty(), member);
        equal("values", List.of("new"), member.values);
    }

    @Check
    public void theAdminClientSeesAndChangesGroups() throws Exception {
        fill(1, 10);
        Member member = join(Map.of());
        pollUntil("everything is read", () -> member.values.size() == 10, member);
        equal("errors", Map.of(), member.commit());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            var described = admin.describeShareGroups(List.of(topic)).all().get().get(topic);
            equal("state", GroupState.STABLE, described.groupState());
            equal("members", 1, described.members().size());
            equal("assignment", Set.of(partition),
                described.members().iterator().next().assignment().topicPartitions());
            equal("listed", true, admin.listGroups().all().get().stream().anyMatch(
                group -> group.groupId().equals(topic) && group.protocol().equals("share")));
            fails(GroupNotEmptyException.class, () -> admin.deleteShareGroups(List.of(topic)).all().get());
            member.close();
            equal("lag", Optional.of(0L), offset(admin, partition).lag());
            admin.alterShareGroupOffsets(topic, Map.of(partition, 4L)).all().get();
            equal("altered offset", 4L, offset(admin, partition).startOffset());
            Member again = join(Map.of());
            pollUntil("the rest is read", () -> again.values.size() == 6, again);
            equal("values", "0-4", again.values.get(0));
            again.close();
            admin.deleteShareGroupOffsets(topic, Set.of(topic)).all().get();
            equal("offsets left", true, admin.listShareGroupOffsets(Map.of(topic, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(topic).get().isEmpty());
            admin.deleteShareGroups(List.of(topic)).all().get();
            fails(GroupIdNotFoundException.class, () -> admin.deleteShareGroups(List.of(topic)).all().get());
        }
    }

    // --- steps

    private static SharePartitionOffsetInfo offset(Admin admin, TopicPartition partition) throws Exception {
        var found = admin.listShareGroupOffsets(Map.of(partition.topic(), new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(partition.topic()).get();
        return found.get(partition);
    }

    private final class Member {
        final List<String> values = new ArrayList<>();
        final List<Integer> counts = new ArrayList<>();
        final KafkaShareConsumer<String, String> consumer;
        final boolean explicit;
        final String group;
        private boolean closed;

        Member(Map<String, Object> config) {
            Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", topic, "retry.backoff.ms", 20));
            all.putAll(config);
            group = (String) all.get("group.id");
            explicit = "explicit".equals(config.get("share.acknowledgement.mode"));
            consumer = new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        List<ConsumerRecord<String, String>> take() {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) records.add(record);
            return records;
        }

        void poll() {
            for (ConsumerRecord<String, String> record : take()) {
                values.add(record.value());
                counts.add((int) record.deliveryCount().get());
            }
        }

        /** What was refused, by partition. */
        Map<String, String> commit() {
            Map<String, String> errors = new TreeMap<>();
            consumer.commitSync().forEach((partition, error) -> error.ifPresent(
                found -> errors.put(partition.toString(), found.getClass().getSimpleName())));
            return errors;
        }

        void close() {
            if (!closed) consumer.close();
            closed = true;
        }
    }

    private Member join(Map<String, Object> config) {
        Member member = new Member(config);
        members.add(member);
        return member;
    }

    /** Until each of the group's members is assigned the topic. */
    private void awaitAssignment(Member... joined) throws Exception {
        try (Admin admin = admin()) {
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < deadline) {
                for (Member member : joined) member.poll();
                try {
                    var found = admin.describeShareGroups(List.of(joined[0].group)).all().get().get(joined[0].group);
                    long assigned = found.members().stream()
                        .filter(member -> !member.assignment().topicPartitions().isEmpty()).count();
                    if (assigned >= members.size()) return;
                } catch (ExecutionException thrown) {
                    if (!(thrown.getCause() instanceof GroupIdNotFoundException)) throw thrown;
                }
            }
        }
        throw new AssertionError("still not assigned");
    }

    private static void pollUntil(String what, BooleanSupplier holds, Member... members) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new AssertionError("still not: " + what);
            for (Member member : members) if (!member.explicit) member.poll();
        }
    }

    private static void pollFor(Duration time, Member member) {
        long until = System.nanoTime() + time.toNanos();
        while (System.nanoTime() < until) member.poll();
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private void settings(Map<String, String> settings) throws Exception {
        settings(topic, settings);
    }

    private static void settings(String group, Map<String, String> settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        settings.forEach((name, value) -> changes.add(
            new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        if (changes.isEmpty()) return;
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(
                Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
        }
    }

    private void fill(int partitions, int count) throws Exception {
        settings(Map.of("share.auto.offset.reset", "earliest"));
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        for (int partition = 0; partition < partitions; partition++)
            for (int number = 0; number < count; number++) send(partition, partition + "-" + number);
    }

    private static KafkaProducer<String, String> producer;

    private static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 50));
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private void send(int partition, String value) throws Exception {
        if (producer == null) producer = producer(Map.of("linger.ms", 0));
        producer.send(new ProducerRecord<>(topic, partition, null, value)).get();
    }

    /** In one batch of partition 0. */
    private void batch(String... values) {
        try (KafkaProducer<String, String> together = producer(Map.of("linger.ms", 1000))) {
            for (String value : values) together.send(new ProducerRecord<>(topic, 0, null, value));
            together.flush();
        }
    }

    private void transaction(boolean commit, String value) throws Exception {
        try (KafkaProducer<String, String> sender = producer(Map.of("transactional.id", topic))) {
            sender.initTransactions();
            sender.beginTransaction();
            sender.send(new ProducerRecord<>(topic, 0, null, value)).get();
            if (commit) sender.commitTransaction();
            else sender.abortTransaction();
        }
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

    private static void equal(String what, Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError(what + " is " + found + ", not " + expected);
    }
}
