import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/**
 * Transactions with Java's producer, consumer and admin client. Prints a line for each check.
 * Arguments: the bootstrap address; the level of transaction.version that the broker has; a history, as "who,
 * what, value" lines; a topic to write it to; a topic that another client wrote it to.
 */
public class TransactionChecks extends TransactionSteps {
    private static String[] history;
    private static String toWrite;
    private static String toRead;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        level = Integer.parseInt(arguments[1]);
        history = arguments[2].split("\n");
        toWrite = arguments[3];
        toRead = arguments[4];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "retry.backoff.ms", 20));
        for (Method check : TransactionChecks.class.getDeclaredMethods()) {
            if (!check.isAnnotationPresent(Check.class)) continue;
            String outcome = "ok";
            TransactionChecks checks = new TransactionChecks();
            try {
                create(checks.topic, 3);
                check.invoke(checks);
            } catch (InvocationTargetException thrown) {
                outcome = String.valueOf(thrown.getCause()).replace('\n', ' ');
            }
            for (AutoCloseable each : checks.opened) each.close();
            System.out.println(check.getName() + "\t" + outcome);
        }
        admin.close();
    }

    @java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
    @interface Check {}

    // --- commit, abort, and what readers see

    @Check
    public void whatIsCommittedIsReadAndWhatIsAbortedIsNot() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        for (String value : List.of("committed", "aborted", "committed again")) {
            producer.beginTransaction();
            send(producer, 0, value);
            if (value.equals("aborted")) producer.abortTransaction();
            else producer.commitTransaction();
        }
        equal("values", List.of("committed", "committed again"), values(COMMITTED));
    }

    @Check
    public void aTransactionCoversAllItsPartitions() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        for (String end : List.of("abort", "commit")) {
            producer.beginTransaction();
            for (int index = 0; index < 3; index++) send(producer, index, end);
            if (end.equals("abort")) producer.abortTransaction();
            else producer.commitTransaction();
        }
        for (int index = 0; index < 3; index++) {
            KafkaConsumer<String, String> consumer = consumer(topic, index, COMMITTED, Map.of());
            ConsumerRecord<String, String> record = next(consumer).get(0);
            equal("value", "commit", record.value());
            equal("offset", 2L, record.offset());
        }
    }

    @Check
    public void itsHistoryOfOverlappingTransactionsIsReadAsItShould() throws Exception {
        create(toWrite, 1);
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        for (String step : history) {
            String[] words = step.split(",", 3);
            KafkaProducer<String, String> producer = producers.get(words[0]);
            if (producer == null) {
                producer = producer(Map.of("transactional.id", topic + words[0]));
                producers.put(words[0], producer);
            }
            switch (words[1]) {
                case "begin" -> producer.beginTransaction();
                case "send" -> producer.send(new ProducerRecord<>(toWrite, 0, null, words[2])).get();
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> throw new AssertionError(step);
            }
        }
        readAsItShould(toWrite);
    }

    @Check
    public void theHistoryOfAnotherClientIsReadAsItShould() throws Exception {
        readAsItShould(toRead);
    }

    @Check
    public void aWaitingReaderGetsTheRecordsOnceTheyAreCommitted() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        send(producer, 0, "open");
        equal("read uncommitted", "open", next(consumer(topic, 0, UNCOMMITTED, Map.of())).get(0).value());
        // Fetches that wait longer than the check: only the commit can wake them.
        KafkaConsumer<String, String> patient =
            consumer(topic, 0, COMMITTED, Map.of("fetch.max.wait.ms", 60_000, "request.timeout.ms", 90_000));
        equal("read while open", 0, patient.poll(Duration.ofMillis(100)).count());
        equal("stable end while open", 0L, end(IsolationLevel.READ_COMMITTED));

        producer.commitTransaction();

        equal("read committed", "open", next(patient).get(0).value());
        equal("stable end", 2L, end(IsolationLevel.READ_COMMITTED));
    }

    @Check
    public void aProducerThatIsClosedAbortsWhatItHasOpen() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        send(producer, 0, "open");
        producer.close();
        until("it is aborted", () -> end(IsolationLevel.READ_COMMITTED) == 2);
        equal("values", List.of(), values(COMMITTED));
    }

    @Check
    public void theEpochIsRaisedByEachTransactionInTheSecondVersionOnly() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        for (int number = 0; number < 5; number++) {
            producer.beginTransaction();
            send(producer, 0, "" + number);
            if (number % 2 == 0) producer.commitTransaction();
            else producer.abortTransaction();
        }
        until("it is complete", () -> described().state() == TransactionState.COMPLETE_COMMIT);
        equal("epoch", level >= 2 ? 5 : 0, described().producerEpoch());
        equal("values", List.of("0", "2", "4"), values(COMMITTED));
    }

    // --- who comes too late

    @Check
    public void aSecondInstanceAbortsWhatTheFirstHasOpenAndFencesIt() throws Exception {
        KafkaProducer<String, String> first = producer(Map.of());
        first.beginTransaction();
        send(first, 0, "of the first");
        KafkaProducer<String, String> second = producer(Map.of());
        equal("stable end", 2L, end(IsolationLevel.READ_COMMITTED));
        second.beginTransaction();
        send(second, 0, "of the second");

        raises(ProducerFencedException.class, first::commitTransaction);
        raises(ProducerFencedException.class, first::abortTransaction);
        second.commitTransaction();
        equal("values", List.of("of the second"), values(COMMITTED));
    }

    @Check
    public void aFencedProducerCanNotSend() throws Exception {
        KafkaProducer<String, String> first = producer(Map.of());
        producer(Map.of());
        first.beginTransaction();
        // In the second version it is the partition that tells it.
        Class<? extends Exception> told =
            level >= 2 ? InvalidProducerEpochException.class : ProducerFencedException.class;
        raises(told, () -> send(first, 0, "too late"));
        raises(told, first::commitTransaction);
        raises(ProducerFencedException.class, first::abortTransaction);
        equal("values", List.of(), values(UNCOMMITTED));
    }

    @Check
    public void aTransactionThatTakesTooLongIsAborted() throws Exception {
        KafkaProducer<String, String> producer = tooSlow();
        Class<? extends Exception> told =
            level >= 2 ? InvalidTxnStateException.class : ProducerFencedException.class;
        raises(told, producer::commitTransaction);
        KafkaProducer<String, String> again = producer(Map.of());
        again.beginTransaction();
        send(again, 0, "quick enough");
        again.commitTransaction();
        equal("values", List.of("quick enough"), values(COMMITTED));
    }

    @Check
    public void afterATimeoutAProducerOfTheSecondVersionAbortsAndGoesOn() throws Exception {
        KafkaProducer<String, String> producer = tooSlow();
        if (level < 2) {
            raises(ProducerFencedException.class, producer::abortTransaction);
            return;
        }
        producer.abortTransaction();
        producer.beginTransaction();
        send(producer, 0, "quick enough");
        producer.commitTransaction();
        equal("values", List.of("quick enough"), values(COMMITTED));
    }

    @Check
    public void aTimeoutLongerThanTheBrokerAllowsIsRefused() throws Exception {
        raises(KafkaException.class, () -> producer(Map.of("transaction.timeout.ms", 900_001)));
    }

    // --- offsets in transactions

    @Check
    public void offsetsAreCommittedWithTheTransactionOrNotAtAll() throws Exception {
        KafkaConsumer<String, String> member = memberThatRead("in 0", "in 1");
        KafkaProducer<String, String> producer = producer(Map.of());
        for (boolean commits : List.of(false, true)) {
            equal("committed", "null", String.valueOf(member.committed(Set.of(partition)).get(partition)));
            producer.beginTransaction();
            send(producer, 1, "out");
            producer.sendOffsetsToTransaction(
                Map.of(partition, new OffsetAndMetadata(2, "of a transaction")), member.groupMetadata());
            if (commits) producer.commitTransaction();
            else producer.abortTransaction();
        }
        // A consumer that reads committed records asks for stable offsets, and so waits for the marker.
        equal("committed", new OffsetAndMetadata(2, "of a transaction"),
            member.committed(Set.of(partition)).get(partition));
        equal("out", "out", next(consumer(topic, 1, COMMITTED, Map.of())).get(0).value());
    }

    @Check
    public void whatIsReadAndWrittenInTransactionsIsWrittenExactlyOnce() throws Exception {
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 20; number++) expected.add("" + number);
        fill(expected.toArray(new String[0]));
        for (int round = 0; round < 8; round++) {
            // Each one goes on where the last one's offsets are, and sends three; every other one crashes.
            KafkaConsumer<String, String> member = member(Map.of("max.poll.records", 3));
            KafkaProducer<String, String> producer = producer(Map.of());
            long more = 0;
            for (int done = 0; done < 2; done++) {
                List<ConsumerRecord<String, String>> records = next(member);
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    send(producer, 1, record.value());
                    more = record.offset() + 1;
                }
                producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(more)), member.groupMetadata());
                if (round % 2 == 1 && done == 1) {
                    producer.flush();
                    break;
                }
                producer.commitTransaction();
                if (more == expected.size()) break;
            }
            member.close();
            if (more == expected.size() && round % 2 == 0) break;
        }
        List<String> written = new ArrayList<>();
        KafkaConsumer<String, String> reader = consumer(topic, 1, COMMITTED, Map.of());
        while (written.size() < expected.size())
            for (ConsumerRecord<String, String> record : next(reader)) written.add(record.value());
        equal("written", expected, written);
    }

    @Check
    public void aMemberThatMissedARebalanceCanNotCommitInATransaction() throws Exception {
        KafkaConsumer<String, String> member = memberThatRead("in 0");
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all().get();

        raises(CommitFailedException.class, () -> producer.sendOffsetsToTransaction(
            Map.of(partition, new OffsetAndMetadata(1)), member.groupMetadata()));

        producer.abortTransaction();
        producer.beginTransaction();
        send(producer, 1, "it can go on");
        producer.commitTransaction();
        equal("offsets", Map.of(),
            admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get());
    }

    // --- the admin client

    @Check
    public void theAdminClientListsAndDescribes() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        equal("new", TransactionState.EMPTY, described().state());
        producer.beginTransaction();
        send(producer, 0, "open");
        TransactionDescription open = described();
        equal("state", TransactionState.ONGOING, open.state());
        equal("partitions", Set.of(partition), open.topicPartitions());
        equal("timeout", 60_000L, open.transactionTimeoutMs());
        long runsForMs = System.currentTimeMillis() - open.transactionStartTimeMs().getAsLong();
        equal("started just now", true, 0 <= runsForMs && runsForMs < 60_000);

        ListTransactionsOptions mine = new ListTransactionsOptions().filterProducerIds(Set.of(open.producerId()));
        TransactionListing listing = new TransactionListing(topic, open.producerId(), TransactionState.ONGOING);
        equal("listed", List.of(listing), listed(mine));
        equal("of state", 1, listed(mine.filterStates(Set.of(TransactionState.ONGOING))).size());
        equal("of other states", 0, listed(mine.filterStates(Set.of(TransactionState.COMPLETE_ABORT))).size());
        ListTransactionsOptions like =
            new ListTransactionsOptions().filterOnTransactionalIdPattern("java-.*" + topic.substring(30));
        equal("by pattern", 1, listed(like).size());
        equal("running long", 0, listed(like.filterOnDuration(600_000L)).size());

        ProducerState state = producers().get(0);
        equal("producer", open.producerId(), state.producerId());
        equal("open since", 0L, state.currentTransactionStartOffset().getAsLong());
        producer.commitTransaction();
        until("it is over", () -> producers().get(0).currentTransactionStartOffset().isEmpty());
        until("complete", () -> described().state() == TransactionState.COMPLETE_COMMIT);
        equal("partitions left", Set.of(), described().topicPartitions());
        fails(TransactionalIdNotFoundException.class,
            () -> admin.describeTransactions(List.of(topic + "?")).all().get());
    }

    @Check
    public void theAdminClientFencesProducers() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        send(producer, 0, "open");
        admin.fenceProducers(List.of(topic)).all().get();
        until("it is aborted", () -> end(IsolationLevel.READ_COMMITTED) == 2);
        raises(ProducerFencedException.class, producer::commitTransaction);
    }

    @Check
    public void theAdminClientTerminatesATransaction() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        send(producer, 0, "open");
        admin.forceTerminateTransaction(topic).result().get();
        until("it is aborted", () -> end(IsolationLevel.READ_COMMITTED) == 2);
        equal("values", List.of(), values(COMMITTED));
    }

    @Check
    public void theAdminClientAbortsATransactionInOnePartition() throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of());
        producer.beginTransaction();
        send(producer, 0, "open");
        send(producer, 1, "open");
        ProducerState state = producers().get(0);
        short epoch = (short) state.producerEpoch();
        admin.abortTransaction(new AbortTransactionSpec(
            partition, state.producerId(), epoch, state.coordinatorEpoch().orElse(0))).all().get();
        equal("stable end", 2L, end(IsolationLevel.READ_COMMITTED));
        equal("open in the other partition", TransactionState.ONGOING, described().state());
        producer.commitTransaction();
        equal("in the other partition", "open", next(consumer(topic, 1, COMMITTED, Map.of())).get(0).value());
        equal("in this one", List.of(), values(COMMITTED));
    }

    // --- steps

    private void readAsItShould(String of) {
        List<String> sent = new ArrayList<>();
        for (String step : history) if (step.split(",", 3)[1].equals("send")) sent.add(step.split(",", 3)[2]);
        equal("read uncommitted", sent, valuesOf(of, UNCOMMITTED));
        sent.removeIf(value -> !value.startsWith("committed"));
        equal("read committed", sent, valuesOf(of, COMMITTED));
    }
}
