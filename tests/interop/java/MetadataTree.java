import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.image.node.MetadataImageNode;
import org.apache.kafka.image.publisher.MetadataPublisher;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.internals.MemoryBatchReader;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * What kafka-metadata-shell shows of a file of the metadata log, or of a snapshot, by the classes that it has it from:
 * the tree of all that is known. (The shell itself answers amid its reading, so that what it prints is a matter of
 * luck.) A record that can't be applied ends it with status 1. Arguments: the file; the offset to end before.
 */
public class MetadataTree {
    public static void main(String[] arguments) throws Exception {
        MetadataImage[] last = new MetadataImage[1];
        MetadataLoader loader = new MetadataLoader.Builder()
            .setFaultHandler((message, cause) -> {
                System.err.println(message);
                if (cause != null) cause.printStackTrace();
                Runtime.getRuntime().halt(1);
                return null;
            })
            .setHighWaterMarkAccessor(() -> OptionalLong.of(0))
            .build();
        List<Batch<ApiMessageAndVersion>> batches = new ArrayList<>();
        long end = Long.parseLong(arguments[1]);
        try (FileRecords file = FileRecords.open(new File(arguments[0]), false)) {
            for (FileChannelRecordBatch batch : file.batches()) {
                if (batch.baseOffset() >= end) break;
                if (batch.isControlBatch()) {
                    for (Record record : batch) lead(loader, record, batch.partitionLeaderEpoch());
                    continue;
                }
                List<ApiMessageAndVersion> messages = new ArrayList<>();
                for (Record record : batch)
                    messages.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize()));
                batches.add(Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(),
                    batch.sizeInBytes(), messages));
            }
        }
        loader.handleCommit(MemoryBatchReader.of(batches, reader -> { }));
        loader.installPublishers(List.of(new MetadataPublisher() {
            public String name() {
                return "tree";
            }

            public void onMetadataUpdate(MetadataDelta delta, MetadataImage image, LoaderManifest manifest) {
                last[0] = image;
            }
        })).get();
        while (last[0] == null) Thread.sleep(10);
        System.out.println(new MetadataImageNode(last[0]).stringify());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void lead(MetadataLoader loader, Record record, int epoch) {
        if (ControlRecordType.parse(record.key()) != ControlRecordType.LEADER_CHANGE) return;
        LeaderChangeMessage change = new LeaderChangeMessage(new ByteBufferAccessor(record.value()), (short) 0);
        loader.handleLeaderChange(new LeaderAndEpoch(OptionalInt.of(change.leaderId()), epoch));
    }
}
