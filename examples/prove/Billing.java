import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Orders in, bills out, exactly once, with Kafka's own clients: java Billing.java [MISTAKE]. The variable CLASSPATH says
 * where kafka-clients is, with its libraries.
 *
 * It ends once there are no more orders. Whatever fails ends it with another status than 0, and it is started again.
 */
public class Billing {
    static final TopicPartition ORDERS = new TopicPartition("orders", 0);
    static final String GROUP = "billing";

    public static void main(String[] arguments) {
        // "auto-commit": the consumer commits its offsets by itself, as it does unless it is told otherwise.
        boolean autoCommit = arguments.length > 0 && arguments[0].equals("auto-commit");
        String bootstrap = System.getenv("BARNABAS_BOOTSTRAP");
        try {
            bill(consumer(bootstrap, autoCommit), producer(bootstrap), autoCommit);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // its clients' farewells may wait long for a broker
        }
        System.exit(0);
    }

    static void bill(
        KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, boolean autoCommit) {
        producer.initTransactions();
        consumer.assign(List.of(ORDERS));
        long end = consumer.endOffsets(List.of(ORDERS)).get(ORDERS);
        while (consumer.position(ORDERS) < end) {
            List<ConsumerRecord<String, String>> orders = consumer.poll(Duration.ofSeconds(1)).records(ORDERS);
            if (orders.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            for (ConsumerRecord<String, String> order : orders) {
                producer.send(new ProducerRecord<>("bills", order.key(), "bill for " + order.value()));
            }
            if (!autoCommit) {
                long following = orders.get(orders.size() - 1).offset() + 1;
                producer.sendOffsetsToTransaction(
                    Map.of(ORDERS, new OffsetAndMetadata(following)), consumer.groupMetadata());
            }
            producer.commitTransaction();
        }
        consumer.close();
        producer.close();
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, boolean autoCommit) {
        Properties settings = settings(bootstrap);
        settings.put("group.id", GROUP);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "4");
        settings.put("enable.auto.commit", String.valueOf(autoCommit));
        settings.put("auto.commit.interval.ms", "1");
        settings.put("default.api.timeout.ms", "5000");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static KafkaProducer<String, String> producer(String bootstrap) {
        Properties settings = settings(bootstrap);
        settings.put("transactional.id", GROUP);
        settings.put("max.block.ms", "5000");
        settings.put("delivery.timeout.ms", "5000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "3000");
        return settings;
    }
}
