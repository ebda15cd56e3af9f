package org.barnabas;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What becomes of a payment where its producer is fenced, or the answer to its commit is lost. */
class FaultsTest {
    @BeforeEach
    void emptyBroker() throws Exception {
        Barnabas.ask("reset", "{}");
        Barnabas.ask("create_topics", "{\"topics\": {\"payments\": 2}}");
    }

    @Test
    void aLostAnswerToACommitIsAskedForAgain() throws Exception {
        int fault = Barnabas.arm("{\"api\": \"EndTxn\", \"do\": \"drop\", \"at\": \"answer\"}");
        try (KafkaProducer<String, String> producer = payer()) {
            pay(producer);
            producer.commitTransaction();
        }
        assertTrue(Barnabas.disarm(fault).contains("\"fired\": 1"));
        assertEquals(List.of("ten", "twenty"), paid());
    }

    @Test
    void aProducerThatIsFencedAmidItsCommitPaysNothing() throws Exception {
        int fault = Barnabas.arm("{\"api\": \"EndTxn\", \"do\": \"hold\", \"fields\": {\"committed\": true}}");
        try (KafkaProducer<String, String> producer = payer()) {
            pay(producer);
            CompletableFuture<Void> commit = CompletableFuture.runAsync(producer::commitTransaction);
            Barnabas.until(fault, "standing");
            payer().close(); // takes over: what was open is aborted
            Barnabas.disarm(fault);
            Exception failure = assertThrows(Exception.class, commit::join);
            assertEquals(ProducerFencedException.class, failure.getCause().getClass());
        }
        assertEquals(List.of(), paid());
    }

    @Test
    void readersWaitBetweenTwoMarkers() throws Exception {
        int fault = Barnabas.arm("{\"do\": \"hold\", \"at\": \"marker\", \"nth\": 2}");
        try (KafkaProducer<String, String> producer = payer()) {
            pay(producer);
            producer.commitTransaction(); // it is committed, and one of two markers is written
            Barnabas.until(fault, "standing");
            assertEquals(1, paid().size());
            Barnabas.disarm(fault);
        }
        while (paid().size() < 2) {
            Thread.sleep(5);
        }
    }

    private static KafkaProducer<String, String> payer() {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of(
                        "bootstrap.servers", Barnabas.BOOTSTRAP,
                        "transactional.id", "payer",
                        "request.timeout.ms", 1000),
                new StringSerializer(),
                new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void pay(KafkaProducer<String, String> producer) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("payments", 0, null, "ten"));
        producer.send(new ProducerRecord<>("payments", 1, null, "twenty"));
        producer.flush();
    }

    /** What a reader of committed payments sees. */
    private static List<String> paid() {
        List<TopicPartition> partitions =
                List.of(new TopicPartition("payments", 0), new TopicPartition("payments", 1));
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = new KafkaConsumer<>(
                Map.of("bootstrap.servers", Barnabas.BOOTSTRAP, "isolation.level", "read_committed"),
                new StringDeserializer(),
                new StringDeserializer())) {
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                while (reader.position(partition) < ends.get(partition)) {
                    reader.poll(Duration.ofMillis(100)).forEach(record -> found.add(record.value()));
                }
            }
        }
        found.sort(null);
        return found;
    }
}
