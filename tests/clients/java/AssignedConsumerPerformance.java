package org.apache.kafka.tools;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * kafka-consumer-perf-test for a broker without groups: its options, its loop and its figures, with
 * a consumer that answers subscribe() by assigning itself all partitions of the topics.
 */
public class AssignedConsumerPerformance {
    public static void main(String[] args) {
        ConsumerPerformance.run(args, AssignedConsumerPerformance::assigned);
    }

    @SuppressWarnings("unchecked")
    private static Consumer<byte[], byte[]> assigned(Properties properties) {
        properties.remove("group.id");
        Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        return (Consumer<byte[], byte[]>) Proxy.newProxyInstance(
            AssignedConsumerPerformance.class.getClassLoader(),
            new Class<?>[] {Consumer.class},
            (proxy, method, arguments) -> {
                if (method.getName().equals("subscribe")) {
                    consumer.assign(((Collection<String>) arguments[0]).stream()
                        .flatMap(topic -> consumer.partitionsFor(topic).stream())
                        .map(partition -> new TopicPartition(partition.topic(), partition.partition()))
                        .toList());
                    return null;
                }
                try {
                    return method.invoke(consumer, arguments);
                } catch (InvocationTargetException thrown) {
                    throw thrown.getCause();
                }
            });
    }
}
