import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams application: the words of each flight (its carrier, where it leaves, by how many minutes late) are
 * counted, and the delays of each carrier summed, exactly once. Runs until it is killed.
 * Arguments: the bootstrap address; the application's id; its folder; the topics of the flights, counts and sums;
 * then settings, as name=value.
 */
public class FlightTotals {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.LongSerde.class);
        for (int i = 6; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }

        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, Long> words = builder
            .stream(arguments[3], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMap((carrier, flight) -> words(flight), Named.as("words"))
            .groupByKey(Grouped.as("words"));
        // One store in RocksDB, which outlives a process and may not be trusted after a crash, and one in memory.
        words.count(Materialized.as("counts")).toStream().to(arguments[4], Produced.with(Serdes.String(), Serdes.Long()));
        words.reduce(Long::sum, Materialized.as(Stores.inMemoryKeyValueStore("sums"))).toStream().to(arguments[5]);

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(thrown -> {
            System.out.println("FAILED\t" + thrown);
            thrown.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("STATE\t" + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    /** With the delay at departure as their value; 0 where the flight has none. */
    private static List<KeyValue<String, Long>> words(String flight) {
        try {
            JsonNode fields = JSON.readTree(flight);
            JsonNode delay = fields.get("dep_delay");
            long minutes = delay.isNull() ? 0 : delay.asLong();
            List<KeyValue<String, Long>> words = new ArrayList<>();
            for (String field : List.of("carrier", "origin", "dep_delay"))
                words.add(KeyValue.pair(field + " " + fields.get(field).asText(), minutes));
            return words;
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
